package device

import (
	"fmt"
	"math"

	"m40-llm/infer/gguf"
)

// OpKind names an operation of a recorded program.
type OpKind uint8

const (
	OpEmbed OpKind = iota + 1
	OpEmbedPositions
	OpRMSNorm
	OpLayerNorm
	OpMatMul
	OpAddBias
	OpRoPE
	OpStoreKV
	OpAttention
	OpGLU
	OpAdd
	OpScale
	OpGatherRows
	OpCandidates
	OpRoute
	OpExpertMatMul
	OpExpertBias
	OpExpertSum
	OpGate
	OpMultiply
	OpCopy
	OpTemper
)

var opNames = [...]string{"", "Embed", "EmbedPositions", "RMSNorm", "LayerNorm", "MatMul", "AddBias", "RoPE", "StoreKV", "Attention", "GLU", "Add", "Scale", "GatherRows", "Candidates", "Route", "ExpertMatMul", "ExpertBias", "ExpertSum", "Gate", "Multiply", "Copy", "Temper"}

func (k OpKind) String() string { return opNames[k] }

// Attention is causal grouped-query attention of every row over its own
// sequence's positions 0 … pos.
type Attention struct {
	Heads  int     // query heads; a multiple of the cache's KVHeads
	Scale  float32 // of the scores, before the softmax
	Cap    float32 // scaled scores s become Cap · tanh(s / Cap); 0: they stay
	Window int     // positions a row sees, itself included; 0: all
	Sinks  Tensor  // (1, Heads) F32 scores of a position more, whose value is zero; or none
}

// Activation is a function of a feed-forward layer.
type Activation uint8

const (
	SiLU Activation = iota + 1 // x / (1 + e^-x)
	GELU                       // x / (1 + e^-2u) with u = sqrt(2/π) · (x + 0.044715 · x³), the one by tanh

	// ClampedSwiGLU is that of gpt-oss: x / (1 + e^-1.702x) with x at most 7, and what it is
	// multiplied by is up + 1 with up within ±7.
	ClampedSwiGLU

	SquaredReLU // max(x, 0)²
)

// Op is one recorded operation. Which fields count depends on Kind; the method
// of Program that records it documents them.
type Op struct {
	Kind      OpKind
	Dst       Tensor
	X, Y      Tensor // activations
	W         Tensor // weight
	Bias      Tensor // of OpLayerNorm
	Eps       float32
	Factor    float32
	Cap       float32
	GLU       Activation
	RoPE      RoPE
	Attention Attention
	KV        KV
	Layer     int
	Routing   Routing // of OpRoute
	Experts   int     // that W holds, one after the other, of OpExpertMatMul and OpExpertBias
	Copied    Columns // by OpCopy
	Period    int     // of OpTemper
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

// Limits are what batches of a program may hold.
type Limits struct {
	Rows, Out int
	Blocks    int // in the smallest KV cache it uses
	Vocab     int // rows of the smallest table it embeds tokens from
	Positions int // rows of the smallest table it embeds positions from
}

// Limits returns the limits of p's batches.
func (p *Program) Limits() Limits {
	l := Limits{Rows: p.Rows, Out: p.Out, Blocks: math.MaxInt32, Vocab: math.MaxInt32, Positions: math.MaxInt32}
	for _, op := range p.Ops {
		switch op.Kind {
		case OpEmbed:
			l.Vocab = min(l.Vocab, op.W.Rows)
		case OpEmbedPositions:
			l.Positions = min(l.Positions, op.W.Rows)
		case OpStoreKV, OpAttention:
			l.Blocks = min(l.Blocks, op.KV.Layout.Blocks)
		}
	}
	return l
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

// EmbedPositions records dst = rows of table picked by Batch.Pos, which must have a row for each.
func (p *Program) EmbedPositions(dst, table Tensor) {
	p.record(Op{Kind: OpEmbedPositions, Dst: dst, W: table}, p.wide(dst), same("width", dst.Cols, table.Cols))
}

// RMSNorm records dst = x / sqrt(mean(x²) + eps) · w, over every w.Cols elements of a row
// by themselves: a row, or its heads, which may have a row of w each. dst may be x.
func (p *Program) RMSNorm(dst, x, w Tensor, eps float32) {
	p.record(Op{Kind: OpRMSNorm, Dst: dst, X: x, W: w, Eps: eps}, p.wide(dst), p.wide(x),
		same("width", dst.Cols, x.Cols), normWeight(w, x))
}

// LayerNorm records dst = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias, over the elements
// that RMSNorm would take together. bias is as wide as a row of x, or none. dst may be x.
func (p *Program) LayerNorm(dst, x, w, bias Tensor, eps float32) {
	p.record(Op{Kind: OpLayerNorm, Dst: dst, X: x, W: w, Bias: bias, Eps: eps}, p.wide(dst), p.wide(x),
		same("width", dst.Cols, x.Cols), normWeight(w, x), check(bias.None() || vector(bias, x.Cols) == nil, "has %d biases for rows of %d", bias.Cols, x.Cols))
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
// row's position. v is none for a latent cache.
func (p *Program) StoreKV(kv KV, layer int, k, v Tensor) {
	width := kv.Layout.KVHeads * kv.Layout.HeadDim
	values := p.wide(v)
	if values == nil {
		values = same("v width", v.Cols, width)
	}
	if kv.Layout.Latent > 0 {
		values = check(v.None(), "values have no place in a latent cache")
	}
	p.record(Op{Kind: OpStoreKV, KV: kv, Layer: layer, X: k, Y: v}, p.wide(k), values, same("k width", k.Cols, width), inCache(kv, layer))
}

// Attention records dst = attention of q over layer layer of the cache. dst and
// q must differ.
func (p *Program) Attention(dst, q Tensor, kv KV, layer int, a Attention) {
	p.record(Op{Kind: OpAttention, Dst: dst, X: q, KV: kv, Layer: layer, Attention: a}, p.wide(dst), p.wide(q), distinct(dst, q),
		same("q width", q.Cols, a.Heads*kv.Layout.HeadDim), same("width", dst.Cols, a.Heads*kv.Layout.ValueDim()), inCache(kv, layer),
		check(a.Sinks.None() || vector(a.Sinks, a.Heads) == nil, "has %d sinks for %d heads", a.Sinks.Cols, a.Heads),
		check(a.Cap >= 0 && !math.IsInf(float64(a.Cap), 0), "scores cannot be capped at %g", a.Cap),
		check(a.Heads > 0 && a.Heads%kv.Layout.KVHeads == 0, "has %d heads over %d kv heads", a.Heads, kv.Layout.KVHeads))
}

// GLU records dst = a(gate) · up, element by element. dst may be gate.
func (p *Program) GLU(dst, gate, up Tensor, a Activation) {
	p.record(Op{Kind: OpGLU, Dst: dst, X: gate, Y: up, GLU: a}, p.wide(dst), p.wide(gate), p.wide(up),
		same("width", dst.Cols, gate.Cols), same("width", dst.Cols, up.Cols), known(a))
}

// Activate records dst = a(x), element by element. dst may be x.
func (p *Program) Activate(dst, x Tensor, a Activation) {
	p.record(Op{Kind: OpGLU, Dst: dst, X: x, GLU: a}, p.wide(dst), p.wide(x), same("width", dst.Cols, x.Cols), known(a),
		check(a != ClampedSwiGLU, "activation %d needs something to multiply", a))
}

func known(a Activation) error {
	return check(a >= SiLU && a <= SquaredReLU, "there is no activation %d", a)
}

// Temper records x = x · (1 + factor · ln(1 + floor(pos / period))) with the row's position.
func (p *Program) Temper(x Tensor, factor float32, period int) {
	p.record(Op{Kind: OpTemper, Dst: x, Factor: factor, Period: period}, p.wide(x),
		check(period > 0 && period <= math.MaxInt32, "a period is %d positions", period))
}

// Gate records x = x / (1 + e^-gate), where gate is as wide as x or one value for all of a row.
func (p *Program) Gate(x, gate Tensor) {
	p.record(Op{Kind: OpGate, Dst: x, X: gate}, p.wide(x), p.wide(gate), distinct(x, gate),
		check(gate.Cols == x.Cols || gate.Cols == 1, "gates are %d for rows of %d", gate.Cols, x.Cols))
}

// Multiply records x = x · w, row by row, where w is as wide as x or one value.
func (p *Program) Multiply(x, w Tensor) {
	p.record(Op{Kind: OpMultiply, Dst: x, W: w}, p.wide(x), vector(w, w.Cols),
		check(w.Cols == x.Cols || w.Cols == 1, "weights are %d for rows of %d", w.Cols, x.Cols))
}

// Columns are what Copy copies: of each of Parts equal parts of a row Width columns, from
// column From of a part of the source to column To of one of the destination.
type Columns struct{ Parts, From, To, Width int }

// Copy records the copy of columns of x into columns of dst, of which the others stay. dst and
// x must differ.
func (p *Program) Copy(dst, x Tensor, c Columns) {
	in := func(t Tensor, first int) error {
		part := t.Cols / max(c.Parts, 1)
		return check(c.Parts > 0 && t.Cols%c.Parts == 0 && c.Width > 0 && first >= 0 && first+c.Width <= part,
			"columns %d to %d of %d parts are not in rows of %d", first, first+c.Width, c.Parts, t.Cols)
	}
	p.record(Op{Kind: OpCopy, Dst: dst, X: x, Copied: c}, p.wide(dst), p.wide(x), distinct(dst, x), in(x, c.From), in(dst, c.To))
}

// Add records dst += x.
func (p *Program) Add(dst, x Tensor) {
	p.record(Op{Kind: OpAdd, Dst: dst, X: x}, p.wide(dst), p.wide(x), same("width", dst.Cols, x.Cols))
}

// Scale records x = x · factor, and x = cap · tanh(x / cap) after it unless cap is 0.
func (p *Program) Scale(x Tensor, factor, cap float32) {
	p.record(Op{Kind: OpScale, Dst: x, Factor: factor, Cap: cap}, p.wide(x),
		check(cap >= 0 && !math.IsInf(float64(cap), 0), "cannot cap at %g", cap))
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

// Routing says how a router chooses the experts of a row: those with the largest scores, of
// equal ones those with the lowest numbers. An expert's weight is its score.
type Routing struct {
	Experts   int     // that there are: the width of the logits
	Used      int     // that a row uses
	Score     Score   // what the logits become
	Normalize bool    // weights are divided by their sum
	Scale     float32 // of the weights, 1 for none

	Bias   Tensor // (1, Experts) F32 that is added to the scores for the choice alone, or none
	Scales Tensor // (1, Experts) F32 that the weights of experts are multiplied by in the end, or none

	// Experts are in so many groups of equal size, and those of the best GroupsUsed groups can
	// be chosen. A group is as good as the sum of its two best scores, or by softmax as its best.
	Groups, GroupsUsed int // 0: one group
}

// Score is what a router's logits become before experts are chosen. A kind that is not
// listed here does not compile.
type Score uint8

const (
	ScoreSoftmax Score = iota // over all experts
	ScoreSigmoid
)

// Ungrouped tells whether all experts can be chosen.
func (r Routing) Ungrouped() bool { return r.GroupsUsed >= max(r.Groups, 1) || r.Groups <= 1 }

// ByLogits tells whether the order of the scores that experts are chosen by is that of the
// logits.
func (r Routing) ByLogits() bool { return r.Bias.None() && r.Ungrouped() }

// Cols returns the width of the routes of a row: the numbers of its experts, in the order
// of falling scores, then their weights.
func (r Routing) Cols() int { return 2 * r.Used }

// Route records the choice of experts: dst = r.Used numbers of experts, then their weights, of
// the router's logits. A row's numbers are those of experts whatever its logits are.
func (p *Program) Route(dst, logits Tensor, r Routing) {
	p.record(Op{Kind: OpRoute, Dst: dst, X: logits, Routing: r}, p.wide(dst), p.wide(logits), distinct(dst, logits),
		same("width", dst.Cols, r.Cols()), same("logits", logits.Cols, r.Experts),
		check(r.Used > 0 && r.Used <= r.Experts, "chooses %d of %d experts", r.Used, r.Experts),
		check(r.Score <= ScoreSigmoid, "scores of kind %d are not known", r.Score),
		check(r.Bias.None() || vector(r.Bias, r.Experts) == nil, "has %d biases of %d experts", r.Bias.Cols, r.Experts),
		check(r.Scales.None() || vector(r.Scales, r.Experts) == nil, "has %d scales of %d experts", r.Scales.Cols, r.Experts),
		check(r.Ungrouped() || r.GroupsUsed > 0 && r.Experts%r.Groups == 0 && r.Used <= r.Experts/r.Groups*r.GroupsUsed,
			"cannot choose %d experts in %d of %d groups of %d", r.Used, r.GroupsUsed, r.Groups, r.Experts))
}

// ExpertMatMul records dst = x · wᵀ with the weights of each expert that routes has for a
// row, next to each other: expert i of the row gives the i-th part of its dst. w holds
// experts weights of equal shape, one after the other. x is either one input for all of a
// row's experts or, as dst is, one for each next to each other. dst and x must differ. Only
// the weights of experts that rows use are read. Without routes every row uses all experts, in
// their order: the heads of a layer can have weights of their own so.
func (p *Program) ExpertMatMul(dst, w, x, routes Tensor, experts int) {
	if routes.None() {
		routes = Tensor{Type: gguf.F32, Rows: dst.Rows, Cols: 2 * experts}
	}
	used := routes.Cols / 2
	p.record(Op{Kind: OpExpertMatMul, Dst: dst, W: w, X: x, Y: routes, Experts: experts},
		p.wide(dst), p.wide(x), p.wide(routes), distinct(dst, x), distinct(dst, routes),
		check(experts > 0 && w.Rows%experts == 0, "weights of %d rows are not %d experts", w.Rows, experts),
		check(used > 0 && used <= experts && routes.Cols%2 == 0, "routes have %d values for %d experts", routes.Cols, experts),
		check(x.Cols == w.Cols || x.Cols == used*w.Cols, "inputs are %d, want %d, or %d of each expert", x.Cols, w.Cols, used*w.Cols),
		check(experts > 0 && dst.Cols == used*(w.Rows/max(experts, 1)), "outputs are %d, want %d of each of %d experts", dst.Cols, w.Rows/max(experts, 1), used))
}

// ExpertBias records x += the biases, one of each expert that routes has for a row, next to each
// other as the outputs of ExpertMatMul are. bias holds those of experts experts, F32.
func (p *Program) ExpertBias(x, bias, routes Tensor) {
	used := routes.Cols / 2
	p.record(Op{Kind: OpExpertBias, Dst: x, W: bias, Y: routes, Experts: bias.Rows}, p.wide(x), p.wide(routes), distinct(x, routes),
		check(bias.Type == gguf.F32, "biases are %s, want F32", bias.Type),
		check(used > 0 && used <= bias.Rows && routes.Cols%2 == 0, "routes have %d values for %d experts", routes.Cols, bias.Rows),
		same("outputs", x.Cols, used*bias.Cols))
}

// ExpertSum records dst = the sum of the parts of x, one for each expert of a row, times
// the weights that routes has for them, in the order of the routes. dst and x must differ.
func (p *Program) ExpertSum(dst, x, routes Tensor) {
	used := routes.Cols / 2
	p.record(Op{Kind: OpExpertSum, Dst: dst, X: x, Y: routes}, p.wide(dst), p.wide(x), p.wide(routes), distinct(dst, x),
		check(used > 0 && routes.Cols%2 == 0, "routes have %d values", routes.Cols), same("inputs", x.Cols, used*dst.Cols))
}

func (p *Program) record(op Op, checks ...error) {
	if p.err != nil {
		return
	}
	switch op.Kind {
	case OpEmbed, OpEmbedPositions, OpTemper, OpRoPE, OpStoreKV, OpAttention, OpGatherRows:
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

// normWeight checks that w holds weights for each part of w.Cols elements of a row of x, or some
// for all.
func normWeight(w, x Tensor) error {
	return check(w.Type == gguf.F32 && w.Cols > 0 && x.Cols%w.Cols == 0 && (w.Rows == 1 || w.Rows*w.Cols == x.Cols),
		"%s weights (%d, %d) are not those of a norm of rows of %d", w.Type, w.Rows, w.Cols, x.Cols)
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
