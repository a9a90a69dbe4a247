package device

import (
	"fmt"

	"m40-llm/infer/gguf"
)

// OpKind names an operation of a recorded program.
type OpKind uint8

const (
	OpEmbed OpKind = iota + 1
	OpRMSNorm
	OpMatMul
	OpAddBias
	OpRoPE
	OpStoreKV
	OpAttention
	OpSwiGLU
	OpAdd
	OpGatherRows
	OpCandidates
)

var opNames = [...]string{"", "Embed", "RMSNorm", "MatMul", "AddBias", "RoPE", "StoreKV", "Attention", "SwiGLU", "Add", "GatherRows", "Candidates"}

func (k OpKind) String() string { return opNames[k] }

// RoPE is a rotary position embedding. Pair i of a head is turned by the angle
// pos · Scale · Base^(-2i/Dims) / Factors[i].
type RoPE struct {
	HeadDim int     // width of a head
	Dims    int     // leading elements of a head that are turned, even
	Base    float64 // frequency base
	Scale   float64 // 1, or 1/factor of linear scaling
	NeoX    bool    // pairs are (i, i+Dims/2) instead of (2i, 2i+1)
	Factors Tensor  // (1, Dims/2) F32 frequency divisors, or none
}

// Attention is causal grouped-query attention of every row over its own
// sequence's positions 0 … pos.
type Attention struct {
	Heads  int     // query heads; a multiple of the cache's KVHeads
	Scale  float32 // of the scores, before the softmax
	Window int     // positions a row sees, itself included; 0: all
}

// Op is one recorded operation. Which fields count depends on Kind; the method
// of Program that records it documents them.
type Op struct {
	Kind      OpKind
	Dst       Tensor
	X, Y      Tensor // activations
	W         Tensor // weight
	Eps       float32
	RoPE      RoPE
	Attention Attention
	KV        KV
	Layer     int
}

// Program is a recorded forward pass for batches of up to Rows rows, of which up
// to Out are gathered for their logits. The first wrong shape sticks: the calls
// after it record nothing and Err returns it.
type Program struct {
	Rows int
	Out  int
	Ops  []Op

	// Progress, if set, is told by Compile, on a device whose driver must compile its
	// kernels first, how many of those that the program needs are there.
	Progress func(done, total int)

	gathered bool
	err      error
}

// NewProgram starts an empty program for batches of up to rows rows, with the
// logits of up to out of them.
func NewProgram(rows, out int) *Program { return &Program{Rows: rows, Out: out} }

// Err returns the first shape error met while recording.
func (p *Program) Err() error { return p.err }

// Embed records dst = rows of table picked by Batch.Tokens.
func (p *Program) Embed(dst, table Tensor) {
	p.record(Op{Kind: OpEmbed, Dst: dst, W: table}, p.wide(dst), same("width", dst.Cols, table.Cols))
}

// RMSNorm records dst = x / sqrt(mean(x²) + eps) · w, row by row. dst may be x.
func (p *Program) RMSNorm(dst, x, w Tensor, eps float32) {
	p.record(Op{Kind: OpRMSNorm, Dst: dst, X: x, W: w, Eps: eps}, p.wide(dst), p.wide(x),
		same("width", dst.Cols, x.Cols), vector(w, x.Cols))
}

// MatMul records dst = x · wᵀ. dst and x must differ.
func (p *Program) MatMul(dst, w, x Tensor) {
	p.record(Op{Kind: OpMatMul, Dst: dst, W: w, X: x}, p.wide(dst), p.wide(x), distinct(dst, x),
		same("inputs", x.Cols, w.Cols), same("outputs", dst.Cols, w.Rows))
}

// AddBias records x += bias, row by row.
func (p *Program) AddBias(x, bias Tensor) {
	p.record(Op{Kind: OpAddBias, Dst: x, W: bias}, p.wide(x), vector(bias, x.Cols))
}

// RoPE records the rotation of every head of x, in place.
func (p *Program) RoPE(x Tensor, r RoPE) {
	ok := r.HeadDim > 0 && x.Cols%r.HeadDim == 0 && r.Dims > 0 && r.Dims%2 == 0 && r.Dims <= r.HeadDim
	p.record(Op{Kind: OpRoPE, Dst: x, RoPE: r}, p.wide(x),
		check(ok, "cannot turn %d of %d elements a head in rows of %d", r.Dims, r.HeadDim, x.Cols),
		check(r.Factors.None() || vector(r.Factors, r.Dims/2) == nil, "has %d frequency factors, want %d", r.Factors.Cols, r.Dims/2))
}

// StoreKV records the copy of k and v into layer layer of the cache, at each
// row's position.
func (p *Program) StoreKV(kv KV, layer int, k, v Tensor) {
	width := kv.Layout.KVHeads * kv.Layout.HeadDim
	p.record(Op{Kind: OpStoreKV, KV: kv, Layer: layer, X: k, Y: v}, p.wide(k), p.wide(v),
		same("k width", k.Cols, width), same("v width", v.Cols, width), inCache(kv, layer))
}

// Attention records dst = attention of q over layer layer of the cache. dst and
// q must differ.
func (p *Program) Attention(dst, q Tensor, kv KV, layer int, a Attention) {
	p.record(Op{Kind: OpAttention, Dst: dst, X: q, KV: kv, Layer: layer, Attention: a}, p.wide(dst), p.wide(q), distinct(dst, q),
		same("q width", q.Cols, a.Heads*kv.Layout.HeadDim), same("width", dst.Cols, q.Cols), inCache(kv, layer),
		check(a.Heads > 0 && a.Heads%kv.Layout.KVHeads == 0, "has %d heads over %d kv heads", a.Heads, kv.Layout.KVHeads))
}

// SwiGLU records dst = silu(gate) · up, element by element. dst may be gate.
func (p *Program) SwiGLU(dst, gate, up Tensor) {
	p.record(Op{Kind: OpSwiGLU, Dst: dst, X: gate, Y: up}, p.wide(dst), p.wide(gate), p.wide(up),
		same("width", dst.Cols, gate.Cols), same("width", dst.Cols, up.Cols))
}

// Add records dst += x.
func (p *Program) Add(dst, x Tensor) {
	p.record(Op{Kind: OpAdd, Dst: dst, X: x}, p.wide(dst), p.wide(x), same("width", dst.Cols, x.Cols))
}

// GatherRows records dst[i] = x[Batch.Out[i]]. Every operation recorded after it
// runs over the len(Batch.Out) gathered rows instead of the batch's rows, so only
// operations that know no positions may follow.
func (p *Program) GatherRows(dst, x Tensor) {
	p.record(Op{Kind: OpGatherRows, Dst: dst, X: x}, p.holds(dst, p.Out), p.wide(x), distinct(dst, x), same("width", dst.Cols, x.Cols))
}

// Candidates records that Device.Candidates is to tell of the rows of logits, which are
// gathered ones.
func (p *Program) Candidates(logits Tensor) {
	p.record(Op{Kind: OpCandidates, X: logits}, p.wide(logits), check(p.gathered, "no GatherRows comes before"))
}

func (p *Program) record(op Op, checks ...error) {
	if p.err != nil {
		return
	}
	switch op.Kind {
	case OpEmbed, OpRoPE, OpStoreKV, OpAttention, OpGatherRows:
		if p.gathered {
			p.err = fmt.Errorf("operation %d, %s: follows GatherRows", len(p.Ops), op.Kind)
			return
		}
	}
	for _, err := range checks {
		if err != nil {
			p.err = fmt.Errorf("operation %d, %s: %w", len(p.Ops), op.Kind, err)
			return
		}
	}
	p.Ops = append(p.Ops, op)
	p.gathered = p.gathered || op.Kind == OpGatherRows
}

// wide checks that the activation t holds the rows that the next operation has.
func (p *Program) wide(t Tensor) error {
	if p.gathered {
		return p.holds(t, p.Out)
	}
	return p.holds(t, p.Rows)
}

func (p *Program) holds(t Tensor, rows int) error {
	return check(t.Type == gguf.F32 && t.Rows >= rows, "activation of %d %s rows in a program of %d", t.Rows, t.Type, rows)
}

func vector(w Tensor, n int) error {
	return check(w.Type == gguf.F32 && w.Rows == 1 && w.Cols == n, "weight is %s (%d, %d), want F32 (1, %d)", w.Type, w.Rows, w.Cols, n)
}

func inCache(kv KV, layer int) error {
	return check(layer >= 0 && layer < kv.Layout.Layers, "layer %d of %d", layer, kv.Layout.Layers)
}

func same(what string, got, want int) error {
	return check(got == want, "%s is %d, want %d", what, got, want)
}

func distinct(a, b Tensor) error {
	return check(a.ID != b.ID, "input and output are the same tensor")
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
