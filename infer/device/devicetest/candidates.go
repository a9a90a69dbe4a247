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

// candidates compares what a device says of rows of logits with what sorting them gives.
func (s Suite) candidates(t *testing.T) {
	inf := float32(math.Inf(1))
	shapes := []struct {
		name  string
		logit func(rng *rand.Rand, id, vocab int) float32
	}{
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
			// All rows at once, and each one alone.
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
				// Formatted, since a NaN does not equal itself.
				if got := r.candidates(logits, 0); fmt.Sprint(got) != fmt.Sprint(all[i]) {
					t.Errorf("%s: the row alone has other candidates than in company", shape.name)
				}
			}
			for _, row := range []int{-1, len(shapes)} {
				if _, err := r.dev.Candidates(logits, row); err == nil {
					t.Errorf("there are candidates of row %d", row)
				}
			}
		})
	}
}

// candidates returns a copy of what the device says of a row.
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
		t.Errorf("%s: bad token %d and %d not masked, want %d and %d", name, got.Bad, got.Count, want.Bad, want.Count)
	}
	if want.Bad >= 0 || want.Count == 0 {
		return
	}
	if got.Max != want.Max || !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Logits, want.Logits) {
		t.Errorf("%s: up to %g the tokens are %v, want up to %g %v", name, got.Max, got.IDs, want.Max, want.IDs)
	}
	if !(math.Abs(got.Mass-want.Mass) <= 3e-7*want.Mass) || !(math.Abs(got.Dot-want.Dot) <= 1e-6*math.Abs(want.Dot)) {
		t.Errorf("%s: sums are %v and %v, want %v and %v", name, got.Mass, got.Dot, want.Mass, want.Dot)
	}
}

// candidatesOf reduces a row by sorting it.
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
	c.IDs = c.IDs[:min(len(c.IDs), device.MostCandidates)]
	for _, id := range c.IDs {
		c.Logits = append(c.Logits, row[id])
	}
	return c
}
