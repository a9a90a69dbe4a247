package cudakern

import (
	"encoding/binary"
	"fmt"
	"math"
)

// RoPE is the rotary position embedding: it rotates pairs of elements of every head by angles
// proportional to the position.
type RoPE struct{ rotate *Function }

// NewRoPE loads the kernel.
func NewRoPE(c *Context) (*RoPE, error) {
	rotate, err := c.kernel("rope", "rope")
	return &RoPE{rotate}, err
}

// AngleTable returns the table that Enqueue reads, to be uploaded once. frequencies are the angles
// per position of each pair, in radians. The table has them as uint64 in units of 2^-64 rotations: the
// product with a position is exact for any position, because whole rotations overflow.
func AngleTable(frequencies []float64) ([]byte, error) {
	table := make([]byte, 0, 8*len(frequencies))
	for i, f := range frequencies {
		rotations := f / (2 * math.Pi)
		if math.IsNaN(rotations) || math.IsInf(rotations, 0) {
			return nil, fmt.Errorf("the frequency of pair %d is not finite", i)
		}
		rotations -= math.Floor(rotations)
		table = binary.NativeEndian.AppendUint64(table, fraction(rotations))
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

// Enqueue rotates, in place, the first dims elements of every headDim elements of x, rows of cols
// float32. Pairs are (2i, 2i+1), or (i, i+dims/2) with neox. angleTable is the uploaded AngleTable. The
// rotated elements are multiplied by magnitude.
func (k *RoPE) Enqueue(to Queue, x Ptr, cols, headDim, dims int, neox bool, angleTable Ptr, magnitude float32, step Step, capacity int) error {
	if err := checkLaunch("RoPE", capacity, cols); err != nil {
		return err
	}
	distance, pairStride := pairing(dims, neox)
	return k.rotate.Launch(to, Dim3{X: blocksFor(cols/headDim*dims/2, threads), Y: capacity}, Dim3{X: threads}, 4*dims,
		x, int32(cols), int32(headDim), int32(dims/2), distance, pairStride, angleTable, magnitude, step.Pos, step.Rows)
}

// pairing returns the distance between the elements of a pair, and between consecutive pairs:
// rope.cuh.
func pairing(dims int, neox bool) (distance, pairStride int32) {
	if neox {
		return int32(dims / 2), 1
	}
	return 1, 2
}
