package sample

import (
	"errors"
	"math"
)

// ErrMasked says that a mask leaves no token that the model can choose.
var ErrMasked = errors.New("none of the tokens that may come here is one that the model can choose")

// Mask says which tokens may come: bit i%64 of word i/64 is 1 if token i may. Words
// that are missing are 0. A nil Mask allows every token.
type Mask []uint64

// Allows reports whether a token may come.
func (m Mask) Allows(id int32) bool {
	return m == nil || id >= 0 && int(id/64) < len(m) && m[id/64]>>(id%64)&1 == 1
}

// apply copies logits to dst, the tokens that may not come as -Inf.
func (m Mask) apply(dst, logits []float32) {
	masked := float32(math.Inf(-1))
	for i, logit := range logits {
		if !m.Allows(int32(i)) {
			logit = masked
		}
		dst[i] = logit
	}
}
