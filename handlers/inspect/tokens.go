package inspect

import (
	"context"

	"m40-llm/handlers/live"
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
func (s *Service) Tokens(ctx context.Context, who live.Principal, c *live.Chat, answer int64, first, count, top int) (list []Token, total int, err error) {
	a, err := s.storedTokens(ctx, who, c, answer)
	if err != nil {
		return nil, 0, err
	}
	total = len(a.IDs)
	first = min(first, total)
	list, err = s.describe(ctx, a, first, min(total, first+count), top)
	return list, total, err
}

// describe returns tokens first to end of a, each with the top likeliest tokens in its place.
func (s *Service) describe(ctx context.Context, a *live.StoredAnswer, first, end, top int) ([]Token, error) {
	list := make([]Token, end-first)
	named := a.IDs[first:end:end]
	for i := range list {
		list[i] = describeToken(a.IDs[first+i], a.Rows[first+i], top)
		for _, candidate := range list[i].tops() {
			named = append(named, candidate.ID)
		}
	}
	pieces, err := s.engine.Pieces(ctx, a.Model, named)
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
func (s *Service) LeastCertain(ctx context.Context, who live.Principal, c *live.Chat, answer int64) (least Token, total int, err error) {
	a, err := s.storedTokens(ctx, who, c, answer)
	if err != nil {
		return Token{}, 0, err
	}
	for i, id := range a.IDs {
		t := describeToken(id, a.Rows[i], 0)
		if t.Choice != nil && (least.Choice == nil || t.Choice.Entropy > least.Choice.Entropy) {
			least = t
		}
	}
	if least.Choice == nil {
		return Token{}, len(a.IDs), nil
	}
	pieces, err := s.engine.Pieces(ctx, a.Model, []int32{least.ID})
	if err != nil {
		return Token{}, 0, err
	}
	least.Text = pieces[0]
	return least, len(a.IDs), nil
}

func describeToken(id int32, stored store.TokenRow, top int) Token {
	t := Token{ID: id}
	if t.Choice, t.AtMost = live.ScoreToken(id, stored, top); t.Choice != nil {
		t.Row = live.CutRow(stored)
	}
	return t
}

func (t *Token) tops() []sample.Candidate {
	if t.Choice == nil {
		return nil
	}
	return t.Choice.Top
}
