package live

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
)

// repetition finds the unit that the last tokens of an answer repeat. A token takes maxUnit comparisons.
type repetition struct {
	ids  []int32          // the last tokens, at least maxUnit if there are as many
	runs [maxUnit + 1]int // by distance: how many of the last tokens equal the one that far before
	unit int              // tokens of the unit; 0: the answer does not repeat itself
}

// newRepetition returns the repetition after the tokens of an answer.
func newRepetition(ids []int32) *repetition {
	r := &repetition{}
	for _, id := range ids[max(0, len(ids)-maxUnit*(minCopies+1)):] {
		r.add(id)
	}
	return r
}

// add takes the next token of the answer.
func (r *repetition) add(id int32) {
	n := len(r.ids)
	r.unit = 0
	for unit := 1; unit <= min(maxUnit, n); unit++ {
		if r.ids[n-unit] != id {
			r.runs[unit] = 0
			continue
		}
		r.runs[unit]++
		if r.unit == 0 && r.repeats(unit) {
			r.unit = unit
		}
	}
	r.ids = append(r.ids, id)
	if len(r.ids) >= 4*maxUnit {
		r.ids = slices.Delete(r.ids, 0, len(r.ids)-maxUnit)
	}
}

// repeated returns how many of the last tokens repeat those before them; 0 if the answer does not
// repeat itself.
func (r *repetition) repeated() int {
	if r.unit == 0 {
		return 0
	}
	return r.runs[r.unit]
}

// repeats reports whether the last tokens are copies of a unit, often enough. The newest token may be
// missing in ids.
func (r *repetition) repeats(unit int) bool {
	run := r.runs[unit]
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
