package gguf

import (
	"math"
	"math/bits"
)

// Every size and offset that a file declares is computed here. The second result is false if
// the first overflows.

func add(a, b uint64) (uint64, bool) {
	sum, carry := bits.Add64(a, b, 0)
	return sum, carry == 0
}

func mul(a, b uint64) (uint64, bool) {
	high, low := bits.Mul64(a, b)
	return low, high == 0
}

// alignUp rounds n up to a multiple of alignment, a power of two.
func alignUp(n, alignment uint64) (uint64, bool) {
	n, ok := add(n, alignment-1)
	return n &^ (alignment - 1), ok
}

func toInt(n uint64) (int, bool) { return int(n), n <= math.MaxInt }

// tensorBytes returns the size in bytes of a tensor, whose rows must be whole blocks; 0 if its type is
// unknown.
func tensorBytes(t Type, shape []int) (uint64, bool) {
	elements, bytes := t.Block()
	if elements == 0 {
		elements = 1
	}
	n, ok := uint64(shape[0])/elements, true
	for _, d := range shape[1:] {
		if n, ok = mul(n, uint64(d)); !ok {
			return 0, false
		}
	}
	// The number of elements must fit in an int too, see Tensor.Elements.
	if total, ok := mul(n, elements); !ok || total > math.MaxInt {
		return 0, false
	}
	return mul(n, bytes)
}
