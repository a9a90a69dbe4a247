// Package repetition finds out whether an answer repeats itself, from its tokens alone. It imports no package of
// this module.
package repetition

import "slices"

// An answer repeats itself where its last tokens are the same unit, of at most maxUnit tokens, several
// times in a row. Lists, code and tables repeat much, but seldom exactly and for long; the rule leaves
// them alone until they do.
const (
	maxUnit     = 256 // tokens
	minCopies   = 4   // of the unit
	minRepeated = 96  // tokens after the first copy
	fewTokens   = 8   // a unit with fewer different tokens is a rule, a matrix or an empty table …
	minFew      = 384 // … and has to be repeated for this many

	// Long units may differ in a word here and there, of one length or another.
	minNearUnit   = 48 // tokens of such a unit
	minNearCopies = 6
	minClean      = 24 // tokens that are the same for each difference, before it …
	maxClean      = 48 // … of which so many count: two differences can be close together
	maxDifference = 4  // tokens of a difference
	maxShift      = 3  // tokens by which it is longer or shorter than in the copy before
)

// Finder finds the unit that the last tokens of an answer repeat. A token takes maxUnit comparisons.
type Finder struct {
	ids  []int32          // the last tokens, at least maxUnit if there are as many
	runs [maxUnit + 1]int // by distance: how many of the last tokens equal the one that far before
	near [maxUnit + 1]int // the same, with the differences that a long unit may have
	same [maxUnit + 1]int // by distance: tokens that were the same and pay for no difference yet, at most maxClean
	left [maxUnit + 1]int // same after the difference of held
	held [maxUnit + 1]int // by distance: near in front of the difference that the last tokens are part of; 0: they are part of none
	open [maxUnit + 1]int // tokens of that difference
	unit int              // tokens of the unit; 0: the answer does not repeat itself
}

// New returns the Finder after the tokens of an answer.
func New(ids []int32) *Finder {
	r := &Finder{}
	for _, id := range ids[max(0, len(ids)-maxUnit*(minCopies+1)):] {
		r.Add(id)
	}
	return r
}

// Add takes the next token of the answer.
func (r *Finder) Add(id int32) {
	n := len(r.ids)
	r.unit = 0
	for unit := 1; unit <= min(maxUnit, n); unit++ {
		if r.ids[n-unit] != id {
			r.differs(unit)
			continue
		}
		if r.runs[unit]++; r.runs[unit] == 1 {
			r.near[unit], r.same[unit] = r.beforeDifference(unit)
		}
		r.same[unit] = min(maxClean, r.same[unit]+1)
		if r.near[unit]++; r.unit == 0 && r.repeats(unit) {
			r.unit = unit
		}
	}
	for unit := range r.held {
		if r.held[unit] > 0 {
			if r.open[unit]++; r.open[unit] > maxDifference {
				r.held[unit] = 0
			}
		}
	}
	r.ids = append(r.ids, id)
	if len(r.ids) >= 4*maxUnit {
		r.ids = slices.Delete(r.ids, 0, len(r.ids)-maxUnit)
	}
}

// differs takes a token that is another one than that unit tokens before it.
func (r *Finder) differs(unit int) {
	if r.same[unit] >= minClean {
		r.held[unit], r.open[unit], r.left[unit] = r.near[unit], 0, r.same[unit]-minClean
	}
	r.runs[unit], r.near[unit], r.same[unit] = 0, 0, 0
}

// beforeDifference returns how many tokens repeated those about unit tokens before them until the last few tokens, and how many of
// them pay for no difference yet.
func (r *Finder) beforeDifference(unit int) (most, same int) {
	for other := max(1, unit-maxShift); other <= min(maxUnit, unit+maxShift); other++ {
		if n := r.held[other] + r.open[other]; r.held[other] > 0 && n > most {
			most, same = n, r.left[other]
		}
	}
	return most, same
}

// Repeated returns how many of the last tokens repeat those before them; 0 if the answer does not
// repeat itself.
func (r *Finder) Repeated() int {
	if r.unit == 0 {
		return 0
	}
	return max(r.runs[r.unit], r.near[r.unit])
}

// repeats reports whether the last tokens are copies of a unit, often enough. The newest token may be
// missing in ids.
func (r *Finder) repeats(unit int) bool {
	run := r.runs[unit]
	if near := r.near[unit]; unit >= minNearUnit && near >= (minNearCopies-1)*unit {
		run = near
	}
	if run < minRepeated || run < (minCopies-1)*unit {
		return false
	}
	if run >= minFew {
		return true
	}
	different := slices.Clone(r.ids[len(r.ids)-unit:])
	slices.Sort(different)
	return len(slices.Compact(different)) >= fewTokens
}
