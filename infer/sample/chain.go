// Package sample chooses the next token of an answer from the logits of a model and
// reports what each sampler did. It is deterministic: the same logits, history, position
// and Params give the same token on every machine. Only Mirostat keeps state; see below.
//
// A chain is a list of stages. Each works on the candidates that the previous stage left,
// renormalised; it never removes the last candidate and never restores a removed one.
// Candidates are in canonical order: largest logit first, of equal logits the lowest id.
// The table gives the default order of the stages, which is llama.cpp's. Params.Samplers
// sets another order for those from penalties to temperature; stages it omits are off.
//
//	stage        off if               what it does
//	mask         Input.Mask is nil    removes the tokens that the mask does not allow
//	logit_bias   there is none        adds to the logits of some tokens
//	penalties    repeat_penalty = 1,  for a token that occurs n > 0 times in the last repeat_last_n tokens of prompt and
//	             presence_penalty =   answer, divides a positive logit by repeat_penalty (multiplies any other by it) and
//	             frequency_penalty    subtracts presence_penalty + n*frequency_penalty
//	             = 0; or repeat_last_n = 0
//	dry          dry_multiplier = 0   if the last n >= dry_allowed_length tokens also occur earlier in the last
//	             dry_penalty_last_n   dry_penalty_last_n tokens, subtracts dry_multiplier * dry_base^(n-dry_allowed_length)
//	             = 0                  from the token that followed there. The longest n counts, and the two occurrences may
//	                                  overlap. A repetition does not include a token in which a text of
//	                                  dry_sequence_breakers ends, and tokens that contain such a text are not penalised
//	top_n_sigma  top_n_sigma = 0      keeps the logits that are at most top_n_sigma standard deviations (population standard
//	                                  deviation of the logits of all candidates) below the largest
//	top_k        top_k = 0            keeps the k likeliest
//	typical_p    typical_p = 1        keeps the candidates whose surprise is nearest to the entropy, until their mass exceeds
//	                                  typical_p; of two equally near, the likelier first
//	top_p        top_p = 1            keeps the likeliest until their mass is at least top_p, including the one that crosses it
//	min_p        min_p = 0            keeps those at least min_p times as likely as the likeliest
//	xtc          xtc_probability = 0, with probability xtc_probability, if at least two candidates have a probability of at
//	             xtc_threshold > 0.5  least xtc_threshold: removes all of those but the least likely. An end token is removed
//	                                  like any other
//	temperature  temperature = 1,     divides the logits by it. With dynatemp_range > 0 the temperature is interpolated from
//	             dynatemp_range = 0   temperature - dynatemp_range (at least 0) to temperature + dynatemp_range by the entropy
//	                                  of the candidates divided by the largest possible entropy, to the power
//	                                  dynatemp_exponent. A single candidate is left unchanged
//	mirostat     mirostat = 0         replaces the stages from top_n_sigma to xtc and runs after all others: keeps the
//	                                  candidates whose surprise is at most mu bits, and always the likeliest. mu starts at
//	                                  2*mirostat_tau; after each token it falls by mirostat_eta * (surprise - mirostat_tau),
//	                                  with the surprise of that token among the kept ones
//
// A window of -1 is the whole history. min_keep is the least number of candidates that
// typical_p, top_p and min_p leave, if there are as many; xtc does nothing if it would
// leave fewer. Probabilities are relative to the candidates that are left, and include the
// temperature if it ran before; logits are then divided by it.
//
// At temperature 0 (and dynatemp_range 0) sampling is greedy: it chooses the largest logit
// after bias and penalties. The stages that remove candidates, and mirostat, do not run and
// are not reported.
//
// Differences from llama.cpp: it runs the removing stages at temperature 0 too, which
// changes the choice only if typical_p or xtc removes the likeliest token. Its Mirostat
// ignores the penalties; here they apply. Its top_n_sigma keeps what it removes as
// candidates of probability 0, which count for the dynamic temperature. It tokenizes the
// sequence breakers of DRY and searches for the tokens; here the text is searched, however
// it was tokenized.
//
// A masked token (logit -Inf) is never chosen, whatever its bias. Logits are float32,
// weights and sums float64, summed in canonical order, or in the order of ids if the whole
// vocabulary is summed.
//
// A device may reduce a row of logits to its likeliest tokens and some sums (see Row). The
// choice is the same. All logits are fetched only if a stage needs them: mask, bias, and
// penalties and dry if they change a logit; typical_p, top_n_sigma and temperature before
// candidates are removed; stages that leave more tokens than are known; and a draw beyond
// those.
//
// The choice takes one uniform number u and returns the first candidate in canonical order
// at which the cumulative probability exceeds u. Philox 4x32-10 generates u: the key is the
// seed, the counter the position of the token in its sequence (both low word first, then
// 0, 0), and u is the 53 high bits of output words 1 and 0 divided by 2^53. xtc uses words 3
// and 2 in the same way and runs if the result is below xtc_probability. The counter is the
// position and not the number of draws, so that an answer resumed or forked in the middle
// continues with the same tokens.
//
// Mirostat is the exception, because mu depends on the tokens drawn before. A chain stores
// mu for every position it has drawn, so an answer that is rewound continues with the same
// tokens; one that another chain resumes or forks starts with mu = 2*mirostat_tau.
//
// A stage is a method of pool, which sorts only as many candidates as the stage needs, and
// is added to a chain in chain.go; its arithmetic is in transforms.go. naive_test.go has a
// straightforward implementation of the same definition.
package sample

import (
	"fmt"
	"math"
)

// Vocabulary describes the tokens of a model.
type Vocabulary interface {
	Size() int             // number of tokens, which is the number of logits in a row
	Piece(id int32) []byte // bytes of a token; for a control token its name
}

// Chain samples the tokens of one answer. It must not be used concurrently, nor with
// another chain that shares its Buffers.
type Chain struct {
	seed     int64
	vocab    int
	stages   []stage
	edits    int       // the first stages: those that change logits before any other stage works on them
	mirostat *mirostat // nil: off
	input    Input
	row      table // the logits as the model computed them
	changed  table // of Input.Changed
	followed [][]float64
	*Buffers
}

// Buffers is scratch memory for chains. It holds no state between calls of Next, so all
// chains of a goroutine may share it. It grows as their settings need.
type Buffers struct {
	pool    pool
	counts  []int32 // by token, for penalties; all zero between calls
	longest []int32 // by token, for dry; all zero between calls
}

// BufferBytes returns the largest size of Buffers for rows of vocab logits, in bytes.
func BufferBytes(vocab int) int64 {
	const (
		row, before, ranks = 4, 8, 2 * 8 // in pool: an edited row, its probabilities, and the keys of a sort
		candidates         = 16
		counts, longest    = 4, 4
	)
	return int64(vocab) * (row + before + ranks + candidates + counts + longest)
}

// zeros returns the first n elements of buffer, which it reallocates if it is shorter.
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

// NewChain returns a chain for one answer with buffers of its own. It returns a *FieldError
// for settings that Validate rejects, a bias for a token outside the vocabulary, and a
// negative seed (see DrawSeed).
func NewChain(p Params, v Vocabulary) (*Chain, error) { return new(Buffers).NewChain(p, v) }

// NewChain is like the function NewChain, but the chain uses b.
func (b *Buffers) NewChain(p Params, v Vocabulary) (*Chain, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	vocab := v.Size()
	if vocab < 1 || vocab > math.MaxInt32 {
		return nil, fmt.Errorf("cannot sample from a vocabulary of %d tokens; 1 to %d are supported", vocab, math.MaxInt32)
	}
	if p.Seed < 0 {
		return nil, &FieldError{"seed", p.Seed, "must be drawn before sampling"}
	}
	c := &Chain{seed: p.Seed, vocab: vocab, Buffers: b}
	if err := c.addBias(p); err != nil {
		return nil, err
	}
	order, _ := p.order() // Validate has checked it
	greedy := p.greedy(order)
	for _, name := range order {
		switch {
		case name == "penalties":
			c.addPenalties(p)
		case name == "dry":
			c.addDry(p, v)
		case name == "temperature":
			c.addTemperature(p)
		case !greedy && p.Mirostat == 0:
			c.addCut(stageOf(name), p)
		}
	}
	if p.Mirostat != 0 && !greedy {
		c.addMirostat(p)
	}
	return c, nil
}

// stageKind describes a stage that Params.Samplers can list.
type stageKind struct {
	name     string
	label    string                            // what people call it
	strength []string                          // the settings that say how strong it is
	on       func(p *Params) bool              // of a stage that removes candidates: reports whether it has an effect
	cut      func(c *Chain, p *Params) float64 // removes candidates, and returns their share; nil: the stage removes none
}

// stages are in the default order.
var stages = [...]stageKind{
	{name: "penalties", label: "Penalties", strength: []string{"repeat_penalty", "presence_penalty", "frequency_penalty"}},
	{name: "dry", label: "DRY", strength: []string{"dry_multiplier"}},
	{name: "top_n_sigma", label: "Top-nσ", strength: []string{"top_n_sigma"},
		on: func(p *Params) bool { return p.TopNSigma > 0 }, cut: func(c *Chain, p *Params) float64 { return c.pool.topNSigma(p.TopNSigma) }},
	{name: "top_k", label: "Top-k", strength: []string{"top_k"},
		on: func(p *Params) bool { return p.TopK > 0 }, cut: func(c *Chain, p *Params) float64 { return c.pool.topK(p.TopK) }},
	{name: "typical_p", label: "Typical-p", strength: []string{"typical_p"},
		on: func(p *Params) bool { return p.TypicalP < 1 }, cut: func(c *Chain, p *Params) float64 { return c.pool.typicalP(p.TypicalP, p.MinKeep) }},
	{name: "top_p", label: "Top-p", strength: []string{"top_p"},
		on: func(p *Params) bool { return p.TopP < 1 }, cut: func(c *Chain, p *Params) float64 { return c.pool.topP(p.TopP, p.MinKeep) }},
	{name: "min_p", label: "Min-p", strength: []string{"min_p"},
		on: func(p *Params) bool { return p.MinP > 0 }, cut: func(c *Chain, p *Params) float64 { return c.pool.minP(p.MinP, p.MinKeep) }},
	{name: "xtc", label: "XTC", strength: []string{"xtc_threshold"},
		on: func(p *Params) bool { return p.XTCProbability > 0 && p.XTCThreshold <= 0.5 },
		cut: func(c *Chain, p *Params) float64 {
			if _, coin := uniforms(c.seed, c.input.Pos); coin >= p.XTCProbability {
				return 0
			}
			return c.pool.xtc(p.XTCThreshold, p.MinKeep)
		}},
	{name: "temperature", label: "Temperature", strength: []string{"temperature"}},
}

func (c *Chain) add(name string, apply func() (float64, error)) {
	if c.edits == len(c.stages) && changesLogits(name) {
		c.edits++
	}
	c.stages = append(c.stages, stage{name, apply})
}

func (c *Chain) addBias(p Params) error {
	b, err := newBias(p, c.vocab)
	if b != nil {
		c.add("logit_bias", func() (float64, error) { return c.pool.edit(b.ids, b.change, b.lowers) })
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

// addCut adds a stage that only removes candidates, if it is on.
func (c *Chain) addCut(s stageKind, p Params) {
	if s.on(&p) {
		c.add(s.name, func() (float64, error) { return s.cut(c, &p), nil })
	}
}

func (c *Chain) addMirostat(p Params) {
	c.mirostat = &mirostat{tau: p.MirostatTau, eta: p.MirostatEta}
	c.add("mirostat", func() (float64, error) { return c.pool.mirostat(c.mirostat.muAt(c.input.Pos)), nil })
}

// Input is what Next chooses a token from.
type Input struct {
	Row     Row
	History []int32 // tokens of the prompt and of the answer so far
	Pos     int     // position of the token in its sequence
	Top     int     // number of alternatives to list
	Store   bool    // store the StoredCandidates likeliest tokens in the Choice
	Mask    Mask    // allowed tokens

	// Changed is the row after the mask and the first stages, those that change logits, if it was stored
	// (see Choice.Changed). The sums of Row then need not suffice for the stages after them.
	Changed *Row
	Follow  []int32 // tokens whose probability after each stage Choice.Followed reports
}

// Probability returns the probability of a token among the candidates that the last Next drew from; 0
// if a stage removed it. It may fetch the whole row.
func (c *Chain) Probability(id int32) (float64, error) {
	p := &c.pool
	p.needSums()
	for p.table.err == nil {
		for i := range p.head {
			if p.head[i].id == id {
				return p.head[i].weight / p.mass, nil
			}
		}
		if !p.grow() {
			break
		}
	}
	return 0, p.table.err
}

// run applies stages and appends what each did to reports.
func (c *Chain) run(stages []stage, reports []Stage) ([]Stage, error) {
	for _, s := range stages {
		removed, err := s.apply()
		if err != nil {
			return nil, err
		}
		if reports, err = c.report(reports, s.name, removed); err != nil {
			return nil, err
		}
	}
	return reports, nil
}

// report appends what a stage did to reports.
func (c *Chain) report(reports []Stage, name string, removed float64) ([]Stage, error) {
	// Rounding may make a sum of many differences slightly larger than 1.
	return append(reports, Stage{name, c.pool.count, math.Min(1, removed)}), c.follow()
}

// follow appends the probabilities of the followed tokens. It returns ErrNotStored if they are not known.
func (c *Chain) follow() error {
	if len(c.input.Follow) == 0 {
		return nil
	}
	t := c.pool.table
	if !t.stored && t.all() == nil {
		return t.err
	}
	if t.err != nil || c.pool.unknown {
		return ErrNotStored
	}
	c.followed = append(c.followed, c.pool.probabilities(c.input.Follow))
	return nil
}

// edit applies the mask and the first stages, those that change logits.
func (c *Chain) edit(reports []Stage) (_ []Stage, err error) {
	in := &c.input
	c.followed = nil
	if err := c.follow(); err != nil {
		return nil, err
	}
	if in.Mask != nil {
		removed, err := c.pool.mask(in.Mask)
		if err == nil {
			reports, err = c.report(reports, "mask", removed)
		}
		if err != nil {
			return nil, err
		}
	}
	if in.Changed == nil {
		return c.run(c.stages[:c.edits], reports)
	}
	return c.resume(reports)
}

// resume is edit with the row after it.
func (c *Chain) resume(reports []Stage) ([]Stage, error) {
	sums, err := c.changed.open(*c.input.Changed, c.vocab)
	if err != nil {
		return nil, err
	}
	masked := sums.count != c.row.count
	if masked && c.edits > 0 {
		return nil, ErrNotStored // how much the mask removed, and how much the others moved, is not known
	}
	if reports, err = c.run(c.stages[:c.edits], reports); err != nil {
		return nil, err
	}
	before, top := c.pool.mass, c.pool.scale.top
	c.pool.fill(&c.changed, sums)
	if !masked {
		if n := len(c.followed); n > 1 {
			c.followed[n-1] = c.pool.probabilities(c.input.Follow) // the same, but for rounding
		}
		return reports, nil
	}
	return c.report(reports, "mask", math.Max(0, 1-sums.mass*expNeg(math.Min(0, sums.max-top))/before))
}

// Next chooses a token. It does not modify the logits, history or mask. It returns
// ErrNotFinite if the row is not a distribution, and ErrMasked if the mask allows no token.
func (c *Chain) Next(in Input) (Choice, error) {
	if in.Pos < 0 || in.Top < 0 {
		return Choice{}, fmt.Errorf("position %d or number of alternatives %d is negative", in.Pos, in.Top)
	}
	for _, id := range in.Follow {
		if id < 0 || int(id) >= c.vocab {
			return Choice{}, fmt.Errorf("token %d is not in the vocabulary of %d tokens", id, c.vocab)
		}
	}
	model, err := c.row.open(in.Row, c.vocab)
	if err != nil {
		return Choice{}, err
	}
	c.input = in
	c.pool.fill(&c.row, model)
	stages, err := c.edit(make([]Stage, 0, 1+len(c.stages)))
	if err != nil {
		return Choice{}, err
	}
	var changed []byte
	if in.Store && c.pool.table == &c.pool.edited {
		if c.pool.edited.stored {
			return Choice{}, ErrNotStored
		}
		sums := distribution{max: c.pool.scale.top, mass: c.pool.mass, dot: c.pool.dot, count: c.pool.count}
		changed = c.pool.table.appendRow(nil, sums, StoredCandidates, &c.pool.ranker)
	}
	if stages, err = c.run(c.stages[c.edits:], stages); err != nil {
		return Choice{}, err
	}
	u, _ := uniforms(c.seed, in.Pos)
	drawn := c.pool.draw(u)
	if err := c.pool.table.err; err != nil {
		return Choice{}, err
	}
	choice, err := c.row.describe(&model, drawn.id, in.Top, &c.pool.ranker)
	if err != nil {
		return Choice{}, err
	}
	if len(in.Follow) > 0 {
		choice.Followed, choice.Drawn = c.followed, c.pool.drawn(u, drawn.id)
		choice.Drawn.Of = model.count
	}
	if c.mirostat != nil {
		c.mirostat.update(drawn.weight / c.pool.mass)
	}
	choice.Stages = stages
	if in.Store {
		choice.Row = c.row.appendRow(nil, model, StoredCandidates, &c.pool.ranker)
		choice.Changed = changed
	}
	return choice, nil
}
