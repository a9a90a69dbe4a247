package sample

import (
	"errors"
	"math"
	"math/bits"
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

// apply sets the logits of the tokens that may not come to -Inf. before is the
// softmax of the row, after what it is then, or the error ErrMasked.
func (m Mask) apply(row []float32, before distribution) (after distribution, err error) {
	masked := float32(math.Inf(-1))
	after = before
	for base := 0; base < len(row); base += 64 {
		var word uint64
		if i := base / 64; i < len(m) {
			word = m[i]
		}
		block := row[base:min(base+64, len(row))]
		for gone := ^word; gone != 0; gone &= gone - 1 {
			i := bits.TrailingZeros64(gone)
			if i >= len(block) {
				break
			}
			if w := before.weight(block[i]); w > 0 {
				after.mass -= w
				after.dot -= float64(w * (float64(block[i]) - before.max))
			}
			if block[i] != masked {
				after.count--
			}
			block[i] = masked
		}
	}
	if after.count == 0 {
		return after, ErrMasked
	}
	// Where most of the mass is gone, the rest is what rounding left of it.
	if after.mass < before.mass/2 {
		return softmax(row)
	}
	return after, nil
}
