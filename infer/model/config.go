package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Config is the shape of a model, read from the metadata of its file.
type Config struct {
	Architecture  string
	ContextLength int // positions it was trained on
	Dim           int // width of the residual stream
	HiddenDim     int // width of the feed-forward layer
	Layers        int
	Heads         int
	KVHeads       int
	HeadDim       int
	Vocab         int
	Eps           float32 // of RMSNorm
	Window        int     // positions attention sees; 0: all
	RoPE          device.RoPE
}

// architecture is what sets one architecture apart from the others. All else is in
// the file.
type architecture struct {
	neox bool // RoPE turns (i, i+n/2) instead of (2i, 2i+1)
}

var architectures = map[string]architecture{
	"llama": {},
	"qwen2": {neox: true},
}

// Architectures lists the supported values of general.architecture.
func Architectures() []string {
	var names []string
	for name := range architectures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Limits of what a file may claim, far above any real model, so that no product
// of two of them overflows.
const (
	maxLayers  = 1024
	maxDim     = 1 << 20
	maxHeads   = 4096
	maxContext = 1 << 26
)

// ReadConfig reads and checks the shape of the model in f. Its errors name the
// metadata key that is wrong.
func ReadConfig(f *gguf.File) (Config, error) {
	name, err := f.Str("general.architecture")
	if err != nil {
		return Config{}, err
	}
	arch, ok := architectures[name]
	if !ok {
		return Config{}, fmt.Errorf("architecture %q is not supported; supported are %s", name, strings.Join(Architectures(), " and "))
	}
	m := metadata{f: f, prefix: name}
	c := Config{
		Architecture:  name,
		ContextLength: m.integer("context_length", 1, maxContext),
		Dim:           m.integer("embedding_length", 1, maxDim),
		HiddenDim:     m.integer("feed_forward_length", 1, maxDim),
		Layers:        m.integer("block_count", 1, maxLayers),
		Heads:         m.integer("attention.head_count", 1, maxHeads),
		Eps:           float32(m.float("attention.layer_norm_rms_epsilon", 0, 1)),
		Window:        m.optionalInteger("attention.sliding_window", 0, maxContext, 0),
	}
	c.KVHeads = m.optionalInteger("attention.head_count_kv", 1, maxHeads, c.Heads)
	if m.err != nil {
		return Config{}, m.err
	}
	if c.Heads%c.KVHeads != 0 {
		return Config{}, fmt.Errorf("%s: %d query heads cannot share %d kv heads evenly", m.key("attention.head_count_kv"), c.Heads, c.KVHeads)
	}
	c.HeadDim = m.optionalInteger("attention.key_length", 1, maxDim, c.Dim/c.Heads)
	if v := m.optionalInteger("attention.value_length", 1, maxDim, c.HeadDim); m.err == nil && v != c.HeadDim {
		return Config{}, fmt.Errorf("%s: values of %d beside keys of %d are not supported", m.key("attention.value_length"), v, c.HeadDim)
	}
	c.RoPE = m.rope(c.HeadDim, arch.neox)
	m.refuse("expert_count", "mixtures of experts are not supported")
	if m.err == nil && c.HeadDim == 0 {
		m.err = fmt.Errorf("%s: %d heads do not fit a width of %d", m.key("attention.head_count"), c.Heads, c.Dim)
	}
	if m.err == nil {
		c.Vocab, m.err = vocabulary(f)
	}
	return c, m.err
}

// KVLayout is the KV cache that the model needs, of blocks blocks in format t.
func (c Config) KVLayout(t gguf.Type, blocks int) device.KVLayout {
	return device.KVLayout{Type: t, Blocks: blocks, Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim}
}

// WeightBytes is the size of all tensors in f.
func WeightBytes(f *gguf.File) (total int64) {
	for _, t := range f.Tensors() {
		total += t.Size()
	}
	return total
}

// Layout is how a device holds weights: a device.Device.
type Layout interface {
	WeightBytes(t gguf.Type, rows, cols int) (int64, error)
}

// FileLayout is the layout of a model file.
type FileLayout struct{}

// WeightBytes returns the size of a weight in the file.
func (FileLayout) WeightBytes(t gguf.Type, rows, cols int) (int64, error) {
	return int64(rows) * int64(t.RowBytes(cols)), nil
}

// DeviceBytes is what the tensors in f take of the memory of dev. It fails where dev has
// no kernel for one of them.
func DeviceBytes(f *gguf.File, dev Layout) (total int64, err error) {
	err = eachWeight(f, dev, func(_ string, bytes int64) { total += bytes })
	return total, err
}

// eachWeight calls take with the name of each tensor in f that a model reads, and with what
// it takes on dev.
func eachWeight(f *gguf.File, dev Layout, take func(name string, bytes int64)) error {
	for _, t := range f.Tensors() {
		if len(t.Shape) == 0 || ignored(t.Name) {
			continue
		}
		rows := 1
		for _, n := range t.Shape[1:] {
			rows *= n
		}
		bytes, err := dev.WeightBytes(t.Type, rows, t.Shape[0])
		if err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		take(t.Name, bytes)
	}
	return nil
}

// Parts is what the parts of a model take of a device's memory, in bytes.
type Parts struct {
	Embedding int64
	Output    int64 // the output layer and its norm, beside an embedding table on another device
	Layers    []int64
}

// PartBytes returns what the parts of the model in f take on dev. It fails as DeviceBytes
// does.
func PartBytes(f *gguf.File, c Config, dev Layout) (Parts, error) {
	p := Parts{Layers: make([]int64, c.Layers)}
	tied := true
	err := eachWeight(f, dev, func(name string, bytes int64) {
		layer, inLayer := -1, false
		if rest, ok := strings.CutPrefix(name, "blk."); ok {
			number, _, _ := strings.Cut(rest, ".")
			n, err := strconv.Atoi(number)
			layer, inLayer = n, err == nil && n >= 0 && n < c.Layers
		}
		switch {
		case inLayer:
			p.Layers[layer] += bytes
		case name == "token_embd.weight":
			p.Embedding += bytes
		default:
			tied = tied && name != "output.weight"
			p.Output += bytes
		}
	})
	if tied {
		p.Output += p.Embedding
	}
	return p, err
}

func vocabulary(f *gguf.File) (int, error) {
	t, err := f.Tensor("token_embd.weight")
	if err != nil {
		return 0, err
	}
	if len(t.Shape) != 2 {
		return 0, fmt.Errorf("tensor token_embd.weight has %d dimensions, want 2", len(t.Shape))
	}
	return t.Shape[1], nil
}

// metadata reads an architecture's keys. The first error sticks.
type metadata struct {
	f      *gguf.File
	prefix string
	err    error
}

func (m *metadata) key(name string) string { return m.prefix + "." + name }

func (m *metadata) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *metadata) integer(name string, low, high int) int {
	v, err := m.f.Uint(m.key(name))
	if err != nil {
		m.fail(err)
		return low
	}
	if v < uint64(low) || v > uint64(high) {
		m.fail(fmt.Errorf("%s is %d, want %d to %d", m.key(name), v, low, high))
		return low
	}
	return int(v)
}

func (m *metadata) optionalInteger(name string, low, high, missing int) int {
	if _, err := m.f.Uint(m.key(name)); errors.Is(err, gguf.ErrMissing) {
		return missing
	}
	return m.integer(name, low, high)
}

func (m *metadata) float(name string, low, high float64) float64 {
	v, err := m.f.Float(m.key(name))
	if err != nil {
		m.fail(err)
		return low
	}
	// A NaN fails the comparison.
	if !(v >= low && v <= high) {
		m.fail(fmt.Errorf("%s is %g, want %g to %g", m.key(name), v, low, high))
		return low
	}
	return v
}

func (m *metadata) optionalFloat(name string, low, high, missing float64) float64 {
	if _, err := m.f.Float(m.key(name)); errors.Is(err, gguf.ErrMissing) {
		return missing
	}
	return m.float(name, low, high)
}

// refuse fails if an integer key is there and not 0.
func (m *metadata) refuse(name, why string) {
	if v := m.optionalInteger(name, 0, math.MaxInt32, 0); v != 0 {
		m.fail(fmt.Errorf("%s is %d: %s", m.key(name), v, why))
	}
}

func (m *metadata) rope(headDim int, neox bool) device.RoPE {
	r := device.RoPE{
		HeadDim: headDim,
		Dims:    m.optionalInteger("rope.dimension_count", 2, max(2, headDim), headDim),
		Base:    m.optionalFloat("rope.freq_base", 1, 1e12, 10000),
		Scale:   1,
		NeoX:    neox,
	}
	if r.Dims%2 != 0 {
		m.fail(fmt.Errorf("%s is %d, want an even number", m.key("rope.dimension_count"), r.Dims))
	}
	kind, err := m.f.Str(m.key("rope.scaling.type"))
	if errors.Is(err, gguf.ErrMissing) {
		kind, err = "none", nil
	}
	switch {
	case err != nil:
		m.fail(err)
	case kind == "linear":
		r.Scale = 1 / m.float("rope.scaling.factor", 1e-3, 1e6)
	case kind != "none":
		m.fail(fmt.Errorf("%s is %q; supported are none and linear", m.key("rope.scaling.type"), kind))
	}
	return r
}
