package cuda

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// executable is a program captured as one CUDA graph.
type executable struct {
	device *cuda
	limits device.Limits
	inputs *inputs
	graph  *cudakern.Executable

	reduced []*reduced // candidates that every step copies to the host
}

func (x *executable) Run(b *device.Batch) (err error) {
	defer mark(&err)
	d := x.device
	if d.context == nil {
		return errClosed
	}
	err = b.Check(x.limits)
	if err == nil {
		err = x.run(b)
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

func (x *executable) run(b *device.Batch) error {
	s := x.device.stream
	words, err := x.inputs.write(b)
	if err != nil {
		return err
	}
	if err := s.Upload(x.inputs.step.Rows, words); err != nil {
		return err
	}
	if err := x.graph.Launch(s); err != nil {
		return err
	}
	for _, r := range x.reduced {
		if err := r.download(s, len(b.Out)); err != nil {
			return err
		}
	}
	return s.Sync()
}

// Compile captures p as a CUDA graph.
func (d *cuda) Compile(p *device.Program) (_ device.Executable, err error) {
	defer mark(&err)
	if d.context == nil {
		return nil, errClosed
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if p.Rows <= 0 || p.Out > p.Rows {
		return nil, fmt.Errorf("cuda: a program for %d rows and the logits of %d is invalid", p.Rows, p.Out)
	}
	x, err := d.compile(p)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return x, nil
}

func (d *cuda) compile(p *device.Program) (*executable, error) {
	x := &executable{device: d, limits: p.Limits()}
	longest := 0 // block table
	for _, op := range p.Ops {
		longest = max(longest, op.KV.Layout.Blocks)
	}
	var err error
	if x.inputs, err = d.newInputs(p, longest); err != nil {
		return nil, err
	}
	progress := p.Progress
	if progress == nil || d.context.Properties().HasCode() {
		progress = func(done, total int) {}
	}
	if err := d.kernels.load(p.Ops, progress); err != nil {
		return nil, err
	}
	l := lowering{device: d, exe: x, step: x.inputs.step, rows: x.inputs.step.Rows, capacity: p.Rows, out: p.Out}
	for _, op := range fuse(p.Ops) {
		if err := l.lower(op); err != nil {
			return nil, fmt.Errorf("operation %d, %s: %w", op.at, op.Kind, err)
		}
	}
	if d.loader != nil {
		if err := d.loader.Sync(); err != nil {
			return nil, fmt.Errorf("weights: %w", err)
		}
	}
	if x.graph, err = d.capture(l.launches); err != nil {
		return nil, err
	}
	d.close = append(d.close, x.graph.Close)
	return x, nil
}

// capture captures launches as a graph.
func (d *cuda) capture(launches []launch) (*cudakern.Executable, error) {
	runtime.LockOSThread() // a capture must end on the thread that began it
	defer runtime.UnlockOSThread()
	if err := d.stream.BeginCapture(); err != nil {
		return nil, err
	}
	var failed error
	for _, enqueue := range launches {
		if failed = enqueue(d.stream); failed != nil {
			break
		}
	}
	graph, err := d.stream.EndCapture()
	if failed != nil {
		err = failed
	}
	if graph == nil {
		return nil, err
	}
	var x *cudakern.Executable
	if err == nil {
		x, err = graph.Instantiate()
	}
	if closeErr := graph.Close(); err == nil && closeErr != nil {
		x.Close()
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// launch enqueues work in a stream.
type launch func(*cudakern.Stream) error

// lowering turns recorded operations into launches. It allocates and loads everything that they
// need, because a capture may contain nothing but launches.
type lowering struct {
	device   *cuda
	exe      *executable
	step     cudakern.Step
	launches []launch

	// The number of rows of the operations that follow: its address, and its maximum.
	rows     cudakern.Ptr
	capacity int
	out      int // the maximum after GatherRows

	prepared prepared // the current content of the image workspace
}

// prepared identifies an image.
type prepared struct {
	activation int32 // ID of the activation; 0: none
	producer   *device.Op
	image      string
	cols       int // width of a row of the image
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
		err = cudakern.CheckAttention(op.Attention.Heads, l.KVHeads, l.HeadDim, l.Latent)
	case device.OpRoute:
		if op.Routing.Experts > cudakern.MaxExperts {
			err = fmt.Errorf("chooses among %d experts, the limit is %d", op.Routing.Experts, cudakern.MaxExperts)
		}
	}
	return err
}

var errNoKernel = errors.New("the operation has no kernel")

// lower adds the launches of op.
func (l *lowering) lower(op operation) error {
	lower, ok := lowerings[op.Kind]
	if !ok {
		return errNoKernel
	}
	at, err := l.operands(op.Op)
	if err != nil {
		return err
	}
	if err := lower(l, op, at); err != nil {
		return err
	}
	if op.Dst.ID == l.prepared.activation {
		l.prepared = prepared{}
	}
	return nil
}

// add adds a launch, unless it has no rows: after a GatherRows in a program without logits.
func (l *lowering) add(enqueue launch) {
	if l.capacity > 0 {
		l.launches = append(l.launches, enqueue)
	}
}

func (l *lowering) embed(op operation, at operands) error {
	embed, err := l.device.kernels.embed(op.W.Type)
	if err != nil {
		return err
	}
	step, capacity := l.step, l.capacity
	if op.Kind == device.OpEmbedPositions {
		step.Tokens = step.Pos
	}
	l.add(func(s *cudakern.Stream) error { return embed.Enqueue(s, at.dst, at.w, op.Dst.Cols, step, capacity) })
	return nil
}

func (l *lowering) norm(op operation, at operands) error {
	norm, rows, capacity := l.device.kernels.norm, l.rows, l.capacity
	parts := cudakern.Parts{Heads: op.Dst.Cols / op.W.Cols, Cols: op.W.Cols, Weights: op.W.Rows}
	l.add(func(s *cudakern.Stream) error {
		if op.Kind == device.OpLayerNorm {
			return norm.EnqueueLayer(s, at.dst, at.x, at.w, at.bias, parts, op.Eps, rows, capacity)
		}
		return norm.Enqueue(s, at.dst, at.x, at.w, parts, op.Eps, rows, capacity)
	})
	return nil
}

func (l *lowering) scaleByPosition(op operation, at operands) error {
	scale, step, capacity := l.device.kernels.scale, l.step, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return scale.EnqueueScaleByPosition(s, at.dst, op.Factor, op.Period, op.Dst.Cols, step, capacity)
	})
	return nil
}

func (l *lowering) addBias(op operation, at operands) error {
	add, rows, capacity := l.device.kernels.add, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return add.EnqueueBias(s, at.dst, at.w, op.Dst.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) rope(op operation, at operands) error {
	r := op.RoPE
	angles, err := l.device.angleTable(r)
	if err != nil {
		return err
	}
	rope, step, capacity := l.device.kernels.rope, l.step, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return rope.Enqueue(s, at.dst, op.Dst.Cols, r.HeadDim, r.Dims, r.NeoX, angles, cmp.Or(r.Magnitude, 1), step, capacity)
	})
	return nil
}

func (l *lowering) storeKV(op operation, at operands) error {
	cache, err := l.device.cache(op.KV)
	if err != nil {
		return err
	}
	store, err := l.device.kernels.storeKV(cache.Half)
	if err != nil {
		return err
	}
	if op.rope != nil {
		return l.storeRotated(op, store, cache, at)
	}
	step, capacity := l.step, l.capacity
	l.add(func(s *cudakern.Stream) error { return store.Enqueue(s, cache, op.Layer, at.x, at.y, step, capacity) })
	return nil
}

func (l *lowering) glu(op operation, at operands) error {
	gate, err := gateOf(op.Op)
	if err != nil {
		return err
	}
	glu, rows, capacity := l.device.kernels.glu, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return glu.Enqueue(s, at.dst, at.x, at.y, gate, op.Dst.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) addRows(op operation, at operands) error {
	add, rows, capacity := l.device.kernels.add, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error { return add.Enqueue(s, at.dst, at.x, op.Dst.Cols, rows, capacity) })
	return nil
}

func (l *lowering) scale(op operation, at operands) error {
	scale, rows, capacity := l.device.kernels.scale, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return scale.Enqueue(s, at.dst, op.Factor, op.Cap, op.Dst.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) gatherRows(op operation, at operands) error {
	l.rows, l.capacity, l.prepared = l.step.Outs, l.out, prepared{}
	gather, step, capacity := l.device.kernels.gather, l.step, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return gather.Enqueue(s, at.dst, at.x, op.Dst.Cols, step, capacity)
	})
	return nil
}

func (l *lowering) route(op operation, at operands) error {
	r := cudakern.Routing{
		Experts: op.Routing.Experts, Used: op.Routing.Used, Normalize: op.Routing.Normalize, Scale: op.Routing.Scale,
		Sigmoid: op.Routing.Score == device.ScoreSigmoid, ByLogits: op.Routing.RanksByLogits(),
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
	expert, rows, capacity := l.device.kernels.expert, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error { return expert.EnqueueRoute(s, at.dst, at.x, r, rows, capacity) })
	return nil
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
	expert, used, rows, capacity := l.device.kernels.expert, op.Y.Cols/2, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return expert.EnqueueBias(s, at.dst, at.w, at.y, op.W.Rows, used, op.W.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) gate(op operation, at operands) error {
	scale, rows, capacity := l.device.kernels.scale, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return scale.EnqueueGate(s, at.dst, at.x, op.X.Cols, op.Dst.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) multiply(op operation, at operands) error {
	scale, rows, capacity := l.device.kernels.scale, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return scale.EnqueueWeights(s, at.dst, at.w, op.W.Cols, op.Dst.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) copyColumns(op operation, at operands) error {
	c := cudakern.Columns{
		Parts: op.Columns.Parts, PartTo: op.Dst.Cols / op.Columns.Parts, PartFrom: op.X.Cols / op.Columns.Parts,
		To: op.Columns.To, From: op.Columns.From, Width: op.Columns.Width,
	}
	copies, rows, capacity := l.device.kernels.copies, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error { return copies.Enqueue(s, at.dst, at.x, c, rows, capacity) })
	return nil
}

func (l *lowering) mix(op operation, at operands) error {
	to, width := op.Columns.To, op.Columns.Width
	m := cudakern.Mixture{Targets: (op.Dst.Cols - to) / width, Sources: op.X.Cols / width, To: to, Width: width}
	streams, rows, capacity := l.device.kernels.streams, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return streams.EnqueueMix(s, at.dst, at.x, at.y, m, rows, capacity)
	})
	return nil
}

func (l *lowering) matchRMS(op operation, at operands) error {
	streams, rows, capacity := l.device.kernels.streams, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return streams.EnqueueMatchRMS(s, at.dst, at.x, op.Eps, op.Dst.Cols/op.X.Cols, op.X.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) sparsify(op operation, at operands) error {
	streams, rows, capacity := l.device.kernels.streams, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return streams.EnqueueSparsify(s, at.dst, op.Factor, op.Dst.Cols, rows, capacity)
	})
	return nil
}

func (l *lowering) expertSum(op operation, at operands) error {
	expert, rows, capacity := l.device.kernels.expert, l.rows, l.capacity
	l.add(func(s *cudakern.Stream) error {
		return expert.EnqueueSum(s, at.dst, at.x, at.y, op.Y.Cols/2, op.Dst.Cols, rows, capacity)
	})
	return nil
}

// matMul adds the launch of one or more matrix products, and before it the image that they read.
func (l *lowering) matMul(op operation, at operands) error {
	d := l.device
	product, err := d.kernels.matMul(op.W.Type)
	if err != nil {
		return err
	}
	rows, capacity := l.rows, l.capacity
	image, err := l.image(op, product.Image(), at.x, op.X.Cols, rows, capacity)
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
	l.add(func(s *cudakern.Stream) error {
		return product.Enqueue(s, image, rows, capacity, op.add, products...)
	})
	return nil
}

// expertMatMul adds the launch of a product with the weights of experts, and before it the image
// that it reads.
func (l *lowering) expertMatMul(op operation, at operands) error {
	d := l.device
	product, err := d.kernels.matMul(op.W.Type)
	if err != nil {
		return err
	}
	p := cudakern.ExpertProduct{
		Dst: at.dst, Weights: at.w, W: weightsOf(op.W), Experts: op.Experts,
		Used: op.Dst.Cols / (op.W.Rows / op.Experts), Routes: at.y, Own: op.X.Cols > op.W.Cols,
	}
	p.W.Outputs /= op.Experts
	rows, capacity := l.rows, l.capacity
	pairs, err := d.workspace(fmt.Sprint("pairs ", p.Used), 4)
	if err != nil {
		return err
	}
	l.add(func(s *cudakern.Stream) error { return d.kernels.expert.EnqueueCount(s, pairs, p.Used, rows) })
	imageRows, imageCapacity := rows, capacity
	if p.Own {
		imageRows, imageCapacity = pairs, capacity*p.Used
	}
	image, err := l.image(op, product.Image(), at.x, op.W.Cols, imageRows, imageCapacity)
	if err != nil {
		return err
	}
	l.add(func(s *cudakern.Stream) error { return product.EnqueueExperts(s, image, pairs, capacity, p) })
	return nil
}

// image returns the workspace with the image of op's X, which is at x in rows of cols values. It adds
// the launch that writes the image, unless the workspace has it already.
func (l *lowering) image(op operation, kind string, x cudakern.Ptr, cols int, rows cudakern.Ptr, capacity int) (cudakern.Ptr, error) {
	d := l.device
	activation, err := d.kernels.activation(kind)
	if err != nil {
		return 0, err
	}
	image, err := d.workspace("image", activation.Bytes(cols, capacity))
	want := prepared{op.X.ID, op.producer, kind, cols}
	if err != nil || l.prepared == want {
		return image, err
	}
	l.prepared = want
	if op.producer == nil {
		l.add(func(s *cudakern.Stream) error { return activation.Enqueue(s, image, x, cols, rows, capacity) })
		return image, nil
	}
	at, err := l.operands(*op.producer)
	if err != nil {
		return 0, err
	}
	if op.producer.Kind == device.OpGLU {
		gate, err := gateOf(*op.producer)
		l.add(func(s *cudakern.Stream) error {
			return activation.EnqueueGLU(s, image, at.x, at.y, gate, cols, rows, capacity)
		})
		return image, err
	}
	l.add(func(s *cudakern.Stream) error {
		return activation.EnqueueRMSNorm(s, image, at.x, at.w, cols, op.producer.Eps, rows, capacity)
	})
	return image, nil
}

// storeRotated adds the launch of RoPE of queries and keys fused with StoreKV.
func (l *lowering) storeRotated(op operation, store *cudakern.StoreKV, cache cudakern.Cache, at operands) error {
	queries, err := l.device.activation(op.rope.Dst)
	if err != nil {
		return err
	}
	r := op.rope.RoPE
	angles, err := l.device.angleTable(r)
	if err != nil {
		return err
	}
	step, capacity := l.step, l.capacity
	l.prepared = prepared{} // the image may be of the queries or keys, which change
	l.add(func(s *cudakern.Stream) error {
		return store.EnqueueRoPE(s, cache, op.Layer, queries.rows, op.rope.Dst.Cols, at.x, at.y, r.Dims, r.NeoX, angles, cmp.Or(r.Magnitude, 1), step, capacity)
	})
	return nil
}

// gateOf returns the activation function of a GLU.
func gateOf(op device.Op) (cudakern.Gate, error) {
	gate, ok := map[device.Activation]cudakern.Gate{device.SiLU: cudakern.SiLU, device.GELU: cudakern.GELU, device.ClampedSwiGLU: cudakern.ClampedSwiGLU, device.SquaredReLU: cudakern.SquaredReLU}[op.GLU]
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
	sinks, err := l.vector(a.Sinks)
	if err != nil {
		return err
	}
	attend, err := d.kernels.attention(attentionKey{cache.Half, a.Heads, cache.KVHeads, cache.HeadDim, cache.Latent})
	if err != nil {
		return err
	}
	step, capacity := l.step, l.capacity
	workspace, err := d.workspace("attention", attend.Workspace(capacity, step.Blocks))
	if err != nil {
		return err
	}
	l.add(func(s *cudakern.Stream) error {
		return attend.Enqueue(s, at.dst, at.x, cache, op.Layer, a.Scale, a.Cap, a.Window, sinks, step, capacity, workspace)
	})
	return nil
}

// cache returns the cache that named is a handle of.
func (d *cuda) cache(named device.KV) (cudakern.Cache, error) {
	if named.ID < 1 || int(named.ID) > len(d.kvs) || d.kvs[named.ID-1].KV != named {
		return cudakern.Cache{}, fmt.Errorf("KV cache %d does not belong to this device", named.ID)
	}
	return d.kvs[named.ID-1].cache, nil
}

// angleTable returns the address of the angle table of r; the first call computes it.
func (d *cuda) angleTable(r device.RoPE) (cudakern.Ptr, error) {
	key := r
	key.HeadDim, key.NeoX, key.Magnitude = 0, false, 0 // angles do not depend on these
	if at := d.rotations[key]; at != 0 {
		return at, nil
	}
	var factors []float32
	if !r.Factors.None() {
		w, err := d.weight(r.Factors)
		if err != nil {
			return 0, err
		}
		for i := range r.Dims / 2 {
			factors = append(factors, math.Float32frombits(binary.LittleEndian.Uint32(w.raw[4*i:])))
		}
	}
	table, err := cudakern.AngleTable(r.Frequencies(factors))
	if err != nil {
		return 0, err
	}
	at, err := d.copyToDevice(table)
	if err == nil {
		d.rotations[key] = at
	}
	return at, err
}

// workspace returns at least n bytes of GPU memory for one kind of kernel. Programs share it, because
// only one runs at a time. A later program may get a larger one; programs compiled before keep using
// the old one.
func (d *cuda) workspace(kind string, n int64) (cudakern.Ptr, error) {
	if r := d.workspaces[kind]; n == 0 || r.bytes >= n {
		return r.at, nil
	}
	at, err := d.memory.alloc(n)
	if err != nil {
		return 0, fmt.Errorf("workspace: %w", err)
	}
	d.workspaces[kind] = region{at, n}
	return at, nil
}
