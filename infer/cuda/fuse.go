package cuda

import (
	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// operation is what is launched at once of a program: an operation of it, or several that
// compute the same bits together.
type operation struct {
	device.Op
	at int // its place in the program

	// Of a MatMul: the products with the same X that share its launch, and whether its
	// result is added to Dst instead of stored there.
	also []device.Op
	add  bool
}

// fuse returns the operations of a program, as few as there are kernels for:
//
//	MatMul, MatMul, MatMul   of one X, biases between them: one launch
//	MatMul, Add              the product is added at once, if nobody reads it by itself
func fuse(ops []device.Op) []operation {
	var fused []operation
	done := make([]bool, len(ops))
	for i, op := range ops {
		if done[i] {
			continue
		}
		o := operation{Op: op, at: i}
		if op.Kind == device.OpMatMul {
			o.also = sharing(ops, i, done)
			if i+1 < len(ops) && len(o.also) == 0 && isSumOf(ops[i+1], op.Dst) && overwritten(ops[i+2:], op.Dst) {
				o.Dst, o.add, done[i+1] = ops[i+1].Dst, true, true
			}
		}
		fused = append(fused, o)
	}
	return fused
}

// sharing returns the products after ops[i] that can be computed with it, and marks them as
// done: those of the same X and type that follow without anything between them but sums of
// biases with results of such products.
func sharing(ops []device.Op, i int, done []bool) (also []device.Op) {
	of := ops[i]
	results := map[int32]bool{of.Dst.ID: true}
	for j := i + 1; j < len(ops) && len(also)+1 < cudakern.MostProducts; j++ {
		next := ops[j]
		switch {
		case next.Kind == device.OpAddBias && results[next.Dst.ID]:
		case next.Kind == device.OpMatMul && next.X == of.X && next.W.Type == of.W.Type && !results[next.Dst.ID]:
			also, done[j] = append(also, next), true
			results[next.Dst.ID] = true
		default:
			return also
		}
	}
	return also
}

// isSumOf tells whether op adds x to another tensor.
func isSumOf(op device.Op, x device.Tensor) bool {
	return op.Kind == device.OpAdd && op.X == x && op.Dst.ID != x.ID
}

// overwritten tells whether t is written in ops before anything reads it.
func overwritten(ops []device.Op, t device.Tensor) bool {
	for _, op := range ops {
		reads := op.X.ID == t.ID || op.Y.ID == t.ID
		switch op.Kind {
		case device.OpAdd, device.OpAddBias, device.OpRoPE: // in place
			reads = reads || op.Dst.ID == t.ID
		}
		if reads {
			return false
		}
		if op.Dst.ID == t.ID {
			return true
		}
	}
	return false
}
