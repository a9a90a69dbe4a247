package device

import "math"

// RoPE is a rotary position embedding. Pair i of a head is turned by the angle
// pos · Frequencies[i].
type RoPE struct {
	HeadDim int     // width of a head
	Dims    int     // leading elements of a head that are turned, even
	Base    float64 // frequency base
	Scale   float64 // 1, or 1/factor of linear scaling and YaRN
	NeoX    bool    // pairs are (i, i+Dims/2) instead of (2i, 2i+1)
	Factors Tensor  // (1, Dims/2) F32 frequency divisors, or none

	// Of YaRN: up to pair Low frequencies are not scaled, from pair High on they are, and
	// in between they are mixed. High 0: all are scaled.
	Low, High float64

	Magnitude float32 // what the turned elements are multiplied by; 0: 1
}

// Unscaled returns r as it was before the context was extended.
func (r RoPE) Unscaled() RoPE {
	r.Scale, r.Low, r.High, r.Magnitude = 1, 0, 0, 0
	return r
}

// Frequencies returns by how many radians a position turns each pair:
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
