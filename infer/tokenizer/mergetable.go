package tokenizer

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// mergeTable maps pairs of tokens to the merge that joins them. It is a hash table with
// linear probing and random seeds, so that a crafted vocabulary cannot force collisions.
type mergeTable struct {
	slots []merge // a power of two, at least a third of them free
	seeds [2]uint64
}

type merge struct {
	pair uint64 // left token<<32 | right token, or freeSlot
	rank uint32 // cannotMerge in a free slot
	id   int32
}

const freeSlot = 1<<64 - 1

// newMergeTable returns an empty table with room for n merges.
func newMergeTable(n int) mergeTable {
	t := mergeTable{slots: make([]merge, 1<<bits.Len(uint(n+n/2))), seeds: [2]uint64{rand.Uint64(), rand.Uint64() | 1}}
	for i := range t.slots {
		t.slots[i] = merge{pair: freeSlot, rank: cannotMerge, id: -1}
	}
	return t
}

// loadMerges reads the merges of a vocabulary; ids maps texts to tokens. onMerge is called
// for each merge that is stored.
func loadMerges(md Metadata, v *vocabulary, ids map[string]int32, onMerge func(left, right string)) (mergeTable, error) {
	merges, err := md.Strs(keyMerges)
	if err != nil {
		return mergeTable{}, fmt.Errorf("tokenizer: cannot read the merges: %w", err)
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
			control = control || v.needsParsing(id)
		}
		pair := pairKey(tokens[0], tokens[1])
		// Ordinary text never becomes a control token, so such a merge is never used.
		if slot := t.find(pair); slot.pair != pair && !control {
			*slot = merge{pair, uint32(rank), tokens[2]}
			onMerge(left, right)
		}
	}
	return t, nil
}

// join is a joinFunc.
func (t *mergeTable) join(symbols []mergeSymbol, left int32) (int32, uint32) {
	s := &symbols[left]
	found := t.find(pairKey(s.id, symbols[s.next].id))
	return found.id, found.rank
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// find returns the slot of a pair, or the free slot to store it in. A pair with a token of
// -1 is never stored.
func (t *mergeTable) find(pair uint64) *merge {
	high, low := bits.Mul64(pair^t.seeds[0], t.seeds[1])
	mask := uint64(len(t.slots) - 1)
	for i := (high ^ low) & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.pair == pair || s.pair == freeSlot {
			return s
		}
	}
}
