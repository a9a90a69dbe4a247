package sample

import (
	"errors"
	"math"
	"math/bits"
)

// ErrMasked is returned if all tokens that a mask allows have a logit of -Inf.
var ErrMasked = errors.New("the mask allows no token that the model can choose")

// Mask is a set of allowed tokens: bit i%64 of word i/64 is 1 if token i is allowed. Missing
// words are 0. A nil Mask allows every token.
type Mask []uint64

// Allows reports whether a token is allowed.
func (m Mask) Allows(id int32) bool {
	return m == nil || id >= 0 && int(id/64) < len(m) && m[id/64]>>(id%64)&1 == 1
}

// word returns the bits of the tokens 64*i to 64*i+63.
func (m Mask) word(i int) uint64 {
	if i < len(m) {
		return m[i]
	}
	return 0
}

// each calls f for the tokens below n that are allowed, or with allowed false for the others.
func (m Mask) each(n int, allowed bool, f func(id int)) {
	for base := 0; base < n; base += 64 {
		word := m.word(base / 64)
		if !allowed {
			word = ^word
		}
		if n-base < 64 {
			word &= 1<<(n-base) - 1
		}
		for ; word != 0; word &= word - 1 {
			f(base + bits.TrailingZeros64(word))
		}
	}
}

// apply sets the logits of the tokens that are not allowed to -Inf. before is the softmax of
// the row before, after the one after. It returns ErrMasked if no finite logit is left. It
// is fast if few tokens are allowed and if few are not.
func (m Mask) apply(row []float32, before distribution) (after distribution, err error) {
	masked := float32(math.Inf(-1))
	allowedCount := 0
	for i := range (len(row) + 63) / 64 {
		allowedCount += bits.OnesCount64(m.word(i))
	}
	if allowedCount >= len(row)/2 {
		after = before
		m.each(len(row), false, func(id int) {
			if row[id] == masked {
				return
			}
			x := float64(row[id]) - before.max
			w := expNeg(x)
			after.mass -= w
			after.dot -= float64(w * x)
			after.count--
			row[id] = masked
		})
		// If most of the mass is gone, the difference is mainly rounding error.
		if after.mass >= before.mass/2 {
			return after, nil
		}
	}
	highest := masked
	m.each(len(row), true, func(id int) { highest = max(highest, row[id]) })
	if highest == masked {
		return after, ErrMasked
	}
	after = distribution{max: float64(highest)}
	m.each(len(row), true, func(id int) {
		if row[id] == masked {
			return
		}
		x := float64(row[id]) - after.max
		w := expNeg(x)
		after.mass += w
		after.dot += float64(w * x)
		after.count++
	})
	m.each(len(row), false, func(id int) { row[id] = masked })
	return after, nil
}
