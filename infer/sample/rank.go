package sample

import (
	"math"
	"slices"
)

// rankKey packs a logit and its token into a key. Larger keys precede smaller ones in
// canonical order.
func rankKey(logit float32, id int32) uint64 {
	bits := math.Float32bits(logit + 0) // turns -0 into +0, because the two are equal
	if bits>>31 == 1 {
		bits = ^bits
	} else {
		bits |= 1 << 31
	}
	return uint64(bits)<<32 | uint64(^uint32(id))
}

func keyID(key uint64) int32 { return int32(^uint32(key)) }

func keyLogit(key uint64) float32 {
	bits := uint32(key >> 32)
	if bits>>31 == 1 {
		bits &^= 1 << 31
	} else {
		bits = ^bits
	}
	return math.Float32frombits(bits)
}

// ranker sorts the tokens of rows in canonical order. It reuses its buffers, which grow to
// the largest size requested.
type ranker struct {
	heap          []uint64
	keys, scratch []uint64 // for sorting a whole row
}

// best returns the keys of at least the first n tokens of the row in canonical order, or of
// all that are not masked (-Inf) if those are fewer. The result is valid until the next
// call.
// PRECOND: no logit is NaN.
func (r *ranker) best(row []float32, n int) []uint64 {
	const limit = 1024 // above this, sorting the row is faster than the heap
	if n <= min(limit, len(row)/16) {
		return r.selectBest(row, n)
	}
	return r.sort(row)
}

// selectBest implements best with a heap of the n best tokens so far, the worst on top.
// After the first few thousand tokens almost all others need one comparison.
// PRECOND: 0 <= n <= len(row).
func (r *ranker) selectBest(row []float32, n int) []uint64 {
	if n == 0 {
		return nil
	}
	heap := r.heap[:0]
	worst := float32(math.Inf(-1)) // logit at the top of a full heap; an equal logit with a higher id ranks lower
	for id, logit := range row {
		if logit <= worst {
			continue
		}
		key := rankKey(logit, int32(id))
		if len(heap) < n {
			heap = append(heap, key)
			if len(heap) < n {
				continue
			}
			for i := n/2 - 1; i >= 0; i-- {
				siftDown(heap, i)
			}
		} else {
			heap[0] = key
			siftDown(heap, 0)
		}
		worst = keyLogit(heap[0])
	}
	slices.Sort(heap)
	slices.Reverse(heap)
	r.heap = heap
	return heap
}

// siftDown restores the heap order (a parent is less than its children) from i down.
func siftDown(heap []uint64, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if heap[i] <= heap[child] {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// sort implements best with a radix sort, whose time does not depend on the values. It is
// stable, so only the half of the key that holds the logit needs sorting.
func (r *ranker) sort(row []float32) []uint64 {
	const digit = 11 // bits; three digits are the 32 bits of a logit
	if cap(r.keys) < len(row) {
		r.keys, r.scratch = make([]uint64, len(row)), make([]uint64, len(row))
	}
	keys, scratch := r.keys[:0], r.scratch
	var starts [3][1 << digit]uint32
	for id, logit := range row {
		if math.IsInf(float64(logit), -1) {
			continue
		}
		key := rankKey(logit, int32(id))
		keys = append(keys, key)
		for d := range starts {
			starts[d][descending(key, d, digit)]++
		}
	}
	scratch = scratch[:len(keys)]
	for d := range starts {
		next := uint32(0)
		for i, count := range starts[d] {
			starts[d][i] = next
			next += count
		}
		for _, key := range keys {
			slot := &starts[d][descending(key, d, digit)]
			scratch[*slot] = key
			*slot++
		}
		keys, scratch = scratch, keys
	}
	return keys
}

// descending returns digit d (0: lowest) of a key's logit, inverted so that larger logits
// have smaller digits.
func descending(key uint64, d, width int) uint64 {
	return ^key >> (32 + d*width) & (1<<width - 1)
}
