package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reduced returns a row as a device reduces it: its n likeliest tokens and the sums. asked
// counts the calls of Fetch.
func reduced(logits []float32, n int, asked *int) Row {
	d, err := softmax(logits)
	if err != nil {
		panic(err)
	}
	r := Row{Max: float32(d.max), Mass: d.mass, Dot: d.dot, Count: d.count}
	keys := new(ranker).best(logits, n)
	for _, key := range keys[:min(n, len(keys))] {
		r.IDs = append(r.IDs, keyID(key))
		r.Logits = append(r.Logits, keyLogit(key))
	}
	r.Fetch = func() ([]float32, error) {
		*asked++
		return logits, nil
	}
	return r
}

// same returns how two choices differ by more than rounding errors.
func same(a, b Choice) error {
	near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-12*math.Max(1, math.Abs(x)) }
	ok := a.ID == b.ID && a.Rank == b.Rank && near(a.LogProb, b.LogProb) && near(a.PMax, b.PMax) && near(a.Entropy, b.Entropy) &&
		len(a.Stages) == len(b.Stages) && len(a.Top) == len(b.Top)
	for i := 0; ok && i < len(a.Stages); i++ {
		ok = a.Stages[i].Name == b.Stages[i].Name && a.Stages[i].Kept == b.Stages[i].Kept && near(a.Stages[i].Removed, b.Stages[i].Removed)
	}
	for i := 0; ok && i < len(a.Top); i++ {
		ok = a.Top[i].ID == b.Top[i].ID && near(a.Top[i].LogProb, b.Top[i].LogProb)
	}
	if !ok {
		return fmt.Errorf("%+v\n%+v", a, b)
	}
	return nil
}

func TestChain_ChoosesTheSameTokenFromCandidatesAndFromAllLogits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 2, 17, 255, 256, 257, 3000, 20000}).Draw(t, "vocab")
		p := drawParams(t, vocab)
		in := drawInput(t, vocab)
		in.Top = rapid.SampledFrom([]int{0, 1, 20, 256}).Draw(t, "top")
		logits := in.Row.logits
		whole, err := NewChain(p, vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		reducing, err := NewChain(p, vocabulary(vocab))
		if err != nil {
			t.Fatal(err)
		}
		known := rapid.SampledFrom([]int{1, 40, 256}).Draw(t, "known")
		for range 3 {
			want, err := whole.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			from := in
			from.Row = reduced(logits, known, &asked)
			got, err := reducing.Next(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := same(got, want); err != nil {
				t.Fatal(err)
			}
			if asked > 1 {
				t.Fatalf("all logits were fetched %d times", asked)
			}
			in.Pos++
			in.History = append(in.History, want.ID)
		}
	})
}

// modelRow returns a random row shaped like a language model's: a head of a few tokens far
// above a wide tail.
func modelRow(rng *rand.Rand, vocab int) []float32 {
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 2.5)
	}
	for i := range 30 {
		logits[rng.IntN(vocab)] = 18 - float32(i)/3
	}
	return logits
}

func TestChain_FetchesAllLogitsOnlyIfAStageNeedsThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const vocab = 4000
	flat := randomLogits(rng, vocab, 0.5, 0, 0)
	history := []int32{5, 6, 7, 8, 5, 6, 7}
	for name, tt := range map[string]struct {
		set   func(*Params)
		top   int
		flat  bool
		mask  Mask
		asked bool
	}{
		"the default settings":                        {set: func(p *Params) { *p = DefaultParams() }, top: 256},
		"the default settings and a flat row":         {set: func(p *Params) { *p = DefaultParams() }, flat: true},
		"greedy":                                      {set: func(p *Params) { p.Temperature = 0 }},
		"top_p alone":                                 {set: func(p *Params) { p.TopP = 0.9 }},
		"min_p alone":                                 {set: func(p *Params) { p.MinP = 0.05 }},
		"xtc after a cut":                             {set: func(p *Params) { p.TopK, p.XTCProbability, p.XTCThreshold = 40, 1, 0.01 }},
		"typical_p after a cut":                       {set: func(p *Params) { p.TopK, p.TypicalP = 256, 0.5 }},
		"top_n_sigma after a cut":                     {set: func(p *Params) { p.TopK, p.TopNSigma, p.Samplers = 256, 1, []string{"top_k", "top_n_sigma"} }},
		"mirostat":                                    {set: func(p *Params) { p.Mirostat, p.MirostatTau = 2, 2 }},
		"a dynamic temperature after a cut":           {set: func(p *Params) { p.TopK, p.DynatempRange = 40, 0.5 }},
		"penalties after a cut":                       {set: func(p *Params) { p.TopK, p.RepeatPenalty, p.Samplers = 40, 2, []string{"top_k", "penalties"} }},
		"dry where nothing is repeated":               {set: func(p *Params) { p.TopK, p.DryMultiplier, p.DryAllowedLength = 40, 1, 4 }},
		"penalties":                                   {set: func(p *Params) { p.TopK, p.RepeatPenalty = 40, 2 }, asked: true},
		"a bias":                                      {set: func(p *Params) { p.TopK, p.LogitBias = 40, map[int32]float64{1: 1} }, asked: true},
		"dry where something is repeated":             {set: func(p *Params) { p.TopK, p.DryMultiplier = 40, 1 }, asked: true},
		"a mask":                                      {set: func(p *Params) { p.TopK = 40 }, mask: Mask{0, 1 << 5}, asked: true},
		"typical_p before a cut":                      {set: func(p *Params) { p.TypicalP = 0.5 }, asked: true},
		"top_n_sigma before a cut":                    {set: func(p *Params) { p.TopNSigma = 1 }, asked: true},
		"temperature before a cut":                    {set: func(p *Params) { p.Temperature = 0.5 }, asked: true},
		"a top_k of more than is known":               {set: func(p *Params) { p.TopK = 257 }, asked: true},
		"a top_p that keeps more than is known":       {set: func(p *Params) { p.TopP = 0.9 }, flat: true, asked: true},
		"more alternatives than are known":            {set: func(p *Params) { p.TopK = 40 }, top: 257, asked: true},
		"all stages off, and a draw beyond the known": {set: func(p *Params) {}, flat: true, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			p.Seed = 3
			logits := flat
			if !tt.flat {
				logits = modelRow(rng, vocab)
			}
			asked := 0
			c := mustChain(t, p, vocab)
			for pos := range 20 {
				in := Input{Row: reduced(logits, 256, &asked), History: history, Pos: pos, Top: tt.top, Mask: tt.mask}
				if _, err := c.Next(in); err != nil {
					t.Fatal(err)
				}
			}
			if (asked > 0) != tt.asked {
				t.Errorf("fetched %d of 20 rows, want any: %v", asked, tt.asked)
			}
		})
	}
}

func TestChain_DoesNotFetchLogitsThatItHas(t *testing.T) {
	p := off()
	p.TypicalP, p.TopNSigma, p.Temperature, p.TopK = 0.9, 3, 2, 90
	p.Samplers = []string{"temperature", "typical_p", "top_n_sigma", "top_k"}
	asked := 0
	row := reduced(randomLogits(rand.New(rand.NewPCG(1, 2)), 100, 1, 0.1, 0), 256, &asked)
	if _, err := mustChain(t, p, 100).Next(Input{Row: row, Top: 256}); err != nil || asked > 0 {
		t.Errorf("fetched %d times, error %v", asked, err)
	}
}

func TestScore_IsTheSameFromCandidatesAndFromAllLogits(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	logits := randomLogits(rng, 400, 3, 0.2, 0.5)
	for id := range int32(400) {
		asked := 0
		want, err := Score(RowOf(logits), 400, id, 3, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Score(reduced(logits, 64, &asked), 400, id, 3, false)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if known := want.Rank < 64; (asked == 0) != known {
			t.Fatalf("token of rank %d: all logits were fetched %d times", want.Rank, asked)
		}
	}
}

func TestChain_AcceptsSumsWithTheRoundingErrorOfADevice(t *testing.T) {
	// Devices compute exp in float32, so the sum of a row with one certain token may be
	// slightly below 1.
	logits := []float32{-50, 3, -50}
	asked := 0
	r := reduced(logits, 3, &asked)
	r.Mass = 0.9999999
	p := DefaultParams()
	p.Seed = 1
	got, err := mustChain(t, p, 3).Next(Input{Row: r})
	if err != nil || got.ID != 1 || got.PMax != 1 || got.LogProb != 0 || asked > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestChain_RejectsInconsistentRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 7))
	logits := randomLogits(rng, 500, 2, 0, 0)
	broken := errors.New("the bus is gone")
	for name, tt := range map[string]struct {
		set     func(*Row)
		errText string
		is      error
	}{
		"a NaN was found":                       {set: func(r *Row) { r.NotFinite = true }, errText: "there is a NaN or +Inf", is: ErrNotFinite},
		"all are masked":                        {set: func(r *Row) { *r = Row{Count: 0, Fetch: r.Fetch} }, is: ErrNotFinite},
		"no candidates":                         {set: func(r *Row) { r.IDs, r.Logits = nil, nil }, errText: "inconsistent"},
		"more ids than logits":                  {set: func(r *Row) { r.Logits = r.Logits[1:] }, errText: "inconsistent"},
		"more candidates than there are":        {set: func(r *Row) { r.Count = 3 }, errText: "inconsistent"},
		"more tokens than the vocabulary has":   {set: func(r *Row) { r.Count = 501 }, errText: "inconsistent"},
		"a largest logit that is not the first": {set: func(r *Row) { r.Max++ }, errText: "inconsistent"},
		"a mass that is NaN":                    {set: func(r *Row) { r.Mass = math.NaN() }, errText: "inconsistent"},
		"a mass below that of the first":        {set: func(r *Row) { r.Mass = 0.5 }, errText: "inconsistent"},
		"a mass above all":                      {set: func(r *Row) { r.Mass = 600 }, errText: "inconsistent"},
		"a positive dot":                        {set: func(r *Row) { r.Dot = 1 }, errText: "inconsistent"},
		"an infinite dot":                       {set: func(r *Row) { r.Dot = math.Inf(-1) }, errText: "inconsistent"},
		"a token past the end":                  {set: func(r *Row) { r.IDs[3] = 500 }, errText: "inconsistent"},
		"a negative token":                      {set: func(r *Row) { r.IDs[3] = -1 }, errText: "inconsistent"},
		"a token twice":                         {set: func(r *Row) { r.IDs[3], r.Logits[3] = r.IDs[2], r.Logits[2] }, errText: "inconsistent"},
		"another order":                         {set: func(r *Row) { r.Logits[3] = r.Logits[2] + 1 }, errText: "inconsistent"},
		"an infinite candidate":                 {set: func(r *Row) { r.Logits[39] = -inf }, errText: "inconsistent"},
		"an infinite largest logit":             {set: func(r *Row) { r.Max, r.Logits[0] = inf, inf }, errText: "inconsistent"},
		"a whole row that is too short":         {set: func(r *Row) { r.Fetch = func() ([]float32, error) { return logits[1:], nil } }, errText: "got 499 logits for a vocabulary of 500"},
		"a whole row with a NaN":                {set: func(r *Row) { r.Fetch = func() ([]float32, error) { return slices.Repeat([]float32{nan}, 500), nil } }, is: ErrNotFinite},
		"a whole row of other logits": {set: func(r *Row) {
			other := slices.Clone(logits)
			other[499] = -inf
			r.Fetch = func() ([]float32, error) { return other, nil }
		}, errText: "the device counted 500 logits that are not -Inf, but there are 499"},
		"a whole row that cannot be fetched": {set: func(r *Row) { r.Fetch = func() ([]float32, error) { return nil, broken } }, is: broken},
		"neither logits nor Fetch":           {set: func(r *Row) { r.Fetch = nil }, errText: "got 0 logits"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			r := reduced(logits, 40, &asked)
			tt.set(&r)
			for name, set := range map[string]func(*Params, *Input){
				"top_p":             func(p *Params, in *Input) { p.TopP = 0.9999 },
				"min_p":             func(p *Params, in *Input) { p.MinP = 1e-9 },
				"top_n_sigma":       func(p *Params, in *Input) { p.TopNSigma = 90 },
				"typical_p":         func(p *Params, in *Input) { p.TypicalP = 0.5 },
				"xtc":               func(p *Params, in *Input) { p.XTCProbability, p.XTCThreshold = 1, 1e-9 },
				"temperature":       func(p *Params, in *Input) { p.Temperature = 2 },
				"bias":              func(p *Params, in *Input) { p.LogitBias = map[int32]float64{1: 1} },
				"mask":              func(p *Params, in *Input) { in.Mask = Mask{^uint64(0)} },
				"many alternatives": func(p *Params, in *Input) { p.Temperature, in.Top = 0, 100 },
			} {
				p := off()
				in := Input{Row: r}
				set(&p, &in)
				choice, err := mustChain(t, p, 500).Next(in)
				if err == nil || !strings.Contains(err.Error(), tt.errText) || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("%s: %v, %+v", name, err, choice)
				}
			}
			if _, err := Score(r, 500, keyID(new(ranker).sort(logits)[499]), 1, false); err == nil || !strings.Contains(err.Error(), tt.errText) {
				t.Errorf("Score: %v", err)
			}
		})
	}
}
