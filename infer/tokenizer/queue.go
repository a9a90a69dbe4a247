package tokenizer

import (
	"math/bits"
	"slices"
)

// A keyQueue hands out keys, the lowest first. The high half of a key is a priority, the
// lowest first. Keys lie in bins of about the same priority, and a bin is sorted when its
// turn comes: n keys take linear time and little of the memory at once, where a heap takes
// n log n and all of it. Only keys that come when the turn of their bin has come or gone
// wait in a heap.
//
// The zero value is not ready: see reset.
type keyQueue struct {
	run   []uint64 // the rest of the bin whose turn it is, sorted
	late  []uint64 // heap of those that came since
	limit uint64   // lowest priority that goes to a bin

	bins   [binCount]int32              // the last chunk of each, 0 for none
	filled [(binCount + 63) / 64]uint64 // a bit for each bin that is not empty
	chunks []chunk                      // from 1 on
	unused int32                        // the first of a list of chunks

	sorted, spare []uint64 // memory of run and for sorting it
}

// chunk is a part of a bin.
type chunk struct {
	keys [31]uint64
	used int32
	next int32 // 0 for none
}

// fewKeys is up to how many keys a heap alone is faster.
const fewKeys = 256

// reset prepares an empty queue for about n keys.
func (q *keyQueue) reset(n int) {
	q.limit = 0
	if n <= fewKeys {
		q.limit = 1 << 32
	}
	q.chunks = append(q.chunks[:0], chunk{})
	q.unused = 0
}

// binCount is 16 bins for each power of two: a text has far more of the pairs that learning
// found first, the lowest priorities, than of those that it found last.
const binCount = 32 + 27*16

func binOf(priority uint32) int {
	if priority < 32 {
		return int(priority)
	}
	n := bits.Len32(priority)
	return (n-4)<<4 + int(priority>>(n-5)&15)
}

// binStart returns the lowest priority of a bin. It is 1<<32 behind the last.
func binStart(bin int) uint64 {
	if bin < 32 {
		return uint64(bin)
	}
	return uint64(16+bin&15) << (bin>>4 - 1)
}

func (q *keyQueue) push(key uint64) {
	if key>>32 < q.limit {
		q.pushLate(key)
		return
	}
	bin := binOf(uint32(key >> 32))
	last := q.bins[bin]
	if last == 0 || q.chunks[last].used == int32(len(chunk{}.keys)) {
		last = q.newChunk(last)
		q.bins[bin] = last
		q.filled[bin>>6] |= 1 << (bin & 63)
	}
	c := &q.chunks[last]
	c.keys[c.used] = key
	c.used++
}

func (q *keyQueue) newChunk(next int32) int32 {
	n := q.unused
	if n == 0 {
		n = int32(len(q.chunks))
		q.chunks = append(q.chunks, chunk{next: next})
		return n
	}
	c := &q.chunks[n]
	q.unused = c.next
	c.used, c.next = 0, next
	return n
}

// pop returns the lowest key and how much work that was, in keys looked at. ok is false
// where there is none.
func (q *keyQueue) pop() (key uint64, steps int, ok bool) {
	steps = 1
	if len(q.run) == 0 && len(q.late) == 0 {
		if steps, ok = q.nextBin(); !ok {
			return 0, steps, false
		}
	}
	if len(q.late) == 0 || len(q.run) > 0 && q.run[0] < q.late[0] {
		key, q.run = q.run[0], q.run[1:]
		return key, steps, true
	}
	return q.popLate(), bits.Len(uint(len(q.late))) + 1, true
}

// nextBin makes the next bin that is not empty the run.
func (q *keyQueue) nextBin() (steps int, ok bool) {
	bin := -1
	for i, word := range q.filled {
		if word != 0 {
			bin = i<<6 + bits.TrailingZeros64(word)
			break
		}
	}
	if bin < 0 {
		return 1, false
	}
	q.filled[bin>>6] &^= 1 << (bin & 63)
	q.limit = binStart(bin + 1)
	n := 0
	for c := q.bins[bin]; c != 0; c = q.chunks[c].next {
		n += int(q.chunks[c].used)
	}
	q.sorted = slices.Grow(q.sorted[:0], n)[:n]
	for c := q.bins[bin]; c != 0; { // the last first
		chunk := &q.chunks[c]
		n -= int(chunk.used)
		copy(q.sorted[n:], chunk.keys[:chunk.used])
		c, chunk.next, q.unused = chunk.next, q.unused, c
	}
	q.bins[bin] = 0
	steps = q.sort()
	q.run = q.sorted
	return steps, true
}

// sort sorts q.sorted, in linear time if it is long: by its bytes, the lowest first, but
// those that are the same in all keys.
func (q *keyQueue) sort() (steps int) {
	keys := q.sorted
	differ, inOrder := uint64(0), true
	for i := 1; i < len(keys); i++ {
		differ |= keys[i-1] ^ keys[i]
		inOrder = inOrder && keys[i-1] <= keys[i]
	}
	steps = len(keys)
	if inOrder {
		return steps
	}
	if len(keys) <= fewKeys {
		slices.Sort(keys)
		return len(keys) * bits.Len(uint(len(keys)))
	}
	q.spare = slices.Grow(q.spare[:0], len(keys))[:len(keys)]
	for shift := 0; shift < 64; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var place [256]int32
		for _, k := range keys {
			place[k>>shift&0xff]++
		}
		before := int32(0)
		for i, n := range place {
			place[i] = before
			before += n
		}
		for _, k := range keys {
			b := k >> shift & 0xff
			q.spare[place[b]] = k
			place[b]++
		}
		q.sorted, q.spare = q.spare, q.sorted
		keys = q.sorted
		steps += 2 * len(keys)
	}
	return steps
}

func (q *keyQueue) pushLate(key uint64) {
	q.late = append(q.late, key)
	i := len(q.late) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if q.late[parent] <= key {
			break
		}
		q.late[i] = q.late[parent]
		i = parent
	}
	q.late[i] = key
}

func (q *keyQueue) popLate() uint64 {
	h := q.late
	top, key := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	q.late = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			if len(h) > 0 {
				h[i] = key
			}
			return top
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if key <= h[child] {
			h[i] = key
			return top
		}
		h[i] = h[child]
		i = child
	}
}
