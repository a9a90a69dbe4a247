// Package model is the forward pass: one implementation for every architecture and every device.
// Architectures differ in the metadata of their files and in their declarations, one Go file for
// each, not in code of their own.
package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Options size a model on its devices.
type Options struct {
	CacheType device.CacheType // of the KV cache, but for layers that keep another: see Config.KVLayout
	Blocks    int              // blocks of the KV cache, of device.BlockSize positions: the most in a block table
	States    int              // slots of recurrent state, for models that have it; 0: 1
	MaxRows   int              // maximum rows of a batch
	MaxOut    int              // maximum rows of a batch whose logits are computed; 0: MaxRows
	Context   int              // maximum positions of a sequence; 0: as many as the model was trained on

	GroupBlocks []int // blocks of each of Config.CacheGroups; nil: Blocks each

	// Experts is a device with the experts of the first Layers layers, in place of the stages that these are
	// in; see Parts.Experts. 0 layers: the stages have all of them.
	Experts Stage

	// Stream makes steps whose rows are those of prompts (Batch.Prompt) compute the layers of Experts on the devices of their stages, and the
	// feed-forward layers of a stage on a device that is no Streamer on the device of the next stage. These must be Streamers: they copy the weights from
	// main memory for each step. A processor that reads weights fast enough for one row multiplies them by many rows too slowly.
	Stream bool

	// Prompts makes devices with Info.Prompts compute steps whose rows are those of prompts (Batch.Prompt) in their way for these.
	Prompts bool

	// PackLater lets devices that can (device.Packer) keep views of weights until Model.Pack copies them. So the first steps
	// are slower, and begin earlier.
	PackLater bool

	Head HeadOptions // of the multi-token prediction block of the file

	Pictures Pictures // what steps with pictures need; zero: there are none

	Progress func(Progress) // if set, called with the progress of Load
}

func (o Options) withDefaults() Options {
	if o.MaxOut == 0 {
		o.MaxOut = o.MaxRows
	}
	o.States = max(o.States, 1)
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Progress is the progress of Load: first the weights, then the kernels, if the driver of a device
// must compile them.
type Progress struct {
	Done, Total           int64 // bytes of weights uploaded
	Kernels, KernelsTotal int   // kernels compiled; both 0 before compilation, and if none is needed
}

// Model is a model loaded on its devices. It is used by one goroutine at a time.
type Model struct {
	config  Config
	options Options
	stages  []*stage
	rows    []float32 // copies activations between stages through the host
	out     int       // rows of logits of the last step

	submitted []submission // steps that have not been collected, the oldest first
	ticket    Ticket       // of the last submitted step

	head           *Head // nil: none was loaded
	reservedByHead []reserved

	weightBytes int64 // of all weights in the file
	file        *gguf.File
	packers     []device.Packer // that have views of weights
}

// Stage is a part of a model on one device: Layers layers, following those of the stages before
// it. The first stage also has the embedding table, the last one the output layer.
type Stage struct {
	Device device.Device
	Layers int
}

// stage is a loaded Stage, or what lies between layers whose experts are elsewhere: see cut.
type stage struct {
	dev         device.Device
	first, last int  // layers first … last-1
	experts     bool // only the feed-forward layer of first, with its experts
	apart       bool // not the feed-forward layer of last-1, whose experts are elsewhere
	embeds      bool
	outputs     bool
	prompts     []*stage // that compute its part of steps of prompts; nil: it does
	whole       *stage   // of one layer for steps of prompts: the stage that it is a part of
	streams     bool     // its weights are copied for each step, as part part of its device
	part        int
	weights     weights
	layers      []weights
	kv          []device.KV  // one for each shape of keys and values among its layers
	places      []kvPlace    // by layer
	state       device.State // of its layers; no Values: they have none
	stateAt     []int        // by layer, its first value in a slot
	alloc       func(rows, cols int) (device.Tensor, error)
	*common
	programs map[steps]device.Executable
	pictures pictureSteps

	ownPrompts bool // steps of prompts have programs of their own, with other bits
}

// steps are those that a program computes: of up to rows rows; of prompts, if these have programs of their own.
type steps struct {
	rows   int
	prompt bool
}

// common is what stages on one device have in common.
type common struct {
	buffers  buffers
	uploaded map[source]device.Tensor
}

func newCommon() *common { return &common{uploaded: map[source]device.Tensor{}} }

// buffers are the activations of a step. Each is allocated when it is first recorded, for batches of
// the maximum size. Layers share buffers of the same name and width.
type buffers struct {
	X      device.Tensor // residual stream
	Logits device.Tensor // in the last stage

	Vectors device.Tensor // of rows, in the last stage of a model that computes embeddings; of a head, the states after them
	States  device.Tensor // after all rows, in the last stage of a model with a head; of a head, its input

	handedOver []device.Tensor // activations that the next stage needs: X, and per-layer embeddings

	all map[bufferKey]device.Tensor
	err error // of the first failed allocation
}

type bufferKey struct {
	name string
	cols int
}

// buffer returns the activation called name with cols columns, allocated for rows rows at the first
// call.
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

// Load loads the model in f on dev. f must stay open until dev is closed, because a device may keep
// views of weights. Canceling ctx stops loading after the current tensor. If Load fails, dev may
// hold a part of the model and should be closed.
func Load(ctx context.Context, f *gguf.File, dev device.Device, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	return LoadStages(ctx, f, []Stage{{dev, len(c.Layers)}}, o)
}

// LoadStages is Load for a model divided among several devices.
func LoadStages(ctx context.Context, f *gguf.File, stages []Stage, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if architectures[c.Architecture].positions && o.Context > c.ContextLength {
		return nil, fmt.Errorf("a context of %d exceeds the %d positions of the model's position embeddings; choose a shorter context", o.Context, c.ContextLength)
	}
	o = o.withDefaults()
	m := &Model{config: c, options: o, weightBytes: WeightBytes(f), file: f}
	l := loader{ctx: ctx, f: f, progress: o.Progress, fetched: map[source]bool{}, total: m.weightBytes}
	if l.tensors, err = c.find(f); err != nil {
		return nil, err
	}
	if m.stages, err = cut(c, stages, o.Experts, c.expertLayers(l.tensors)); err != nil {
		return nil, err
	}
	if o.Stream {
		if err := m.addStreamed(c.partedLayers(l.tensors)); err != nil {
			return nil, err
		}
	}
	m.packLater()
	// What devices with a Reserver allocate is allocated before any large weight is read.
	for _, reserves := range []bool{true, false} {
		for _, s := range m.stages {
			if _, ok := s.dev.(device.Reserver); ok == reserves {
				if err := m.loadStage(&l, s); err != nil {
					return nil, &DeviceError{s.dev, err}
				}
			}
		}
		if reserves {
			if err := m.loadStreamed(&l); err != nil {
				return nil, err
			}
		}
	}
	if err := m.compileParted(&l.done); err != nil {
		return nil, err
	}
	if o.Head.Blocks > 0 {
		if err := m.loadHead(l, o.Head); err != nil {
			return nil, err
		}
		l.reserved = append(l.reserved, m.reservedByHead...)
	}
	if err := l.fill(); err != nil {
		return nil, err
	}
	return m, nil
}

// DeviceError is the error of a device on which a part of a model was to be loaded.
type DeviceError struct {
	Device device.Device
	Err    error
}

func (e *DeviceError) Error() string { return e.Err.Error() }
func (e *DeviceError) Unwrap() error { return e.Err }

// loadStage loads a stage, except weights that its device fills later.
func (m *Model) loadStage(l *loader, s *stage) error {
	if err := l.load(s); err != nil {
		return err
	}
	if err := m.allocKV(s); err != nil {
		return err
	}
	if err := m.allocState(s); err != nil {
		return err
	}
	return m.compile(s, &l.done)
}

// packLater makes the devices that can pack weights later do so, if the options say so.
func (m *Model) packLater() {
	for _, s := range m.stages {
		if p, ok := s.dev.(device.Packer); ok && m.options.PackLater && !slices.Contains(m.packers, p) {
			p.PackLater()
			m.packers = append(m.packers, p)
		}
	}
}

// Pack lets devices copy weights for about limit, between two steps; see Options.PackLater. It returns how many bytes of
// copies are still missing.
func (m *Model) Pack(limit time.Duration) (missing int64, err error) {
	for _, p := range m.packers {
		left, err := p.Pack(limit, m.file.Release)
		if err != nil {
			return 0, err
		}
		missing += left
	}
	return missing, nil
}

func (m *Model) allocKV(s *stage) error {
	var caches KVLayouts
	caches, s.places = m.config.kvLayouts(m.options, s.firstMixer(), s.last)
	for _, layout := range caches {
		kv, err := s.dev.AllocKV(layout)
		if err != nil {
			return err
		}
		s.kv = append(s.kv, kv)
	}
	return nil
}

func (m *Model) allocState(s *stage) (err error) {
	var layout device.StateLayout
	if layout, s.stateAt = m.config.stateLayout(m.options.States, s.firstMixer(), s.last); layout.Values > 0 {
		s.state, err = s.dev.AllocState(layout)
	}
	return err
}

// CopyState copies the recurrent state in slot from to slot to.
func (m *Model) CopyState(to, from int32) error {
	for _, s := range m.stages {
		if s.state.Layout.Values > 0 {
			if err := s.dev.CopyState(s.state, to, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// StateBytes returns the size of a slot of recurrent state, in bytes; 0: the model has none.
func (m *Model) StateBytes() int { return int(m.config.StateLayout(1).Bytes()) }

// ReadState copies a slot of recurrent state, over all layers, to dst, which has StateBytes() bytes.
func (m *Model) ReadState(dst []byte, slot int32) error {
	return m.eachState(dst, func(s *stage, part []byte) error { return s.dev.ReadState(part, s.state, slot) })
}

// WriteState sets a slot of recurrent state to what ReadState has returned.
func (m *Model) WriteState(slot int32, src []byte) error {
	return m.eachState(src, func(s *stage, part []byte) error { return s.dev.WriteState(s.state, slot, part) })
}

// eachState calls f for the part of a slot's data that each stage has.
func (m *Model) eachState(data []byte, f func(s *stage, part []byte) error) error {
	if want := m.StateBytes(); len(data) != want {
		return fmt.Errorf("a slot of recurrent state has %d bytes, got %d", want, len(data))
	}
	for _, s := range m.stages {
		n := s.state.Layout.SlotBytes()
		if n == 0 {
			continue
		}
		if err := f(s, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// ReadBlock copies a block of a cache group, over all its layers, to dst, which has BlockBytes()[group] bytes.
func (m *Model) ReadBlock(dst []byte, group int, id int32) error {
	return m.eachPart(group, dst, func(s *stage, kv device.KV, part []byte) error { return s.dev.ReadKV(part, kv, id) })
}

// WriteBlock sets a block of a cache group to what ReadBlock has returned.
func (m *Model) WriteBlock(group int, id int32, src []byte) error {
	return m.eachPart(group, src, func(s *stage, kv device.KV, part []byte) error { return s.dev.WriteKV(kv, id, part) })
}

// ReleaseBlock gives the memory that a block of a cache group takes back to the system, on the devices that can do that. What the block
// holds is lost.
func (m *Model) ReleaseBlock(group int, id int32) error {
	for _, s := range m.stages {
		dev, ok := s.dev.(device.Releaser)
		if !ok {
			continue
		}
		for _, kv := range s.kv {
			if kv.Layout.Group != group {
				continue
			}
			if err := dev.ReleaseKV(kv, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachPart calls f for the part of a block's data that each cache of the group has.
func (m *Model) eachPart(group int, data []byte, f func(s *stage, kv device.KV, part []byte) error) error {
	if want := m.BlockBytes()[group]; len(data) != want {
		return fmt.Errorf("a block of cache group %d has %d bytes, got %d", group, want, len(data))
	}
	for _, s := range m.stages {
		for _, kv := range s.kv {
			if kv.Layout.Group != group {
				continue
			}
			n := kv.Layout.BlockBytes()
			if err := f(s, kv, data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
	}
	return nil
}

// BlockBytes returns the size of a block of each cache group over all its layers, in bytes.
func (m *Model) BlockBytes() []int {
	sizes := make([]int, len(m.config.CacheGroups()))
	for _, s := range m.stages {
		for _, kv := range s.kv {
			sizes[kv.Layout.Group] += int(kv.Layout.BlockBytes())
		}
	}
	return sizes
}

// Config returns the hyperparameters of the model.
func (m *Model) Config() Config { return m.config }

// compute runs a step over b on all stages.
func (m *Model) compute(b *device.Batch) error {
	m.out = 0
	var before *stage
	for _, part := range m.stages {
		for _, s := range part.forBatch(b) {
			if before != nil && before.common != s.common {
				if err := m.handOver(before, s, len(b.Tokens)); err != nil {
					return err
				}
			}
			if err := m.runStage(s, b); err != nil {
				return err
			}
			before = s
		}
	}
	m.out = len(b.Out)
	return nil
}

// OwnPrompts reports whether steps of prompts are computed with other kernels than those of answers: see Options.Prompts.
func (m *Model) OwnPrompts() bool {
	return slices.ContainsFunc(m.stages, func(s *stage) bool { return s.ownPrompts })
}

// Profile measures the launches of kernels in a step over b. It fails if a device has none, and for a
// model that is divided among devices.
func (m *Model) Profile(b *device.Batch, rounds int) ([]device.LaunchTime, error) {
	if len(m.stages) > 1 {
		return nil, errors.New("the kernels of a model on several devices cannot be measured")
	}
	x, ok := m.stages[0].executable(b, m.options.MaxRows).(device.Profiler)
	if !ok {
		return nil, fmt.Errorf("the device %s has no kernels to measure; use a GPU", m.stages[0].dev.Info().Kind)
	}
	return x.Profile(b, rounds)
}

// handOver copies the first rows rows of the activations that the next stage needs: directly from
// device to device if possible, otherwise through the host.
func (m *Model) handOver(from, to *stage, rows int) error {
	for i, dst := range to.buffers.handedOver {
		if err := m.copyActivation(to.dev, dst, from.dev, from.buffers.handedOver[i], rows); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) copyActivation(to device.Device, dst device.Tensor, from device.Device, src device.Tensor, rows int) error {
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

// Candidates returns the candidates of row b.Out[i] of the last step. They are valid until the
// next step.
func (m *Model) Candidates(i int) (device.Candidates, error) {
	last, err := m.logits(i)
	if err == nil && m.config.Embeds() {
		err = errNoLogits
	}
	if err != nil {
		return device.Candidates{}, err
	}
	return last.dev.Candidates(last.buffers.Logits, i)
}

var errNoLogits = errors.New("the model computes embeddings, not logits")

// Logits copies the logits of row b.Out[i] of the last step to dst, which has one element for each
// token of the vocabulary.
func (m *Model) Logits(dst []float32, i int) error {
	last, err := m.logits(i)
	if err == nil && m.config.Embeds() {
		err = errNoLogits
	}
	if err != nil {
		return err
	}
	return last.dev.Read(dst, last.buffers.Logits, i)
}

// Vectors copies the vectors of rows b.Out[first] and following of the last step to dst, which has
// Config.VectorDim elements for each of them. The model must compute embeddings.
func (m *Model) Vectors(dst []float32, first int) error {
	last, err := m.logits(first)
	if err != nil {
		return err
	}
	if !m.config.Embeds() {
		return errors.New("the model computes logits, not embeddings")
	}
	return last.dev.Read(dst, last.buffers.Vectors, first)
}

// logits returns the last stage, which has the logits, if the last step computed row b.Out[i].
func (m *Model) logits(i int) (*stage, error) {
	if i < 0 || i >= m.out {
		return nil, fmt.Errorf("cannot read logits of output row %d, the last step has %d", i, m.out)
	}
	return m.stages[len(m.stages)-1], nil
}

// compile records and compiles a program for every row bucket, because a device may compile a
// program for a fixed number of rows. The largest is first, so that the workspace that programs
// share is allocated at its full size. Nothing is compiled later, so that no step can fail for lack
// of memory. read counts the bytes of weights that were read.
func (m *Model) compile(s *stage, read *int64) error {
	s.ownPrompts = m.options.Prompts && s.dev.Info().Prompts && !m.config.Embeds()
	for _, steps := range m.compiled(s) {
		p := m.program(s, steps)
		if err := s.buffers.err; err != nil {
			return err
		}
		p.Progress = func(done, total int) {
			m.options.Progress(Progress{Done: *read, Total: m.weightBytes, Kernels: done, KernelsTotal: total})
		}
		x, err := s.dev.Compile(p)
		if err != nil {
			return fmt.Errorf("failed to prepare the model for batches of %d: %w", steps.rows, err)
		}
		s.programs[steps] = x
	}
	return m.compilePictures(s)
}

// buckets returns the row counts of programs for batches of up to most rows: the powers of two
// below most, and most.
func buckets(most int) (list []int) {
	for rows := 1; rows < most; rows *= 2 {
		list = append(list, rows)
	}
	return append(list, most)
}

// leastPrompt is the fewest rows for which there are programs of prompts: fewer take as long.
const leastPrompt = 64

// compiled returns what the programs of a stage are for, the largest first. One with streamed weights has only the largest, because copying the weights takes
// longer than computing with them.
func (m *Model) compiled(s *stage) (list []steps) {
	for _, rows := range slices.Backward(buckets(m.options.MaxRows)) {
		if s.streams || s.whole != nil {
			return []steps{{rows, s.ownPrompts}}
		}
		if s.ownPrompts && (rows >= leastPrompt || rows == m.options.MaxRows) {
			list = append(list, steps{rows, true})
		}
		list = append(list, steps{rows, false})
	}
	return list
}

// executable returns the smallest program that runs b, a step without pictures.
func (s *stage) executable(b *device.Batch, most int) device.Executable {
	return s.smallest(s.programs, b, most)
}

// smallest returns the smallest of programs that runs b.
func (s *stage) smallest(programs map[steps]device.Executable, b *device.Batch, most int) device.Executable {
	prompt := b.Prompt && s.ownPrompts
	for _, rows := range buckets(most) {
		if x := programs[steps{rows, prompt}]; x != nil && len(b.Tokens) <= rows {
			return x
		}
	}
	return programs[steps{most, prompt}] // its Run refuses the batch
}
