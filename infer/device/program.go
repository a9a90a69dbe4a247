package device

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

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
	OpScaleByPosition
	OpMix
	OpMatchRMS
	OpSparsify
	OpConv
	OpScan
)

// operations are the properties of each operation that do not depend on its fields.
var operations = [...]struct {
	name    string
	updates bool // reads the Dst that it writes
}{
	OpEmbed:           {name: "Embed"},
	OpEmbedPositions:  {name: "EmbedPositions"},
	OpRMSNorm:         {name: "RMSNorm"},
	OpLayerNorm:       {name: "LayerNorm"},
	OpMatMul:          {name: "MatMul"},
	OpAddBias:         {name: "AddBias", updates: true},
	OpRoPE:            {name: "RoPE", updates: true},
	OpStoreKV:         {name: "StoreKV"},
	OpAttention:       {name: "Attention"},
	OpGLU:             {name: "GLU"},
	OpAdd:             {name: "Add", updates: true},
	OpScale:           {name: "Scale", updates: true},
	OpGatherRows:      {name: "GatherRows"},
	OpCandidates:      {name: "Candidates"},
	OpRoute:           {name: "Route"},
	OpExpertMatMul:    {name: "ExpertMatMul"},
	OpExpertBias:      {name: "ExpertBias", updates: true},
	OpExpertSum:       {name: "ExpertSum"},
	OpGate:            {name: "Gate", updates: true},
	OpMultiply:        {name: "Multiply", updates: true},
	OpCopy:            {name: "Copy", updates: true},
	OpScaleByPosition: {name: "ScaleByPosition", updates: true},
	OpMix:             {name: "Mix", updates: true},
	OpMatchRMS:        {name: "MatchRMS", updates: true},
	OpSparsify:        {name: "Sparsify", updates: true},
	OpConv:            {name: "Conv"},
	OpScan:            {name: "Scan"},
}

func (k OpKind) String() string { return operations[k].name }

// OpKinds returns all operations.
func OpKinds() (kinds []OpKind) {
	for k := range operations[1:] {
		kinds = append(kinds, OpKind(k+1))
	}
	return kinds
}

// Attention are the parameters of grouped-query attention. It is causal, every row attending to
// positions 0 … pos of its own sequence, unless Bidirectional is set.
type Attention struct {
	Heads   int     // query heads; a multiple of the cache's KVHeads
	Scale   float32 // factor of the scores
	Cap     float32 // soft cap: scaled scores s become Cap · tanh(s / Cap); 0: no cap
	Window  int     // sliding window: positions that a row attends to, its own included; 0: all
	MaxBias float32 // ALiBi: scores lose Slope(head) · distance, of the positions in either direction; 0: not
	Sinks   Tensor  // (1, Heads) F32 attention sinks: scores of an additional position whose value is zero; or none

	// Bidirectional lets every row attend to all positions of its sequence up to that of its last row
	// in the batch; with Window, to those at most Window/2 away. The rows of a whole text must share
	// a batch, or be stored before.
	Bidirectional bool

	// Spans lets every row attend to the positions of its sequence up to the one that Batch.Ends has for it; with Window,
	// to those less than Window before it.
	Spans bool
}

// Reach returns how far before and after its own position a row attends, in positions.
func (a Attention) Reach() (before, after int) {
	const all = math.MaxInt32 / 2 // far beyond any position, and still an int32 when a position is added
	switch {
	case a.Bidirectional && a.Window > 0:
		return min(a.Window/2, all), min(a.Window/2, all)
	case a.Bidirectional:
		return all, all
	case a.Window > 0:
		before = min(a.Window-1, all)
	default:
		before = all
	}
	if a.Spans {
		after = all
	}
	return before, after
}

// Slope returns the slope of a query head with ALiBi. Of the first n heads, n the largest power of two, they fall evenly in their
// exponents from 2^(-MaxBias/n) to 2^-MaxBias; those of the other heads lie between them.
func (a Attention) Slope(head int) float64 {
	n := 1 << (bits.Len(uint(a.Heads)) - 1)
	if head < n {
		return math.Exp2(-float64(a.MaxBias) / float64(n) * float64(head+1))
	}
	return math.Exp2(-float64(a.MaxBias) / float64(2*n) * float64(2*(head-n)+1))
}

// Activation is an element-wise function: of a feed-forward layer, or of gates.
type Activation uint8

const (
	SiLU Activation = iota + 1 // x / (1 + e^-x)
	GELU                       // tanh approximation: x / (1 + e^-2u) with u = sqrt(2/π) · (x + 0.044715 · x³)

	// ClampedSwiGLU is the activation of gpt-oss: x / (1 + e^-1.702x), with x clamped to at
	// most 7, times up + 1, with up clamped to ±7.
	ClampedSwiGLU

	SquaredReLU // max(x, 0)²
	ExactGELU   // x · (1 + erf(x / sqrt(2))) / 2
	Identity    // x
	Sigmoid     // 1 / (1 + e^-x)
	Softplus    // ln(1 + e^x)
	Exp         // e^x

	LastActivation = Exp
)

// Op is one recorded operation. Kind determines which fields are set; they are documented at
// the method of Program that records the operation.
type Op struct {
	Kind      OpKind
	Dst       Tensor
	X, Y      Tensor // activations
	W         Tensor // weight
	Bias      Tensor // OpLayerNorm, OpConv
	Eps       float32
	Factor    float32
	Cap       float32
	GLU       Activation
	RoPE      RoPE
	Attention Attention
	KV        KV
	Layer     int
	Routing   Routing // OpRoute
	Experts   int     // OpExpertMatMul, OpExpertBias: number of experts in W
	Columns   Columns // OpCopy; OpMix: To and Width
	Period    int     // OpScaleByPosition
	State     State   // OpConv, OpScan
	At        int     // OpConv, OpScan: first value in the state
	Scan      Scan    // OpScan
}

// Reads reports whether op reads the activation t.
func (op Op) Reads(t Tensor) bool {
	return !t.None() && (op.X.ID == t.ID || op.Y.ID == t.ID || op.Scan.V.ID == t.ID || op.Scan.Decay.ID == t.ID || op.Scan.Step.ID == t.ID || op.Dst.ID == t.ID && operations[op.Kind].updates)
}

// Writes reports whether op writes the activation t, or a part of it.
func (op Op) Writes(t Tensor) bool { return !t.None() && op.Dst.ID == t.ID }

// Program is a recorded forward pass for batches of up to Rows rows, of which up to Out are
// gathered for their logits. After the first invalid call, calls record nothing and Err returns
// its error.
type Program struct {
	Rows int
	Out  int
	Ops  []Op

	Of RowKind // what its rows are

	// Results, if set, are the only activations that are read after a run, so that a device need not store all others.
	Results []Tensor

	// Progress, if set, is called by Compile on a device whose driver must compile kernels
	// first: done of the total kernels that the program needs are compiled.
	Progress func(done, total int)

	gathered bool // GatherRows was recorded
	err      error
}

// RowKind is what the rows of a program are.
type RowKind uint8

const (
	AnyRows    RowKind = iota
	PromptRows         // of prompts, which a device with Info.Prompts computes in another way
	AnswerRows         // of answers, where prompts have programs of their own: few of each sequence
)

// Limits bound the batches of a program; see Batch.Check.
type Limits struct {
	Rows, Out int
	Blocks    []int // per cache group: blocks of the program's smallest KV cache; 0: it has none
	Vocab     int   // rows of its smallest token embedding table
	Positions int   // rows of its smallest position embedding table
	States    int   // slots of its recurrent state; 0: it has none
	Spans     bool  // it has attention with Spans
	Axes      int   // the last axis of its RoPE; 0: rows need no coordinates
}

// Limits returns the limits of p's batches.
func (p *Program) Limits() Limits {
	l := Limits{Rows: p.Rows, Out: p.Out, Blocks: []int{0}, Vocab: math.MaxInt32, Positions: math.MaxInt32}
	for _, op := range p.Ops {
		switch op.Kind {
		case OpEmbed:
			l.Vocab = min(l.Vocab, op.W.Rows)
		case OpEmbedPositions:
			l.Positions = min(l.Positions, op.W.Rows)
		case OpStoreKV, OpAttention:
			kv := op.KV.Layout
			for len(l.Blocks) <= kv.Group {
				l.Blocks = append(l.Blocks, 0)
			}
			if least := &l.Blocks[kv.Group]; *least == 0 || kv.Blocks < *least {
				*least = kv.Blocks
			}
		case OpConv, OpScan:
			l.States = op.State.Layout.Slots
		}
		l.Spans = l.Spans || op.Attention.Spans
		l.Axes = max(l.Axes, op.RoPE.Axis)
	}
	return l
}

// NewProgram returns an empty program for batches of up to rows rows, of which up to out are
// gathered for their logits.
func NewProgram(rows, out int) *Program { return &Program{Rows: rows, Out: out} }

// Err returns the error of the first invalid call; it names the operation and what is wrong.
func (p *Program) Err() error { return p.err }

// Embed records dst[i] = table[Batch.Tokens[i]].
func (p *Program) Embed(dst, table Tensor) {
	p.record(Op{Kind: OpEmbed, Dst: dst, W: table}, p.enoughRows(dst), same("width", dst.Cols, table.Cols))
}

// EmbedPositions records dst[i] = table[Batch.Pos[i]]. table needs a row for every position.
func (p *Program) EmbedPositions(dst, table Tensor) {
	p.record(Op{Kind: OpEmbedPositions, Dst: dst, W: table}, p.enoughRows(dst), same("width", dst.Cols, table.Cols))
}

// RMSNorm records dst = x / sqrt(mean(x²) + eps) · w for each group of w.Cols elements of a row:
// the whole row, or each of its heads. w is (1, group), or (heads, group) with weights for each
// head. dst may be x.
func (p *Program) RMSNorm(dst, x, w Tensor, eps float32) {
	p.record(Op{Kind: OpRMSNorm, Dst: dst, X: x, W: w, Eps: eps}, p.enoughRows(dst), p.enoughRows(x),
		same("width", dst.Cols, x.Cols), normWeight(w, x))
}

// LayerNorm records dst = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias for the same groups
// as RMSNorm. bias is (1, x.Cols), or none. dst may be x.
func (p *Program) LayerNorm(dst, x, w, bias Tensor, eps float32) {
	p.record(Op{Kind: OpLayerNorm, Dst: dst, X: x, W: w, Bias: bias, Eps: eps}, p.enoughRows(dst), p.enoughRows(x),
		same("width", dst.Cols, x.Cols), normWeight(w, x), check(bias.None() || vector(bias, x.Cols) == nil, "has %d biases for rows of %d", bias.Cols, x.Cols))
}

// MatMul records dst = x · wᵀ, with x (rows, inputs), w (outputs, inputs) and dst (rows,
// outputs). dst and x must differ.
func (p *Program) MatMul(dst, w, x Tensor) {
	p.record(Op{Kind: OpMatMul, Dst: dst, W: w, X: x}, p.enoughRows(dst), p.enoughRows(x), distinct(dst, x),
		same("inputs", x.Cols, w.Cols), same("outputs", dst.Cols, w.Rows))
}

// AddBias records x += bias for each row. bias is (1, x.Cols).
func (p *Program) AddBias(x, bias Tensor) {
	p.record(Op{Kind: OpAddBias, Dst: x, W: bias}, p.enoughRows(x), vector(bias, x.Cols))
}

// RoPE records the rotary position embedding of every head of x, in place.
func (p *Program) RoPE(x Tensor, r RoPE) {
	ok := r.HeadDim > 0 && x.Cols%r.HeadDim == 0 && r.Dims > 0 && r.Dims%2 == 0 && r.Dims <= r.HeadDim
	p.record(Op{Kind: OpRoPE, Dst: x, RoPE: r}, p.enoughRows(x),
		check(r.Axis >= 0 && r.Axis <= MaxAxes, "axis %d does not exist", r.Axis),
		check(ok, "cannot rotate %d of %d elements per head in rows of %d", r.Dims, r.HeadDim, x.Cols),
		check(r.Factors.None() || vector(r.Factors, r.Dims/2) == nil, "has %d frequency factors, want %d", r.Factors.Cols, r.Dims/2))
}

// StoreKV records the copy of k and v, both (rows, KVHeads · HeadDim), into layer layer of the
// cache, at each row's position. v is none for a latent cache.
func (p *Program) StoreKV(kv KV, layer int, k, v Tensor) {
	width := kv.Layout.KVHeads * kv.Layout.HeadDim
	values := p.enoughRows(v)
	if values == nil {
		values = same("v width", v.Cols, width)
	}
	if kv.Layout.Latent > 0 {
		values = check(v.None(), "a latent cache does not store values")
	}
	p.record(Op{Kind: OpStoreKV, KV: kv, Layer: layer, X: k, Y: v}, p.enoughRows(k), values, same("k width", k.Cols, width), inCache(kv, layer))
}

// Attention records dst = attention of q over layer layer of the cache, with q (rows, Heads ·
// HeadDim) and dst (rows, Heads · ValueDim). dst and q must differ.
func (p *Program) Attention(dst, q Tensor, kv KV, layer int, a Attention) {
	p.record(Op{Kind: OpAttention, Dst: dst, X: q, KV: kv, Layer: layer, Attention: a}, p.enoughRows(dst), p.enoughRows(q), distinct(dst, q),
		same("q width", q.Cols, a.Heads*kv.Layout.HeadDim), same("width", dst.Cols, a.Heads*kv.Layout.ValueDim()), inCache(kv, layer),
		check(a.Sinks.None() || vector(a.Sinks, a.Heads) == nil, "has %d sinks for %d heads", a.Sinks.Cols, a.Heads),
		check(a.Cap >= 0 && !math.IsInf(float64(a.Cap), 0), "scores cannot be capped at %g", a.Cap),
		check(a.MaxBias >= 0 && a.MaxBias <= 64, "biases of 2^-%g are not possible", a.MaxBias),
		check(a.MaxBias == 0 || a.Sinks.None() && a.Cap == 0 && kv.Layout.Latent == 0, "ALiBi is not possible with sinks, caps of scores or a latent cache"),
		check(a.Heads > 0 && a.Heads%kv.Layout.KVHeads == 0, "has %d heads over %d kv heads", a.Heads, kv.Layout.KVHeads))
}

// GLU records dst = a(gate) · up, element-wise. dst may be gate.
func (p *Program) GLU(dst, gate, up Tensor, a Activation) {
	p.record(Op{Kind: OpGLU, Dst: dst, X: gate, Y: up, GLU: a}, p.enoughRows(dst), p.enoughRows(gate), p.enoughRows(up),
		same("width", dst.Cols, gate.Cols), same("width", dst.Cols, up.Cols), knownActivation(a))
}

// Activate records dst = a(x), element-wise. dst may be x.
func (p *Program) Activate(dst, x Tensor, a Activation) {
	p.record(Op{Kind: OpGLU, Dst: dst, X: x, GLU: a}, p.enoughRows(dst), p.enoughRows(x), same("width", dst.Cols, x.Cols), knownActivation(a),
		check(a != ClampedSwiGLU, "activation %d needs a second factor; use GLU", a))
}

func knownActivation(a Activation) error {
	return check(a >= SiLU && a <= LastActivation, "activation %d does not exist", a)
}

// ScaleByPosition records x = x · (1 + factor · ln(1 + floor(pos / period))), where pos is the
// row's position: the attention temperature of Mistral 3, applied to queries.
func (p *Program) ScaleByPosition(x Tensor, factor float32, period int) {
	p.record(Op{Kind: OpScaleByPosition, Dst: x, Factor: factor, Period: period}, p.enoughRows(x),
		check(period > 0 && period <= math.MaxInt32, "the period is %d positions, want 1 to %d", period, math.MaxInt32))
}

// Gate records x = x / (1 + e^-gate). gate is as wide as x, or one value for each row.
func (p *Program) Gate(x, gate Tensor) {
	p.record(Op{Kind: OpGate, Dst: x, X: gate}, p.enoughRows(x), p.enoughRows(gate), distinct(x, gate),
		check(gate.Cols == x.Cols || gate.Cols == 1, "gate has %d values per row, want %d or 1", gate.Cols, x.Cols))
}

// Multiply records x = x · w for each row. w is (1, x.Cols) or a single value.
func (p *Program) Multiply(x, w Tensor) {
	p.record(Op{Kind: OpMultiply, Dst: x, W: w}, p.enoughRows(x), vector(w, w.Cols),
		check(w.Cols == x.Cols || w.Cols == 1, "weight has %d values, want %d or 1", w.Cols, x.Cols))
}

// Columns selects what Copy copies. Rows of source and destination are divided into Parts equal
// parts; Width columns are copied from column From of each source part to column To of the same
// destination part.
type Columns struct{ Parts, From, To, Width int }

// Copy records the copy of columns of x to columns of dst; the other columns of dst keep their
// values. dst and x must differ.
func (p *Program) Copy(dst, x Tensor, c Columns) {
	inside := func(t Tensor, first int) error {
		part := t.Cols / max(c.Parts, 1)
		return check(c.Parts > 0 && t.Cols%c.Parts == 0 && c.Width > 0 && first >= 0 && first+c.Width <= part,
			"columns %d to %d of %d parts are outside rows of %d", first, first+c.Width, c.Parts, t.Cols)
	}
	p.record(Op{Kind: OpCopy, Dst: dst, X: x, Columns: c}, p.enoughRows(dst), p.enoughRows(x), distinct(dst, x), inside(x, c.From), inside(dst, c.To))
}

// Mix records dst[i] += Σ_j c[i·m+j] · x[j] over parts of width columns: the m parts that x is divided
// into, and the n parts of dst from column to on. c is (rows, n·m), or none: all factors are 1. dst
// and x must differ.
func (p *Program) Mix(dst, x, c Tensor, to, width int) {
	parts := func(columns int) int { return columns / max(width, 1) }
	fits := width > 0 && to >= 0 && to < dst.Cols && (dst.Cols-to)%max(width, 1) == 0 && x.Cols%max(width, 1) == 0
	var factors error
	if !c.None() {
		factors = errors.Join(p.enoughRows(c), same("factors", c.Cols, parts(dst.Cols-to)*parts(x.Cols)))
	}
	p.record(Op{Kind: OpMix, Dst: dst, X: x, Y: c, Columns: Columns{To: to, Width: width}}, p.enoughRows(dst), p.enoughRows(x), distinct(dst, x), factors,
		check(fits, "parts of %d columns do not fill rows of %d, or rows of %d from column %d on", width, x.Cols, dst.Cols, to))
}

// MatchRMS records x = x · rms(y) / rms(x) for each part of x as wide as y, where rms(v) =
// sqrt(mean(v²)); mean(x²) counts as floor if it is less.
func (p *Program) MatchRMS(x, y Tensor, floor float32) {
	p.record(Op{Kind: OpMatchRMS, Dst: x, X: y, Eps: floor}, p.enoughRows(x), p.enoughRows(y), distinct(x, y),
		check(y.Cols > 0 && x.Cols%max(y.Cols, 1) == 0, "rows of %d do not have parts of %d", x.Cols, y.Cols), check(floor > 0, "the floor is %g", floor))
}

// Sparsify records x = max(0, x - mean(x) - factor · deviation(x)) for each row; the variance is the
// mean of squared differences.
func (p *Program) Sparsify(x Tensor, factor float32) {
	p.record(Op{Kind: OpSparsify, Dst: x, Factor: factor}, p.enoughRows(x))
}

// Add records dst += x.
func (p *Program) Add(dst, x Tensor) {
	p.record(Op{Kind: OpAdd, Dst: dst, X: x}, p.enoughRows(dst), p.enoughRows(x), same("width", dst.Cols, x.Cols))
}

// Scale records x = x · factor, followed by the soft cap x = cap · tanh(x / cap) unless cap is 0.
func (p *Program) Scale(x Tensor, factor, cap float32) {
	p.record(Op{Kind: OpScale, Dst: x, Factor: factor, Cap: cap}, p.enoughRows(x),
		check(cap >= 0 && !math.IsInf(float64(cap), 0), "cannot cap at %g", cap))
}

// GatherRows records dst[i] = x[Batch.Out[i]]. Operations recorded after it run over the
// len(Batch.Out) gathered rows instead of the batch's rows, so operations that read tokens or
// positions cannot follow.
func (p *Program) GatherRows(dst, x Tensor) {
	p.record(Op{Kind: OpGatherRows, Dst: dst, X: x}, p.atLeastRows(dst, p.Out), p.enoughRows(x), distinct(dst, x), same("width", dst.Cols, x.Cols))
}

// Candidates records that Device.Candidates will be called for rows of logits, which must be
// gathered rows.
func (p *Program) Candidates(logits Tensor) {
	p.record(Op{Kind: OpCandidates, X: logits}, p.enoughRows(logits), check(p.gathered, "GatherRows must be recorded first"))
}

// Routing says how a router chooses the experts of a row: those with the largest scores; of
// equal scores, those with the lowest numbers. The weight of an expert is its score.
type Routing struct {
	Experts   int     // number of experts: the width of the logits
	Used      int     // experts chosen for each row
	Score     Score   // turns logits into scores
	Normalize bool    // divide the weights by their sum
	Scale     float32 // factor of the weights; 1: none

	Bias   Tensor // (1, Experts) F32 added to the scores for the choice, not for the weights; or none
	Scales Tensor // (1, Experts) F32 factors of the weights, applied last; or none

	// Experts are divided into Groups groups of equal size, and only experts of the best
	// GroupsUsed groups can be chosen. Groups are ranked by their best score with softmax, and
	// by the sum of their two best scores otherwise. 0: one group.
	Groups, GroupsUsed int
}

// Score is the function from a router's logits to the scores that experts are chosen by.
type Score uint8

const (
	ScoreSoftmax Score = iota // over all experts
	ScoreSigmoid              // of each logit

	// ScoreSparseMixer is the softmax over those experts that are not chosen yet and whose logits x are near the largest of
	// them, top: top - x is at most SparseMixerMargin · max(|x|, top). So each choice has a softmax of its own. Biases and
	// groups are not possible.
	ScoreSparseMixer
)

// SparseMixerMargin is how far logits may be from the largest with ScoreSparseMixer, as a part of them.
const SparseMixerMargin float32 = 0.02

// Ungrouped reports whether experts of all groups can be chosen.
func (r Routing) Ungrouped() bool { return r.GroupsUsed >= max(r.Groups, 1) || r.Groups <= 1 }

// RanksByLogits reports whether ranking experts by their logits chooses the same experts as
// ranking them by score.
func (r Routing) RanksByLogits() bool { return r.Bias.None() && r.Ungrouped() }

// Cols returns the width of a row of routes: the numbers of its experts by descending score,
// then their weights.
func (r Routing) Cols() int { return 2 * r.Used }

// Route records the choice of experts by the router's logits, (rows, r.Experts). Each row of dst
// holds the numbers of r.Used experts, then their weights. The numbers are valid even if logits
// are NaN.
func (p *Program) Route(dst, logits Tensor, r Routing) {
	p.record(Op{Kind: OpRoute, Dst: dst, X: logits, Routing: r}, p.enoughRows(dst), p.enoughRows(logits), distinct(dst, logits),
		same("width", dst.Cols, r.Cols()), same("logits", logits.Cols, r.Experts),
		check(r.Used > 0 && r.Used <= r.Experts, "cannot choose %d of %d experts", r.Used, r.Experts),
		check(r.Score <= ScoreSparseMixer, "score function %d does not exist", r.Score),
		check(r.Score != ScoreSparseMixer || r.RanksByLogits(), "the scores of SparseMixer cannot have biases or groups"),
		check(r.Bias.None() || vector(r.Bias, r.Experts) == nil, "has %d biases for %d experts", r.Bias.Cols, r.Experts),
		check(r.Scales.None() || vector(r.Scales, r.Experts) == nil, "has %d scales for %d experts", r.Scales.Cols, r.Experts),
		check(r.Ungrouped() || r.GroupsUsed > 0 && r.Experts%r.Groups == 0 && r.Used <= r.Experts/r.Groups*r.GroupsUsed,
			"cannot choose %d experts in %d of %d groups of %d", r.Used, r.GroupsUsed, r.Groups, r.Experts))
}

// ExpertMatMul records, for each row and each of its experts, the matrix product of the row
// with the expert's weights. The products of a row are concatenated in the order of its routes:
// dst is (rows, used · outputs). w holds the weights of experts experts, (experts · outputs,
// inputs). x is (rows, inputs), or (rows, used · inputs) with an input for each expert. dst and
// x must differ. Only weights of experts that are routed to are read. If routes is none, every
// row uses all experts in order; attention uses that for weights per head.
func (p *Program) ExpertMatMul(dst, w, x, routes Tensor, experts int) {
	if routes.None() {
		routes = Tensor{Type: gguf.F32, Rows: dst.Rows, Cols: 2 * experts}
	}
	used := routes.Cols / 2
	p.record(Op{Kind: OpExpertMatMul, Dst: dst, W: w, X: x, Y: routes, Experts: experts},
		p.enoughRows(dst), p.enoughRows(x), p.enoughRows(routes), distinct(dst, x), distinct(dst, routes),
		check(experts > 0 && w.Rows%experts == 0, "%d rows of weights cannot be divided among %d experts", w.Rows, experts),
		check(used > 0 && used <= experts && routes.Cols%2 == 0, "routes have %d values for %d experts", routes.Cols, experts),
		check(x.Cols == w.Cols || x.Cols == used*w.Cols, "has %d inputs, want %d, or %d with inputs for each expert", x.Cols, w.Cols, used*w.Cols),
		check(experts > 0 && dst.Cols == used*(w.Rows/max(experts, 1)), "has %d outputs, want %d for each of %d experts", dst.Cols, w.Rows/max(experts, 1), used))
}

// ExpertBias records the addition of experts' biases to the outputs of ExpertMatMul: to part i
// of each row of x, (rows, used · outputs), the bias of the row's expert i. bias is (experts,
// outputs) F32.
func (p *Program) ExpertBias(x, bias, routes Tensor) {
	used := routes.Cols / 2
	p.record(Op{Kind: OpExpertBias, Dst: x, W: bias, Y: routes, Experts: bias.Rows}, p.enoughRows(x), p.enoughRows(routes), distinct(x, routes),
		check(bias.Type == gguf.F32, "biases are %s, want F32", bias.Type),
		check(used > 0 && used <= bias.Rows && routes.Cols%2 == 0, "routes have %d values for %d experts", routes.Cols, bias.Rows),
		same("outputs", x.Cols, used*bias.Cols))
}

// ExpertSum records dst = Σ weight[i] · part i of x, over the experts of each row in the order
// of routes, with x (rows, used · dst.Cols). dst and x must differ.
func (p *Program) ExpertSum(dst, x, routes Tensor) {
	used := routes.Cols / 2
	p.record(Op{Kind: OpExpertSum, Dst: dst, X: x, Y: routes}, p.enoughRows(dst), p.enoughRows(x), p.enoughRows(routes), distinct(dst, x),
		check(used > 0 && routes.Cols%2 == 0, "routes have %d values", routes.Cols), same("inputs", x.Cols, used*dst.Cols))
}

func (p *Program) record(op Op, checks ...error) {
	if p.err != nil {
		return
	}
	switch op.Kind {
	case OpEmbed, OpEmbedPositions, OpScaleByPosition, OpRoPE, OpStoreKV, OpAttention, OpConv, OpScan, OpGatherRows:
		if p.gathered {
			p.err = fmt.Errorf("operation %d, %s: cannot follow GatherRows", len(p.Ops), op.Kind)
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

// enoughRows checks that the activation t has a row for each row of the next operation.
func (p *Program) enoughRows(t Tensor) error {
	if p.gathered {
		return p.atLeastRows(t, p.Out)
	}
	return p.atLeastRows(t, p.Rows)
}

func (p *Program) atLeastRows(t Tensor, rows int) error {
	return check(t.Type == gguf.F32 && t.Rows >= rows, "activation has %d %s rows, want at least %d F32 rows", t.Rows, t.Type, rows)
}

func isFloat(what string, w Tensor) error {
	return check(w.Type == gguf.F32, "%s are %s, want F32", what, w.Type)
}

func vector(w Tensor, n int) error {
	return check(w.Type == gguf.F32 && w.Rows == 1 && w.Cols == n, "weight is %s (%d, %d), want F32 (1, %d)", w.Type, w.Rows, w.Cols, n)
}

// normWeight checks that w has weights for groups of w.Cols elements of a row of x: the same
// for all groups, or a row of weights for each.
func normWeight(w, x Tensor) error {
	return check(w.Type == gguf.F32 && w.Cols > 0 && x.Cols%w.Cols == 0 && (w.Rows == 1 || w.Rows*w.Cols == x.Cols),
		"%s weights (%d, %d) do not fit rows of %d", w.Type, w.Rows, w.Cols, x.Cols)
}

func inCache(kv KV, layer int) error {
	if kv.Layout.Group < 0 || kv.Layout.Group >= MaxGroups {
		return fmt.Errorf("cache group %d is not one of the %d that there may be", kv.Layout.Group, MaxGroups)
	}
	return check(layer >= 0 && layer < kv.Layout.Layers, "layer %d is outside the cache of %d layers", layer, kv.Layout.Layers)
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
