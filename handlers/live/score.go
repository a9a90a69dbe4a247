package live

import (
	"context"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/infer"
	"m40-llm/infer/perplexity"
	"m40-llm/store"
)

// Scored are the tokens of a prompt with what a model predicts in their places. Where two models were
// compared, the tokens of the answer follow.
type Scored struct {
	Prompt int // tokens of the prompt
	Tokens []infer.Token
}

// Other is the model that another one is compared with.
type Other struct {
	Model  string `json:"against"` // empty: the same one on Device, or none
	Device string `json:"device"`  // cpu, or empty: those of the server
}

const (
	longScore = "the text has %d tokens, and at most %d are scored at once: fork the chat further up"
	notScored = "the prompt of this answer is not scored, or that was too long ago: score it again"
)

// Score has the model of an answer score the tokens of its prompt, in one pass; with another model, both
// score those of prompt and answer, one after the other. each is called with the engine's events before
// the tokens. Nothing is stored: the rows of the prompt are cached until the chat leaves the memory, or
// others take their place.
func (c *Chat) Score(ctx context.Context, who Principal, answer int64, other Other, each func(infer.Event)) (*Scored, error) {
	if err := c.may(who, access.ActionAsk); err != nil {
		return nil, err
	}
	if err := CheckModel(other.Model); err != nil {
		return nil, err
	}
	a, err := c.storedTokens(ctx, answer)
	if err != nil {
		return nil, err
	}
	ids, err := c.promptTokens(ctx, answer, a)
	if err != nil {
		return nil, err
	}
	if ids == nil {
		return nil, invalid("answer", "%s", promptDiffers)
	}
	scored := &Scored{Prompt: len(ids)}
	if other.Device != "" && other.Model == "" {
		other.Model = a.model
	}
	if other.Model != "" {
		ids = append(ids, a.ids...)
	}
	if len(ids) > cachedTokens {
		return nil, invalid("answer", longScore, len(ids), cachedTokens)
	}
	r := infer.Request{Model: a.model, Client: c.owner, CacheScope: c.owner, Tokens: ids, Rows: true, Against: other.Model, AgainstDevice: other.Device}
	ctx = activity.With(ctx, activity.Origin{Person: c.owner, Chat: c.id, Replay: true})
	err = c.service.contain(func() error {
		scored.Tokens, err = perplexity.Score(ctx, c.service.engine, r, each)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := &storedAnswer{model: a.model, ids: ids[:scored.Prompt]}
	for i := range rows.ids {
		rows.rows = append(rows.rows, store.TokenRow{Row: scored.Tokens[i].Row})
	}
	c.service.scored.add(rowsKey{chat: c.id, answer: answer}, rows)
	return scored, nil
}

// ScoredToken returns token at of the prompt of an answer, with the top likeliest tokens in its place,
// and how many tokens the prompt has.
func (c *Chat) ScoredToken(ctx context.Context, who Principal, answer int64, at, top int) (*Token, int, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, 0, err
	}
	a := c.service.scored.find(rowsKey{chat: c.id, answer: answer})
	if a == nil {
		return nil, 0, invalid("answer", notScored)
	}
	if at < 0 || at >= len(a.ids) {
		return nil, 0, invalid("index", "the prompt has no token %d: it has %d", at, len(a.ids))
	}
	list, err := c.describe(ctx, a, at, at+1, top)
	if err != nil {
		return nil, 0, err
	}
	return &list[0], len(a.ids), nil
}
