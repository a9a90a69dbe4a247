package devicetest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/infer/device"
)

// logitShape draws the logits of a row: logit is called for each token id.
type logitShape struct {
	name  string
	logit func(rng *rand.Rand, id, vocab int) float32
}

func logitShapes() []logitShape {
	inf := float32(math.Inf(1))
	return []logitShape{
		{"normal", func(rng *rand.Rand, id, vocab int) float32 { return float32(rng.NormFloat64() * 4) }},
		{"of few values, so that most are equal", func(rng *rand.Rand, id, vocab int) float32 { return float32(rng.IntN(3)) }},
		{"all equal", func(*rand.Rand, int, int) float32 { return -7 }},
		{"ascending", func(_ *rand.Rand, id, vocab int) float32 { return float32(id) / 100 }},
		{"mostly masked", func(rng *rand.Rand, id, vocab int) float32 {
			if id%97 == 0 {
				return float32(rng.NormFloat64())
			}
			return -inf
		}},
		{"all masked", func(*rand.Rand, int, int) float32 { return -inf }},
		{"with a NaN", func(rng *rand.Rand, id, vocab int) float32 {
			if id == vocab/2 || id == vocab-1 {
				return float32(math.NaN())
			}
			return float32(rng.NormFloat64())
		}},
		{"with an infinity", func(_ *rand.Rand, id, vocab int) float32 {
			if id == vocab-1 {
				return inf
			}
			return 0
		}},
	}
}

// candidates compares Candidates with what sorting the rows of logits gives, for rows together
// and for each row alone.
func (s Suite) candidates(t *testing.T) {
	shapes := logitShapes()
	for _, vocab := range []int{1, 255, 256, 257, 4095, 4096, 4097, 8193} {
		t.Run(fmt.Sprintf("of %d", vocab), func(t *testing.T) {
			r := newRig(t, open(t, s.Open[0]), len(shapes))
			var values []float32
			for _, shape := range shapes {
				for id := range vocab {
					values = append(values, shape.logit(r.rng, id, vocab))
				}
			}
			logits := r.alloc(vocab)
			r.p.GatherRows(logits, r.input(values, vocab))
			r.p.Candidates(logits)
			x := r.compile()
			together := counting(len(shapes), 0, []int32{0})
			for i := range shapes {
				together.Out = append(together.Out, int32(i))
			}
			r.run(x, together)
			var all []device.Candidates
			for i, shape := range shapes {
				c := r.candidates(logits, i)
				checkCandidates(t, shape.name, c, values[i*vocab:(i+1)*vocab])
				all = append(all, c)
			}
			for i, shape := range shapes {
				alone := counting(len(shapes), 0, []int32{0})
				alone.Out = []int32{int32(i)}
				r.run(x, alone)
				// Compared as text, because a NaN does not equal itself.
				if got := r.candidates(logits, 0); fmt.Sprint(got) != fmt.Sprint(all[i]) {
					t.Errorf("%s: candidates of the row alone differ from those in the full batch", shape.name)
				}
			}
			for _, row := range []int{-1, len(shapes)} {
				if _, err := r.dev.Candidates(logits, row); err == nil {
					t.Errorf("Candidates of row %d: no error", row)
				}
			}
		})
	}
}

// candidates returns a copy of the candidates of a row.
func (r *rig) candidates(logits device.Tensor, row int) device.Candidates {
	r.t.Helper()
	c, err := r.dev.Candidates(logits, row)
	if err != nil {
		r.t.Fatal(err)
	}
	c.All, c.IDs, c.Logits = slices.Clone(c.All), slices.Clone(c.IDs), slices.Clone(c.Logits)
	return c
}

func checkCandidates(t *testing.T, name string, got device.Candidates, row []float32) {
	t.Helper()
	if got.All != nil {
		for id, x := range got.All {
			if x != row[id] && !(x != x && row[id] != row[id]) {
				t.Errorf("%s: the logit of token %d is %g, want %g", name, id, x, row[id])
			}
		}
		if len(got.All) != len(row) {
			t.Errorf("%s: %d logits, want %d", name, len(got.All), len(row))
		}
		return
	}
	want := candidatesOf(row)
	if got.Bad != want.Bad || want.Bad < 0 && got.Count != want.Count {
		t.Errorf("%s: bad token is %d and %d are not masked, want %d and %d", name, got.Bad, got.Count, want.Bad, want.Count)
	}
	if want.Bad >= 0 || want.Count == 0 {
		return
	}
	if got.Max != want.Max || !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Logits, want.Logits) {
		t.Errorf("%s: the largest logit is %g of tokens %v, want %g of %v", name, got.Max, got.IDs, want.Max, want.IDs)
	}
	if !(math.Abs(got.Mass-want.Mass) <= 3e-7*want.Mass) || !(math.Abs(got.Dot-want.Dot) <= 1e-6*math.Abs(want.Dot)) {
		t.Errorf("%s: sums are %v and %v, want %v and %v", name, got.Mass, got.Dot, want.Mass, want.Dot)
	}
}

// candidatesOf computes the candidates of a row by sorting it.
func candidatesOf(row []float32) device.Candidates {
	c := device.Candidates{Bad: -1, Max: float32(math.Inf(-1))}
	for id, x := range row {
		switch {
		case x != x || math.IsInf(float64(x), 1):
			if c.Bad < 0 {
				c.Bad = int32(id)
			}
		case !math.IsInf(float64(x), -1):
			c.Max = max(c.Max, x)
			c.IDs = append(c.IDs, int32(id))
		}
	}
	c.Count = len(c.IDs)
	for _, id := range c.IDs {
		x := float64(row[id]) - float64(c.Max)
		c.Mass += math.Exp(x)
		c.Dot += math.Exp(x) * x
	}
	slices.SortStableFunc(c.IDs, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	c.IDs = c.IDs[:min(len(c.IDs), device.MaxCandidates)]
	for _, id := range c.IDs {
		c.Logits = append(c.Logits, row[id])
	}
	return c
}
