package inspect

import (
	"context"
	"slices"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
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
func (s *Service) Score(ctx context.Context, who live.Principal, c *live.Chat, answer int64, other Other, each func(infer.Event)) (*Scored, error) {
	if err := owned.Authorize(who, access.ActionAsk, c.Object()); err != nil {
		return nil, err
	}
	if err := choice.Check(other.Model); err != nil {
		return nil, err
	}
	a, err := s.storedTokens(ctx, who, c, answer)
	if err != nil {
		return nil, err
	}
	_, prompt, err := s.prompt(ctx, who, c, answer, a)
	if err != nil {
		return nil, err
	}
	if prompt == nil {
		return nil, fault.Invalid("answer", "%s", promptDiffers)
	}
	ids := slices.Clip(prompt.Tokens)
	if len(prompt.Pictures) > 0 {
		return nil, fault.Invalid("answer", "%s", "prompts with pictures cannot be scored: their tokens do not say what the pictures show")
	}
	scored := &Scored{Prompt: len(ids)}
	if other.Device != "" && other.Model == "" {
		other.Model = a.Model
	}
	if other.Model != "" {
		ids = append(ids, a.IDs...)
	}
	if len(ids) > cachedTokens {
		return nil, fault.Invalid("answer", longScore, len(ids), cachedTokens)
	}
	r := infer.Request{Model: a.Model, Client: who.Owner, CacheScope: who.Owner, Tokens: ids, Rows: true, Against: other.Model, AgainstDevice: other.Device}
	ctx = activity.With(ctx, activity.Origin{Person: who.Owner, Chat: c.ID(), Replay: true})
	err = s.chats.Contain(func() error {
		scored.Tokens, err = perplexity.Score(ctx, s.engine, r, each)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := &live.StoredAnswer{Model: a.Model, IDs: ids[:scored.Prompt]}
	for i := range rows.IDs {
		rows.Rows = append(rows.Rows, store.TokenRow{Row: scored.Tokens[i].Row})
	}
	s.scored.Add(live.AnswerKey{Chat: c.ID(), Answer: answer}, rows)
	return scored, nil
}

// ScoredToken returns token at of the prompt of an answer, with the top likeliest tokens in its place,
// and how many tokens the prompt has.
func (s *Service) ScoredToken(ctx context.Context, who live.Principal, c *live.Chat, answer int64, at, top int) (*Token, int, error) {
	if err := owned.Authorize(who, access.ActionRead, c.Object()); err != nil {
		return nil, 0, err
	}
	a := s.scored.Find(live.AnswerKey{Chat: c.ID(), Answer: answer})
	if a == nil {
		return nil, 0, fault.Invalid("answer", notScored)
	}
	if at < 0 || at >= len(a.IDs) {
		return nil, 0, fault.Invalid("index", "the prompt has no token %d: it has %d", at, len(a.IDs))
	}
	list, err := s.describe(ctx, a, at, at+1, top)
	if err != nil {
		return nil, 0, err
	}
	return &list[0], len(a.IDs), nil
}
