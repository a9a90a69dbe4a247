package device

import "fmt"

// StateLayout describes the recurrent state of sequences: Slots slots, each with the values of one
// sequence over all layers of a program. Unlike keys and values, which grow with a sequence, it has a
// fixed size and holds only the newest position. An operation with state reads and writes the slot
// of each row's sequence, and begins with zeros at position 0.
type StateLayout struct {
	Slots  int
	Values int // F32 values in a slot
}

// SlotBytes returns the size of a slot, in bytes.
func (l StateLayout) SlotBytes() int64 { return 4 * int64(l.Values) }

// Bytes returns the size of all slots, in bytes.
func (l StateLayout) Bytes() int64 { return int64(l.Slots) * l.SlotBytes() }

// CheckSlots returns an error unless all slots exist.
func (l StateLayout) CheckSlots(slots ...int32) error {
	for _, slot := range slots {
		if slot < 0 || int(slot) >= l.Slots {
			return fmt.Errorf("state slot %d does not exist, there are %d", slot, l.Slots)
		}
	}
	return nil
}

// CheckSlot returns an error unless the slot exists and data has its size.
func (l StateLayout) CheckSlot(slot int32, data []byte) error {
	if int64(len(data)) != l.SlotBytes() {
		return fmt.Errorf("a state slot has %d bytes, got %d", l.SlotBytes(), len(data))
	}
	return l.CheckSlots(slot)
}

// State is a handle of recurrent state that a device owns.
type State struct {
	ID     int32 // assigned by the device, from 1
	Layout StateLayout
}

// Scan are the parameters of a linear recurrence. Each head has a state S of (KeyDim, ValueDim). With
// the row's query q, key k and value v of the head, its decays g and its step b:
//
//	S[i] = g[i] · S[i]
//	e    = b · v, or with Delta b · (v - Sᵀ k)
//	S    = S + k eᵀ
//	dst  = Sᵀ q + skip · v
type Scan struct {
	Heads    int // of values, decays and steps
	KeyHeads int // of queries and keys
	KeyDim   int
	ValueDim int
	Tiled    bool // head h has the key of head h modulo KeyHeads, instead of h / (Heads / KeyHeads)
	Delta    bool // gated delta rule

	V     Tensor // (rows, Heads · ValueDim) values
	Decay Tensor // (rows, Heads) or (rows, Heads · KeyDim)
	Step  Tensor // (rows, Heads)
	Skip  Tensor // (1, Heads) F32 weight, or none
}

// Values returns the size of the state, in values.
func (s Scan) Values() int { return s.Heads * s.KeyDim * s.ValueDim }

// KeyHead returns the head of the queries and keys of head h.
func (s Scan) KeyHead(h int) int {
	if s.Tiled {
		return h % s.KeyHeads
	}
	return h / (s.Heads / s.KeyHeads)
}

// ConvValues returns the size of the state of a Conv with the weights w, in values: the inputs of the
// last w.Cols - 1 positions.
func ConvValues(w Tensor) int { return (w.Cols - 1) * w.Rows }

// Conv records the causal depthwise convolution dst[c] = bias[c] + Σ_i w[c, i] · x[c] at position
// pos - w.Cols + 1 + i, where positions before 0 are zeros. w is (columns, positions) F32, bias
// (1, columns) F32 or none. The state of the row's sequence, ConvValues(w) values from at on, holds the
// inputs of the positions before. dst and x must differ.
func (p *Program) Conv(dst, x, w, bias Tensor, s State, at int) {
	p.record(Op{Kind: OpConv, Dst: dst, X: x, W: w, Bias: bias, State: s, At: at}, p.enoughRows(dst), p.enoughRows(x), distinct(dst, x),
		same("width", dst.Cols, x.Cols), same("width", w.Rows, x.Cols), isFloat("weights", w), check(w.Cols > 0, "has no weights"),
		check(bias.None() || vector(bias, x.Cols) == nil, "has %d biases for rows of %d", bias.Cols, x.Cols), inState(s, at, ConvValues(w)))
}

// Scan records the linear recurrence a over the rows of each sequence in the order of their positions.
// q and k are (rows, KeyHeads · KeyDim), dst is (rows, Heads · ValueDim). The state is a.Values() values
// from at on. dst must differ from all inputs.
func (p *Program) Scan(dst, q, k Tensor, a Scan, s State, at int) {
	p.record(Op{Kind: OpScan, Dst: dst, X: q, Y: k, Scan: a, State: s, At: at}, p.enoughRows(dst), p.enoughRows(q), p.enoughRows(k),
		p.enoughRows(a.V), p.enoughRows(a.Decay), p.enoughRows(a.Step),
		distinct(dst, q), distinct(dst, k), distinct(dst, a.V), distinct(dst, a.Decay), distinct(dst, a.Step),
		check(a.Heads > 0 && a.KeyHeads > 0 && a.Heads%max(a.KeyHeads, 1) == 0, "%d heads cannot share %d keys", a.Heads, a.KeyHeads),
		same("width", dst.Cols, a.Heads*a.ValueDim), same("q width", q.Cols, a.KeyHeads*a.KeyDim), same("k width", k.Cols, q.Cols),
		same("v width", a.V.Cols, dst.Cols), same("steps", a.Step.Cols, a.Heads),
		check(a.Decay.Cols == a.Heads || a.Decay.Cols == a.Heads*a.KeyDim, "has %d decays for %d heads of %d", a.Decay.Cols, a.Heads, a.KeyDim),
		check(a.Skip.None() || vector(a.Skip, a.Heads) == nil, "has %d factors for %d heads", a.Skip.Cols, a.Heads), inState(s, at, a.Values()))
}

func inState(s State, at, n int) error {
	return check(at >= 0 && n >= 0 && at+n <= s.Layout.Values, "%d values from %d on are outside a state of %d", n, at, s.Layout.Values)
}
