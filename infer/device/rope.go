package device

import "math"

// MaxAxes is the number of coordinates that rows may have.
const MaxAxes = 3

// RoPE are the parameters of a rotary position embedding. Pair i of a head is rotated by the
// angle pos · Frequencies[i], in radians, where pos is the position of the row, or a coordinate of it.
type RoPE struct {
	HeadDim int     // width of a head
	Dims    int     // leading elements of a head that are rotated, even
	Base    float64 // frequency base
	Scale   float64 // 1, or 1/factor of linear scaling or YaRN
	NeoX    bool    // pairs are (i, i+Dims/2) instead of (2i, 2i+1)
	Factors Tensor  // (1, Dims/2) F32 frequency divisors, or none; of +Inf: the pair is not rotated

	// Axis selects what rows are rotated by: 0 their positions, or else Batch.Coordinates[Axis-1].
	Axis int

	// Low and High are the range of pairs in which YaRN blends unscaled into scaled
	// frequencies: pairs up to Low are unscaled, pairs from High on are scaled. High 0: all
	// pairs are scaled.
	Low, High float64

	Magnitude float32 // factor of the rotated elements; 0: 1
}

// Unscaled returns r without the scaling that extends the context.
func (r RoPE) Unscaled() RoPE {
	r.Scale, r.Low, r.High, r.Magnitude = 1, 0, 0, 0
	return r
}

// Frequencies returns the angle of each pair per position, in radians:
// Scale · Base^(-2i/Dims) / factors[i], where factors may be nil.
func (r RoPE) Frequencies(factors []float32) []float64 {
	list := make([]float64, r.Dims/2)
	for i := range list {
		scale := r.Scale
		if r.High > 0 {
			share := min(max((float64(i)-r.Low)/(r.High-r.Low), 0), 1)
			scale = r.Scale*share + (1 - share)
		}
		list[i] = scale * math.Pow(r.Base, -2*float64(i)/float64(r.Dims))
		if factors != nil {
			list[i] /= float64(factors[i])
		}
	}
	return list
}
