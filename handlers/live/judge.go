package live

import (
	"context"
	"errors"
	"math"

	"m40-llm/handlers/access"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// Verdict says what other settings would have made of an answer, each token judged behind those that
// came before it. Before and After have an element for each token, unless Unknown says why there is none.
type Verdict struct {
	Before   []float64 `json:"before"`   // probability of the token when it was drawn; -1: not known
	After    []float64 `json:"after"`    // the same with the other settings; 0: they remove the token
	Diverges int       `json:"diverges"` // the first token that the answer's seed would not have drawn; -1: none, as far as is known
	Unknown  string    `json:"unknown,omitempty"`
}

const needsModel = "What other penalties, DRY, mirostat, or penalties behind other samplers would have done, only the model can tell: answer again to see it."

// Judge says what s would have made of an answer, from the stored rows of its tokens, without the model.
func (c *Chat) Judge(ctx context.Context, who Principal, answer int64, s Settings) (*Verdict, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	a, err := c.storedTokens(ctx, answer)
	if err != nil {
		return nil, err
	}
	was, known := a.settings.Cuts()
	is, judged := s.Cuts()
	if !known || !judged || !a.settings.SameChanges(s.Params) {
		return &Verdict{Unknown: needsModel}, nil
	}
	before, err := newJudge(a, was)
	if err != nil {
		return nil, err
	}
	after, err := newJudge(a, is)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Diverges: -1}
	for i := range a.ids {
		_, p := before.token(i)
		drawn, q := after.token(i)
		v.Before, v.After = append(v.Before, p), append(v.After, q)
		if v.Diverges < 0 && q >= 0 && drawn != a.ids[i] {
			v.Diverges = i
		}
	}
	return v, nil
}

// judge runs the samplers of one setting on the stored rows of an answer.
type judge struct {
	answer *storedAnswer
	chain  *sample.Chain
}

// newJudge returns a judge of samplers, with the seed of the answer.
func newJudge(a *storedAnswer, cuts sample.Params) (*judge, error) {
	cuts.Seed = a.settings.Seed
	chain, err := sample.NewChain(cuts, anyVocabulary{})
	return &judge{a, chain}, err
}

// token returns what the seed draws in the place of token i, and the probability of that token; -1 if
// its row is not stored, or does not suffice.
func (j *judge) token(i int) (drawn int32, probability float64) {
	row, err := sample.ParseRow(cutRow(j.answer.rows[i]))
	if err != nil {
		return 0, -1
	}
	choice, err := j.chain.Next(sample.Input{Row: row, Pos: j.answer.prompt + i})
	if err != nil {
		return 0, -1
	}
	p, err := j.chain.Probability(j.answer.ids[i])
	if errors.Is(err, sample.ErrNotStored) {
		return 0, -1
	}
	return choice.ID, p
}

// cutRow returns the row that the samplers that remove candidates got.
func cutRow(r store.TokenRow) []byte {
	if r.Changed != nil {
		return r.Changed
	}
	return r.Row
}

// anyVocabulary has all ids. Samplers that remove candidates do not look at texts.
type anyVocabulary struct{}

func (anyVocabulary) Size() int          { return math.MaxInt32 }
func (anyVocabulary) Piece(int32) []byte { return nil }
