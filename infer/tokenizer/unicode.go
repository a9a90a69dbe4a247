package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// class is a set of Unicode properties of a rune. Runes with none of them (control and
// format characters, unassigned code points) and bytes that are not UTF-8 have class 0.
type class uint16

const (
	letter  class = 1 << iota // L
	number                    // N
	mark                      // M
	punct                     // P
	symbol                    // S
	space                     // White_Space
	upper                     // Lu, Lt
	lower                     // Ll
	han                       // script Han
	decimal                   // Nd
	word                      // word characters of \b: Alphabetic, M, Nd, Pc
)

var classTables = []struct {
	class class
	table *unicode.RangeTable
}{
	{letter, unicode.L}, {number, unicode.N}, {mark, unicode.M}, {punct, unicode.P}, {symbol, unicode.S},
	{space, unicode.White_Space}, {upper, unicode.Lu}, {upper, unicode.Lt}, {lower, unicode.Ll}, {han, unicode.Han},
	{decimal, unicode.Nd}, {word, unicode.L}, {word, unicode.Nl}, {word, unicode.Other_Alphabetic}, {word, unicode.M}, {word, unicode.Nd}, {word, unicode.Pc},
}

// commonClasses holds the class of every rune below U+20000, which includes emoji, so that
// most runes take one load instead of a binary search in each table.
var commonClasses = func() *[0x20000]class {
	var classes [0x20000]class
	for _, t := range classTables {
		for _, r := range t.table.R16 {
			for c := uint32(r.Lo); c <= uint32(r.Hi); c += uint32(r.Stride) {
				classes[c] |= t.class
			}
		}
		for _, r := range t.table.R32 {
			for c := r.Lo; c <= r.Hi && c < uint32(len(classes)); c += r.Stride {
				classes[c] |= t.class
			}
		}
	}
	return &classes
}()

// rareClasses holds the classes of the other runes, which form few long ranges.
var rareClasses = func() (far []classRange) {
	for _, t := range classTables {
		for _, r := range t.table.R32 {
			if r.Hi < uint32(len(commonClasses)) {
				continue
			}
			found := classRange{lo: rune(r.Lo), hi: rune(r.Hi), stride: rune(r.Stride)}
			i := slices.IndexFunc(far, func(f classRange) bool { f.class = 0; return f == found })
			if i < 0 {
				i, far = len(far), append(far, found)
			}
			far[i].class |= t.class
		}
	}
	return far
}()

// classRange is the class of every stride-th rune from lo to hi.
type classRange struct {
	lo, hi, stride rune
	class          class
}

func classOf(r rune) class {
	if r < int32(len(commonClasses)) {
		return commonClasses[r]
	}
	var c class
	for _, f := range rareClasses {
		if f.lo <= r && r <= f.hi && (r-f.lo)%f.stride == 0 {
			c |= f.class
		}
	}
	return c
}

// classAt returns the class and the length in bytes of the rune at text[at:], 0 and 0 past
// the end.
func classAt(text string, at int) (class, int) {
	if at >= len(text) {
		return 0, 0
	}
	if b := text[at]; b < utf8.RuneSelf {
		return commonClasses[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[at:])
	if r == utf8.RuneError && size == 1 {
		return 0, 1
	}
	return classOf(r), size
}

// skip returns the end of the run of runes at text[at:] that have a class of any.
func skip(text string, at int, any class) int {
	for {
		for at < len(text) && text[at] < utf8.RuneSelf && commonClasses[text[at]]&any != 0 {
			at++ // fast path for ASCII
		}
		c, size := classAt(text, at)
		if c&any == 0 {
			return at
		}
		at += size
	}
}

// skipNot returns the end of the run of runes at text[at:] that have no class of none.
func skipNot(text string, at int, none class) int {
	for {
		c, size := classAt(text, at)
		if size == 0 || c&none != 0 {
			return at
		}
		at += size
	}
}
