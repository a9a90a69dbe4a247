// Package sample chooses the next token of an answer from the logits of a model,
// and says what each sampler did on the way. It is pure: the same logits, history,
// position and Params give the same token, whatever came before and on whatever
// machine. Mirostat alone remembers something; see below.
//
// A chain has stages, and each works on what the one before it left, renormalised. A
// stage never removes the last candidate and never brings back one that is gone.
// Candidates stand in canonical order: largest logit first, of equal logits the
// lowest id. This is the order of the stages by default, which is llama.cpp's;
// Params.Samplers gives another one for all from penalties to temperature, and what it
// leaves out is off.
//
//	stage        off where            what it does
//	mask         Input.Mask is nil    removes the tokens that may not come
//	logit_bias   there is none        adds to the logits of some tokens
//	penalties    repeat_penalty = 1,  for a token that stands n > 0 times in the last repeat_last_n tokens of prompt and
//	             presence_penalty =   answer, divides a positive logit by repeat_penalty (multiplies any other by it) and
//	             frequency_penalty    subtracts presence_penalty + n*frequency_penalty
//	             = 0; or repeat_last_n = 0
//	dry          dry_multiplier = 0   where the last n >= dry_allowed_length tokens stand earlier in the last
//	             dry_penalty_last_n   dry_penalty_last_n tokens too, subtracts dry_multiplier * dry_base^(n-dry_allowed_length)
//	             = 0                  from the token that followed there. The longest n counts, and the two places may
//	                                  overlap. No repetition reaches back to a token in which a text of
//	                                  dry_sequence_breakers ends, and a token that has such a text in it is spared
//	top_n_sigma  top_n_sigma = 0      keeps the logits that are at most top_n_sigma standard deviations (of the logits of all
//	                                  candidates, as a whole population) below the largest
//	top_k        top_k = 0            keeps the k likeliest
//	typical_p    typical_p = 1        keeps the candidates whose surprise is nearest to the entropy, until their mass exceeds
//	                                  typical_p; of two equally near the likelier first
//	top_p        top_p = 1            keeps the likeliest until their mass is at least top_p, the one that crosses it included
//	min_p        min_p = 0            keeps those at least min_p times as likely as the likeliest
//	xtc          xtc_probability = 0, where a coin that falls so with xtc_probability says so, and at least two candidates have a
//	             xtc_threshold > 0.5  probability of at least xtc_threshold: removes all of those but the least likely. An end
//	                                  token is removed like any other
//	temperature  temperature = 1,     divides the logits by it. With dynatemp_range > 0 the temperature goes from temperature -
//	             dynatemp_range = 0   dynatemp_range (but not below 0) to temperature + dynatemp_range, as the entropy of the
//	                                  candidates goes from 0 to that of as many equal ones: by the power dynatemp_exponent of
//	                                  their quotient. One candidate alone is left as it is
//	mirostat     mirostat = 0         in place of the stages from top_n_sigma to xtc and after all others: keeps the candidates
//	                                  whose surprise is at most mu bits, the likeliest always. mu begins as 2*mirostat_tau
//	                                  and, after a token was drawn, falls by mirostat_eta * (surprise - mirostat_tau), the
//	                                  surprise being that among those kept
//
// A window of -1 is the whole history. min_keep is the least number of candidates that
// typical_p, top_p and min_p leave, where there are as many; xtc does nothing where it
// would leave fewer. A probability is one among the candidates that are left, after the
// temperature if that came before; logits are the ones divided by it, then.
//
// At temperature 0 (and dynatemp_range 0) the answer is greedy: the token of the
// largest logit after bias and penalties, whatever the cutting stages say. They and
// mirostat have no part in the choice and are not reported.
//
// Where llama.cpp does something else: it runs the cutting stages at temperature 0 too,
// which changes the choice only where typical_p or xtc removes the likeliest token. Its
// Mirostat leaves out the penalties; here they are on if they were asked for. Its
// top_n_sigma keeps what it removes as candidates of no probability, which the dynamic
// temperature counts. It cuts a breaker of DRY into tokens and looks for these; here its
// text is looked for, however it was cut.
//
// A masked token (logit -Inf) is never chosen; no bias brings it back. Logits are
// float32, weights and sums float64, summed up in canonical order, or in the order
// of ids where the whole vocabulary is summed.
//
// A row of logits may be what a device made of it: its likeliest tokens and some sums
// (see Row). The same token comes out. All logits are asked for only where a stage needs
// them: mask, bias and those of penalties and dry that change something; typical_p,
// top_n_sigma and temperature before the first cut; cuts that leave more tokens than are
// known; and a draw beyond those.
//
// The choice itself takes one uniform number u and the first candidate, in
// canonical order, at which the running sum of probabilities exceeds u. Philox
// 4x32-10 gives u: the key is the seed, the counter the position of the token in
// its sequence (both low word first, then 0, 0), and the 53 high bits of output
// words 1 and 0 divided by 2^53 are u. Words 3 and 2 give the coin of xtc in the same
// way: it falls so if they are below xtc_probability. Position, not number of draws: so
// an answer resumed or forked in its middle goes on as it would have.
//
// Not with Mirostat: mu depends on the tokens drawn before. A chain knows mu for every
// position it has drawn, so an answer that is rewound goes on as it would have; one that
// is resumed or forked by another chain begins with mu = 2*mirostat_tau again, for mu
// cannot be had from the tokens alone.
//
// A stage is a method of pool, which has as many candidates as the stage needs, and a
// line in this package's chain.go; its arithmetic is in transforms.go. The slow twin in
// twin_test.go says the same with no thought of speed.
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

// Chain samples the tokens of one answer. Its buffers serve one goroutine at a time.
type Chain struct {
	seed     int64
	vocab    int
	stages   []stage
	mirostat *mirostat // nil: off
	input    Input
	model    table // the row as the model computed it
	*Buffers
}

// Buffers is the memory that chains work in. Between two calls of Next it holds nothing, so
// all chains of a goroutine may share it. It grows to what their settings need.
type Buffers struct {
	pool    pool
	counts  []int32 // of each token, for penalties; all zero between calls
	longest []int32 // of each token, for dry; all zero between calls
}

// BufferBytes returns the most that Buffers take for rows of vocab logits.
func BufferBytes(vocab int) int64 {
	const (
		row, before, ranks = 4, 8, 2 * 8 // of pool: an edited row, its probabilities, and the keys of a sort
		candidates         = 16
		counts, longest    = 4, 4
	)
	return int64(vocab) * (row + before + ranks + candidates + counts + longest)
}

// zeros returns buffer, made longer if it has fewer than n elements.
func zeros(buffer *[]int32, n int) []int32 {
	if len(*buffer) < n {
		*buffer = make([]int32, n)
	}
	return (*buffer)[:n]
}

// stage is one sampler of a chain. It works on the chain's pool.
type stage struct {
	name  string
	apply func() (removed float64, err error)
}

// NewChain returns the chain of one answer. Settings that Validate refuses, a bias
// for a token outside the vocabulary and a seed that was not drawn (see DrawSeed)
// are a *FieldError. It has buffers of its own.
func NewChain(p Params, v Vocabulary) (*Chain, error) { return new(Buffers).NewChain(p, v) }

// NewChain returns a chain that works in b.
func (b *Buffers) NewChain(p Params, v Vocabulary) (*Chain, error) {
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
	c := &Chain{seed: p.Seed, vocab: vocab, Buffers: b}
	if err := c.addBias(p); err != nil {
		return nil, err
	}
	order, _ := p.order() // which Validate has checked
	greedy := p.greedy(order)
	for _, name := range order {
		switch {
		case name == "penalties":
			c.addPenalties(p)
		case name == "dry":
			c.addDry(p, v)
		case name == "temperature":
			c.addTemperature(p)
		case Cuts(name) && !greedy && p.Mirostat == 0:
			c.addCut(name, p)
		}
	}
	if p.Mirostat != 0 && !greedy {
		c.addMirostat(p)
	}
	return c, nil
}

func (c *Chain) add(name string, apply func() (float64, error)) {
	c.stages = append(c.stages, stage{name, apply})
}

func (c *Chain) addBias(p Params) error {
	b, err := newBias(p, c.vocab)
	if b != nil {
		c.add("logit_bias", func() (float64, error) { return c.pool.edit(b.ids, b.change) })
	}
	return err
}

func (c *Chain) addPenalties(p Params) {
	if s := newPenalties(p); s != nil {
		c.add("penalties", func() (float64, error) {
			s.counts = zeros(&c.counts, c.vocab)
			return s.apply(&c.pool, c.input.History)
		})
	}
}

func (c *Chain) addDry(p Params, v Vocabulary) {
	if s := newDry(p, v); s != nil {
		c.add("dry", func() (float64, error) {
			s.longest = zeros(&c.longest, c.vocab)
			return s.apply(&c.pool, c.input.History)
		})
	}
}

func (c *Chain) addTemperature(p Params) {
	apply := func() float64 { return c.pool.temperature(p.Temperature) }
	switch {
	case p.DynatempRange > 0:
		low, high := math.Max(0, p.Temperature-p.DynatempRange), p.Temperature+p.DynatempRange
		apply = func() float64 { return c.pool.dynamicTemperature(low, high, p.DynatempExponent) }
	case p.Temperature == 0:
		apply = c.pool.greedy
	case p.Temperature == 1:
		return
	}
	c.add("temperature", func() (float64, error) { return apply(), nil })
}

// addCut adds a stage that does nothing but remove candidates, if it is on.
func (c *Chain) addCut(name string, p Params) {
	add := func(on bool, apply func() float64) {
		if on {
			c.add(name, func() (float64, error) { return apply(), nil })
		}
	}
	switch name {
	case "top_n_sigma":
		add(p.TopNSigma > 0, func() float64 { return c.pool.topNSigma(p.TopNSigma) })
	case "top_k":
		add(p.TopK > 0, func() float64 { return c.pool.topK(p.TopK) })
	case "typical_p":
		add(p.TypicalP < 1, func() float64 { return c.pool.typicalP(p.TypicalP, p.MinKeep) })
	case "top_p":
		add(p.TopP < 1, func() float64 { return c.pool.topP(p.TopP, p.MinKeep) })
	case "min_p":
		add(p.MinP > 0, func() float64 { return c.pool.minP(p.MinP, p.MinKeep) })
	case "xtc":
		add(p.XTCProbability > 0 && p.XTCThreshold <= 0.5, func() float64 {
			if _, coin := uniforms(c.seed, c.input.Pos); coin >= p.XTCProbability {
				return 0
			}
			return c.pool.xtc(p.XTCThreshold, p.MinKeep)
		})
	}
}

func (c *Chain) addMirostat(p Params) {
	c.mirostat = &mirostat{tau: p.MirostatTau, eta: p.MirostatEta}
	c.add("mirostat", func() (float64, error) { return c.pool.mirostat(c.mirostat.at(c.input.Pos)), nil })
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
	c.input = in
	c.pool.fill(&c.model, model)
	stages := make([]Stage, 0, 1+len(c.stages))
	if in.Mask != nil {
		removed, err := c.pool.mask(in.Mask)
		if err != nil {
			return Choice{}, err
		}
		stages = append(stages, Stage{"mask", c.pool.count, removed})
	}
	for _, s := range c.stages {
		removed, err := s.apply()
		if err != nil {
			return Choice{}, err
		}
		// Sums of many differences may come out a little above 1.
		stages = append(stages, Stage{s.name, c.pool.count, math.Min(1, removed)})
	}
	u, _ := uniforms(c.seed, in.Pos)
	drawn := c.pool.draw(u)
	choice, err := c.model.describe(&model, drawn.id, in.Top, &c.pool.ranker)
	if err != nil {
		return Choice{}, err
	}
	if c.mirostat != nil {
		c.mirostat.drawn(drawn.weight / c.pool.mass)
	}
	choice.Stages = stages
	return choice, nil
}
