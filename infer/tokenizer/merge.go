package tokenizer

import (
	"math"
	"slices"
)

// merger joins adjacent symbols until no pair can be joined: the pair of the lowest
// priority first, the leftmost of equal ones. Byte-pair encoding and SentencePiece share it.
type merger struct {
	symbols []mergeSymbol // in text order; a symbol joined to its left neighbour stays but is unlinked
	pairs   keyQueue      // priority<<32 | index of the left symbol; may hold pairs that no longer exist
}

// mergeSymbol is a part of a text that reaches to the next linked symbol.
type mergeSymbol struct {
	prev, next int32  // indices of the neighbours; -1 and the number of symbols for none
	id         int32  // token id, -1 for none
	merged     int32  // token id of this symbol joined with the next
	priority   uint32 // of that merge, lowest first; cannotMerge if there is none or this symbol is unlinked
}

const cannotMerge = math.MaxUint32

// joinFunc returns the token id and the priority of joining symbols[left] with the next
// symbol, cannotMerge if the vocabulary has no such token.
type joinFunc func(symbols []mergeSymbol, left int32) (id int32, priority uint32)

// begin returns n symbols, each of which the caller sets to a newSymbol.
func (m *merger) begin(n int) []mergeSymbol {
	m.pairs.reset(n)
	m.symbols = slices.Grow(m.symbols[:0], n)[:n]
	return m.symbols
}

// newSymbol returns the symbol at index i, linked to the indices i-1 and i+1.
func newSymbol(i int, id int32) mergeSymbol {
	return mergeSymbol{prev: int32(i) - 1, next: int32(i) + 1, id: id, priority: cannotMerge}
}

// merge joins symbols until no pair can be joined. The result is the list of symbols linked
// from the first. addSteps receives the number of queue keys visited; merge returns its
// error.
func (m *merger) merge(join joinFunc, addSteps func(steps int) error) error {
	for i := range m.symbols {
		m.updatePair(int32(i), join)
		if err := addSteps(1); err != nil {
			return err
		}
	}
	for {
		key, steps, ok := m.pairs.pop()
		if err := addSteps(steps); err != nil || !ok {
			return err
		}
		i := int32(uint32(key))
		left := &m.symbols[i]
		if left.priority != uint32(key>>32) {
			continue // outdated: this symbol or the next has changed since
		}
		right := &m.symbols[left.next]
		left.id, left.next = left.merged, right.next
		right.priority = cannotMerge
		if int(left.next) < len(m.symbols) {
			m.symbols[left.next].prev = i
		}
		if left.prev >= 0 {
			m.updatePair(left.prev, join)
		}
		m.updatePair(i, join)
	}
}

// updatePair queues the merge of symbol i with the next, if there is one.
func (m *merger) updatePair(i int32, join joinFunc) {
	s := &m.symbols[i]
	s.priority = cannotMerge
	if int(s.next) == len(m.symbols) {
		return
	}
	if s.merged, s.priority = join(m.symbols, i); s.priority != cannotMerge {
		m.pairs.push(uint64(s.priority)<<32 | uint64(i))
	}
}
