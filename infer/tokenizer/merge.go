package tokenizer

import (
	"math"
	"slices"
)

// A merger joins neighbouring symbols, the best pair first and the leftmost of
// equals, until no pair can be joined: the loop of both byte-pair encoding and
// SentencePiece.
type merger struct {
	symbols []mergeSymbol // from the left; the joined ones stay, linked around
	pairs   keyQueue      // priority<<32 | left symbol of those that can be joined or could once
}

// mergeSymbol is a part of a text: from its place among the symbols to that of the next.
type mergeSymbol struct {
	prev, next int32  // symbols beside it, -1 and the number of symbols for none
	id         int32  // its token, -1 for none
	joined     int32  // token of it and the next
	priority   uint32 // of joining them, the lowest first; unjoinable where they cannot be, and in what is joined to another
}

const unjoinable = math.MaxUint32

// A joiner returns the token and the priority of two neighbours joined, the left of
// them symbols[left]: unjoinable where there is no such token.
type joiner func(symbols []mergeSymbol, left int32) (id int32, priority uint32)

// begin returns room for n symbols, each to be set to newSymbol.
func (m *merger) begin(n int) []mergeSymbol {
	m.pairs.reset(n)
	m.symbols = slices.Grow(m.symbols[:0], n)[:n]
	return m.symbols
}

// newSymbol returns symbol i of a row that begins with 0.
func newSymbol(i int, id int32) mergeSymbol {
	return mergeSymbol{prev: int32(i) - 1, next: int32(i) + 1, id: id, priority: unjoinable}
}

// merge joins what can be joined. Afterwards the symbols linked from the first are
// the result. tick is told of the work, in keys that the queue looked at, and may end it.
func (m *merger) merge(join joiner, tick func(steps int) error) error {
	for i := range m.symbols {
		m.pair(int32(i), join)
		if err := tick(1); err != nil {
			return err
		}
	}
	for {
		key, steps, ok := m.pairs.pop()
		if err := tick(steps); err != nil || !ok {
			return err
		}
		i := int32(uint32(key))
		left := &m.symbols[i]
		if left.priority != uint32(key>>32) {
			continue // it has changed, or what follows it
		}
		right := &m.symbols[left.next]
		left.id, left.next = left.joined, right.next
		right.priority = unjoinable
		if int(left.next) < len(m.symbols) {
			m.symbols[left.next].prev = i
		}
		if left.prev >= 0 {
			m.pair(left.prev, join)
		}
		m.pair(i, join)
	}
}

// pair looks what symbol i and the next can be joined to.
func (m *merger) pair(i int32, join joiner) {
	s := &m.symbols[i]
	s.priority = unjoinable
	if int(s.next) == len(m.symbols) {
		return
	}
	if s.joined, s.priority = join(m.symbols, i); s.priority != unjoinable {
		m.pairs.push(uint64(s.priority)<<32 | uint64(i))
	}
}
