package live

import (
	"context"
	"errors"
	"math"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// StoredAnswer is what is stored of the tokens of an answer. It must not be changed.
type StoredAnswer struct {
	Model    string
	Settings setting.Settings
	Prompt   int // tokens before the first one
	IDs      []int32
	Rows     []store.TokenRow // of each token; an empty one where it is not stored
}

// AnswerKey names an answer, and how many tokens it has, since it may be continued.
type AnswerKey struct {
	Chat   string
	Answer int64
	Tokens int
}

// AnswerCache holds answers that have ended.
type AnswerCache interface {
	Find(key AnswerKey) *StoredAnswer // nil: it is not cached
	Add(key AnswerKey, a *StoredAnswer)
}

// StoredTokens returns what is stored of the tokens of an answer of the branch, from cache if it has it;
// nil cache: there is none.
func (c *Chat) StoredTokens(ctx context.Context, who Principal, answer int64, cache AnswerCache) (*StoredAnswer, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, err
	}
	c.mu.Lock()
	at, err := c.branch.find("answer", answer, RoleModel)
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	t := c.branch[at]
	id, rewritten, unsaved := t.ID, t.Answer.Rewritten, t.rows.all()
	a := &StoredAnswer{Model: t.Answer.Receipt.Model, Settings: t.Answer.Settings, Prompt: t.Answer.Usage.PromptTokens, IDs: t.ids[:len(t.ids):len(t.ids)]}
	ended, tokens := !t.Answer.State.Running(), t.Answer.Usage.CompletionTokens
	c.mu.Unlock()
	if rewritten {
		return nil, fault.Invalid("answer", "a person wrote message %d: it has no tokens", id)
	}
	key := AnswerKey{c.id, id, tokens}
	if ended && cache != nil {
		if seen := cache.Find(key); seen != nil {
			return seen, nil
		}
	}
	if a.IDs == nil {
		if a.IDs, err = c.messages.Tokens(ctx, c.owner, c.id, id); err != nil {
			return nil, owned.StoreError(err)
		}
	}
	chunks, err := c.messages.TokenRows(ctx, c.owner, c.id, id)
	if err != nil {
		return nil, owned.StoreError(err)
	}
	a.Rows = make([]store.TokenRow, len(a.IDs))
	for _, chunk := range append(chunks, unsaved) {
		if chunk.First < len(a.Rows) {
			copy(a.Rows[chunk.First:], chunk.Rows)
		}
	}
	if ended && cache != nil {
		cache.Add(key, a)
	}
	return a, nil
}

// ScoreToken returns what the model thought of a token, by its row, with the top likeliest tokens in its
// place; nil if the row is not stored. atMost: the token is not among the stored candidates: it is at most
// as likely, and ranks at best, as the choice says.
func ScoreToken(id int32, stored store.TokenRow, top int) (c *sample.Choice, atMost bool) {
	row, err := sample.ParseRow(stored.Row)
	if err != nil {
		return nil, false
	}
	choice, err := sample.Score(row, math.MaxInt32, id, min(top, len(row.IDs)), false)
	if errors.Is(err, sample.ErrNotStored) {
		last := len(row.IDs) - 1
		choice, err = sample.Score(row, math.MaxInt32, row.IDs[last], min(top, len(row.IDs)), false)
		choice.ID, choice.Rank, atMost = id, len(row.IDs), true
	}
	if err != nil {
		return nil, false
	}
	return &choice, atMost
}
