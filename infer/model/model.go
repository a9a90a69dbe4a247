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

	// Progress, if set, is told how many bytes of the weights are on the device.
	Progress func(done, total int64)
}

// Model is a model on a device. It is used by one goroutine at a time.
type Model struct {
	config  Config
	dev     device.Device
	options Options
	weights weights
	kv      device.KV
	buffers buffers

	programs map[int]device.Executable // by row bucket
	out      int                       // rows of logits that the last Forward left
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
	Last   device.Tensor // (out, dim)
	Logits device.Tensor // (out, vocab)
}

// Load puts the model in f on dev. f must stay open until dev is closed: a device
// may read weights where they lie. ctx ends the loading between two tensors. If
// Load fails, dev holds part of a model; close it.
func Load(ctx context.Context, f *gguf.File, dev device.Device, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if o.MaxOut == 0 {
		o.MaxOut = o.MaxRows
	}
	if o.Progress == nil {
		o.Progress = func(done, total int64) {}
	}
	m := &Model{config: c, dev: dev, options: o, programs: map[int]device.Executable{}}
	l := loader{ctx: ctx, f: f, dev: dev, progress: o.Progress}
	if m.weights, err = l.load(c); err != nil {
		return nil, err
	}
	if m.kv, err = dev.AllocKV(c.KVLayout(o.CacheType, o.Blocks)); err != nil {
		return nil, err
	}
	m.config.RoPE.Factors = m.weights.RoPEFreqs
	if err := m.allocate(); err != nil {
		return nil, err
	}
	return m, m.compile()
}

// ScratchBytes is what the activations of a model take.
func (c Config) ScratchBytes(maxRows, maxOut int) int64 {
	row := 3*c.Dim + 2*c.Heads*c.HeadDim + 2*c.KVHeads*c.HeadDim + 2*c.HiddenDim
	return 4 * (int64(maxRows)*int64(row) + int64(maxOut)*int64(c.Dim+c.Vocab))
}

func (m *Model) allocate() error {
	c, b := m.config, &m.buffers
	for _, a := range []struct {
		dst        *device.Tensor
		rows, cols int
	}{
		{&b.X, m.options.MaxRows, c.Dim},
		{&b.Norm, m.options.MaxRows, c.Dim},
		{&b.Q, m.options.MaxRows, c.Heads * c.HeadDim},
		{&b.Att, m.options.MaxRows, c.Heads * c.HeadDim},
		{&b.K, m.options.MaxRows, c.KVHeads * c.HeadDim},
		{&b.V, m.options.MaxRows, c.KVHeads * c.HeadDim},
		{&b.Proj, m.options.MaxRows, c.Dim},
		{&b.Gate, m.options.MaxRows, c.HiddenDim},
		{&b.Up, m.options.MaxRows, c.HiddenDim},
		{&b.Last, m.options.MaxOut, c.Dim},
		{&b.Logits, m.options.MaxOut, c.Vocab},
	} {
		var err error
		if *a.dst, err = m.dev.Alloc(a.rows, a.cols); err != nil {
			return err
		}
	}
	return nil
}

// Config returns the shape of the model.
func (m *Model) Config() Config { return m.config }

// Forward runs one step over b: the KV cache holds its rows afterwards, and Logits
// reads the logits of the rows in b.Out.
func (m *Model) Forward(b *device.Batch) error {
	m.out = 0
	if err := m.program(len(b.Tokens)).Run(b); err != nil {
		return err
	}
	m.out = len(b.Out)
	return nil
}

// Logits copies the logits of row b.Out[i] of the last Forward. dst has one element
// for each token of the vocabulary.
func (m *Model) Logits(dst []float32, i int) error {
	if i < 0 || i >= m.out {
		return fmt.Errorf("cannot read logits %d of %d", i, m.out)
	}
	return m.dev.Read(dst, m.buffers.Logits, i)
}

// compile records and compiles a program for every row bucket, since a device may fix
// the number of rows of one when it compiles it. The largest comes first: what the
// programs of a device share has its full size then. No step compiles, so that none
// fails for want of memory.
func (m *Model) compile() error {
	for _, rows := range slices.Backward(buckets(m.options.MaxRows)) {
		p := device.NewProgram(rows, min(rows, m.options.MaxOut))
		m.record(p)
		x, err := m.dev.Compile(p)
		if err != nil {
			return fmt.Errorf("failed to prepare the model for batches of %d: %w", rows, err)
		}
		m.programs[rows] = x
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

// program returns the smallest program that runs a batch of rows rows.
func (m *Model) program(rows int) device.Executable {
	for _, bucket := range buckets(m.options.MaxRows) {
		if rows <= bucket {
			return m.programs[bucket]
		}
	}
	return m.programs[m.options.MaxRows] // which refuses the batch
}
