// Package model holds the forward pass: one function, written once, for every
// architecture and every device. Architectures differ by what their file's
// metadata declares and by their declarations, never by a copy of the code.
package model

import (
	"context"
	"fmt"
	"slices"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Options say how a model is set up on its device.
type Options struct {
	CacheType gguf.Type // of the KV cache: F16 or F32
	Blocks    int       // of the KV cache, device.BlockSize positions each
	MaxRows   int       // most rows of a batch
	MaxOut    int       // most rows of a batch whose logits are wanted; 0: MaxRows
	Context   int       // most positions of a sequence; 0: those that the model was trained on

	Progress func(Progress) // if set, is told how far Load has come
}

func (o Options) withDefaults() Options {
	if o.MaxOut == 0 {
		o.MaxOut = o.MaxRows
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Progress says how far a load has come: first the weights, then kernels, on a device that
// must compile them.
type Progress struct {
	Done, Total           int64 // bytes of weights on their devices
	Kernels, KernelsTotal int   // that are compiled; 0 of 0: not yet, or none must be
}

// Model is a model on its devices. It is used by one goroutine at a time.
type Model struct {
	config  Config
	options Options
	stages  []*stage
	rows    []float32 // of the residual stream, on their way from stage to stage
	out     int       // rows of logits that the last step left

	submitted *device.Batch // the step that is not collected; nil: none is
	ticket    Ticket        // of the last step that was submitted

	weightBytes int64 // of all weights in the file
}

// Stage is a part of a model on one device: as many layers, after those of the stages
// before it. The first stage holds the embedding table too, the last the output layer.
type Stage struct {
	Device device.Device
	Layers int
}

// stage is a Stage that is loaded.
type stage struct {
	dev         device.Device
	first, last int // layers first … last-1
	embeds      bool
	outputs     bool
	weights     weights
	layers      []weights
	kv          []device.KV // one for each shape of its layers
	places      []kvPlace   // by layer
	alloc       func(rows, cols int) (device.Tensor, error)
	buffers     buffers
	programs    map[int]device.Executable // by row bucket
}

// buffers are the activations of a step. Each is allocated when it is first recorded, with
// room for the largest batch; all layers with rows as wide share it.
type buffers struct {
	X      device.Tensor // residual stream
	Logits device.Tensor // in the last stage

	carried []device.Tensor // what goes from stage to stage: X, and what else layers read

	all map[bufferKey]device.Tensor
	err error // the first that an allocation failed with
}

type bufferKey struct {
	name string
	cols int
}

// buffer returns the activation called name with cols columns.
func (s *stage) buffer(name string, rows, cols int) device.Tensor {
	b, key := &s.buffers, bufferKey{name, cols}
	t, ok := b.all[key]
	if !ok && b.err == nil {
		if b.all == nil {
			b.all = map[bufferKey]device.Tensor{}
		}
		if t, b.err = s.alloc(rows, cols); b.err == nil {
			b.all[key] = t
		}
	}
	return t
}

// Load puts the model in f on dev. f must stay open until dev is closed: a device
// may read weights where they lie. ctx ends the loading between two tensors. If
// Load fails, dev holds part of a model; close it.
func Load(ctx context.Context, f *gguf.File, dev device.Device, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	return LoadStages(ctx, f, []Stage{{dev, len(c.Layers)}}, o)
}

// LoadStages is Load over several devices, of which each holds some of the layers.
func LoadStages(ctx context.Context, f *gguf.File, stages []Stage, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if architectures[c.Architecture].positions && o.Context > c.ContextLength {
		return nil, fmt.Errorf("the model has a table of %d positions, which a context of %d exceeds; choose a smaller one", c.ContextLength, o.Context)
	}
	o = o.withDefaults()
	m := &Model{config: c, options: o, weightBytes: WeightBytes(f)}
	layers := 0
	for i, s := range stages {
		m.stages = append(m.stages, &stage{
			dev: s.Device, first: layers, last: layers + s.Layers, embeds: i == 0, outputs: i == len(stages)-1,
			alloc: s.Device.Alloc, programs: map[int]device.Executable{},
		})
		layers += s.Layers
	}
	if layers != len(c.Layers) {
		return nil, fmt.Errorf("stages of %d layers do not make a model of %d", layers, len(c.Layers))
	}
	for _, s := range m.stages {
		if s.first > c.Shared() {
			return nil, fmt.Errorf("layers from %d on read each other's keys and values, so that no stage can begin at layer %d", c.Shared(), s.first)
		}
	}
	l := loader{ctx: ctx, f: f, progress: o.Progress, fetched: map[source]bool{}, total: m.weightBytes}
	if l.tensors, err = c.find(f); err != nil {
		return nil, err
	}
	for _, s := range m.stages {
		if err := l.load(s); err != nil {
			return nil, err
		}
	}
	for _, s := range m.stages {
		if err := m.allocKV(s); err != nil {
			return nil, err
		}
		if err := m.compile(s); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Model) allocKV(s *stage) error {
	var caches KVLayouts
	caches, s.places = kvLayouts(m.options.CacheType, m.options.Blocks, m.config.Layers[s.first:s.last])
	for _, layout := range caches {
		kv, err := s.dev.AllocKV(layout)
		if err != nil {
			return err
		}
		s.kv = append(s.kv, kv)
	}
	return nil
}

// Config returns the shape of the model.
func (m *Model) Config() Config { return m.config }

// compute runs a step over b on all stages.
func (m *Model) compute(b *device.Batch) error {
	m.out = 0
	for i, s := range m.stages {
		if i > 0 {
			if err := m.handOver(m.stages[i-1], s, len(b.Tokens)); err != nil {
				return err
			}
		}
		if err := s.executable(len(b.Tokens), m.options.MaxRows).Run(b); err != nil {
			return err
		}
	}
	m.out = len(b.Out)
	return nil
}

// handOver copies the residual stream of rows rows from one stage to the next: from device to
// device where they can, else through the host.
func (m *Model) handOver(from, to *stage, rows int) error {
	for i, dst := range to.buffers.carried {
		if err := m.carry(to.dev, dst, from.dev, from.buffers.carried[i], rows); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) carry(to device.Device, dst device.Tensor, from device.Device, src device.Tensor, rows int) error {
	if peer, ok := to.(device.Peer); ok {
		if copied, err := peer.CopyFrom(dst, from, src, rows); copied || err != nil {
			return err
		}
	}
	if need := rows * src.Cols; len(m.rows) < need {
		m.rows = make([]float32, m.options.MaxRows*src.Cols)
	}
	values := m.rows[:rows*src.Cols]
	if err := from.Read(values, src, 0); err != nil {
		return err
	}
	return to.Write(dst, 0, values)
}

// Candidates returns what a sampler needs of the logits of row b.Out[i] of the last
// Forward. It holds until the next one.
func (m *Model) Candidates(i int) (device.Candidates, error) {
	last, err := m.logits(i)
	if err != nil {
		return device.Candidates{}, err
	}
	return last.dev.Candidates(last.buffers.Logits, i)
}

// Logits copies the logits of row b.Out[i] of the last Forward. dst has one element
// for each token of the vocabulary.
func (m *Model) Logits(dst []float32, i int) error {
	last, err := m.logits(i)
	if err != nil {
		return err
	}
	return last.dev.Read(dst, last.buffers.Logits, i)
}

// logits returns the stage that holds the logits of row b.Out[i].
func (m *Model) logits(i int) (*stage, error) {
	if i < 0 || i >= m.out {
		return nil, fmt.Errorf("cannot read logits %d of %d", i, m.out)
	}
	return m.stages[len(m.stages)-1], nil
}

// compile records and compiles a program for every row bucket, since a device may fix
// the number of rows of one when it compiles it. The largest comes first: what the
// programs of a device share has its full size then. No step compiles, so that none
// fails for want of memory.
func (m *Model) compile(s *stage) error {
	for _, rows := range slices.Backward(buckets(m.options.MaxRows)) {
		p := m.program(s, rows)
		if err := s.buffers.err; err != nil {
			return err
		}
		p.Progress = func(done, total int) {
			weights := m.weightBytes
			m.options.Progress(Progress{Done: weights, Total: weights, Kernels: done, KernelsTotal: total})
		}
		x, err := s.dev.Compile(p)
		if err != nil {
			return fmt.Errorf("failed to prepare the model for batches of %d: %w", rows, err)
		}
		s.programs[rows] = x
	}
	return nil
}

// buckets are the row counts of programs for batches of up to most rows: powers of two,
// and most.
func buckets(most int) (list []int) {
	for rows := 1; rows < most; rows *= 2 {
		list = append(list, rows)
	}
	return append(list, most)
}

// executable returns the smallest program that runs a batch of rows rows.
func (s *stage) executable(rows, most int) device.Executable {
	for _, bucket := range buckets(most) {
		if rows <= bucket {
			return s.programs[bucket]
		}
	}
	return s.programs[most] // which refuses the batch
}
