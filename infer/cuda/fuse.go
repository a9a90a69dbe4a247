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

	// Of a MatMul: the products with the same X that share its launch, what makes X if X
	// becomes an image at once, and whether the result is added to Dst instead of stored there.
	also []device.Op
	made *device.Op
	add  bool

	// Of a StoreKV: the RoPE of the queries, with which that of the keys is done too.
	rope *device.Op
}

// fuse returns the operations of a program, as few as there are kernels for:
//
//	RMSNorm, MatMul          the product's image is made at once, if only products read
//	GLU, MatMul              the result
//	MatMul, MatMul, MatMul   of one X, biases between them: one launch
//	MatMul, Add              the product is added at once, if nobody reads it by itself
//	RoPE, RoPE, StoreKV      of queries and keys, if nobody else reads the keys: one launch
func fuse(ops []device.Op) []operation {
	var fused []operation
	done := make([]bool, len(ops))
	made := map[int32]*device.Op{} // by the activation that is not computed by itself
	for i, op := range ops {
		delete(made, op.Dst.ID)
		if done[i] {
			continue
		}
		o := operation{Op: op, at: i}
		switch op.Kind {
		case device.OpRMSNorm, device.OpGLU:
			if !byHeads(op) && onlyMultiplied(ops[i+1:], op) {
				made[op.Dst.ID] = &ops[i]
				continue
			}
		case device.OpMatMul:
			o.made = made[op.X.ID]
			o.also = sharing(ops, i, done)
			if i+1 < len(ops) && len(o.also) == 0 && isSumOf(ops[i+1], op.Dst) && overwritten(ops[i+2:], op.Dst) {
				o.Dst, o.add, done[i+1] = ops[i+1].Dst, true, true
			}
		case device.OpRoPE:
			if turnsForCache(ops[i:]) {
				o = operation{Op: ops[i+2], at: i + 2, rope: &ops[i]}
				done[i+1], done[i+2] = true, true
			}
		}
		fused = append(fused, o)
	}
	return fused
}

// byHeads tells whether op is an RMSNorm of parts of a row.
func byHeads(op device.Op) bool { return op.Kind == device.OpRMSNorm && op.W.Cols < op.X.Cols }

// onlyMultiplied tells whether nothing in ops but products reads the result of op before it
// is overwritten, and no product does after what op reads has changed.
func onlyMultiplied(ops []device.Op, op device.Op) bool {
	changed := false
	for _, next := range ops {
		if reads(next, op.Dst) && (changed || next.Kind != device.OpMatMul) {
			return false
		}
		if writes(next, op.Dst) {
			return true
		}
		changed = changed || writes(next, op.X) || writes(next, op.Y)
	}
	return false
}

// turnsForCache tells whether ops begin with RoPE of queries, the same RoPE of keys, and a
// StoreKV of those keys, which nobody reads again.
func turnsForCache(ops []device.Op) bool {
	if len(ops) < 3 || ops[1].Kind != device.OpRoPE || ops[2].Kind != device.OpStoreKV {
		return false
	}
	queries, keys, store := ops[0], ops[1], ops[2]
	return !store.Y.None() && queries.RoPE == keys.RoPE && keys.RoPE.HeadDim == store.KV.Layout.HeadDim && keys.RoPE.HeadDim%2 == 0 &&
		queries.Dst.ID != keys.Dst.ID && keys.Dst == store.X && store.Y.ID != keys.Dst.ID && store.Y.ID != queries.Dst.ID &&
		overwritten(ops[3:], keys.Dst)
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
		if reads(op, t) {
			return false
		}
		if writes(op, t) {
			return true
		}
	}
	return false
}

// writes tells whether op writes t.
func writes(op device.Op, t device.Tensor) bool { return !t.None() && op.Dst.ID == t.ID }

// reads tells whether op reads t.
func reads(op device.Op, t device.Tensor) bool {
	switch op.Kind {
	case device.OpAdd, device.OpAddBias, device.OpRoPE, device.OpScale, device.OpScaleByPosition, device.OpGate, device.OpMultiply, device.OpExpertBias, device.OpCopy: // in place
		if op.Dst.ID == t.ID {
			return true
		}
	}
	return op.X.ID == t.ID || op.Y.ID == t.ID
}
