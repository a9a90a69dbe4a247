package engine

import "slices"

// Prompt lookup: drafts without a draft model. Where the last tokens of a sequence have occurred
// before, in its prompt or its answer, the tokens that followed there are a draft of those to come.
//
// A draft is at most as long as earlier drafts were right: see lookup.learn. Those who are never right cost two reads of
// a table for each token, and no rows.

const (
	// longestGram and shortestGram are how many last tokens are looked up, the longest first.
	longestGram, shortestGram = 3, 2

	// leastSlots and mostSlots bound a table of lookup.
	leastSlots, mostSlots = 1 << 10, 1 << 16
)

// lookup drafts the next tokens of one sequence.
type lookup struct {
	end int // tokens that the sequence has at most

	// tables have, by a hash of the last 3 and 2 tokens before it, a position: the newest one, if several
	// have the hash. 0: none. They say where to look only, so they need not forget what is retracted.
	tables  [longestGram - shortestGram + 1][]int32
	indexed int // tokens whose positions are in the tables

	guess []int32 // what follows according to the draft; one token more than a step computes
	from  int     // tokens that the sequence had then
	at    int     // position that the guess is copied from; 0: there is none
	trust int     // see learn

	right, wrong int // tokens guessed since they were last counted
}

// newLookup returns the lookup of a sequence that has at most end tokens.
func newLookup(end int) *lookup { return &lookup{end: end} }

// draft returns at most most tokens that may follow tokens, which are as they were in the call before,
// except that some at the end may have been replaced and some added.
func (l *lookup) draft(tokens []int32, most int) []int32 {
	right := l.learn(tokens)
	l.index(tokens)
	if right && l.at > 0 {
		l.at += len(tokens) - l.from // what was copied goes on there, though its last tokens may occur again after it
	} else {
		l.at = l.find(tokens)
	}
	l.guess, l.from = l.guess[:0], len(tokens)
	if l.at == 0 {
		return nil
	}
	most = max(0, min(most, l.trust, maxDraft, l.end-len(tokens)-1)) // the row before the draft gives a token too
	for i := range most + 1 {
		l.guess = append(l.guess, tokens[l.at+i%(len(tokens)-l.at)]) // a repetition goes on
	}
	return l.guess[:most]
}

// learn compares the last guess with what followed, and reports whether that began as guessed. Each right token is
// worth one more of the next draft, a wrong one halves it. So drafts grow from nothing while text is
// copied, and stay short where guesses are right now and then.
func (l *lookup) learn(tokens []int32) (right bool) {
	if len(tokens) < l.from || len(tokens)-l.from > len(l.guess) {
		return false // retracted, or nothing was guessed
	}
	for i, id := range tokens[l.from:] {
		if id != l.guess[i] {
			l.trust /= 2
			l.wrong++
			return false
		}
		l.right++
		l.trust = min(l.trust+1, maxDraft)
	}
	return true
}

// index enters the positions of new tokens.
func (l *lookup) index(tokens []int32) {
	slots := leastSlots
	for slots < mostSlots && slots < 2*len(tokens) {
		slots *= 2
	}
	if slots > len(l.tables[0]) {
		for i := range l.tables {
			l.tables[i] = make([]int32, slots)
		}
		l.indexed = 0
	}
	for at := min(l.indexed, len(tokens)); at < len(tokens); at++ {
		for i, table := range l.tables {
			if n := longestGram - i; at >= n {
				table[slotOf(tokens[at-n:at], len(table))] = int32(at)
			}
		}
	}
	l.indexed = len(tokens)
}

// find returns the newest position before which the last tokens occur too; 0 if the tables have none.
func (l *lookup) find(tokens []int32) int {
	for i, table := range l.tables {
		n := longestGram - i
		if len(tokens) <= n {
			continue
		}
		last := tokens[len(tokens)-n:]
		if at := int(table[slotOf(last, len(table))]); at >= n && at < len(tokens) && slices.Equal(tokens[at-n:at], last) {
			return at
		}
	}
	return 0
}

// slotOf returns the slot of tokens in a table of so many slots, a power of two.
func slotOf(tokens []int32, slots int) int {
	h := uint64(len(tokens))
	for _, id := range tokens {
		h = (h ^ uint64(uint32(id))) * 0x9e3779b97f4a7c15
	}
	return int(h >> 32 & uint64(slots-1))
}

// lookUp returns at most most tokens that follow tokens by prompt lookup, and counts how many of the last guess were right.
func (d *drafts) lookUp(tokens []int32, most int, all *[ways]rate) []int32 {
	if d.lookup == nil {
		return nil
	}
	found := d.lookup.draft(tokens, most)
	for ; d.lookup.right > 0; d.lookup.right-- {
		d.count(wayLookup, true, all)
	}
	for ; d.lookup.wrong > 0; d.lookup.wrong-- {
		d.count(wayLookup, false, all)
	}
	return found
}
