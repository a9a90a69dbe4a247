package cudakern

import (
	"encoding/binary"
	"fmt"
	"math"
)

// RoPE turns pairs of elements of every head by angles that grow with the position:
// rotary position embedding.
type RoPE struct{ turn *Function }

// NewRoPE loads the kernel.
func NewRoPE(c *Context) (*RoPE, error) {
	turn, err := c.kernel("rope", "rope")
	return &RoPE{turn}, err
}

// Turns returns the table that Enqueue reads, to be uploaded once: for each of the
// dims/2 pairs the part of a full turn that one position adds, base^(-2i/dims) · scale /
// factors[i] / 2π, as a uint64 in units of 2^-64 turns. factors may be nil. A position
// times such a number is the angle without any loss, however far the position: whole
// turns overflow.
func Turns(dims int, base, scale float64, factors []float32) ([]byte, error) {
	if dims < 2 || dims%2 != 0 || factors != nil && len(factors) != dims/2 {
		return nil, fmt.Errorf("cannot turn %d elements with %d frequency factors", dims, len(factors))
	}
	table := make([]byte, 0, 8*dims/2)
	for i := range dims / 2 {
		turns := scale * math.Pow(base, -2*float64(i)/float64(dims)) / (2 * math.Pi)
		if factors != nil {
			turns /= float64(factors[i])
		}
		if math.IsNaN(turns) || math.IsInf(turns, 0) {
			return nil, fmt.Errorf("the rotation of pair %d is not finite", i)
		}
		turns -= math.Floor(turns)
		table = binary.NativeEndian.AppendUint64(table, fraction(turns))
	}
	return table, nil
}

// fraction returns t, in [0, 1], in units of 2^-64; 1 is 0.
func fraction(t float64) uint64 {
	scaled := math.Ldexp(t, 64)
	if scaled >= math.Ldexp(1, 64) {
		return 0
	}
	return uint64(scaled)
}

// Enqueue turns, in place, the first dims elements of every headDim of x, rows of cols
// float32. Pairs are (2i, 2i+1), or with neox (i, i+dims/2). turns is the uploaded table.
func (k *RoPE) Enqueue(s *Stream, x Ptr, cols, headDim, dims int, neox bool, turns Ptr, step Step, capacity int) error {
	if err := checkLaunch("RoPE", capacity, cols); err != nil {
		return err
	}
	apart, between := pairing(dims, neox)
	return k.turn.Launch(s, Dim3{X: blocksFor(cols/headDim*dims/2, threads), Y: capacity}, Dim3{X: threads}, 4*dims,
		x, int32(cols), int32(headDim), int32(dims/2), apart, between, turns, step.Pos, step.Rows)
}

// pairing returns how far the elements of a pair are apart, and neighbouring pairs: rope.cuh.
func pairing(dims int, neox bool) (apart, between int32) {
	if neox {
		return int32(dims / 2), 1
	}
	return 1, 2
}
