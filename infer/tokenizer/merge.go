package tokenizer

import (
	"math"
	"math/bits"
	"slices"
)

// A merger joins neighbouring symbols, the best pair first and the leftmost of
// equals, until no pair can be joined: the loop of both byte-pair encoding and
// SentencePiece. The candidates wait in a heap, so n symbols take O(n log n).
type merger struct {
	symbols []mergeSymbol // from the left; the joined ones stay, linked around
	heap    []candidate
}

// mergeSymbol is text[start:end]. It is part of another symbol where end is 0.
type mergeSymbol struct {
	start, end int32
	prev, next int32 // symbols beside it, -1 for none
	id         int32 // its token, -1 for none
}

// candidate is a pair that can be joined. It is out of date when its left symbol
// is gone or what follows that symbol no longer ends at end.
type candidate struct {
	order uint64 // priority, lowest first, then the left symbol
	end   int32
	id    int32 // token of the joined pair
}

func (c candidate) left() int32 { return int32(c.order & math.MaxUint32) }

// A joiner returns the token and the priority, lowest first, of two neighbours
// joined.
type joiner func(left, right mergeSymbol) (id int32, priority uint32, ok bool)

// reset makes room for n symbols: to grow by and by costs a long text more than to join
// them.
func (m *merger) reset(n int) {
	m.symbols = slices.Grow(m.symbols[:0], n)
	m.heap = slices.Grow(m.heap[:0], n)
}

// add appends the symbol text[start:end].
func (m *merger) add(start, end int, id int32) {
	n := int32(len(m.symbols))
	if n > 0 {
		m.symbols[n-1].next = n
	}
	m.symbols = append(m.symbols, mergeSymbol{int32(start), int32(end), n - 1, -1, id})
}

// merge joins what can be joined. Afterwards the symbols linked from the first are
// the result. tick is told of the work, the height of the heap for each candidate,
// and may end it.
func (m *merger) merge(join joiner, tick func(steps int) error) error {
	for i := range m.symbols {
		if c, ok := m.candidate(int32(i), join); ok {
			m.heap = append(m.heap, c)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.siftDown(i)
	}
	for len(m.heap) > 0 {
		if err := tick(bits.Len(uint(len(m.heap)))); err != nil {
			return err
		}
		c := m.pop()
		left := &m.symbols[c.left()]
		if left.end == 0 || left.next < 0 || m.symbols[left.next].end != c.end {
			continue
		}
		right := &m.symbols[left.next]
		left.id, left.end, left.next = c.id, right.end, right.next
		right.end = 0
		if left.next >= 0 {
			m.symbols[left.next].prev = c.left()
		}
		if left.prev >= 0 {
			if c, ok := m.candidate(left.prev, join); ok {
				m.push(c)
			}
		}
		if c, ok := m.candidate(c.left(), join); ok {
			m.push(c)
		}
	}
	return nil
}

// candidate returns the pair that symbol left begins.
func (m *merger) candidate(left int32, join joiner) (candidate, bool) {
	l := m.symbols[left]
	if l.next < 0 {
		return candidate{}, false
	}
	r := m.symbols[l.next]
	id, priority, ok := join(l, r)
	return candidate{uint64(priority)<<32 | uint64(left), r.end, id}, ok
}

func (m *merger) push(c candidate) {
	m.heap = append(m.heap, c)
	for i := len(m.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if m.heap[parent].order <= m.heap[i].order {
			break
		}
		m.heap[parent], m.heap[i] = m.heap[i], m.heap[parent]
		i = parent
	}
}

func (m *merger) pop() candidate {
	top := m.heap[0]
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	m.siftDown(0)
	return top
}

func (m *merger) siftDown(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if child+1 < len(m.heap) && m.heap[child+1].order < m.heap[child].order {
			child++
		}
		if m.heap[i].order <= m.heap[child].order {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}
