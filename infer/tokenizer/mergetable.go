package tokenizer

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// mergeTable holds the merges of a vocabulary by the two tokens that they join. It is a
// hash table with linear probing, whose order nobody can foresee who writes a vocabulary.
type mergeTable struct {
	slots []merge // a power of two, a third of them free at least
	seeds [2]uint64
}

type merge struct {
	pair uint64 // left token<<32 | right token, or freeSlot
	rank uint32 // unjoinable in a free slot
	id   int32
}

const freeSlot = 1<<64 - 1

// newMergeTable makes room for n merges.
func newMergeTable(n int) mergeTable {
	t := mergeTable{slots: make([]merge, 1<<bits.Len(uint(n+n/2))), seeds: [2]uint64{rand.Uint64(), rand.Uint64() | 1}}
	for i := range t.slots {
		t.slots[i] = merge{pair: freeSlot, rank: unjoinable, id: -1}
	}
	return t
}

// loadMerges reads the merges of a vocabulary, whose tokens ids has by their texts. note
// is told of each that can happen.
func loadMerges(md Metadata, v *vocabulary, ids map[string]int32, note func(left, right string)) (mergeTable, error) {
	merges, err := md.Strs(keyMerges)
	if err != nil {
		return mergeTable{}, fmt.Errorf("tokenizer: the merges cannot be read: %w", err)
	}
	t := newMergeTable(len(merges))
	for rank, text := range merges {
		left, right, err := splitMerge(text)
		if err != nil {
			return mergeTable{}, fmt.Errorf("tokenizer: merge %d %.80q: %w", rank, text, err)
		}
		var tokens [3]int32
		control := false
		for i, part := range []string{left, right, left + right} {
			id, ok := ids[part]
			if !ok {
				return mergeTable{}, fmt.Errorf("tokenizer: merge %d %.80q: %.80q is not in the vocabulary", rank, text, part)
			}
			tokens[i] = id
			control = control || v.parsedOnly(id)
		}
		pair := pairKey(tokens[0], tokens[1])
		// What text spells is never a control token, so such a merge cannot happen.
		if slot := t.find(pair); slot.pair != pair && !control {
			*slot = merge{pair, uint32(rank), tokens[2]}
			note(left, right)
		}
	}
	return t, nil
}

// join is a joiner.
func (t *mergeTable) join(symbols []mergeSymbol, left int32) (int32, uint32) {
	s := &symbols[left]
	found := t.find(pairKey(s.id, symbols[s.next].id))
	return found.id, found.rank
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// find returns the slot of a pair, or the free one where it would be. Tokens of -1 have
// none.
func (t *mergeTable) find(pair uint64) *merge {
	high, low := bits.Mul64(pair^t.seeds[0], t.seeds[1])
	mask := uint64(len(t.slots) - 1)
	for i := (high ^ low) & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.pair == pair || s.pair == freeSlot {
			return s
		}
	}
}
