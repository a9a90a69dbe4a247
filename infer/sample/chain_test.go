package sample

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// off returns settings with every stage off.
func off() Params {
	p := DefaultParams()
	p.Temperature, p.TopK, p.TopP, p.MinP, p.Seed = 1, 0, 1, 0, 0
	return p
}

func greedy() Params {
	p := off()
	p.Temperature = 0
	return p
}

// vocabulary is a Vocabulary of the given size whose pieces do not matter.
type vocabulary int

func (v vocabulary) Size() int             { return int(v) }
func (v vocabulary) Piece(id int32) []byte { return fmt.Appendf(nil, " %d", id) }

func next(c *Chain, logits []float32, history []int32, pos, top int) (Choice, error) {
	return c.Next(Input{Row: RowOf(logits), History: history, Pos: pos, Top: top})
}

func mustChain(t testing.TB, p Params, vocab int) *Chain {
	t.Helper()
	c, err := NewChain(p, vocabulary(vocab))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustNext(t testing.TB, c *Chain, logits []float32, history []int32, pos, top int) Choice {
	t.Helper()
	choice, err := next(c, logits, history, pos, top)
	if err != nil {
		t.Fatal(err)
	}
	return choice
}

// randomLogits returns a row like a model's: normally distributed, with a few tokens far
// above the rest. A share of it is masked; step > 0 rounds, which makes ties.
func randomLogits(rng *rand.Rand, vocab int, spread, masked, step float64) []float32 {
	row := make([]float32, vocab)
	for i := range row {
		x := rng.NormFloat64() * spread
		if rng.IntN(100) == 0 {
			x += 2 * spread
		}
		if step > 0 {
			x = math.Round(x/step) * step
		}
		row[i] = float32(x)
		if rng.Float64() < masked {
			row[i] = -inf
		}
	}
	row[rng.IntN(vocab)] = float32(spread) // at least one is not masked
	return row
}

// biases differ by more than rounding errors.
var biases = rapid.Map(rapid.IntRange(-240, 240), func(eighths int) float64 { return float64(eighths) / 8 })

// drawParams returns random settings with each stage on or off. Shares of mass are not
// simple fractions, because it depends on rounding whether ten equal tokens reach 0.9.
func drawParams(t *rapid.T, vocab int) Params {
	p := off()
	on := func(name string) bool { return rapid.Bool().Draw(t, name+" on") }
	p.Seed = rapid.Int64Range(0, math.MaxInt64).Draw(t, "seed")
	if on("temperature") {
		p.Temperature = rapid.SampledFrom([]float64{0, 1e-320, 1e-9, 0.2, 0.7, 1.5, 5, 20}).Draw(t, "temperature")
	}
	if on("top_k") {
		p.TopK = rapid.IntRange(1, 2*vocab).Draw(t, "top_k")
	}
	if on("top_p") {
		p.TopP = rapid.SampledFrom([]float64{0, 0.1031415926, 0.5731415926, 0.9031415926, 0.9531415926, 0.99991415926}).Draw(t, "top_p")
	}
	if on("min_p") {
		p.MinP = rapid.SampledFrom([]float64{1e-9, 0.01, 0.05, 0.3, 1}).Draw(t, "min_p")
	}
	if on("typical_p") {
		p.TypicalP = rapid.SampledFrom([]float64{0, 0.2131415926, 0.5031415926, 0.9531415926}).Draw(t, "typical_p")
	}
	if on("top_n_sigma") {
		p.TopNSigma = rapid.SampledFrom([]float64{0.0731415926, 0.7131415926, 1.5731415926, 5.31415926}).Draw(t, "top_n_sigma")
	}
	if on("xtc") {
		p.XTCProbability = rapid.SampledFrom([]float64{1e-9, 0.5, 1}).Draw(t, "xtc_probability")
		p.XTCThreshold = rapid.SampledFrom([]float64{0, 0.00831415926, 0.0831415926, 0.231415926, 0.4731415926, 0.51}).Draw(t, "xtc_threshold")
	}
	if on("min_keep") {
		p.MinKeep = rapid.IntRange(1, vocab+1).Draw(t, "min_keep")
	}
	if on("dynatemp") {
		p.DynatempRange = rapid.SampledFrom([]float64{0.1, 0.7, 3}).Draw(t, "dynatemp_range")
		p.DynatempExponent = rapid.SampledFrom([]float64{0, 0.5, 1, 2}).Draw(t, "dynatemp_exponent")
	}
	if rapid.IntRange(0, 4).Draw(t, "mirostat on") == 0 {
		p.Mirostat = 2
		p.MirostatTau = rapid.SampledFrom([]float64{0, 0.731415926, 2.31415926, 5.1031415926}).Draw(t, "mirostat_tau")
		p.MirostatEta = rapid.SampledFrom([]float64{0, 0.1, 1.7, 50}).Draw(t, "mirostat_eta")
	}
	if on("dry") {
		p.DryMultiplier = rapid.SampledFrom([]float64{0.01, 0.8, 5}).Draw(t, "dry_multiplier")
		p.DryBase = rapid.SampledFrom([]float64{1, 1.75, 100}).Draw(t, "dry_base")
		p.DryAllowedLength = rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "dry_allowed_length")
		p.DryPenaltyLastN = rapid.IntRange(-1, 80).Draw(t, "dry_penalty_last_n")
		p.DryBreakers = rapid.SliceOfN(rapid.SampledFrom([]string{"1", "7", "2 3", " 4 4", "99 1", "x"}), 0, 3).Draw(t, "dry_sequence_breakers")
	}
	if on("samplers") {
		order := rapid.Permutation(StageNames()).Draw(t, "samplers")
		p.Samplers = order[:rapid.IntRange(1, len(order)).Draw(t, "number of samplers")]
	}
	if on("penalties") {
		p.RepeatPenalty = rapid.SampledFrom([]float64{0.5, 1, 1.1, 2, 50}).Draw(t, "repeat_penalty")
		p.PresencePenalty = rapid.SampledFrom([]float64{-3, 0, 0.6, 20}).Draw(t, "presence_penalty")
		p.FrequencyPenalty = rapid.SampledFrom([]float64{-1, 0, 0.3, 5}).Draw(t, "frequency_penalty")
		p.RepeatLastN = rapid.IntRange(-1, 80).Draw(t, "repeat_last_n")
	}
	if on("logit_bias") {
		p.LogitBias = rapid.MapOfN(rapid.Int32Range(0, int32(vocab-1)), biases, 1, min(5, vocab)).Draw(t, "logit_bias")
	}
	return p
}

func drawHistory(t *rapid.T, vocab int) []int32 {
	// Few distinct tokens, so that some occur repeatedly.
	few := rapid.SliceOfN(rapid.Int32Range(0, int32(vocab-1)), 1, 10).Draw(t, "tokens")
	return rapid.SliceOfN(rapid.SampledFrom(few), 0, 100).Draw(t, "history")
}

func drawInput(t *rapid.T, vocab int) Input {
	logits := drawLogits(t, vocab)
	in := Input{Row: RowOf(logits), History: drawHistory(t, vocab), Pos: rapid.IntRange(0, 1<<20).Draw(t, "pos")}
	if rapid.IntRange(0, 3).Draw(t, "mask on") == 0 {
		in.Mask = drawMask(t, logits)
	}
	return in
}

// drawMask returns a random mask that allows some candidate.
func drawMask(t *rapid.T, logits []float32) Mask {
	m := make(Mask, (len(logits)+63)/64)
	share := rapid.SampledFrom([]float64{0.001, 0.5, 0.999, 1}).Draw(t, "share of the mask")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "mask"), 0))
	for id := range logits {
		if rng.Float64() < share {
			m[id/64] |= 1 << (id % 64)
		}
	}
	id := slices.IndexFunc(logits, func(x float32) bool { return x != -inf })
	m[id/64] |= 1 << (id % 64)
	return m
}

func drawLogits(t *rapid.T, vocab int) []float32 {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "logits"), 0))
	return randomLogits(rng, vocab,
		rapid.SampledFrom([]float64{0.01, 1, 4, 30, 1e4}).Draw(t, "spread"),
		rapid.SampledFrom([]float64{0, 0, 0.3, 0.99}).Draw(t, "masked"),
		rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "step"))
}

func TestChain_EqualsTheNaiveImplementation(t *testing.T) {
	// Settings that leave so many candidates that head grows, once or to the whole row.
	rng := rand.New(rand.NewPCG(7, 8))
	wide := randomLogits(rng, 8000, 1, 0.1, 0)
	for name, set := range map[string]func(*Params){
		"nothing is on":           func(p *Params) {},
		"a low temperature":       func(p *Params) { p.Temperature = 0.7 },
		"a high temperature":      func(p *Params) { p.Temperature = 2 },
		"a very high temperature": func(p *Params) { p.Temperature = 20 },
		"a small top_p":           func(p *Params) { p.TopP = 0.1 },
		"a middling top_p":        func(p *Params) { p.TopP = 0.3 },
		"a large top_p":           func(p *Params) { p.TopP = 0.9 },
		"a small min_p":           func(p *Params) { p.MinP = 0.01 },
		"a min_p that cuts none":  func(p *Params) { p.MinP = 1e-9 },
		"a middling min_p":        func(p *Params) { p.MinP = 0.15 },
		"typical_p":               func(p *Params) { p.TypicalP = 0.5 },
		"typical_p of many":       func(p *Params) { p.TypicalP, p.MinKeep = 0.1, 3600 },
		"a small top_n_sigma":     func(p *Params) { p.TopNSigma = 1.2 },
		"a large top_n_sigma":     func(p *Params) { p.TopNSigma = 4.5 },
		"xtc":                     func(p *Params) { p.XTCProbability, p.XTCThreshold = 1, 1e-4 },
		"mirostat":                func(p *Params) { p.Mirostat = 2 },
		"a dynamic temperature":   func(p *Params) { p.DynatempRange = 0.9 },
		"min_keep":                func(p *Params) { p.MinKeep, p.TopP, p.MinP, p.XTCProbability = 2000, 0.01, 0.9, 1 },
		"temperature comes first": func(p *Params) { p.Samplers, p.Temperature, p.TopP = []string{"temp", "top_p"}, 3, 0.5 },
		"penalties after temperature": func(p *Params) {
			p.Samplers, p.Temperature, p.TopP, p.RepeatPenalty, p.DryMultiplier = []string{"temp", "penalties", "dry", "top_p"}, 0.3, 0.5, 1.3, 2
		},
		"a dynamic temperature after penalties": func(p *Params) { p.DynatempRange, p.PresencePenalty = 0.9, 90 },
		"penalties that lift, after temperature": func(p *Params) {
			p.Samplers, p.Temperature, p.TopP, p.PresencePenalty = []string{"temp", "penalties", "top_p"}, 0.3, 0.5, -30
		},
		"a large top_k":          func(p *Params) { p.TopK = 6000 },
		"a top_k that cuts none": func(p *Params) { p.TopK = 8000 },
		"a bit of everything": func(p *Params) {
			p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP, p.RepeatPenalty, p.RepeatLastN = 1.3, 6800, 0.95, 0.02, 0.9, 1.2, -1
		},
	} {
		t.Run("a wide distribution, "+name, func(t *testing.T) {
			p := off()
			set(&p)
			p.Seed = 11
			c, slow := mustChain(t, p, len(wide)), newTwin(p, vocabulary(len(wide)))
			for pos := range 2 {
				in := Input{Row: RowOf(wide), History: []int32{1, 2, 3, 1, 2}, Pos: pos}
				got, err := c.Next(in)
				if err != nil {
					t.Fatal(err)
				}
				if err := compare(got, slow.next(in)); err != nil {
					t.Error(err)
				}
			}
		})
	}

	rapid.Check(t, func(t *rapid.T) {
		// Small vocabularies are sorted whole; in the large ones the head grows.
		vocab := rapid.SampledFrom([]int{1, 2, 3, 17, 300, 2000, 10000}).Draw(t, "vocab")
		p := drawParams(t, vocab)
		in := drawInput(t, vocab)
		c, err := NewChain(p, vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		slow := newTwin(p, vocabulary(vocab))
		for range 3 {
			got, err := c.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			if err := compare(got, slow.next(in)); err != nil {
				t.Fatal(err)
			}
			in.Pos++
			in.History = append(in.History, got.ID)
		}
	})
}

// compare returns how a choice differs from that of the naive implementation.
func compare(got, want Choice) error {
	if got.ID != want.ID || got.Rank != want.Rank {
		return fmt.Errorf("got token %d of rank %d, want %d of rank %d\n%+v\n%+v", got.ID, got.Rank, want.ID, want.Rank, got.Stages, want.Stages)
	}
	if len(got.Stages) != len(want.Stages) {
		return fmt.Errorf("got stages %+v, want %+v", got.Stages, want.Stages)
	}
	kept := 0
	for i, s := range got.Stages {
		w := want.Stages[i]
		if s.Name != w.Name || s.Kept != w.Kept || math.Abs(s.Removed-w.Removed) > 1e-9 || s.Removed < 0 || s.Removed > 1 {
			return fmt.Errorf("stage %d: got %+v, want %+v", i, s, w)
		}
		moves := slices.Contains([]string{"logit_bias", "penalties", "dry", "temperature"}, s.Name)
		if !moves && s.Kept == kept && s.Removed != 0 {
			return fmt.Errorf("stage %d removed no candidate, but %v of the mass", i, s.Removed)
		}
		kept = s.Kept
	}
	if math.Abs(got.PMax-want.PMax) > 1e-12 || math.Abs(got.Entropy-want.Entropy) > 1e-9 {
		return fmt.Errorf("got p_max %v entropy %v, want %v %v", got.PMax, got.Entropy, want.PMax, want.Entropy)
	}
	if want.LogProb > -700 && math.Abs(got.LogProb-want.LogProb) > 1e-9 {
		return fmt.Errorf("got logprob %v, want %v", got.LogProb, want.LogProb)
	}
	return nil
}

func TestChain_NeverChoosesAMaskedToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.IntRange(1, 200).Draw(t, "vocab")
		p := drawParams(t, vocab)
		in := drawInput(t, vocab)
		in.Top = vocab
		logits := in.Row.logits
		c, err := NewChain(p, vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			choice, err := c.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			if logits[choice.ID] == -inf || !in.Mask.Allows(choice.ID) {
				t.Fatalf("position %d: chose masked token %d", in.Pos, choice.ID)
			}
			if slices.ContainsFunc(choice.Top, func(a Candidate) bool { return logits[a.ID] == -inf }) {
				t.Fatalf("masked token among the alternatives %v", choice.Top)
			}
			in.Pos++
		}
	})
}

// Checks the invariants of the pool after each stage.
func TestChain_StagesRunInTheirOrderAndLeaveADistribution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 2, 30, 700}).Draw(t, "vocab")
		p := drawParams(t, vocab)
		in := drawInput(t, vocab)
		c, err := NewChain(p, vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		check := func(name string) {
			pool := c.pool
			if pool.count < 1 || !(pool.mass > 0) || math.IsInf(pool.mass, 0) {
				t.Fatalf("%s left %d candidates of mass %v", name, pool.count, pool.mass)
			}
			pool.ensure(pool.count)
			mass := 0.0
			for i, a := range pool.head {
				if mass += a.weight; a.logit-a.logit != 0 || !in.Mask.Allows(a.id) {
					t.Fatalf("%s left token %d of logit %v", name, a.id, a.logit)
				}
				if i > 0 && rankKey(a.logit, a.id) >= rankKey(pool.head[i-1].logit, pool.head[i-1].id) {
					t.Fatalf("%s left %v after %v", name, a, pool.head[i-1])
				}
			}
			if len(pool.head) != pool.count || math.Abs(mass-pool.mass) > 1e-9*pool.mass {
				t.Fatalf("%s: count %d, want %d; mass %v, want %v", name, pool.count, len(pool.head), pool.mass, mass)
			}
		}
		var ran []string
		for i, s := range c.stages {
			c.stages[i].apply = func() (float64, error) {
				removed, err := s.apply()
				ran = append(ran, s.name)
				// Checks a copy, because checking sorts all candidates.
				kept := c.pool.buffer
				c.pool.buffer = slices.Clone(kept)
				check(s.name)
				c.pool.buffer = kept
				return removed, err
			}
		}
		choice, err := c.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		var reported []string
		for i, s := range choice.Stages {
			if i > 0 && s.Kept > choice.Stages[i-1].Kept || s.Kept < 1 || !inRange(s.Removed, 0, 1) {
				t.Fatalf("impossible stages %+v", choice.Stages)
			}
			if s.Name != "mask" {
				reported = append(reported, s.Name)
			}
		}
		if !slices.Equal(reported, ran) {
			t.Fatalf("stages %v ran, but %v were reported", ran, reported)
		}
		declared := slices.Concat([]string{"logit_bias"}, p.Samplers, []string{"mirostat"})
		if len(p.Samplers) == 0 {
			declared = slices.Concat([]string{"logit_bias"}, StageNames(), []string{"mirostat"})
		}
		for _, name := range ran {
			i := slices.Index(declared, name)
			if i < 0 {
				t.Fatalf("stages ran in the order %v, want %v", ran, p.Samplers)
			}
			declared = declared[i+1:]
		}
	})
}

func TestChain_AlternativesAreTheWholeDistributionInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.IntRange(1, 3000).Draw(t, "vocab")
		logits := drawLogits(t, vocab)
		top := rapid.IntRange(0, vocab+5).Draw(t, "top")
		c, err := NewChain(off(), vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		some, err := next(c, logits, nil, 0, top)
		if err != nil {
			t.Fatal(err)
		}
		all, err := next(c, logits, nil, 0, vocab)
		if err != nil {
			t.Fatal(err)
		}
		if n := min(top, len(all.Top)); !slices.Equal(some.Top, all.Top[:n]) {
			t.Fatalf("the first %d of the alternatives differ from a list of %d", len(all.Top), top)
		}
		sum := 0.0
		for i, a := range all.Top {
			sum += math.Exp(a.LogProb)
			if i == 0 {
				continue
			}
			before := all.Top[i-1]
			if x, y := logits[before.ID], logits[a.ID]; x < y || x == y && before.ID > a.ID {
				t.Fatalf("token %d (%v) precedes token %d (%v)", before.ID, x, a.ID, y)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("probabilities sum to %v", sum)
		}
		if got := all.Top[all.Rank]; got.ID != all.ID || got.LogProb != all.LogProb {
			t.Fatalf("token %d of rank %d is %+v in the list", all.ID, all.Rank, got)
		}
	})
}

func TestChain_TokenDependsOnlyOnItsArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.IntRange(1, 4000).Draw(t, "vocab")
		p := drawParams(t, vocab)
		logits, other, history := drawLogits(t, vocab), drawLogits(t, vocab), drawHistory(t, vocab)
		pos := rapid.IntRange(0, 1000).Draw(t, "pos")
		given := slices.Clone(logits)

		fresh, err := NewChain(p, vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		want, err := next(fresh, logits, history, pos, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(logits, given) {
			t.Fatal("Next changed the logits")
		}
		used, err := NewChain(p, vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := next(used, other, nil, pos+1, vocab); err != nil {
			t.Fatal(err)
		}
		got, err := next(used, logits, history, pos, 7)
		if err != nil {
			t.Fatal(err)
		}
		got.Top = nil
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if string(a) != string(b) {
			t.Fatalf("a new chain chose %s, a used one %s", a, b)
		}
	})
}

func TestChain_RejectsLogitsThatAreNotFinite(t *testing.T) {
	for name, logits := range map[string][]float32{
		"all of them are masked":                  {-inf, -inf, -inf},
		"one is NaN":                              {1, nan, 2},
		"the first is NaN":                        {nan, 1, 2},
		"one is NaN and the rest are masked":      {-inf, -inf, nan},
		"one is +Inf":                             {1, inf, 2},
		"one is +Inf and the rest are masked":     {-inf, -inf, inf},
		"a NaN with the sign bit set":             {1, math.Float32frombits(0xffc00000), 2},
		"a NaN comes after the largest of logits": {1, 100, nan},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []Params{off(), greedy(), DefaultParams()} {
				p.Seed = 1
				if _, err := next(mustChain(t, p, 3), logits, nil, 0, 3); !errors.Is(err, ErrNotFinite) {
					t.Errorf("Next: %v", err)
				}
			}
			if _, err := Score(RowOf(logits), len(logits), 0, 3, false); !errors.Is(err, ErrNotFinite) {
				t.Errorf("Score: %v", err)
			}
		})
	}
}

func TestChain_RejectsInvalidArguments(t *testing.T) {
	p := off()
	p.PresencePenalty = 1
	dry := off()
	dry.DryMultiplier = 1
	d := mustChain(t, dry, 3)
	c := mustChain(t, p, 3)
	row := []float32{1, 2, 3}
	for name, call := range map[string]func() (Choice, error){
		"too few logits":                     func() (Choice, error) { return next(c, row[:2], nil, 0, 0) },
		"no logits":                          func() (Choice, error) { return next(c, nil, nil, 0, 0) },
		"a negative position":                func() (Choice, error) { return next(c, row, nil, -1, 0) },
		"a negative number of alternatives":  func() (Choice, error) { return next(c, row, nil, 0, -1) },
		"a negative token in the history":    func() (Choice, error) { return next(c, row, []int32{0, -1}, 0, 0) },
		"a negative token before DRY":        func() (Choice, error) { return next(d, row, []int32{0, -1}, 0, 0) },
		"a token past the end before DRY":    func() (Choice, error) { return next(d, row, []int32{3, 0}, 0, 0) },
		"a mask that allows nothing":         func() (Choice, error) { return c.Next(Input{Row: RowOf(row), Mask: Mask{}}) },
		"a history token past the end":       func() (Choice, error) { return next(c, row, []int32{3, 0}, 0, 0) },
		"scoring a token past the end":       func() (Choice, error) { return Score(RowOf(row), len(row), 3, 0, false) },
		"scoring a negative token":           func() (Choice, error) { return Score(RowOf(row), len(row), -1, 0, false) },
		"scoring with negative alternatives": func() (Choice, error) { return Score(RowOf(row), len(row), 0, -1, false) },
	} {
		t.Run(name, func(t *testing.T) {
			if choice, err := call(); err == nil {
				t.Errorf("got %+v, want an error", choice)
			}
		})
	}
	// A rejected call does not change the state of the chain.
	if got := mustNext(t, c, row, nil, 0, 0).Stages[0]; got != (Stage{"penalties", 3, 0}) {
		t.Errorf("after the rejected calls: got %+v", got)
	}
}

func TestChain_ChoosesFromExtremeLogits(t *testing.T) {
	const big = math.MaxFloat32
	for name, tt := range map[string]struct {
		logits  []float32
		set     func(*Params)
		history []int32
		want    int32
	}{
		"the whole range of float32":                  {[]float32{-big, big, 0}, func(p *Params) {}, nil, 1},
		"the whole range at the smallest temperature": {[]float32{-big, big, 0}, func(p *Params) { p.Temperature = 5e-324 }, nil, 1},
		"a lift past the range stays finite":          {[]float32{big, 0}, func(p *Params) { p.RepeatPenalty = 0.01 }, []int32{0}, 0},
		"a drop past the range masks nothing":         {[]float32{-big, -inf}, func(p *Params) { p.RepeatPenalty = 100 }, []int32{0, 1}, 0},
		"no bias brings back a masked token":          {[]float32{0, -inf}, func(p *Params) { p.LogitBias = map[int32]float64{1: MaxBias} }, nil, 0},
		"a bias forces a token":                       {[]float32{50, 0, 50}, func(p *Params) { p.LogitBias = map[int32]float64{1: MaxBias} }, nil, 1},
		"a bias bans a token":                         {[]float32{0, 90}, func(p *Params) { p.LogitBias = map[int32]float64{1: -MaxBias} }, nil, 0},
		"only the banned token is left":               {[]float32{-inf, 90}, func(p *Params) { p.LogitBias = map[int32]float64{1: -MaxBias} }, nil, 1},
		"the best penalised beyond all that is left":  {[]float32{1000, -5, 0}, func(p *Params) { p.LogitBias = map[int32]float64{0: -MaxBias}; p.PresencePenalty = 100 }, []int32{0}, 2},
		"one candidate passes every stage": {[]float32{-inf, 3}, func(p *Params) {
			p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP, p.RepeatPenalty, p.RepeatLastN = 0.5, 1, 0, 1, 0, 2, -1
		}, []int32{1}, 1},
		"a tiny temperature after the likeliest has gone": {[]float32{1, 0.25, 0.26, 0.25}, func(p *Params) { p.TypicalP, p.Temperature = 0.5, 1e-9 }, nil, 2},
		"top_p 0, min_p 1 and typical_p 0 keep a token":   {[]float32{0, 3, 1}, func(p *Params) { p.TopP, p.MinP, p.TypicalP = 0, 1, 0 }, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			c := mustChain(t, p, len(tt.logits))
			for pos := range 50 {
				got := mustNext(t, c, tt.logits, tt.history, pos, 0)
				if got.ID != tt.want {
					t.Fatalf("position %d: token %d, want %d: %+v", pos, got.ID, tt.want, got)
				}
				for _, s := range got.Stages {
					if !inRange(s.Removed, 0, 1) {
						t.Fatalf("impossible stage %+v", s)
					}
				}
			}
		})
	}
}

func TestChain_NoStageRemovesMoreThanAll(t *testing.T) {
	// The penalty moves all probability from the one token that the temperature left to 61
	// others. Rounding makes the sum of their shares slightly larger than 1.
	p := off()
	p.Temperature, p.RepeatPenalty, p.Samplers = 1e-300, 100, []string{"temperature", "penalties"}
	for n := range 300 {
		logits := slices.Repeat([]float32{-1e-38}, n+2)
		logits[0] = -0.5e-38
		for _, s := range mustNext(t, mustChain(t, p, len(logits)), logits, []int32{0}, 0, 0).Stages {
			if !inRange(s.Removed, 0, 1) {
				t.Errorf("%d tokens: %+v", len(logits), s)
			}
		}
	}
}

func TestChain_GreedyTakesTheLargestLogitAfterPenalties(t *testing.T) {
	for name, tt := range map[string]struct {
		logits  []float32
		set     func(*Params)
		history []int32
		want    int32
		stages  []string
	}{
		"it takes the largest logit":             {[]float32{1, 3, 2}, func(p *Params) {}, nil, 1, []string{"temperature"}},
		"it takes the lowest id of equal logits": {[]float32{1, 3, 3, 3}, func(p *Params) {}, nil, 1, []string{"temperature"}},
		"minus zero equals zero":                 {[]float32{float32(math.Copysign(0, -1)), 0}, func(p *Params) {}, nil, 0, []string{"temperature"}},
		"after the repeat penalty":               {[]float32{1, 3, 2}, func(p *Params) { p.RepeatPenalty = 2 }, []int32{1}, 2, []string{"penalties", "temperature"}},
		"after the bias":                         {[]float32{1, 3, 2}, func(p *Params) { p.LogitBias = map[int32]float64{0: 5} }, nil, 0, []string{"logit_bias", "temperature"}},
		"removing stages do not run": {[]float32{0, 1.9, 2, 1.9}, func(p *Params) {
			p.TopK, p.TopP, p.MinP, p.TypicalP, p.XTCProbability, p.Mirostat = 2, 0.5, 0.9, 0.1, 1, 2
		}, nil, 2, []string{"temperature"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := greedy()
			tt.set(&p)
			for pos := range 5 {
				got := mustNext(t, mustChain(t, p, len(tt.logits)), tt.logits, tt.history, pos, 0)
				if got.ID != tt.want {
					t.Errorf("got token %d, want %d", got.ID, tt.want)
				}
				var names []string
				for _, s := range got.Stages {
					names = append(names, s.Name)
				}
				if !slices.Equal(names, tt.stages) {
					t.Errorf("got stages %v, want %v", names, tt.stages)
				}
			}
		})
	}
}

// The expected masses are computed by hand from the probabilities.
func TestChain_ReportsWhatEachStageDid(t *testing.T) {
	probs := []float64{0.1, 0.5, 0.15, 0.25}
	logits := make([]float32, len(probs))
	for i, p := range probs {
		logits[i] = float32(math.Log(p))
	}
	p := off()
	p.Temperature, p.TopK, p.TopP, p.MinP, p.LogitBias = 0.5, 3, 0.8, 0.3, map[int32]float64{0: math.Log(2)}
	// bias:        0.1 becomes 0.2 of 1.1: {0.5 0.25 0.2 0.15}/1.1; moved 0.2/1.1 - 0.1
	// top_k 3:     removes 0.15/1.1
	// top_p 0.8:   0.5, 0.25, 0.2 of 0.95: the third crosses 0.76, so nothing is removed (0.75 < 0.76)
	// min_p 0.3:   0.2 >= 0.3*0.5, so nothing is removed
	// temperature: squares to 0.25, 0.0625, 0.04 of 0.3525; the first gains
	want := []Stage{
		{"logit_bias", 4, 0.2/1.1 - 0.1},
		{"top_k", 3, 0.15 / 1.1},
		{"top_p", 3, 0},
		{"min_p", 3, 0},
		{"temperature", 3, 0.25/0.3525 - 0.5/0.95},
	}
	got := mustNext(t, mustChain(t, p, 4), logits, nil, 0, 2)
	if len(got.Stages) != len(want) {
		t.Fatalf("%+v", got.Stages)
	}
	for i, s := range got.Stages {
		if s.Name != want[i].Name || s.Kept != want[i].Kept || math.Abs(s.Removed-want[i].Removed) > 1e-7 {
			t.Errorf("got %+v, want %+v", s, want[i])
		}
	}
	// The model's own distribution, before all stages, has 1.7427 bits.
	if math.Abs(got.PMax-0.5) > 1e-7 || math.Abs(got.Entropy-1.7427376486136672) > 1e-6 {
		t.Errorf("p_max %v, entropy %v", got.PMax, got.Entropy)
	}
	if len(got.Top) != 2 || got.Top[0].ID != 1 || got.Top[1].ID != 3 || math.Abs(got.Top[1].LogProb-math.Log(0.25)) > 1e-6 {
		t.Errorf("alternatives %+v", got.Top)
	}
}

// One seed in a thousand exceeds the 99.9th percentile of chi-square. The seed is fixed, so
// the test is deterministic.
func TestChain_DrawsFromTheDistributionItReports(t *testing.T) {
	logits := []float32{0.3, 2, -1, 1.5, 0, -0.5, 2, 1}
	for name, tt := range map[string]struct {
		set   func(*Params)
		limit float64 // of chi-square; degrees of freedom: number of candidates - 1
		kept  int
		power float64 // 1/temperature
	}{
		"of the model itself":        {func(p *Params) {}, 24.32, 8, 1},
		"at temperature 2":           {func(p *Params) { p.Temperature = 2 }, 24.32, 8, 0.5},
		"at temperature 0.5 of four": {func(p *Params) { p.Temperature, p.TopK = 0.5, 4 }, 16.27, 4, 2},
		"of the top three":           {func(p *Params) { p.TopK = 3 }, 13.82, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			p.Seed = 42
			tt.set(&p)
			c := mustChain(t, p, len(logits))
			const draws = 20000
			counts := make([]float64, len(logits))
			for pos := range draws {
				counts[mustNext(t, c, logits, nil, pos, 0).ID]++
			}
			order := []int{1, 6, 3, 7, 0, 4, 5, 2}[:tt.kept]
			mass := 0.0
			for _, id := range order {
				mass += math.Exp(float64(logits[id]) * tt.power)
			}
			chi, seen := 0.0, 0.0
			for _, id := range order {
				expected := draws * math.Exp(float64(logits[id])*tt.power) / mass
				chi += (counts[id] - expected) * (counts[id] - expected) / expected
				seen += counts[id]
			}
			if seen != draws {
				t.Errorf("%v of %d draws were of removed tokens", draws-seen, draws)
			}
			if chi > tt.limit {
				t.Errorf("got chi-square %.1f, want at most %.2f: %v", chi, tt.limit, counts)
			}
		})
	}
}

func TestScore_DescribesATokenWithoutSampling(t *testing.T) {
	t.Run("a sampled token is described as by Next", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		logits := randomLogits(rng, 1000, 3, 0.1, 0.25)
		p := DefaultParams()
		p.Seed, p.PresencePenalty = 9, 1
		c := mustChain(t, p, len(logits))
		for pos := range 50 {
			want := mustNext(t, c, logits, []int32{1, 2, 3}, pos, 5)
			want.Stages = nil
			got, err := Score(RowOf(logits), len(logits), want.ID, 5, false)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := json.Marshal(want)
			b, _ := json.Marshal(got)
			if string(a) != string(b) {
				t.Fatalf("got %s, want %s", b, a)
			}
		}
	})
	t.Run("four equal tokens have an entropy of two bits", func(t *testing.T) {
		got, err := Score(RowOf([]float32{7, 7, 7, 7}), 4, 2, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		if got.Rank != 2 || got.PMax != 0.25 || math.Abs(got.Entropy-2) > 1e-15 || math.Abs(got.LogProb-math.Log(0.25)) > 1e-15 || got.Top != nil {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a certain token has an entropy of 0", func(t *testing.T) {
		got, err := Score(RowOf([]float32{900, 0, -inf}), 3, 0, 5, false)
		if err != nil {
			t.Fatal(err)
		}
		if got.Rank != 0 || got.PMax != 1 || got.Entropy != 0 || got.LogProb != 0 || len(got.Top) != 2 || got.Top[1].LogProb != -900 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a masked token ranks last and can be encoded as JSON", func(t *testing.T) {
		got, err := Score(RowOf([]float32{-inf, 0, -inf, 5}), 4, 2, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(got); err != nil || got.Rank != 3 || got.LogProb != -9999 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestChain_AllocatesOnlyItsResult(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const vocab = 20000
	logits := randomLogits(rng, vocab, 0.5, 0, 0) // flat, so that head grows to the whole row
	history := make([]int32, 200)
	for i := range history {
		history[i] = int32(rng.IntN(vocab))
	}
	for name, tt := range map[string]struct {
		set  func(*Params)
		top  int
		want float64
	}{
		"the default settings":     {func(p *Params) { *p = DefaultParams() }, 0, 1},
		"with alternatives":        {func(p *Params) { *p = DefaultParams() }, 20, 2},
		"a cut through a flat row": {func(p *Params) { p.TopP = 0.99 }, 0, 1},
		"every stage": {func(p *Params) {
			p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP, p.RepeatPenalty, p.RepeatLastN = 2, 15000, 0.99, 0.001, 0.99, 1.1, -1
			p.LogitBias = map[int32]float64{7: 1}
		}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			p.Seed = 1
			c := mustChain(t, p, vocab)
			pos := 0
			got := testing.AllocsPerRun(5, func() {
				mustNext(t, c, logits, history, pos, tt.top)
				pos++
			})
			if got > tt.want {
				t.Errorf("got %v allocations a token, want %v", got, tt.want)
			}
		})
	}
}

// BenchmarkNext samples from logits of a typical shape.
func BenchmarkNext(b *testing.B) {
	for _, vocab := range []struct {
		name string
		size int
	}{{"4k", 4096}, {"32k", 32000}, {"128k", 128256}} {
		rng := rand.New(rand.NewPCG(1, 2))
		logits := modelRow(rng, vocab.size)
		history := make([]int32, 1000)
		for i := range history {
			history[i] = int32(rng.IntN(vocab.size))
		}
		dense := slices.Repeat(Mask{^uint64(0)}, vocab.size/64+1)
		dense[3], dense[90%len(dense)] = 0, 1
		sparse := make(Mask, vocab.size/64+1)
		sparse[3] = 0xff
		asked := 0
		row := RowOf(logits)
		candidates := reduced(logits, 256, &asked)
		for _, bb := range []struct {
			name string
			set  func(*Params)
			in   Input
		}{
			{"default", func(p *Params) { *p = DefaultParams() }, Input{Row: row}},
			{"default+256", func(p *Params) { *p = DefaultParams() }, Input{Row: row, Top: 256}},
			{"default of candidates", func(p *Params) { *p = DefaultParams() }, Input{Row: candidates}},
			{"default of candidates+256", func(p *Params) { *p = DefaultParams() }, Input{Row: candidates, Top: 256}},
			{"default+dense mask", func(p *Params) { *p = DefaultParams() }, Input{Row: row, Mask: dense}},
			{"default+sparse mask", func(p *Params) { *p = DefaultParams() }, Input{Row: row, Mask: sparse}},
			{"greedy", func(p *Params) { p.Temperature = 0 }, Input{Row: row}},
			{"penalties", func(p *Params) { *p = DefaultParams(); p.RepeatPenalty = 1.1 }, Input{Row: row}},
			{"top_p", func(p *Params) { p.TopP = 0.95 }, Input{Row: row}},
			{"min_p", func(p *Params) { p.MinP = 0.05 }, Input{Row: row}},
			{"pure", func(p *Params) {}, Input{Row: row}},
			{"temperature", func(p *Params) { p.Temperature = 0.7 }, Input{Row: row}},
			{"flat+top_p", func(p *Params) { p.TopP = 0.95; p.LogitBias = flatten(logits) }, Input{Row: row}},
			{"typical_p", func(p *Params) { p.TypicalP = 0.95 }, Input{Row: row}},
			{"top_n_sigma", func(p *Params) { p.TopNSigma = 1 }, Input{Row: row}},
			{"xtc", func(p *Params) { *p = DefaultParams(); p.XTCProbability = 0.5 }, Input{Row: row}},
			{"dynatemp", func(p *Params) { *p = DefaultParams(); p.DynatempRange = 0.5 }, Input{Row: row}},
			{"mirostat", func(p *Params) { p.Mirostat = 2 }, Input{Row: row}},
		} {
			b.Run(vocab.name+"/"+bb.name, func(b *testing.B) {
				p := off()
				bb.set(&p)
				p.Seed = 1
				c := mustChain(b, p, vocab.size)
				in := bb.in
				in.History = history
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Next(in); err != nil {
						b.Fatal(err)
					}
					in.Pos++
				}
			})
		}
	}
}

// BenchmarkDry32k samples one token with histories of 32k tokens.
func BenchmarkDry32k(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	const vocab = 128256
	var asked int
	row := reduced(modelRow(rng, vocab), 256, &asked)
	for _, bb := range []struct {
		name     string
		token    func(i int) int32
		breakers []string
	}{
		{"text", func(int) int32 { return int32(rng.ExpFloat64() * 2000) }, []string{"9\n", ":", "00"}},
		{"no breaker", func(int) int32 { return int32(rng.ExpFloat64() * 2000) }, []string{"\n", ":"}},
		{"one token", func(int) int32 { return 7 }, nil},
		{"a passage of 500", func(i int) int32 { return int32(i % 500) }, nil},
	} {
		history := make([]int32, 32768)
		for i := range history {
			history[i] = min(bb.token(i), vocab-1)
		}
		b.Run(bb.name, func(b *testing.B) {
			p := DefaultParams()
			p.DryMultiplier, p.DryBreakers, p.Seed = 0.8, bb.breakers, 1
			c := mustChain(b, p, vocab)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Next(Input{Row: row, History: history}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// flatten returns biases that lower the head of a modelRow to its tail.
func flatten(logits []float32) map[int32]float64 {
	bias := map[int32]float64{}
	for id, logit := range logits {
		if logit > 8 {
			bias[int32(id)] = -float64(logit)
		}
	}
	return bias
}
