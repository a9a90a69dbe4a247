package cuda

import (
	"slices"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// operation is one or more operations of a program that are launched together. Fused operations have
// the same bits as separate ones.
type operation struct {
	device.Op
	at int // index in the program

	// For MatMul: the products with the same X that share the launch; the operation that computes
	// X, if its result is only written quantised; whether the result is added to Dst.
	also     []device.Op
	producer *device.Op
	add      bool

	// For MatMul of few rows: whether the launch computes the producer, an RMSNorm, itself; and if it is of the gate and the up
	// projection, the GLU whose quantised result it writes instead of theirs.
	normed bool
	glu    *device.Op

	// For Conv: whether SiLU follows in place. For AddBias: the Multiply, if Softplus, that, and Exp follow in
	// place.
	silu  bool
	decay *device.Op

	// For StoreKV: the RoPE of the queries, if the launch also rotates queries and keys.
	rope *device.Op

	// For Attention: the StoreKV with RoPE that the launch does first.
	stores *operation

	// For RMSNorm in place: the next one, of the keys as this is of the queries, that shares the launch.
	keys *device.Op

	// For ExpertMatMul of a gate: the rest of the mixture of experts, which the launches compute with it and with the producer.
	mixture *mixture

	// For Attention, and for MatMul with a GLU: the product for which it quantises its result.
	product *device.Op
}

// fusing says what kernels can compute.
type fusing interface {
	canNormalize(product device.Op, rows int) bool    // a product of so many rows their norm
	canMix(gate device.Op, m *mixture, rows int) bool // a mixture of experts
	canNormBoth() bool                                // the heads of two tensors
}

// fuse returns the operations of a program, fused where kernels can.
//
//	RMSNorm, MatMul          the norm quantises its result, if only products
//	GLU, MatMul              read its result; the same for GLU
//	RMSNorm, MatMul          of few rows: each launch of products normalizes it
//	… MatMul, MatMul, GLU    and two products of a GLU that only one product reads quantise its result
//	MatMul, MatMul, MatMul   with the same X and what cannot tell their order between them: one launch
//	RMSNorm, RMSNorm         in place, of queries and keys: one launch
//	RMSNorm, ExpertMatMul,   of few rows: two launches compute the experts of a mixture, which normalize the rows and, with
//	ExpertMatMul, GLU,       Add, add the sum to Dst, if nothing else reads what is between them
//	ExpertMatMul, ExpertSum
//	MatMul, Add              the product is added to Dst, if nothing else reads it
//	RoPE, RoPE, StoreKV      of queries and keys, if nothing else reads the keys: one launch;
//	… Attention              that of one row also attends, if nothing else reads the queries
//	Attention, MatMul        attention quantises its result, if only this product reads it
//	Conv, Activate           with SiLU, in place: one launch
//	AddBias, Activate,       with Softplus and Exp, in place: the decays of a recurrence
//	Multiply, Activate
//
// Quantised activations are in the format that a kind of product reads: tiles of int16 with scales, or
// of float32.
func fuse(p *device.Program, can fusing) []operation {
	ops, rows := untilUnread(p), p.Rows // rows: the most
	var fused []operation
	done := make([]bool, len(ops))
	gated := -1 // the last GLU that products compute
	mixtures := mixturesOf(ops, p, can)
	producers := map[int32]*device.Op{} // of activations that are only written quantised, by ID
	for i, op := range ops[:len(p.Ops)] {
		delete(producers, op.Dst.ID)
		if i == gated {
			producers[op.Dst.ID] = &ops[i]
		}
		if done[i] {
			continue
		}
		o := operation{Op: op, at: i}
		switch op.Kind {
		case device.OpRMSNorm, device.OpGLU:
			if canQuantize(op) && onlyMultiplied(ops, i, mixtures) {
				producers[op.Dst.ID] = &ops[i]
				continue
			}
			if normsBoth(ops[i:]) && can.canNormBoth() {
				o.keys, done[i+1] = &ops[i+1], true
			}
		case device.OpExpertMatMul:
			if m := mixtures[i]; m != nil && producers[op.X.ID] != nil && producers[op.X.ID].Kind == device.OpRMSNorm {
				o.mixture, o.producer = m, producers[op.X.ID]
				for j := i + 1; j < i+m.ops; j++ {
					done[j] = true
				}
			}
		case device.OpMatMul:
			o.producer = producers[op.X.ID]
			o.also = sharing(ops, i, done)
			if o.normed = normalizes(o) && can.canNormalize(op, rows); o.normed && isGated(o, ops[i+1:]) {
				gated = i + 2
				o.glu, o.product, done[gated] = &ops[gated], &ops[gated+1], true
			}
			if i+1 < len(ops) && len(o.also) == 0 && !o.normed && isSumOf(ops[i+1], op.Dst) && overwritten(ops[i+2:], op.Dst) {
				o.Dst, o.add, done[i+1] = ops[i+1].Dst, true, true
			}
		case device.OpGatherRows:
			rows = p.Out
		case device.OpAttention:
			if op.Attention.MaxBias > 0 {
				break // its kernel neither stores keys nor quantises
			}
			if n := len(fused); n > 0 && isStoreFor(fused[n-1], op, ops[i+1:], rows) {
				o.stores = &operation{}
				*o.stores, fused = fused[n-1], fused[:n-1]
			}
			if isProductOf(ops[i+1:], op, rows) {
				o.product = &ops[i+1]
			}
		case device.OpConv:
			if o.silu = isInPlace(ops[i+1:], op.Dst, device.SiLU); o.silu {
				done[i+1] = true
			}
		case device.OpAddBias:
			if isDecay(ops[i:]) {
				o.decay = &ops[i+2]
				done[i+1], done[i+2], done[i+3] = true, true, true
			}
		case device.OpRoPE:
			if isRoPEForCache(ops[i:]) {
				o = operation{Op: ops[i+2], at: i + 2, rope: &ops[i]}
				done[i+1], done[i+2] = true, true
			}
		}
		fused = append(fused, o)
	}
	return fused
}

// untilUnread returns the operations of p, and after them one that overwrites each activation that nothing reads after a run.
func untilUnread(p *device.Program) []device.Op {
	ops := slices.Clone(p.Ops)
	if p.Results == nil {
		return ops
	}
	ended := map[int32]bool{}
	for _, t := range p.Results {
		ended[t.ID] = true
	}
	for _, op := range p.Ops {
		if t := op.Dst; !t.None() && !ended[t.ID] {
			ended[t.ID] = true
			ops = append(ops, device.Op{Dst: t})
		}
	}
	return ops
}

// canQuantize reports whether an RMSNorm or a GLU can quantise its result: norms of whole rows, and all
// activation functions up to SquaredReLU.
func canQuantize(op device.Op) bool {
	if op.Kind == device.OpRMSNorm {
		return op.W.Cols == op.X.Cols
	}
	return op.GLU <= device.SquaredReLU
}

// onlyMultiplied reports whether only matrix products, also those at the beginning of mixtures, read the result of ops[at] before it is
// overwritten, and none of them after an input of ops[at] has changed.
func onlyMultiplied(ops []device.Op, at int, mixtures map[int]*mixture) bool {
	op, changed := ops[at], false
	for j := at + 1; j < len(ops); j++ {
		next := ops[j]
		multiplies := next.Kind == device.OpMatMul || op.Kind == device.OpRMSNorm && (mixtures[j] != nil || mixtures[j-1] != nil)
		if next.Reads(op.Dst) && (changed || !multiplies) {
			return false
		}
		if next.Writes(op.Dst) {
			return true
		}
		changed = changed || next.Writes(op.X) || next.Writes(op.Y)
	}
	return false
}

// normalizes reports whether the launch of o, a product, may compute its RMSNorm: all results are other tensors than the one that
// other blocks still read.
func normalizes(o operation) bool {
	if o.producer == nil || o.producer.Kind != device.OpRMSNorm {
		return false
	}
	return !slices.ContainsFunc(append(slices.Clone(o.also), o.Op), func(p device.Op) bool { return p.Dst.ID == o.producer.X.ID })
}

// isGated reports whether o, a product of rows that it normalizes, shares its launch with the first of later, and their GLU and
// its product follow, which are the only ones that read the results.
func isGated(o operation, later []device.Op) bool {
	if len(o.also) != 1 || len(later) < 3 {
		return false
	}
	up, glu, down := later[0], later[1], later[2]
	isPair := up.Kind == device.OpMatMul && up.Dst == o.also[0].Dst && glu.Kind == device.OpGLU && canQuantize(glu) &&
		glu.X == o.Dst && glu.Y == up.Dst && o.Dst.ID != up.Dst.ID
	isProduct := down.Kind == device.OpMatMul && down.X == glu.Dst && down.Dst.ID != glu.Dst.ID && overwritten(later[3:], glu.Dst) &&
		cudakern.SameKind(kernelName(o.W.Type), kernelName(down.W.Type))
	return isPair && isProduct && isDead(later[2:], glu, glu.X) && isDead(later[2:], glu, glu.Y)
}

// isDead reports whether glu overwrites t, or ops do before any of them reads it.
func isDead(ops []device.Op, glu device.Op, t device.Tensor) bool {
	return glu.Writes(t) || overwritten(ops, t)
}

// isRoPEForCache reports whether ops begin with RoPE of queries, the same RoPE of keys, and a StoreKV
// of those keys, which no later operation reads.
func isRoPEForCache(ops []device.Op) bool {
	if len(ops) < 3 || ops[1].Kind != device.OpRoPE || ops[2].Kind != device.OpStoreKV {
		return false
	}
	queries, keys, store := ops[0], ops[1], ops[2]
	return !store.Y.None() && queries.RoPE.Axis == 0 && queries.RoPE == keys.RoPE && keys.RoPE.HeadDim == store.KV.Layout.HeadDim && keys.RoPE.HeadDim%2 == 0 &&
		queries.Dst.ID != keys.Dst.ID && keys.Dst == store.X && store.Y.ID != keys.Dst.ID && store.Y.ID != queries.Dst.ID &&
		overwritten(ops[3:], keys.Dst)
}

// isStoreFor reports whether attention, which later operations follow, can rotate the queries and rotate and
// store the keys itself, as store does right before it.
func isStoreFor(store operation, attention device.Op, later []device.Op, rows int) bool {
	l := attention.KV.Layout
	return store.Kind == device.OpStoreKV && store.rope != nil && store.KV == attention.KV && store.Layer == attention.Layer &&
		store.rope.Dst == attention.X && overwritten(later, attention.X) &&
		cudakern.CanStore(cacheType(l), attention.Attention.Heads, l.KVHeads, l.HeadDim, l.Latent, rows)
}

// isProductOf reports whether ops begin with a product of the result of attention, which no other
// operation reads, and attention can quantise its result for it.
func isProductOf(ops []device.Op, attention device.Op, rows int) bool {
	return len(ops) > 0 && ops[0].Kind == device.OpMatMul && ops[0].X == attention.Dst && ops[0].Dst.ID != attention.Dst.ID &&
		overwritten(ops[1:], attention.Dst) && cudakern.CanQuantize(attention.Attention.Heads, attention.KV.Layout.ValueDim(), rows)
}

// sharing returns the products after ops[i] that can share its launch, and marks them as done: those
// with the same X and weight type, whose results nothing before them reads or writes.
func sharing(ops []device.Op, i int, done []bool) (also []device.Op) {
	first := ops[i]
	for j := i + 1; j < len(ops) && len(also)+1 < cudakern.MaxProducts; j++ {
		next := ops[j]
		if next.Writes(first.X) || next.Kind == device.OpGatherRows {
			break
		}
		if !done[j] && next.Kind == device.OpMatMul && next.X == first.X && next.W.Type == first.W.Type && !used(ops[i:j], next.Dst) {
			also, done[j] = append(also, next), true
		}
	}
	return also
}

// used reports whether ops read or write t.
func used(ops []device.Op, t device.Tensor) bool {
	return slices.ContainsFunc(ops, func(op device.Op) bool { return op.Reads(t) || op.Writes(t) })
}

// normsBoth reports whether ops begin with two RMSNorms in place, of tensors whose heads have as many elements.
func normsBoth(ops []device.Op) bool {
	if len(ops) < 2 || ops[0].Kind != device.OpRMSNorm || ops[1].Kind != device.OpRMSNorm {
		return false
	}
	a, b := ops[0], ops[1]
	return a.X == a.Dst && b.X == b.Dst && a.Dst.ID != b.Dst.ID && a.W.Cols == b.W.Cols && a.Eps == b.Eps
}

// isInPlace reports whether ops begin with the activation function a of x, in place.
func isInPlace(ops []device.Op, x device.Tensor, a device.Activation) bool {
	return len(ops) > 0 && ops[0].Kind == device.OpGLU && ops[0].GLU == a && ops[0].Y.None() && ops[0].X == x && ops[0].Dst == x
}

// isDecay reports whether ops begin with AddBias, Softplus, Multiply and Exp, all of the same x in place.
func isDecay(ops []device.Op) bool {
	return len(ops) >= 4 && isInPlace(ops[1:], ops[0].Dst, device.Softplus) && ops[2].Kind == device.OpMultiply && ops[2].Dst == ops[0].Dst &&
		isInPlace(ops[3:], ops[0].Dst, device.Exp)
}

// isSumOf reports whether op adds x to another tensor.
func isSumOf(op device.Op, x device.Tensor) bool {
	return op.Kind == device.OpAdd && op.X == x && op.Dst.ID != x.ID
}

// overwritten reports whether ops write t before any of them reads it.
func overwritten(ops []device.Op, t device.Tensor) bool {
	for _, op := range ops {
		if op.Reads(t) {
			return false
		}
		if op.Writes(t) {
			return true
		}
	}
	return false
}

// mixture is a mixture of experts after the product of their gates.
type mixture struct {
	up, glu, down, sum device.Op
	add                bool // the sum is added to sum.Dst
	ops                int  // of the program, with that of the gates
}

// mixturesOf returns the mixtures of experts that launches for few rows can compute together, by the index of their gates.
func mixturesOf(ops []device.Op, p *device.Program, can fusing) map[int]*mixture {
	found, rows := map[int]*mixture{}, p.Rows
	for i, op := range ops[:len(p.Ops)] {
		if op.Kind == device.OpGatherRows {
			rows = p.Out
		}
		if m := mixtureAt(ops[i:]); m != nil && can.canMix(op, m, rows) {
			found[i] = m
		}
	}
	return found
}

// mixtureAt returns the mixture that ops begin with, nil if they begin with none or something else reads what is between its operations.
func mixtureAt(ops []device.Op) *mixture {
	if len(ops) < 5 {
		return nil
	}
	gate, m := ops[0], mixture{up: ops[1], glu: ops[2], down: ops[3], sum: ops[4], ops: 5}
	for _, product := range []device.Op{gate, m.up, m.down} {
		if product.Kind != device.OpExpertMatMul || product.Y != gate.Y || product.Y.None() || product.Experts != gate.Experts || product.Dst.ID == product.X.ID {
			return nil
		}
	}
	pair := m.up.X == gate.X && m.up.Dst.ID != gate.Dst.ID && m.glu.Kind == device.OpGLU && canQuantize(m.glu) && m.glu.X == gate.Dst && m.glu.Y == m.up.Dst
	summed := m.down.X == m.glu.Dst && m.sum.Kind == device.OpExpertSum && m.sum.X == m.down.Dst && m.sum.Y == gate.Y && m.sum.Dst.ID != m.down.Dst.ID
	used := gate.Y.Cols / 2
	if !pair || !summed || gate.X.Cols != gate.W.Cols || gate.Dst.Cols != used*m.down.W.Cols || m.sum.Dst.Cols != gate.W.Cols ||
		gate.W != m.up.W && (gate.W.Type != m.up.W.Type || gate.W.Rows != m.up.W.Rows) || !cudakern.SameKind(kernelName(gate.W.Type), kernelName(m.down.W.Type)) {
		return nil
	}
	later := ops[5:]
	for _, t := range []device.Tensor{gate.Dst, m.up.Dst, m.glu.Dst, m.down.Dst} {
		if t.ID == m.sum.Dst.ID || !overwritten(later, t) {
			return nil
		}
	}
	if len(later) > 0 && isSumOf(later[0], m.sum.Dst) && overwritten(later[1:], m.sum.Dst) {
		m.sum.Dst, m.add, m.ops = later[0].Dst, true, 6
	}
	return &m
}
