// Package sample chooses the next token of an answer from the logits of a model,
// and says what each sampler did on the way. It is pure: the same logits, history,
// position and Params give the same token, whatever came before and on whatever
// machine.
//
// The chain has a fixed order, and each stage works on what the one before it
// left, renormalised. A stage never removes the last candidate and never brings
// back one that is gone. Candidates stand in canonical order: largest logit first,
// of equal logits the lowest id. In order, as llama.cpp does by default:
//
//	stage        off when           what it does
//	penalties    nothing to do      adds logit_bias; then, for a token that stands n > 0 times in the last repeat_last_n
//	                                tokens of prompt and answer, divides a positive logit by repeat_penalty (multiplies any
//	                                other by it) and subtracts presence_penalty + n*frequency_penalty
//	top_k        top_k = 0          keeps the k likeliest
//	typical_p    typical_p = 1      keeps the candidates whose surprise is nearest to the entropy, until their mass exceeds
//	                                typical_p; of two equally near the likelier first
//	top_p        top_p = 1          keeps the likeliest until their mass is at least top_p, the one that crosses it included
//	min_p        min_p = 0          keeps those at least min_p times as likely as the likeliest (compared before temperature)
//	temperature  temperature = 1    divides the logits by it
//
// At temperature 0 the answer is greedy: the token of the largest logit after the
// penalties, whatever the cutting stages say. They have no part in the choice and
// are not reported. (llama.cpp runs them; its choice differs only where typical_p
// removes the likeliest token.)
//
// A masked token (logit -Inf) is never chosen; no bias brings it back. Logits are
// float32, weights and sums float64, summed up in canonical order, or in the order
// of ids where the whole vocabulary is summed.
//
// The choice itself takes one uniform number u and the first candidate, in
// canonical order, at which the running sum of probabilities exceeds u. Philox
// 4x32-10 gives u: the key is the seed, the counter the position of the token in
// its sequence (both low word first, then 0, 0), and the 53 high bits of output
// words 1 and 0 divided by 2^53 are u. Position, not number of draws: so an answer
// resumed or forked in its middle goes on as it would have.
//
// A stage is a pure function in transforms.go, a method of pool that hands it as
// many candidates as it needs, and a line in newCuts.
package sample

import (
	"fmt"
	"math"
)

// Vocabulary is what a chain has to know of a model's tokens.
type Vocabulary interface {
	Size() int             // a row has as many logits
	Piece(id int32) []byte // what a token spells, a control token its name
}

// Chain samples the tokens of one answer. It keeps its buffers from token to
// token, so it serves one goroutine at a time.
type Chain struct {
	seed      int64
	vocab     int
	penalties *penalties // nil: off
	cuts      []cut
	model     table // the row as the model computed it
	edited    table // the same with mask, bias and penalties
	masked    []float32
	pool      pool
}

// cut is a stage that works on candidates.
type cut struct {
	name  string
	apply func() (removed float64)
}

// NewChain returns the chain of one answer. Settings that Validate refuses, a bias
// for a token outside the vocabulary and a seed that was not drawn (see DrawSeed)
// are a *FieldError.
func NewChain(p Params, v Vocabulary) (*Chain, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	vocab := v.Size()
	if vocab < 1 || vocab > math.MaxInt32 {
		return nil, fmt.Errorf("a vocabulary of %d tokens cannot be sampled from", vocab)
	}
	if p.Seed < 0 {
		return nil, &FieldError{"seed", p.Seed, "must be drawn before sampling"}
	}
	c := &Chain{seed: p.Seed, vocab: vocab, penalties: newPenalties(p, vocab)}
	if c.penalties != nil {
		if b := c.penalties.biased; len(b) > 0 && int(b[len(b)-1]) >= vocab {
			return nil, &FieldError{"logit_bias", b[len(b)-1], fmt.Sprintf("the model has no such token; ids end at %d", vocab-1)}
		}
	}
	c.cuts = newCuts(p, &c.pool)
	return c, nil
}

// newCuts returns the stages after the penalties that are on, in chain order.
func newCuts(p Params, pool *pool) (cuts []cut) {
	add := func(on bool, name string, apply func() float64) {
		if on {
			cuts = append(cuts, cut{name, apply})
		}
	}
	if p.Temperature == 0 {
		add(true, "temperature", pool.greedy)
		return cuts
	}
	add(p.TopK > 0, "top_k", func() float64 { return pool.topK(p.TopK) })
	add(p.TypicalP < 1, "typical_p", func() float64 { return pool.typicalP(p.TypicalP) })
	add(p.TopP < 1, "top_p", func() float64 { return pool.topP(p.TopP) })
	add(p.MinP > 0, "min_p", func() float64 { return pool.minP(p.MinP) })
	add(p.Temperature != 1, "temperature", func() float64 { return pool.temperature(p.Temperature) })
	return cuts
}

// Input is what one token is chosen from.
type Input struct {
	Row     Row
	History []int32 // the prompt and the answer so far
	Pos     int     // position of the token in its sequence
	Top     int     // number of alternatives to list
	Mask    Mask    // tokens that may come
}

// Next chooses a token. It leaves logits and mask as they are. A row that is no
// distribution is ErrNotFinite; one of which the mask leaves nothing is ErrMasked.
func (c *Chain) Next(in Input) (Choice, error) {
	if in.Pos < 0 || in.Top < 0 {
		return Choice{}, fmt.Errorf("position %d and number of alternatives %d must not be negative", in.Pos, in.Top)
	}
	model, err := c.model.open(in.Row, c.vocab)
	if err != nil {
		return Choice{}, err
	}
	stages := make([]Stage, 0, 2+len(c.cuts))
	t, dist := &c.model, model
	if in.Mask != nil {
		if dist, err = c.mask(in.Mask); err != nil {
			return Choice{}, err
		}
		stages = append(stages, Stage{"mask", dist.count, math.Max(0, 1-dist.mass*math.Exp(dist.max-model.max)/model.mass)})
		t = &c.edited
	}
	if c.penalties != nil {
		if err := c.penalties.count(in.History); err != nil {
			return Choice{}, err
		}
		removed := 0.0
		if len(c.penalties.touched) > 0 {
			row := t.all()
			if row == nil {
				return Choice{}, t.err
			}
			if row, dist, removed, err = c.penalties.apply(row, dist); err != nil {
				return Choice{}, err
			}
			t = &c.edited
			*t = table{logits: row, vocab: c.vocab, count: dist.count}
		}
		stages = append(stages, Stage{"penalties", dist.count, removed})
	}
	c.pool.fill(t, dist)
	for _, s := range c.cuts {
		removed := s.apply()
		stages = append(stages, Stage{s.name, c.pool.count, removed})
	}
	id := c.pool.draw(uniform(c.seed, in.Pos))
	if t.err != nil {
		return Choice{}, t.err
	}
	choice, err := c.model.describe(&model, id, in.Top, &c.pool.ranker)
	choice.Stages = stages
	return choice, err
}

// mask puts what a mask leaves of the model's row into edited.
func (c *Chain) mask(m Mask) (distribution, error) {
	row := c.model.all()
	if row == nil {
		return distribution{}, c.model.err
	}
	if c.masked == nil {
		c.masked = make([]float32, c.vocab)
	}
	m.apply(c.masked, row)
	d, err := softmax(c.masked)
	if err != nil {
		return d, ErrMasked
	}
	c.edited = table{logits: c.masked, vocab: c.vocab, count: d.count}
	return d, nil
}
