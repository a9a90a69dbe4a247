package tokenizer

import (
	"math/bits"
	"slices"
)

// keyQueue is a priority queue of 64-bit keys, lowest first. The upper 32 bits of a key are
// its priority. Keys are stored in buckets by priority, and a bucket is sorted when it
// becomes the lowest, so n keys take linear time and good locality instead of a heap's
// n log n over all memory. Only keys for a bucket that was already sorted go to a heap.
//
// Call reset before the first use.
type keyQueue struct {
	current   []uint64 // what is left of the lowest bucket, sorted
	heap      []uint64 // keys pushed after their bucket was sorted
	heapBelow uint64   // priorities below this are pushed to heap, the others to buckets

	buckets   [bucketCount]int32              // index of the last chunk of each, 0 for none
	nonEmpty  [(bucketCount + 63) / 64]uint64 // bit set of the buckets that have keys
	chunks    []chunk                         // index 0 is unused
	freeChunk int32                           // head of the list of free chunks, 0 for none

	sorted, spare []uint64 // memory of current, and scratch memory to sort it
}

// chunk is a part of a bucket.
type chunk struct {
	keys [31]uint64
	used int32
	next int32 // index of the next chunk, 0 for none
}

// smallQueue is the number of keys up to which a heap alone is faster.
const smallQueue = 256

// reset empties the queue and prepares it for about n keys.
func (q *keyQueue) reset(n int) {
	q.heapBelow = 0
	if n <= smallQueue {
		q.heapBelow = 1 << 32
	}
	q.chunks = append(q.chunks[:0], chunk{})
	q.freeChunk = 0
}

// bucketCount is 16 buckets for each power of two, narrow ones for low priorities: those are
// the merges learned first, which are by far the most frequent in texts.
const bucketCount = 32 + 27*16

func bucketOf(priority uint32) int {
	if priority < 32 {
		return int(priority)
	}
	n := bits.Len32(priority)
	return (n-4)<<4 + int(priority>>(n-5)&15)
}

// bucketStart returns the lowest priority of a bucket, 1<<32 for bucketCount.
func bucketStart(bucket int) uint64 {
	if bucket < 32 {
		return uint64(bucket)
	}
	return uint64(16+bucket&15) << (bucket>>4 - 1)
}

func (q *keyQueue) push(key uint64) {
	if key>>32 < q.heapBelow {
		q.pushHeap(key)
		return
	}
	bucket := bucketOf(uint32(key >> 32))
	last := q.buckets[bucket]
	if last == 0 || q.chunks[last].used == int32(len(chunk{}.keys)) {
		last = q.newChunk(last)
		q.buckets[bucket] = last
		q.nonEmpty[bucket>>6] |= 1 << (bucket & 63)
	}
	c := &q.chunks[last]
	c.keys[c.used] = key
	c.used++
}

func (q *keyQueue) newChunk(next int32) int32 {
	n := q.freeChunk
	if n == 0 {
		n = int32(len(q.chunks))
		q.chunks = append(q.chunks, chunk{next: next})
		return n
	}
	c := &q.chunks[n]
	q.freeChunk = c.next
	c.used, c.next = 0, next
	return n
}

// pop removes and returns the lowest key. steps is the number of keys visited. ok is false
// if the queue is empty.
func (q *keyQueue) pop() (key uint64, steps int, ok bool) {
	steps = 1
	if len(q.current) == 0 && len(q.heap) == 0 {
		if steps, ok = q.nextBucket(); !ok {
			return 0, steps, false
		}
	}
	if len(q.heap) == 0 || len(q.current) > 0 && q.current[0] < q.heap[0] {
		key, q.current = q.current[0], q.current[1:]
		return key, steps, true
	}
	return q.popHeap(), bits.Len(uint(len(q.heap))) + 1, true
}

// nextBucket sorts the lowest bucket that has keys into current.
func (q *keyQueue) nextBucket() (steps int, ok bool) {
	bucket := -1
	for i, word := range q.nonEmpty {
		if word != 0 {
			bucket = i<<6 + bits.TrailingZeros64(word)
			break
		}
	}
	if bucket < 0 {
		return 1, false
	}
	q.nonEmpty[bucket>>6] &^= 1 << (bucket & 63)
	q.heapBelow = bucketStart(bucket + 1)
	n := 0
	for c := q.buckets[bucket]; c != 0; c = q.chunks[c].next {
		n += int(q.chunks[c].used)
	}
	q.sorted = slices.Grow(q.sorted[:0], n)[:n]
	for c := q.buckets[bucket]; c != 0; { // from the last chunk to the first
		chunk := &q.chunks[c]
		n -= int(chunk.used)
		copy(q.sorted[n:], chunk.keys[:chunk.used])
		c, chunk.next, q.freeChunk = chunk.next, q.freeChunk, c
	}
	q.buckets[bucket] = 0
	steps = q.sort()
	q.current = q.sorted
	return steps, true
}

// sort sorts q.sorted. A long list is radix-sorted in linear time, from the lowest byte,
// skipping bytes that are equal in all keys.
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
	if len(keys) <= smallQueue {
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

func (q *keyQueue) pushHeap(key uint64) {
	q.heap = append(q.heap, key)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if q.heap[parent] <= key {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = key
}

func (q *keyQueue) popHeap() uint64 {
	h := q.heap
	top, key := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	q.heap = h
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
