package device

import (
	"math"
	"testing"
)

// The slopes of the paper on ALiBi, and of its code where the number of heads is no power of two.
func TestSlopesOfALiBiFallWithTheHeads(t *testing.T) {
	for name, c := range map[string]struct {
		heads int
		bias  float32
		want  []float64 // exponents of 2
	}{
		"8 heads":             {8, 8, []float64{-1, -2, -3, -4, -5, -6, -7, -8}},
		"4 heads":             {4, 8, []float64{-2, -4, -6, -8}},
		"1 head":              {1, 8, []float64{-8}},
		"6 heads":             {6, 8, []float64{-2, -4, -6, -8, -1, -3}},
		"12 heads":            {12, 8, []float64{-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5}},
		"half of the biases":  {4, 4, []float64{-1, -2, -3, -4}},
		"3 heads, of 2 and 1": {3, 8, []float64{-4, -8, -2}},
	} {
		t.Run(name, func(t *testing.T) {
			a := Attention{Heads: c.heads, MaxBias: c.bias}
			for head, want := range c.want {
				if got := math.Log2(a.Slope(head)); math.Abs(got-want) > 1e-9 {
					t.Errorf("the slope of head %d is 2^%g, want 2^%g", head, got, want)
				}
			}
		})
	}
}
