package sample

import (
	"fmt"
	"math"
)

// Divergence returns the Kullback-Leibler divergence D(p || q) in nats of two rows of logits over one
// vocabulary: the sum over all tokens of P(token) * ln(P(token) / Q(token)), where P and Q are the
// softmax of p and q. All of it is computed in float64.
func Divergence(p, q []float32) (float64, error) {
	if len(p) != len(q) {
		return 0, fmt.Errorf("cannot compare a row of %d logits with one of %d", len(p), len(q))
	}
	a, err := softmax(p)
	if err != nil {
		return 0, err
	}
	b, err := softmax(q)
	if err != nil {
		return 0, err
	}
	logA, logB := math.Log(a.mass), math.Log(b.mass)
	sum := 0.0
	for id := range p {
		x := float64(p[id]) - a.max
		w := expNeg(x)
		if w == 0 { // x may be -Inf
			continue
		}
		y := float64(q[id]) - b.max
		if math.IsInf(y, -1) {
			return 0, fmt.Errorf("%w: that of token %d is -Inf, which makes the divergence infinite", ErrNotFinite, id)
		}
		sum += float64(w * ((x - logA) - (y - logB)))
	}
	return max(0, sum/a.mass), nil // rounding may leave the sum of equal rows below 0
}
