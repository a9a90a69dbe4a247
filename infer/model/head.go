package model

import (
	"errors"
	"fmt"
	"slices"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Files of some models have multi-token prediction blocks after the last layer. A Head is the first of them: from the state of the model
// after a token, and the token that follows, it guesses the one after that. It is an ordinary layer of the architecture with attention, between the
// projection of both and the output layer:
//
//	x = Weh · [norm(embedding of the token) | norm(state)]
//	state' = norm(layer(x)), logits = Woutput · state'
//
// The state is that after the output norm of the model, or state' of the head for the token before, so that it can guess several
// tokens. A head has a KV cache of its own, whose first position is that of any token: only distances count.

// HeadOptions size a head.
type HeadOptions struct {
	CacheType device.CacheType // of its KV cache
	Blocks    int              // of its KV cache; 0: the head is not loaded
	MaxRows   int              // of a step, at most those of the model
	MaxOut    int              // rows of a step with logits, at most those of the model
}

// Head is a loaded head. It is used by the goroutine that uses its model, between two steps of that.
type Head struct {
	m *Model
}

var headTensors = []tensor{
	{slot: tokenEmbd, name: "nextn.embed_tokens.weight", shape: shape{vocab, dim}, part: firstStage},
	{slot: tokenEmbd, name: "token_embd.weight", shape: shape{vocab, dim}, part: firstStage},
	{slot: headTokenNorm, name: "nextn.enorm.weight", shape: shape{dim}, part: firstStage},
	{slot: headStateNorm, name: "nextn.hnorm.weight", shape: shape{dim}, part: firstStage},
	{slot: headProj, name: "nextn.eh_proj.weight", shape: shape{dim, twiceDim}, part: firstStage},
	{slot: outputNorm, name: "nextn.shared_head_norm.weight", shape: shape{dim}, part: lastStage},
	{slot: outputNorm, name: "output_norm.weight", shape: shape{dim}, part: lastStage},
	{slot: output, name: "nextn.shared_head_head.weight", shape: shape{vocab, dim}, part: lastStage},
	{slot: output, name: "output.weight", shape: shape{vocab, dim}, part: lastStage},
	{slot: output, name: "token_embd.weight", shape: shape{vocab, dim}, part: lastStage},
	{slot: ropeFreqs, name: "rope_freqs.weight", shape: shape{ropePairs}, part: everyStage, optional: true},
}

func twiceDim(c *Config, _ *Layer) int { return 2 * c.Dim }

// ErrNoHead is the error of ReadHead for a file without a head, or with one that is not supported.
var ErrNoHead = errors.New("the file has no multi-token prediction block of a known form")

// ReadHead reads the hyperparameters of the head in f. Its error wraps ErrNoHead if there is none that can be used.
func ReadHead(f *gguf.File) (Config, error) {
	name, err := f.Str("general.architecture")
	if err != nil {
		return Config{}, err
	}
	if !architectures[nameOf(name)].heads {
		return Config{}, ErrNoHead
	}
	c, err := readConfig(&metadata{f: f, prefix: name, read: map[string]bool{}, withHeads: true})
	if err != nil {
		return Config{}, err
	}
	if c.MTPBlocks == 0 {
		return Config{}, ErrNoHead
	}
	c.firstBlock = len(c.Layers) - c.MTPBlocks
	c.Layers, c.MTPBlocks, c.isHead = c.Layers[c.firstBlock:c.firstBlock+1], 0, true
	if _, err := c.find(f); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrNoHead, err)
	}
	return c, nil
}

// headDeclared returns the tensors of a head of an architecture.
func headDeclared(all []tensor) []tensor {
	return slices.Concat(headTensors, slices.DeleteFunc(slices.Clone(all), func(t tensor) bool { return t.part != everyLayer }))
}

// HeadBytes returns how many bytes the head in f, whose configuration is c, takes on dev in addition to its model.
func HeadBytes(f *gguf.File, c Config, dev device.Device, o HeadOptions) (int64, error) {
	tensors, err := c.find(f)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, t := range tensors {
		if t.Name == "output.weight" || t.Name == "token_embd.weight" || t.Name == "output_norm.weight" {
			continue // the model has them
		}
		bytes, err := dev.WeightBytes(t.Type, t.rows, t.cols)
		if err != nil {
			return 0, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		total += bytes
	}
	options := Options{CacheType: o.CacheType, Blocks: o.Blocks, MaxRows: o.MaxRows, MaxOut: o.MaxOut}
	return total + c.ScratchBytes(o.MaxRows, o.MaxOut) + c.WorkBytes(dev, options) + c.KVLayout(o.CacheType, o.Blocks).Bytes(), nil
}

// loadHead loads the head of m, which follows its last stage on the same device.
func (m *Model) loadHead(l loader, o HeadOptions) error {
	c, err := ReadHead(l.f)
	if err != nil {
		return err
	}
	if l.tensors, err = c.find(l.f); err != nil {
		return err
	}
	last := m.stages[len(m.stages)-1]
	s := &stage{dev: last.dev, last: 1, embeds: true, outputs: true, alloc: last.alloc, programs: map[steps]device.Executable{}}
	s.common = &common{uploaded: last.uploaded}
	h := &Model{config: c, file: m.file, stages: []*stage{s}, options: Options{
		CacheType: o.CacheType, Blocks: o.Blocks, MaxRows: min(o.MaxRows, m.options.MaxRows), MaxOut: min(o.MaxOut, m.options.MaxOut), Context: m.options.Context,
	}.withDefaults()}
	reserved := len(l.reserved)
	if err := h.loadStage(&l, s); err != nil {
		return &DeviceError{s.dev, err}
	}
	m.reservedByHead = l.reserved[reserved:]
	m.head = &Head{h}
	return nil
}

// Head returns the head of m; nil: none was loaded.
func (m *Model) Head() *Head { return m.head }

// States copies the states after len(dst) / Dim rows of the last step, from row first on, to dst. The model must have a head.
func (m *Model) States(dst []float32, first int) error {
	last := m.stages[len(m.stages)-1]
	if last.buffers.States.None() {
		return errors.New("the model has no head that needs its states")
	}
	return last.dev.Read(dst, last.buffers.States, first)
}

// MaxRows returns the most rows of a step of h.
func (h *Head) MaxRows() int { return h.m.options.MaxRows }

// MaxOut returns the most rows of a step with logits.
func (h *Head) MaxOut() int { return h.m.options.MaxOut }

// Dim returns the width of a state.
func (h *Head) Dim() int { return h.m.config.Dim }

// Forward computes a step over b: row i reads token b.Tokens[i] and states[i·Dim …], the state after the token before it.
func (h *Head) Forward(b *device.Batch, states []float32) error {
	s := h.m.stages[0]
	if len(states) != len(b.Tokens)*h.Dim() {
		return fmt.Errorf("a step of %d rows needs states of %d values, got %d", len(b.Tokens), len(b.Tokens)*h.Dim(), len(states))
	}
	if len(b.Tokens) > h.MaxRows() {
		return fmt.Errorf("a step of the head has at most %d rows, got %d", h.MaxRows(), len(b.Tokens))
	}
	if err := s.dev.Write(s.buffers.States, 0, states); err != nil {
		return err
	}
	return h.m.compute(b)
}

// Candidates returns the candidates of row b.Out[i] of the last step. They are valid until the next one of the head or its model.
func (h *Head) Candidates(i int) (device.Candidates, error) { return h.m.Candidates(i) }

// State copies the state after row b.Out[i] of the last step to dst.
func (h *Head) State(dst []float32, i int) error {
	s, err := h.m.logits(i)
	if err != nil {
		return err
	}
	return s.dev.Read(dst, s.buffers.Vectors, i)
}

// join records the input of a head: the projection of the token's embedding and of the state before.
func (r *recording) join() {
	c, w, b := &r.m.config, &r.s.weights, &r.s.buffers
	b.States = r.buffer("states", c.Dim)
	state, both := r.buffer("normed state", c.Dim), r.buffer("token and state", 2*c.Dim)
	r.normInPlace(b.X, w[headTokenNorm], device.Tensor{})
	r.normTo(state, b.States, w[headStateNorm], device.Tensor{})
	r.Copy(both, b.X, device.Columns{Parts: 1, Width: c.Dim})
	r.Copy(both, state, device.Columns{Parts: 1, To: c.Dim, Width: c.Dim})
	r.MatMul(b.X, w[headProj], both)
}
