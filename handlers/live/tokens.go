package live

import (
	"context"
	"errors"
	"math"

	"m40-llm/handlers/access"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// Token is a token of an answer with what the model thought of it. Without a row, only ID and Text are known.
type Token struct {
	ID     int32
	Text   string         // its bytes
	Row    []byte         // what the samplers that remove candidates got, as sample.ParseRow reads it; nil: not stored
	Choice *sample.Choice // of the model's own distribution, without stages; nil: not stored
	AtMost bool           // the token is not among the stored candidates: it is at most as likely, and ranks at best, as Choice says
	Tops   []string       // bytes of each token in Choice.Top
}

// Tokens returns the tokens of an answer from first on, at most count, each with the top likeliest
// tokens in its place, and how many tokens the answer has.
func (c *Chat) Tokens(ctx context.Context, who Principal, answer int64, first, count, top int) (list []Token, total int, err error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, 0, err
	}
	a, err := c.storedTokens(ctx, answer)
	if err != nil {
		return nil, 0, err
	}
	total = len(a.ids)
	first = min(first, total)
	list, err = c.describe(ctx, a, first, min(total, first+count), top)
	return list, total, err
}

// describe returns tokens first to end of a, each with the top likeliest tokens in its place.
func (c *Chat) describe(ctx context.Context, a *storedAnswer, first, end, top int) ([]Token, error) {
	list := make([]Token, end-first)
	named := a.ids[first:end:end]
	for i := range list {
		list[i] = describeToken(a.ids[first+i], a.rows[first+i], top)
		for _, candidate := range list[i].tops() {
			named = append(named, candidate.ID)
		}
	}
	pieces, err := c.service.engine.Pieces(ctx, a.model, named)
	if err != nil {
		return nil, err
	}
	rest := pieces[len(list):]
	for i := range list {
		n := len(list[i].tops())
		list[i].Text, list[i].Tops, rest = pieces[i], rest[:n:n], rest[n:]
	}
	return list, nil
}

// LeastCertain returns the token of an answer with the largest entropy of those that have a row, and how many tokens the
// answer has. Without any row, Choice is nil.
func (c *Chat) LeastCertain(ctx context.Context, who Principal, answer int64) (least Token, total int, err error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return Token{}, 0, err
	}
	a, err := c.storedTokens(ctx, answer)
	if err != nil {
		return Token{}, 0, err
	}
	for i, id := range a.ids {
		t := describeToken(id, a.rows[i], 0)
		if t.Choice != nil && (least.Choice == nil || t.Choice.Entropy > least.Choice.Entropy) {
			least = t
		}
	}
	if least.Choice == nil {
		return Token{}, len(a.ids), nil
	}
	pieces, err := c.service.engine.Pieces(ctx, a.model, []int32{least.ID})
	if err != nil {
		return Token{}, 0, err
	}
	least.Text = pieces[0]
	return least, len(a.ids), nil
}

// storedAnswer is what is stored of the tokens of an answer. Nobody changes it.
type storedAnswer struct {
	model    string
	settings Settings
	prompt   int // tokens before the first one
	ids      []int32
	rows     []store.TokenRow // of each token; an empty one where it is not stored
}

// storedTokens returns what is stored of the tokens of an answer.
func (c *Chat) storedTokens(ctx context.Context, answer int64) (*storedAnswer, error) {
	c.mu.Lock()
	at, err := c.branch.find("answer", answer, RoleModel)
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	t := c.branch[at]
	id, rewritten, unsaved := t.ID, t.Answer.Rewritten, t.rows.all()
	a := &storedAnswer{model: t.Answer.Receipt.Model, settings: t.Answer.Settings, prompt: t.Answer.Usage.PromptTokens, ids: t.ids[:len(t.ids):len(t.ids)]}
	ended, tokens := !t.Answer.State.Running(), t.Answer.Usage.CompletionTokens
	c.mu.Unlock()
	if rewritten {
		return nil, invalid("answer", "a person wrote message %d: it has no tokens", id)
	}
	key := rowsKey{c.id, id, tokens}
	if seen := c.service.rows.find(key); seen != nil && ended {
		return seen, nil
	}
	if a.ids == nil {
		if a.ids, err = c.messages.Tokens(ctx, c.owner, c.id, id); err != nil {
			return nil, StoreError(err)
		}
	}
	chunks, err := c.messages.TokenRows(ctx, c.owner, c.id, id)
	if err != nil {
		return nil, StoreError(err)
	}
	a.rows = make([]store.TokenRow, len(a.ids))
	for _, chunk := range append(chunks, unsaved) {
		if chunk.First < len(a.rows) {
			copy(a.rows[chunk.First:], chunk.Rows)
		}
	}
	if ended {
		c.service.rows.add(key, a)
	}
	return a, nil
}

func describeToken(id int32, stored store.TokenRow, top int) Token {
	t := Token{ID: id}
	row, err := sample.ParseRow(stored.Row)
	if err != nil {
		return t
	}
	choice, err := sample.Score(row, math.MaxInt32, id, min(top, len(row.IDs)), false)
	if errors.Is(err, sample.ErrNotStored) {
		last := len(row.IDs) - 1
		choice, err = sample.Score(row, math.MaxInt32, row.IDs[last], min(top, len(row.IDs)), false)
		choice.ID, choice.Rank, t.AtMost = id, len(row.IDs), true
	}
	if err != nil {
		return t
	}
	t.Choice = &choice
	t.Row = cutRow(stored)
	return t
}

func (t *Token) tops() []sample.Candidate {
	if t.Choice == nil {
		return nil
	}
	return t.Choice.Top
}
