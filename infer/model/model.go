// Package model holds the forward pass: one function, written once, for every
// architecture and every device. Architectures differ by what their file's
// metadata declares and by a table of a few flags, never by a copy of the code.
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
	row     []float32 // of the residual stream, on its way from stage to stage
	out     int       // rows of logits that the last Forward left

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
	kv          device.KV
	rope        device.RoPE
	buffers     buffers
	programs    map[int]device.Executable // by row bucket
}

// buffers are the activations of a step, allocated once. Shapes are
// (rows, width) with MaxRows rows, and MaxOut where the comment says out.
type buffers struct {
	X      device.Tensor // residual stream, (rows, dim)
	Norm   device.Tensor // (rows, dim)
	Q, Att device.Tensor // (rows, heads·head dim)
	K, V   device.Tensor // (rows, kv heads·head dim)
	Proj   device.Tensor // output of attention and feed-forward, (rows, dim)
	Gate   device.Tensor // (rows, hidden dim)
	Up     device.Tensor // (rows, hidden dim)
	Last   device.Tensor // (out, dim), in the last stage
	Logits device.Tensor // (out, vocab), in the last stage
}

// Load puts the model in f on dev. f must stay open until dev is closed: a device
// may read weights where they lie. ctx ends the loading between two tensors. If
// Load fails, dev holds part of a model; close it.
func Load(ctx context.Context, f *gguf.File, dev device.Device, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	return LoadStages(ctx, f, []Stage{{dev, c.Layers}}, o)
}

// LoadStages is Load over several devices, of which each holds some of the layers.
func LoadStages(ctx context.Context, f *gguf.File, stages []Stage, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	m := &Model{config: c, options: o, row: make([]float32, c.Dim), weightBytes: WeightBytes(f)}
	layers := 0
	for i, s := range stages {
		m.stages = append(m.stages, &stage{
			dev: s.Device, first: layers, last: layers + s.Layers, embeds: i == 0, outputs: i == len(stages)-1, programs: map[int]device.Executable{},
		})
		layers += s.Layers
	}
	if layers != c.Layers {
		return nil, fmt.Errorf("stages of %d layers do not make a model of %d", layers, c.Layers)
	}
	l := loader{ctx: ctx, f: f, config: c, progress: o.Progress, used: map[string]bool{}, total: m.weightBytes}
	for _, s := range m.stages {
		if err := l.load(s); err != nil {
			return nil, err
		}
	}
	if err := l.allUsed(); err != nil {
		return nil, err
	}
	for _, s := range m.stages {
		layout := c.KVLayout(o.CacheType, o.Blocks)
		layout.Layers = s.last - s.first
		if s.kv, err = s.dev.AllocKV(layout); err != nil {
			return nil, err
		}
		s.rope = c.RoPE
		s.rope.Factors = s.weights.RoPEFreqs
		if err := m.allocate(s); err != nil {
			return nil, err
		}
		if err := m.compile(s); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// ScratchBytes is what the activations of a model take.
func (c Config) ScratchBytes(maxRows, maxOut int) int64 {
	row := 3*c.Dim + 2*c.Heads*c.HeadDim + 2*c.KVHeads*c.HeadDim + 2*c.HiddenDim
	return 4 * (int64(maxRows)*int64(row) + int64(maxOut)*int64(c.Dim+c.Vocab))
}

// WorkBytes is what dev needs beside weights, activations and KV cache to run a model: of
// its programs, it records those that Load would, over tensors that are not there.
func (c Config) WorkBytes(dev device.Device, o Options) int64 {
	o = o.withDefaults()
	id := int32(0)
	shape := func(rows, cols int) device.Tensor {
		id++
		return device.Tensor{ID: id, Type: gguf.F32, Rows: rows, Cols: cols}
	}
	m := &Model{config: c, options: o}
	s := &stage{last: 1, embeds: true, outputs: true, rope: c.RoPE}
	kvWidth := c.KVHeads * c.HeadDim
	s.weights = weights{
		TokenEmbd:  shape(c.Vocab, c.Dim),
		OutputNorm: shape(1, c.Dim),
		Output:     shape(c.Vocab, c.Dim),
		Layers: []layer{{
			AttnNorm: shape(1, c.Dim), AttnQ: shape(c.Heads*c.HeadDim, c.Dim), AttnK: shape(kvWidth, c.Dim), AttnV: shape(kvWidth, c.Dim),
			AttnOutput: shape(c.Dim, c.Heads*c.HeadDim),
			FFNNorm:    shape(1, c.Dim), FFNGate: shape(c.HiddenDim, c.Dim), FFNUp: shape(c.HiddenDim, c.Dim), FFNDown: shape(c.Dim, c.HiddenDim),
		}},
	}
	for _, a := range m.activations(s) {
		*a.dst = shape(a.rows, a.cols)
	}
	s.kv = device.KV{ID: 1, Layout: c.KVLayout(o.CacheType, o.Blocks)}
	var programs []*device.Program
	for _, rows := range buckets(o.MaxRows) {
		programs = append(programs, m.program(s, rows))
	}
	return dev.WorkBytes(programs...)
}

// activation is one of a stage's buffers.
type activation struct {
	dst        *device.Tensor
	rows, cols int
}

func (m *Model) activations(s *stage) []activation {
	c, b := m.config, &s.buffers
	list := []activation{
		{&b.X, m.options.MaxRows, c.Dim},
		{&b.Norm, m.options.MaxRows, c.Dim},
		{&b.Q, m.options.MaxRows, c.Heads * c.HeadDim},
		{&b.Att, m.options.MaxRows, c.Heads * c.HeadDim},
		{&b.K, m.options.MaxRows, c.KVHeads * c.HeadDim},
		{&b.V, m.options.MaxRows, c.KVHeads * c.HeadDim},
		{&b.Proj, m.options.MaxRows, c.Dim},
		{&b.Gate, m.options.MaxRows, c.HiddenDim},
		{&b.Up, m.options.MaxRows, c.HiddenDim},
	}
	if s.outputs {
		list = append(list, activation{&b.Last, m.options.MaxOut, c.Dim}, activation{&b.Logits, m.options.MaxOut, c.Vocab})
	}
	return list
}

func (m *Model) allocate(s *stage) (err error) {
	for _, a := range m.activations(s) {
		if *a.dst, err = s.dev.Alloc(a.rows, a.cols); err != nil {
			return err
		}
	}
	return nil
}

// Config returns the shape of the model.
func (m *Model) Config() Config { return m.config }

// Forward runs one step over b: the KV cache holds its rows afterwards, and Candidates and
// Logits tell the logits of the rows in b.Out.
func (m *Model) Forward(b *device.Batch) error {
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

// handOver copies the residual stream of rows rows from one stage to the next.
func (m *Model) handOver(from, to *stage, rows int) error {
	for i := range rows {
		if err := from.dev.Read(m.row, from.buffers.X, i); err != nil {
			return err
		}
		if err := to.dev.Write(to.buffers.X, i, m.row); err != nil {
			return err
		}
	}
	return nil
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

// program records what a stage computes for batches of up to rows rows.
func (m *Model) program(s *stage, rows int) *device.Program {
	p := device.NewProgram(rows, min(rows, m.options.MaxOut))
	m.record(p, s)
	return p
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
