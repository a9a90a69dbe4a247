// Package cuda is the device for NVIDIA GPUs, built on package cudakern.
//
// Weights are copied to the GPU once, in the layout that the kernels read. A program is captured
// once as a CUDA graph for the maximum rows of its batches. A step is then one copy of the batch,
// one graph launch and one wait; it loads and allocates nothing. The next step may be started before the wait: see
// ahead.go.
//
// # Numerics
//
// Sums are float32, in an order that depends only on the shapes of the weights and on positions. On
// the number path i16, quantised weights are multiplied by activations quantised to 16 bits with a
// scale for every 32 values, whose products are summed as exact integers, so that their bits are those of every
// GPU. Info().Path names the path, Info().Units the instructions.
//
// # Threads
//
// Like every device, it is used by one goroutine at a time. Each call makes the device's CUDA
// context current first, so that one thread can use several GPUs.
package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"unsafe"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

var errClosed = errors.New("cuda: the device is closed")

// failure is an error of the driver.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }
func (f failure) Is(target error) bool {
	return target == device.ErrFailed || target == device.ErrMemory && cudakern.IsOutOfMemory(f.error)
}

// mark wraps an error of the driver, so that it matches device.ErrFailed.
func mark(err *error) {
	if _, ok := errors.AsType[*cudakern.Error](*err); ok {
		*err = failure{*err}
	}
}

// tensor is a device.Tensor with its memory.
type tensor struct {
	device.Tensor
	rows   cudakern.Ptr // of an activation, float32
	raw    []byte       // of a weight, as in the model file
	source gguf.Type    // of a weight in the model file; Type is that on the GPU

	// Copies of a weight on the GPU, 0 if there is none in that layout.
	vector cudakern.Ptr // as in the model file
	matrix cudakern.Ptr // as matrix products and embeddings read it
	empty  bool         // nothing was copied to matrix
}

type kv struct {
	device.KV
	cache cudakern.Cache
}

type cuda struct {
	info    device.Info
	context *cudakern.Context // nil: closed
	close   []func() error    // release everything, called in reverse order

	pipeline
	stream  *cudakern.Stream // of all steps and copies
	memory  arena
	loader  *cudakern.Loader // nil until a weight needs it
	kernels kernels

	streamed *streamed // nil: all weights are on the GPU

	residents residents

	tensors    []tensor
	kvs        []kv
	states     []state
	rotations  map[device.RoPE]cudakern.Ptr // tables of RoPE angles
	reduced    map[int32]*reduced           // by ID of the logits
	workspaces map[string]region            // of kernels, by use; shared by all programs
	inputs     map[inputLayout]*inputs
}

// begin must be called first by every call that uses the stream or waits for the GPU: nothing may occupy the GPU for good (resident.go).
func (d *cuda) begin() error {
	if d.context == nil {
		return errClosed
	}
	return d.residents.leave()
}

// Yield implements device.Yielder.
func (d *cuda) Yield() (err error) {
	defer mark(&err)
	return d.begin()
}

// region is a range of GPU memory.
type region struct {
	at    cudakern.Ptr
	bytes int64
}

// Installed returns nil if a CUDA driver library can be loaded, otherwise the reason. Unlike Find, it
// does not call the driver.
func Installed() error { return cudakern.Installed() }

// reserve is an upper bound of the GPU memory, in bytes, for code, for device.FewStages parts of a model, and for what allocations leave
// unused: everything except weights, KV cache, activations, and what WorkBytes and Info().StageBytes count.
const reserve = 192 << 20

// What the driver takes of the GPU's memory for a graph and for each of its launches, in bytes, measured on an NVIDIA H200 with driver 580
// (BenchmarkDriverMemory of package cudakern).
const (
	graphBytes  = 104 << 10
	launchBytes = 2400
)

// stageBytes is Info.StageBytes: ten graphs of twenty launches, the unused part of a KV cache's allocation, and arrays of batches.
const stageBytes = 10*(graphBytes+20*launchBytes) + driverBytes

// Find loads the driver at path (empty: the one that cudakern.Load finds) and returns the GPUs that
// the kernels support, the one with the most memory first. With ordinals, the numbers that the driver gives to GPUs, it returns these
// in their order, or an error if one of them cannot be used. If there is none, the error says why.
func Find(path string, ordinals ...int) (*cudakern.Driver, []cudakern.Properties, error) {
	driver, err := cudakern.Load(path)
	if err != nil {
		return nil, nil, err
	}
	list, err := driver.Devices()
	if err != nil {
		return nil, nil, err
	}
	if len(ordinals) > 0 {
		var chosen []cudakern.Properties
		for _, n := range ordinals {
			i := slices.IndexFunc(list, func(p cudakern.Properties) bool { return p.Ordinal == n })
			if i < 0 {
				return nil, nil, fmt.Errorf("there is no GPU %d: the driver lists %d, counted from 0", n, len(list))
			}
			if err := list[i].Usable(); err != nil {
				return nil, nil, fmt.Errorf("GPU %d cannot be used: %w", n, err)
			}
			chosen = append(chosen, list[i])
		}
		return driver, chosen, nil
	}
	var usable []cudakern.Properties
	var reasons []string
	for _, p := range list {
		if err := p.Usable(); err != nil {
			reasons = append(reasons, err.Error())
		} else {
			usable = append(usable, p)
		}
	}
	if len(usable) == 0 {
		return nil, nil, errors.New(strings.Join(reasons, "; "))
	}
	slices.SortStableFunc(usable, func(a, b cudakern.Properties) int { return cmp.Compare(b.Memory, a.Memory) })
	return driver, usable, nil
}

// Check returns nil if there is a GPU that Open can use, and all of ordinals can be used, otherwise the reason. It loads neither
// kernels nor weights.
func Check(ordinals ...int) error {
	driver, list, err := Find("", ordinals...)
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	for _, p := range list[:max(1, len(ordinals))] {
		context, err := driver.Open(p.Ordinal)
		if err != nil {
			return fmt.Errorf("cuda: cannot use %s: %w", p.Name, err)
		}
		if err := context.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Open opens the first GPU that Find returns.
func Open() (device.Device, error) { return OpenOrdinals() }

// OpenOrdinals opens the first GPU that Find returns for ordinals.
func OpenOrdinals(ordinals ...int) (device.Device, error) {
	driver, list, err := Find("", ordinals...)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return OpenGPU(driver, list[0])
}

// Devices opens the GPUs that Find returns for ordinals, except the first skip, each when the loop reaches it. If
// Find fails, Devices yields its error.
func Devices(skip int, ordinals ...int) iter.Seq2[device.Device, error] {
	return func(yield func(device.Device, error) bool) {
		driver, list, err := Find("", ordinals...)
		if err != nil {
			yield(nil, fmt.Errorf("cuda: %w", err))
			return
		}
		for _, p := range list[min(skip, len(list)):] {
			if !yield(OpenGPU(driver, p)) {
				return
			}
		}
	}
}

// List returns the GPUs that Find returns for ordinals as OpenGPU names them, with all of their memory that models can take. It opens none.
func List(ordinals ...int) (list []device.Info, err error) {
	driver, gpus, err := Find("", ordinals...)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	all, err := driver.Devices()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	for _, p := range gpus {
		list = append(list, device.Info{Kind: "cuda", Name: nameOf(p, all), Memory: max(p.Memory-reserve, 1), Dedicated: true})
	}
	return list, nil
}

// nameOf returns the name of GPU p, with its number if several of all have the same one.
func nameOf(p cudakern.Properties, all []cudakern.Properties) string {
	if slices.ContainsFunc(all, func(other cudakern.Properties) bool { return other.Name == p.Name && other.Ordinal != p.Ordinal }) {
		return fmt.Sprintf("%s (GPU %d)", p.Name, p.Ordinal)
	}
	return p.Name
}

// OpenGPU opens GPU p. Its Info().Name has its number if the driver lists several with the same name.
func OpenGPU(driver *cudakern.Driver, p cudakern.Properties) (device.Device, error) {
	all, err := driver.Devices()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	context, err := driver.Open(p.Ordinal)
	if err != nil {
		return nil, fmt.Errorf("cuda: cannot use %s: %w", p.Name, err)
	}
	d, err := open(context)
	if err != nil {
		context.Close()
		return nil, err
	}
	d.close = slices.Insert(d.close, 0, context.Close)
	d.info.Name = nameOf(p, all)
	return d, nil
}

// open creates a device in a context that the caller closes.
func open(context *cudakern.Context) (_ *cuda, err error) {
	p := context.Properties()
	free, _, err := context.MemInfo()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	rows, prompts := stepRows[context.Units], context.HasPromptMatMuls()
	if prompts {
		rows = promptStepRows
	}
	d := &cuda{
		info: device.Info{
			Kind: "cuda", Name: p.Name, Path: cudakern.ProductPath, Units: string(context.Units), Memory: max(free-reserve, 1), Dedicated: true,
			StepRows: rows, Drafts: measured[p.Name].drafts, StageBytes: stageBytes, Prompts: prompts,
		},
		context:   context,
		memory:    arena{context: context},
		kernels:   newKernels(context),
		residents: residents{limits: residentLimits},

		rotations:  map[device.RoPE]cudakern.Ptr{},
		reduced:    map[int32]*reduced{},
		workspaces: map[string]region{},
		inputs:     map[inputLayout]*inputs{},
	}
	d.close = append(d.close, d.memory.free)
	defer func() {
		if err != nil {
			d.release()
			err = fmt.Errorf("cuda: %w", err)
		}
	}()
	if d.stream, err = context.NewStream(cudakern.PriorityHigh); err != nil {
		return nil, err
	}
	d.close = append(d.close, d.stream.Close)
	return d, d.openPipeline()
}

func (d *cuda) Info() device.Info { return d.info }

// WeightTypes returns the weight types that have kernels, and those that are converted to one of
// them.
func WeightTypes() []gguf.Type {
	types := slices.AppendSeq(slices.Clone(kernelTypes), maps.Keys(conversions))
	slices.Sort(types)
	return types
}

// WeightBytes returns the size of a weight on the GPU in bytes.
func (d *cuda) WeightBytes(t gguf.Type, rows, cols int) (int64, error) {
	if !slices.Contains(kernelTypes, Converts(t)) {
		return 0, fmt.Errorf("cuda: no kernel for weights of type %s; there are kernels for %s", t, gguf.Names(WeightTypes()))
	}
	if err := checkShape(rows, cols); err != nil {
		return 0, err
	}
	if block, _ := t.Block(); cols%int(block) != 0 {
		return 0, fmt.Errorf("cuda: rows of %d values are not a multiple of the %s block size %d", cols, t, block)
	}
	w := tensor{Tensor: device.Tensor{Type: Converts(t), Rows: rows, Cols: cols}}
	bytes, file, err := weightsOf(w.Tensor).Bytes()
	if err != nil {
		return 0, fmt.Errorf("cuda: %w", err)
	}
	if w.isVector() {
		bytes = file
	}
	return allocated(bytes), nil
}

// isVector reports whether a weight is a norm or a bias rather than a matrix: it has one row of F32.
func (w *tensor) isVector() bool { return w.Rows == 1 && w.Type == gguf.F32 }

// Upload copies a weight to the GPU.
func (d *cuda) Upload(t gguf.Type, rows, cols int, data []byte) (device.Tensor, error) {
	w, err := d.Reserve(t, rows, cols, data)
	if err == nil {
		err = d.Fill(w)
	}
	return w, err
}

// Fill implements device.Reserver.
func (d *cuda) Fill(w device.Tensor) (err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return err
	}
	named, err := d.weight(w)
	if err == nil && named.empty {
		if err = named.fill(d); err == nil {
			err = d.loader.Sync()
		}
	}
	if err != nil {
		return fmt.Errorf("cuda: weight %s (%d, %d): %w", w.Type, w.Rows, w.Cols, err)
	}
	return nil
}

// Reserve implements device.Reserver. It copies norms and biases.
func (d *cuda) Reserve(t gguf.Type, rows, cols int, data []byte) (_ device.Tensor, err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return device.Tensor{}, err
	}
	w, err := d.described(t, rows, cols, data)
	if err != nil {
		return device.Tensor{}, err
	}
	if w.isVector() { // Compile copies it in the other layout if a program needs that
		_, err = w.asVector(d)
	} else {
		err = w.reserve(d)
	}
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cuda: weight %s (%d, %d): %w", t, rows, cols, err)
	}
	return d.add(w), nil
}

// described returns a weight that has no copies yet.
func (d *cuda) described(t gguf.Type, rows, cols int, data []byte) (tensor, error) {
	if _, err := d.WeightBytes(t, rows, cols); err != nil {
		return tensor{}, err
	}
	if want := int64(rows) * int64(t.RowBytes(cols)); int64(len(data)) != want {
		return tensor{}, fmt.Errorf("cuda: weight %s (%d, %d) has %d bytes, want %d", t, rows, cols, len(data), want)
	}
	return tensor{Tensor: device.Tensor{Type: Converts(t), Rows: rows, Cols: cols}, raw: data, source: t}, nil
}

func (d *cuda) Alloc(rows, cols int) (_ device.Tensor, err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return device.Tensor{}, err
	}
	if err := checkShape(rows, cols); err != nil {
		return device.Tensor{}, err
	}
	at, err := d.zeroed(4 * int64(rows) * int64(cols))
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cuda: activation (%d, %d): %w", rows, cols, err)
	}
	return d.add(tensor{Tensor: device.Tensor{Type: gguf.F32, Rows: rows, Cols: cols}, rows: at}), nil
}

func (d *cuda) AllocKV(l device.KVLayout) (_ device.KV, err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return device.KV{}, err
	}
	if err := l.CheckType(); err != nil {
		return device.KV{}, fmt.Errorf("cuda: %w", err)
	}
	bytes := int64(4)
	for _, n := range []int{l.Blocks, l.Layers, l.KVHeads, l.HeadDim, 2 * device.BlockSize} {
		if n <= 0 || n > math.MaxInt32 || bytes > math.MaxInt64/int64(n) {
			return device.KV{}, fmt.Errorf("cuda: KV cache of %d blocks, %d layers, %d kv heads, head dim %d: sizes must be positive and fit in memory",
				l.Blocks, l.Layers, l.KVHeads, l.HeadDim)
		}
		bytes *= int64(n)
	}
	at, err := d.zeroed(l.Bytes())
	if err != nil {
		return device.KV{}, fmt.Errorf("cuda: KV cache of %d blocks: %w", l.Blocks, err)
	}
	named := device.KV{ID: int32(len(d.kvs) + 1), Layout: l}
	d.kvs = append(d.kvs, kv{named, cudakern.Cache{Data: at, Type: cacheType(l), Layers: l.Layers, KVHeads: l.KVHeads, HeadDim: l.HeadDim, Latent: l.Latent}})
	return named, nil
}

func (d *cuda) ReadKV(dst []byte, kv device.KV, block int32) (err error) {
	defer mark(&err)
	at, err := d.block(kv, block, dst)
	if err == nil {
		err = d.stream.Download(dst, at)
	}
	if err == nil {
		err = d.stream.Sync()
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

func (d *cuda) WriteKV(kv device.KV, block int32, src []byte) (err error) {
	defer mark(&err)
	at, err := d.block(kv, block, src)
	if err == nil {
		err = d.stream.Upload(at, src)
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// block returns the address of a block. data is what it is copied to or from.
func (d *cuda) block(kv device.KV, block int32, data []byte) (cudakern.Ptr, error) {
	if err := d.begin(); err != nil {
		return 0, err
	}
	cache, err := d.cache(kv)
	if err == nil {
		err = kv.Layout.CheckBlock(block, data)
	}
	return cache.Data + cudakern.Ptr(int64(block)*kv.Layout.BlockBytes()), err
}

// zeroed allocates n bytes of zeros.
func (d *cuda) zeroed(n int64) (cudakern.Ptr, error) {
	at, err := d.memory.alloc(n)
	if err == nil {
		err = d.stream.Fill(at, 0, n)
	}
	return at, err
}

func (d *cuda) Read(dst []float32, t device.Tensor, row int) (err error) {
	defer mark(&err)
	at, err := d.rows(t, row, len(dst))
	var read bool
	if err == nil {
		read, err = d.readSaved(dst, t, row)
	}
	if err == nil && !read {
		err = d.begin()
	}
	if err == nil && !read {
		if err = d.stream.Download(bytesOf(dst), at); err == nil {
			err = d.stream.Sync()
		}
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

func (d *cuda) Write(t device.Tensor, row int, src []float32) (err error) {
	defer mark(&err)
	at, err := d.rows(t, row, len(src))
	if err == nil {
		err = d.begin()
	}
	if err == nil {
		err = d.stream.Upload(at, bytesOf(src))
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// CopyFrom implements device.Peer for GPUs of the same driver.
func (d *cuda) CopyFrom(dst device.Tensor, from device.Device, src device.Tensor, rows int) (copied bool, err error) {
	other, ok := from.(*cuda)
	if !ok {
		return false, nil
	}
	defer mark(&err)
	to, err := d.rows(dst, 0, rows*dst.Cols)
	if err != nil {
		return false, fmt.Errorf("cuda: %w", err)
	}
	at, err := other.rows(src, 0, rows*src.Cols)
	if err == nil {
		err = errors.Join(d.begin(), other.begin())
	}
	if err == nil {
		err = d.stream.CopyFrom(to, other.context, at, int64(4*rows*src.Cols))
	}
	if err != nil {
		return false, fmt.Errorf("cuda: %w", err)
	}
	return true, nil
}

// rows returns the address of n values of an activation, whole rows beginning at row row.
func (d *cuda) rows(t device.Tensor, row, n int) (at cudakern.Ptr, err error) {
	if d.context == nil {
		return 0, errClosed
	}
	a, err := d.activation(t)
	if err != nil {
		return 0, err
	}
	if !t.HasRows(row, n) {
		return 0, fmt.Errorf("%d values are not whole rows of an activation (%d, %d) from row %d on", n, t.Rows, t.Cols, row)
	}
	return a.rows + cudakern.Ptr(4*row*t.Cols), nil
}

func bytesOf[T float32 | uint32](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}

// ReadBandwidth measures how many bytes per second the GPU reads from its memory.
func (d *cuda) ReadBandwidth() (float64, error) {
	if err := d.begin(); err != nil {
		return 0, err
	}
	return d.context.ReadBandwidth()
}

// Close frees everything that the device owns and returns the first error. Calls after the first do
// nothing.
func (d *cuda) Close() error {
	if d.context == nil {
		return nil
	}
	if err := d.release(); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

func (d *cuda) release() (first error) {
	first = d.residents.stop()
	if len(d.started) > 0 {
		first = cmp.Or(first, d.stream.Sync())
	}
	for _, end := range slices.Backward(d.close) {
		if err := end(); err != nil && first == nil {
			first = err
		}
	}
	*d = cuda{info: d.info}
	return first
}

func (d *cuda) add(t tensor) device.Tensor {
	t.ID = int32(len(d.tensors) + 1)
	d.tensors = append(d.tensors, t)
	return t.Tensor
}

// tensor returns the tensor that t is a handle of.
func (d *cuda) tensor(t device.Tensor) (*tensor, error) {
	if t.ID < 1 || int(t.ID) > len(d.tensors) || d.tensors[t.ID-1].Tensor != t {
		return nil, fmt.Errorf("tensor %d, %s (%d, %d), does not belong to this device", t.ID, t.Type, t.Rows, t.Cols)
	}
	return &d.tensors[t.ID-1], nil
}

func (d *cuda) activation(t device.Tensor) (*tensor, error) {
	a, err := d.tensor(t)
	if err == nil && a.raw != nil {
		err = fmt.Errorf("tensor %d is a weight, want an activation", t.ID)
	}
	return a, err
}

func (d *cuda) weight(t device.Tensor) (*tensor, error) {
	w, err := d.tensor(t)
	if err == nil && w.raw == nil {
		err = fmt.Errorf("tensor %d is an activation, want a weight", t.ID)
	}
	return w, err
}

func checkShape(rows, cols int) error {
	if rows <= 0 || cols <= 0 || rows > math.MaxInt32 || cols > math.MaxInt32 {
		return fmt.Errorf("cuda: tensor shape (%d, %d) is invalid, want 1 to %d in each dimension", rows, cols, math.MaxInt32)
	}
	return nil
}
