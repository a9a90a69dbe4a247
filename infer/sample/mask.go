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

// word returns 64 bits, of tokens 64*i and on.
func (m Mask) word(i int) uint64 {
	if i < len(m) {
		return m[i]
	}
	return 0
}

// each calls f for the tokens below n that may come, or for those that may not.
func (m Mask) each(n int, may bool, f func(id int)) {
	for base := 0; base < n; base += 64 {
		word := m.word(base / 64)
		if !may {
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

// apply sets the logits of the tokens that may not come to -Inf. before is the softmax
// of the row, after what it is then. Where none that can be chosen is left, the error
// is ErrMasked. Few tokens cost little, be it few that may come or few that may not.
func (m Mask) apply(row []float32, before distribution) (after distribution, err error) {
	masked := float32(math.Inf(-1))
	allowed := 0
	for i := range (len(row) + 63) / 64 {
		allowed += bits.OnesCount64(m.word(i))
	}
	if allowed >= len(row)/2 {
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
		// Where most of the mass is gone, the rest is what rounding left of it.
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
