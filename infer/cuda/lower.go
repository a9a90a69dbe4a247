package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// lowering turns recorded operations into launches. It allocates and loads everything that they need.
type lowering struct {
	device    *cuda
	exe       *executable
	step      cudakern.Step
	launches  []launch
	recording cudakern.Recording // of the operation that is being lowered

	// The number of rows of the operations that follow: its address, and its maximum.
	rows     cudakern.Ptr
	capacity int
	out      int // the maximum after GatherRows

	prompt   bool // rows are of prompts, which products compute in another way
	answers  bool // they are of answers, few of each
	resident bool // the launches shall be those that the resident kernel can run: resident.go

	prepared prepared // what the workspace of quantised activations has now
	grouped  grouped  // the current content of the workspace of groups
	counted  []int    // experts of a row for which the number of pairs of rows and experts is known
}

// prepared identifies quantised activations.
type prepared struct {
	activation int32 // ID of the activation; 0: none
	producer   *device.Op
	kind       string
	cols       int             // values of a row
	groups     cudakern.Groups // whose pairs are the rows; none: rows of the step
}

// grouped identifies groups of pairs of rows and experts.
type grouped struct {
	routes int32 // ID; 0: every row uses all experts
	groups cudakern.Groups
}

// operands are the addresses of an operation's tensors.
type operands struct{ dst, x, y, w, bias cudakern.Ptr }

func (l *lowering) operands(op device.Op) (at operands, err error) {
	for _, t := range []struct {
		named device.Tensor
		to    *cudakern.Ptr
	}{{op.Dst, &at.dst}, {op.X, &at.x}, {op.Y, &at.y}} {
		if t.named.None() {
			continue
		}
		a, err := l.device.activation(t.named)
		if err != nil {
			return at, err
		}
		*t.to = a.rows
	}
	if !op.W.None() {
		w, err := l.device.weight(op.W)
		if err != nil {
			return at, err
		}
		form := w.asVector
		switch op.Kind {
		case device.OpMatMul, device.OpExpertMatMul, device.OpEmbed, device.OpEmbedPositions:
			form = w.asMatrix
		}
		if at.w, err = form(l.device); err != nil {
			return at, err
		}
	}
	if !op.Bias.None() {
		w, err := l.device.weight(op.Bias)
		if err != nil {
			return at, err
		}
		if at.bias, err = w.asVector(l.device); err != nil {
			return at, err
		}
	}
	return at, nil
}

// lowerings adds the launches of each kind of operation; at has the addresses of its tensors.
var lowerings = map[device.OpKind]func(l *lowering, op operation, at operands) error{
	device.OpEmbed:           (*lowering).embed,
	device.OpEmbedPositions:  (*lowering).embed,
	device.OpRMSNorm:         (*lowering).norm,
	device.OpLayerNorm:       (*lowering).norm,
	device.OpScaleByPosition: (*lowering).scaleByPosition,
	device.OpMatMul:          (*lowering).matMul,
	device.OpAddBias:         (*lowering).addBias,
	device.OpRoPE:            (*lowering).rope,
	device.OpStoreKV:         (*lowering).storeKV,
	device.OpAttention:       (*lowering).attention,
	device.OpGLU:             (*lowering).glu,
	device.OpAdd:             (*lowering).addRows,
	device.OpScale:           (*lowering).scale,
	device.OpGatherRows:      (*lowering).gatherRows,
	device.OpCandidates:      (*lowering).candidates,
	device.OpRoute:           (*lowering).route,
	device.OpExpertMatMul:    (*lowering).expertMatMul,
	device.OpExpertBias:      (*lowering).expertBias,
	device.OpExpertSum:       (*lowering).expertSum,
	device.OpGate:            (*lowering).gate,
	device.OpMultiply:        (*lowering).multiply,
	device.OpCopy:            (*lowering).copyColumns,
	device.OpMix:             (*lowering).mix,
	device.OpMatchRMS:        (*lowering).matchRMS,
	device.OpSparsify:        (*lowering).sparsify,
	device.OpConv:            (*lowering).conv,
	device.OpScan:            (*lowering).scan,
}

// Check implements device.Checker.
func (d *cuda) Check(p *device.Program) error {
	if err := p.Err(); err != nil {
		return err
	}
	for i, op := range p.Ops {
		if err := check(op); err != nil {
			return fmt.Errorf("cuda: operation %d, %s: %w", i, op.Kind, err)
		}
	}
	return nil
}

// check returns an error if op has no kernel.
func check(op device.Op) (err error) {
	if lowerings[op.Kind] == nil {
		return errNoKernel
	}
	switch op.Kind {
	case device.OpGLU:
		_, err = gateOf(op)
	case device.OpAttention:
		l := op.KV.Layout
		checks := cudakern.CheckAttention
		if op.Attention.MaxBias > 0 {
			checks = cudakern.CheckALiBi
		}
		if err = l.CheckType(); err == nil {
			err = checks(op.Attention.Heads, l.KVHeads, l.HeadDim, l.Latent)
		}
	case device.OpStoreKV:
		err = op.KV.Layout.CheckType()
	case device.OpRoute:
		if op.Routing.Experts > cudakern.MaxExperts {
			err = fmt.Errorf("chooses among %d experts, the limit is %d", op.Routing.Experts, cudakern.MaxExperts)
		}
	case device.OpScan:
		if op.Scan.KeyDim > cudakern.MaxScanKey {
			err = fmt.Errorf("has keys of %d elements, the limit is %d", op.Scan.KeyDim, cudakern.MaxScanKey)
		}
	}
	return err
}

// cacheType returns the type of a KV cache for kernels.
func cacheType(l device.KVLayout) cudakern.CacheType {
	formats := map[gguf.Type]cudakern.Format{gguf.F32: cudakern.FormatF32, gguf.F16: cudakern.FormatF16, gguf.Q8_0: cudakern.FormatQ8, gguf.Q4_0: cudakern.FormatQ4}
	return cudakern.CacheType{Keys: formats[l.Type.Keys], Values: formats[l.Type.Values]}
}

var errNoKernel = errors.New("the operation has no kernel")

// lower adds the launches of op.
func (l *lowering) lower(op operation) error {
	lower, ok := lowerings[op.Kind]
	if !ok {
		return errNoKernel
	}
	if op.Kind == device.OpGatherRows {
		l.rows, l.capacity, l.prepared, l.grouped, l.counted = l.step.Outs, l.out, prepared{}, grouped{}, nil
		l.prompt = false // the output layer would round its weights anew for a few rows
	}
	if l.capacity == 0 { // after GatherRows in a program without logits
		return nil
	}
	at, err := l.operands(op.Op)
	if err != nil {
		return err
	}
	if err := lower(l, op, at); err != nil {
		return err
	}
	if op.product == nil {
		l.forget(op.Dst)
	}
	return l.addLaunches(op)
}

func (l *lowering) embed(op operation, at operands) error {
	embed, err := l.device.kernels.embed(op.W.Type)
	if err != nil {
		return err
	}
	step := l.step
	if op.Kind == device.OpEmbedPositions {
		step.Tokens = step.Pos
	}
	return embed.Enqueue(&l.recording, at.dst, at.w, op.Dst.Cols, step, l.capacity)
}

func (l *lowering) norm(op operation, at operands) error {
	norm := l.device.kernels.norm
	parts := partsOf(op.Op)
	if op.Kind == device.OpLayerNorm {
		return norm.EnqueueLayer(&l.recording, at.dst, at.x, at.w, at.bias, parts, op.Eps, l.rows, l.capacity)
	}
	if op.keys != nil {
		keys, err := l.operands(*op.keys)
		if err != nil {
			return err
		}
		l.forget(op.keys.Dst)
		return norm.EnqueueBoth(&l.recording, cudakern.InPlace{X: at.dst, W: at.w, Parts: parts}, cudakern.InPlace{X: keys.dst, W: keys.w, Parts: partsOf(*op.keys)}, op.Eps, l.rows, l.capacity)
	}
	return norm.Enqueue(&l.recording, at.dst, at.x, at.w, parts, op.Eps, l.rows, l.capacity)
}

// partsOf returns the heads of a row that a norm has.
func partsOf(op device.Op) cudakern.Parts {
	return cudakern.Parts{Heads: op.Dst.Cols / op.W.Cols, Cols: op.W.Cols, Weights: op.W.Rows}
}

// forget records that t changes: what was made of it is not valid any more.
func (l *lowering) forget(t device.Tensor) {
	if t.ID == l.prepared.activation {
		l.prepared = prepared{}
	}
	if t.ID == l.grouped.routes && t.ID != 0 {
		l.grouped = grouped{}
	}
}

func (l *lowering) scaleByPosition(op operation, at operands) error {
	return l.device.kernels.scale.EnqueueScaleByPosition(&l.recording, at.dst, op.Factor, op.Period, op.Dst.Cols, l.step, l.capacity)
}

func (l *lowering) addBias(op operation, at operands) error {
	if op.decay != nil {
		factors, err := l.vector(op.decay.W)
		if err != nil {
			return err
		}
		return l.device.kernels.add.EnqueueDecays(&l.recording, at.dst, at.w, factors, op.decay.W.Cols, op.Dst.Cols, l.rows, l.capacity)
	}
	return l.device.kernels.add.EnqueueBias(&l.recording, at.dst, at.w, op.Dst.Cols, l.rows, l.capacity)
}

func (l *lowering) rope(op operation, at operands) error {
	r := op.RoPE
	angles, err := l.device.angleTable(r)
	if err != nil {
		return err
	}
	step := l.step
	if r.Axis > 0 {
		step.Pos = l.exe.inputs.axes[r.Axis-1]
	}
	return l.device.kernels.rope.Enqueue(&l.recording, at.dst, op.Dst.Cols, r.HeadDim, r.Dims, r.NeoX, angles, cmp.Or(r.Magnitude, 1), step, l.capacity)
}

// stepOf returns the batch with the block tables of the cache group of kv.
func (l *lowering) stepOf(kv device.KV) cudakern.Step {
	step := l.step
	step.Seq = l.exe.inputs.seq[kv.Layout.Group]
	return step
}

func (l *lowering) storeKV(op operation, at operands) error {
	cache, err := l.device.cache(op.KV)
	if err != nil {
		return err
	}
	store, err := l.device.kernels.storeKV(cache.Type)
	if err != nil {
		return err
	}
	if op.rope != nil {
		return l.storeRotated(op, store, cache, at)
	}
	return store.Enqueue(&l.recording, cache, op.Layer, at.x, at.y, l.stepOf(op.KV), l.capacity)
}

func (l *lowering) glu(op operation, at operands) error {
	gate, err := gateOf(op.Op)
	if err != nil {
		return err
	}
	return l.device.kernels.glu.Enqueue(&l.recording, at.dst, at.x, at.y, gate, op.Dst.Cols, l.rows, l.capacity)
}

func (l *lowering) addRows(op operation, at operands) error {
	return l.device.kernels.add.Enqueue(&l.recording, at.dst, at.x, op.Dst.Cols, l.rows, l.capacity)
}

func (l *lowering) scale(op operation, at operands) error {
	return l.device.kernels.scale.Enqueue(&l.recording, at.dst, op.Factor, op.Cap, op.Dst.Cols, l.rows, l.capacity)
}

func (l *lowering) gatherRows(op operation, at operands) error {
	return l.device.kernels.gather.Enqueue(&l.recording, at.dst, at.x, op.Dst.Cols, l.step, l.capacity)
}

var routingScores = map[device.Score]cudakern.Score{
	device.ScoreSoftmax: cudakern.Softmax, device.ScoreSigmoid: cudakern.SigmoidScore, device.ScoreSparseMixer: cudakern.SparseMixer,
}

func (l *lowering) route(op operation, at operands) error {
	r := cudakern.Routing{
		Experts: op.Routing.Experts, Used: op.Routing.Used, Normalize: op.Routing.Normalize, Scale: op.Routing.Scale,
		Score: routingScores[op.Routing.Score], Margin: device.SparseMixerMargin, ByLogits: op.Routing.RanksByLogits(),
	}
	if !op.Routing.Ungrouped() {
		r.Groups, r.GroupsUsed = op.Routing.Groups, op.Routing.GroupsUsed
	}
	var err error
	if r.Bias, err = l.vector(op.Routing.Bias); err != nil {
		return err
	}
	if r.Factors, err = l.vector(op.Routing.Scales); err != nil {
		return err
	}
	return l.device.kernels.expert.EnqueueRoute(&l.recording, at.dst, at.x, r, l.rows, l.capacity)
}

// vector returns the address of a weight in the layout of the file, 0 if named is none.
func (l *lowering) vector(named device.Tensor) (cudakern.Ptr, error) {
	if named.None() {
		return 0, nil
	}
	w, err := l.device.weight(named)
	if err != nil {
		return 0, err
	}
	return w.asVector(l.device)
}

func (l *lowering) expertBias(op operation, at operands) error {
	expert, used := l.device.kernels.expert, op.Y.Cols/2
	return expert.EnqueueBias(&l.recording, at.dst, at.w, at.y, op.W.Rows, used, op.W.Cols, l.rows, l.capacity)
}

func (l *lowering) gate(op operation, at operands) error {
	return l.device.kernels.scale.EnqueueGate(&l.recording, at.dst, at.x, op.X.Cols, op.Dst.Cols, l.rows, l.capacity)
}

func (l *lowering) multiply(op operation, at operands) error {
	return l.device.kernels.scale.EnqueueWeights(&l.recording, at.dst, at.w, op.W.Cols, op.Dst.Cols, l.rows, l.capacity)
}

func (l *lowering) copyColumns(op operation, at operands) error {
	c := cudakern.Columns{
		Parts: op.Columns.Parts, PartTo: op.Dst.Cols / op.Columns.Parts, PartFrom: op.X.Cols / op.Columns.Parts,
		To: op.Columns.To, From: op.Columns.From, Width: op.Columns.Width,
	}
	return l.device.kernels.copies.Enqueue(&l.recording, at.dst, at.x, c, l.rows, l.capacity)
}

func (l *lowering) mix(op operation, at operands) error {
	to, width := op.Columns.To, op.Columns.Width
	m := cudakern.Mixture{Targets: (op.Dst.Cols - to) / width, Sources: op.X.Cols / width, To: to, Width: width}
	return l.device.kernels.streams.EnqueueMix(&l.recording, at.dst, at.x, at.y, m, l.rows, l.capacity)
}

func (l *lowering) matchRMS(op operation, at operands) error {
	return l.device.kernels.streams.EnqueueMatchRMS(&l.recording, at.dst, at.x, op.Eps, op.Dst.Cols/op.X.Cols, op.X.Cols, l.rows, l.capacity)
}

func (l *lowering) sparsify(op operation, at operands) error {
	return l.device.kernels.streams.EnqueueSparsify(&l.recording, at.dst, op.Factor, op.Dst.Cols, l.rows, l.capacity)
}

func (l *lowering) expertSum(op operation, at operands) error {
	return l.device.kernels.expert.EnqueueSum(&l.recording, at.dst, at.x, at.y, op.Y.Cols/2, op.Dst.Cols, l.rows, l.capacity)
}

// matMul adds the launch of one or more matrix products, and before it the one that quantises their activations.
func (l *lowering) matMul(op operation, at operands) error {
	d := l.device
	product, err := d.kernels.matMul(op.W.Type)
	if err != nil {
		return err
	}
	products := []cudakern.Product{{Dst: at.dst, Weights: at.w, W: weightsOf(op.W)}}
	for _, other := range op.also {
		at, err := l.operands(other)
		if err != nil {
			return err
		}
		products = append(products, cudakern.Product{Dst: at.dst, Weights: at.w, W: weightsOf(other.W)})
	}
	if op.normed {
		return l.normalizedMatMul(op, product, products)
	}
	if l.hasPromptMatMul(op.W.Type) {
		return l.promptMatMul(op, at.x, products)
	}
	kind := product.Kind(l.capacity)
	one := len(products) == 1 && product.TakesOne(op.X.Cols, l.capacity) && l.canTakeRows(l.capacity) && l.prefersOne(product)
	if gated := product.GatedKind(op.X.Cols, l.capacity); gated != kind && l.prepared == l.preparedOf(op, gated, op.X.Cols) {
		kind, one = gated, true
	}
	x, err := l.quantize(op, kind, at.x, op.X.Cols, l.rows, l.capacity)
	if err != nil {
		return err
	}
	if one {
		return product.EnqueueOne(&l.recording, x, kind, l.rows, l.capacity, op.add, products[0])
	}
	scratch, err := l.scratch(product, products)
	if err != nil {
		return err
	}
	return product.Enqueue(&l.recording, x, l.rows, l.capacity, op.add, scratch, products...)
}

// hasPromptMatMul reports whether products with weights of type t are those of rows of prompts.
func (l *lowering) hasPromptMatMul(t gguf.Type) bool {
	return l.prompt && cudakern.HasPromptMatMul(l.device.context, kernelName(t))
}

// promptMatMul is matMul for rows of prompts.
func (l *lowering) promptMatMul(op operation, x cudakern.Ptr, products []cudakern.Product) error {
	product, err := l.device.kernels.promptMatMul(op.W.Type)
	if err != nil {
		return err
	}
	halves, err := l.device.workspace("halves", product.HalfBytes(products...))
	if err != nil {
		return err
	}
	if x, err = l.quantize(op, product.Kind(), x, op.X.Cols, l.rows, l.capacity); err != nil {
		return err
	}
	return product.Enqueue(&l.recording, x, l.rows, l.capacity, op.add, halves, products...)
}

// scratch returns the workspaces for parts of products, if there are any: of the same size for all products, as fewer rows may need more.
func (l *lowering) scratch(product *cudakern.MatMul, products []cudakern.Product) (s cudakern.Scratch, err error) {
	if sums, _ := product.Scratch(l.capacity, products...); sums == 0 {
		return s, nil
	}
	sums, arrivals := l.device.context.Properties().MostScratch(l.device.context.Units)
	if s.Sums, err = l.device.workspace("parts", sums); err != nil {
		return s, err
	}
	s.Arrivals, err = l.device.zeroedWorkspace("arrivals of parts", arrivals)
	return s, err
}

// normalizedMatMul adds the launch of products that normalize their rows, and with op.glu quantise its result.
func (l *lowering) normalizedMatMul(op operation, product *cudakern.MatMul, products []cudakern.Product) error {
	at, err := l.operands(*op.producer)
	if err != nil {
		return err
	}
	n := cudakern.Normalized{X: at.x, W: at.w, Eps: op.producer.Eps}
	if op.glu == nil {
		l.prepared = prepared{} // they may be those of one of the results
		return product.EnqueueNormalized(&l.recording, n, l.rows, l.capacity, products...)
	}
	gate, err := gateOf(*op.glu)
	if err != nil {
		return err
	}
	dst, kind, err := l.quantizedFor(*op.product, op.glu)
	if err != nil {
		return err
	}
	return product.EnqueueGated(&l.recording, dst, kind, n, gate, l.rows, l.capacity, products[0], products[1])
}

// expertMatMul adds the launch of a product with the weights of experts, and before it the one
// that quantises their activations.
func (l *lowering) expertMatMul(op operation, at operands) error {
	if op.mixture != nil {
		return l.mixExperts(op)
	}
	d := l.device
	product, err := d.kernels.matMul(op.W.Type)
	if err != nil {
		return err
	}
	p := expertProduct(op.Op, at)
	if size := product.GroupSize(l.capacity, p.Experts, p.Used); size > 0 {
		return l.groupedMatMul(op, at, product, p, size)
	}
	pairs, err := l.pairs(p.Used)
	if err != nil {
		return err
	}
	xRows, xCapacity := l.rows, l.capacity
	if p.Own {
		xRows, xCapacity = pairs, l.capacity*p.Used
	}
	x, err := l.quantize(op, product.ExpertKind(), at.x, op.W.Cols, xRows, xCapacity)
	if err != nil {
		return err
	}
	return product.EnqueueExperts(&l.recording, x, pairs, l.capacity, p)
}

// canNormalize reports whether a product of rows rows can compute their norm.
func (l *lowering) canNormalize(op device.Op, rows int) bool {
	product := l.device.kernels.products[op.W.Type]
	return product != nil && product.CanNormalize(op.W.Rows, op.W.Cols, rows) && l.canTakeRows(rows)
}

// canMix reports whether two launches can compute the mixture of gate and m for rows rows.
func (l *lowering) canMix(gate device.Op, m *mixture, rows int) bool {
	gates, downs := l.device.kernels.products[gate.W.Type], l.device.kernels.products[m.down.W.Type]
	return gates != nil && downs != nil && gates.CanMix(downs, gate.W.Cols, m.down.W.Cols, gate.Experts, gate.Y.Cols/2, rows)
}

// mixExperts adds the launches of a mixture of experts of few rows.
func (l *lowering) mixExperts(op operation) error {
	gates, err := l.device.kernels.matMul(op.W.Type)
	if err != nil {
		return err
	}
	downs, err := l.device.kernels.matMul(op.mixture.down.W.Type)
	if err != nil {
		return err
	}
	m := cudakern.ExpertMixture{Add: op.mixture.add}
	if m.GLU, err = gateOf(op.mixture.glu); err != nil {
		return err
	}
	norm, err := l.operands(*op.producer)
	if err != nil {
		return err
	}
	m.Norm = cudakern.Normalized{X: norm.x, W: norm.w, Eps: op.producer.Eps}
	for _, p := range []struct {
		to *cudakern.ExpertProduct
		op device.Op
	}{{&m.Gate, op.Op}, {&m.Up, op.mixture.up}, {&m.Down, op.mixture.down}} {
		at, err := l.operands(p.op)
		if err != nil {
			return err
		}
		*p.to = expertProduct(p.op, at)
	}
	sum, err := l.operands(op.mixture.sum)
	if err != nil {
		return err
	}
	m.Down.Dst = sum.dst
	gated, err := l.device.workspace("activations", cudakern.QuantizedBytes(downs.ExpertKind(), m.Down.W.Inputs, l.capacity*m.Down.Used))
	if err != nil {
		return err
	}
	l.prepared = prepared{}
	if err := gates.EnqueueExpertGates(&l.recording, gated, m, l.rows, l.capacity); err != nil {
		return err
	}
	return downs.EnqueueExpertSum(&l.recording, gated, m, l.rows, l.capacity)
}

// expertProduct returns the product of op with the weights of experts.
func expertProduct(op device.Op, at operands) cudakern.ExpertProduct {
	p := cudakern.ExpertProduct{
		Dst: at.dst, Weights: at.w, W: weightsOf(op.W), Experts: op.Experts,
		Used: op.Dst.Cols / (op.W.Rows / op.Experts), Routes: at.y, Own: op.X.Cols > op.W.Cols,
	}
	p.W.Outputs /= op.Experts
	return p
}

// pairs returns where the number of pairs of rows and their used experts is. It adds the launch that counts them, unless an
// operation before did.
func (l *lowering) pairs(used int) (cudakern.Ptr, error) {
	pairs, err := l.device.workspace(fmt.Sprint("pairs ", used), 4)
	if err != nil || slices.Contains(l.counted, used) {
		return pairs, err
	}
	l.counted = append(l.counted, used)
	return pairs, l.device.kernels.expert.EnqueueCount(&l.recording, pairs, used, l.rows)
}

// groupedMatMul is expertMatMul for groups of size pairs with the same expert.
func (l *lowering) groupedMatMul(op operation, at operands, product *cudakern.MatMul, p cudakern.ExpertProduct, size int) error {
	d := l.device
	g, err := l.groups(op.Y.ID, at.y, cudakern.Groups{Each: size, Experts: p.Experts, Used: p.Used, Capacity: l.capacity})
	if err != nil {
		return err
	}
	kind := product.GroupKind(size)
	activation, err := d.kernels.activation(kind)
	if err != nil {
		return err
	}
	x, err := d.workspace("activations", activation.Bytes(op.W.Cols, g.Slots()))
	if err != nil {
		return err
	}
	if want := (prepared{op.X.ID, nil, kind, op.W.Cols, g}); l.prepared != want {
		l.prepared = want
		if err := activation.EnqueueGrouped(&l.recording, x, at.x, op.W.Cols, g, p.Own); err != nil {
			return err
		}
	}
	return product.EnqueueGrouped(&l.recording, x, g, p)
}

// groups adds the launch that writes the list of g by routes, unless the workspace has it already.
func (l *lowering) groups(id int32, routes cudakern.Ptr, g cudakern.Groups) (cudakern.Groups, error) {
	var err error
	if g.List, err = l.device.workspace("groups", g.Bytes()); err != nil {
		return g, err
	}
	if want := (grouped{id, g}); l.grouped != want {
		l.grouped, l.prepared = want, prepared{}
		err = l.device.kernels.expert.EnqueueGroups(&l.recording, g, routes, l.rows)
	}
	return g, err
}

// preparedOf identifies op's X quantised to a kind, with rows of cols values.
func (l *lowering) preparedOf(op operation, kind string, cols int) prepared {
	return prepared{op.X.ID, op.producer, kind, cols, cudakern.Groups{}}
}

// quantize returns the workspace with op's X quantised, which is at x in rows of cols values. It adds
// the launch that does so, unless the workspace has it already.
func (l *lowering) quantize(op operation, kind string, x cudakern.Ptr, cols int, rows cudakern.Ptr, capacity int) (cudakern.Ptr, error) {
	d := l.device
	dst, err := d.workspace("activations", cudakern.QuantizedBytes(kind, cols, capacity))
	want := l.preparedOf(op, kind, cols)
	if err != nil || l.prepared == want {
		return dst, err
	}
	activation, err := d.kernels.activation(kind)
	if err != nil {
		return 0, err
	}
	l.prepared = want
	if op.producer == nil {
		return dst, activation.Enqueue(&l.recording, dst, x, cols, rows, capacity)
	}
	at, err := l.operands(*op.producer)
	if err != nil {
		return 0, err
	}
	if op.producer.Kind == device.OpGLU {
		gate, err := gateOf(*op.producer)
		if err != nil {
			return 0, err
		}
		return dst, activation.EnqueueGLU(&l.recording, dst, at.x, at.y, gate, cols, rows, capacity)
	}
	return dst, activation.EnqueueRMSNorm(&l.recording, dst, at.x, at.w, cols, op.producer.Eps, rows, capacity)
}

// storeRotated adds the launch of RoPE of queries and keys fused with StoreKV.
func (l *lowering) storeRotated(op operation, store *cudakern.StoreKV, cache cudakern.Cache, at operands) error {
	queries, err := l.device.activation(op.rope.Dst)
	if err != nil {
		return err
	}
	rotation, err := l.rotationOf(op, at)
	if err != nil {
		return err
	}
	l.prepared = prepared{} // they may be those of the queries or keys, which change
	return store.EnqueueRoPE(&l.recording, cache, op.Layer, queries.rows, op.rope.Dst.Cols, rotation, l.stepOf(op.KV), l.capacity)
}

// gateOf returns the activation function of a GLU.
func gateOf(op device.Op) (cudakern.Gate, error) {
	gate, ok := map[device.Activation]cudakern.Gate{
		device.SiLU: cudakern.SiLU, device.GELU: cudakern.GELU, device.ClampedSwiGLU: cudakern.ClampedSwiGLU, device.SquaredReLU: cudakern.SquaredReLU, device.ExactGELU: cudakern.ExactGELU,
		device.Identity: cudakern.Identity, device.Sigmoid: cudakern.Sigmoid, device.Softplus: cudakern.Softplus, device.Exp: cudakern.Exp,
	}[op.GLU]
	if !ok {
		return 0, fmt.Errorf("activation %d has no kernel", op.GLU)
	}
	return gate, nil
}

func (l *lowering) attention(op operation, at operands) error {
	d, a := l.device, op.Attention
	cache, err := d.cache(op.KV)
	if err != nil {
		return err
	}
	if a.MaxBias > 0 {
		return l.alibi(op, at, cache)
	}
	sinks, err := l.vector(a.Sinks)
	if err != nil {
		return err
	}
	attend, err := d.kernels.attention(attentionKey{cache.Type, a.Heads, cache.KVHeads, cache.HeadDim, cache.Latent, a.Cap > 0})
	if err != nil {
		return err
	}
	workspace, err := d.workspace("attention", attend.Workspace(l.capacity, l.step.Blocks))
	if err != nil {
		return err
	}
	arrivals, err := d.zeroedWorkspace("arrivals", cudakern.AttentionArrivals(a.Heads))
	if err != nil {
		return err
	}
	rotation, err := l.rotation(op.stores)
	if err != nil {
		return err
	}
	dst, kind := at.dst, ""
	if op.product != nil {
		if dst, kind, err = l.quantizedFor(*op.product, nil); err != nil {
			return err
		}
	}
	before, after := a.Reach()
	enqueue := attend.EnqueueByHeads
	if l.answers {
		enqueue = attend.EnqueueApart
	}
	if a.Heads == cache.KVHeads && !cache.Type.Quantized() && l.canAttendByRows() {
		enqueue = attend.Enqueue // half of the warps by heads would have none
	}
	return enqueue(&l.recording, cudakern.AttentionParams{
		Dst: dst, Q: at.x, Cache: cache, Layer: op.Layer, Scale: a.Scale, Limit: a.Cap, Before: before, After: after, Sinks: sinks,
		Step: l.stepOf(op.KV), Capacity: l.capacity, Workspace: workspace, Arrivals: arrivals, Rotation: rotation, Kind: kind,
	})
}

func (l *lowering) alibi(op operation, at operands, cache cudakern.Cache) error {
	attend, err := l.device.kernels.alibi(cache.Type)
	if err != nil {
		return err
	}
	a := op.Attention
	before, after := a.Reach()
	return attend.Enqueue(&l.recording, cudakern.AttentionParams{
		Dst: at.dst, Q: at.x, Cache: cache, Layer: op.Layer, Scale: a.Scale, Before: before, After: after, Step: l.stepOf(op.KV), Capacity: l.capacity,
	}, a.Heads, a.MaxBias)
}

// rotation returns the keys and values that an attention stores, nil if op is nil.
func (l *lowering) rotation(op *operation) (*cudakern.Rotation, error) {
	if op == nil {
		return nil, nil
	}
	at, err := l.operands(op.Op)
	if err != nil {
		return nil, err
	}
	r, err := l.rotationOf(*op, at)
	return &r, err
}

// rotationOf returns the rotation of a StoreKV whose keys and values are x and y of at.
func (l *lowering) rotationOf(op operation, at operands) (cudakern.Rotation, error) {
	r := op.rope.RoPE
	angles, err := l.device.angleTable(r)
	return cudakern.Rotation{Keys: at.x, Values: at.y, Dims: r.Dims, NeoX: r.NeoX, AngleTable: angles, Magnitude: cmp.Or(r.Magnitude, 1)}, err
}

// quantizedFor returns the workspace for the quantised X that a product reads, and its kind. The launch that
// is being lowered writes it: an attention, or products and glu.
func (l *lowering) quantizedFor(product device.Op, glu *device.Op) (cudakern.Ptr, string, error) {
	d := l.device
	kernel, err := d.kernels.matMul(product.W.Type)
	if err != nil {
		return 0, "", err
	}
	kind := kernel.Kind(l.capacity)
	if glu != nil {
		kind = kernel.GatedKind(product.X.Cols, l.capacity)
	}
	if l.hasPromptMatMul(product.W.Type) {
		prompts, err := d.kernels.promptMatMul(product.W.Type)
		if err != nil {
			return 0, "", err
		}
		kind = prompts.Kind()
	}
	dst, err := d.workspace("activations", cudakern.QuantizedBytes(kind, product.X.Cols, l.capacity))
	l.prepared = prepared{product.X.ID, glu, kind, product.X.Cols, cudakern.Groups{}}
	return dst, kind, err
}
