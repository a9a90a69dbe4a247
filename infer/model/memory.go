package model

import (
	"fmt"
	"slices"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// WeightBytes is the size of all tensors in f.
func WeightBytes(f *gguf.File) (total int64) {
	for _, t := range f.Tensors() {
		total += t.Size()
	}
	return total
}

// StepBytes is what a step reads of the model in f for one row with positions positions
// before it: all weights but the embedding table and the experts that the row does not use,
// and the KV cache in format t.
func StepBytes(f *gguf.File, c Config, t gguf.Type, positions int) (n int64, err error) {
	tensors, err := c.find(f)
	if err != nil {
		return 0, err
	}
	for _, t := range tensors {
		switch l := c.Layers[t.layer]; t.slot {
		case tokenEmbd, tokenPerLayer:
		case ffnGateExperts, ffnUpExperts, ffnGateUpExperts, ffnDownExperts:
			n += t.Size() / int64(l.Routing.Experts) * int64(l.Routing.Used)
		default:
			n += t.Size()
		}
	}
	for i, l := range c.Layers {
		seen := int64(positions)
		if l.Window > 0 {
			seen = min(seen, int64(l.Window))
		}
		caches, _ := kvLayouts(t, 1, c.Layers[i:i+1])
		n += caches.BlockBytes() * seen / device.BlockSize
	}
	return n, nil
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

// Parts is what the parts of a model take of a device's memory, in bytes.
type Parts struct {
	Embedding int64
	Output    int64 // the output layer and its norm, beside an embedding table on another device
	Layers    []int64

	all int64 // on one device, which needs what is both embedding and output layer once
}

// PartBytes returns what the parts of the model in f take on dev. It fails where dev has
// no kernel for one of the tensors.
func PartBytes(f *gguf.File, c Config, dev Layout) (Parts, error) {
	p := Parts{Layers: make([]int64, len(c.Layers))}
	tensors, err := c.find(f)
	if err != nil {
		return p, err
	}
	counted := map[source]bool{}
	for _, t := range tensors {
		bytes, err := dev.WeightBytes(t.Type, t.rows, t.cols)
		if err != nil {
			return p, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		switch t.part {
		case everyLayer:
			p.Layers[t.layer] += bytes
		case firstStage:
			p.Embedding += bytes
		default:
			p.Output += bytes
		}
		if !counted[t.source()] {
			counted[t.source()] = true
			p.all += bytes
		}
	}
	return p, nil
}

// DeviceBytes is what the tensors in f take of the memory of dev. It fails as PartBytes
// does.
func DeviceBytes(f *gguf.File, dev Layout) (int64, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return 0, err
	}
	p, err := PartBytes(f, c, dev)
	return p.all, err
}

// KVLayouts are the KV caches of layers, one for each shape among them: with the same
// blocks, of which a block table counts in all.
type KVLayouts []device.KVLayout

// BlockBytes returns the size of one block over all layers.
func (l KVLayouts) BlockBytes() (total int64) {
	for _, layout := range l {
		total += layout.BlockBytes()
	}
	return total
}

// Bytes returns the size of all caches.
func (l KVLayouts) Bytes() (total int64) {
	for _, layout := range l {
		total += layout.Bytes()
	}
	return total
}

// KVLayout is the KV cache that the model needs, of blocks blocks in format t.
func (c Config) KVLayout(t gguf.Type, blocks int) KVLayouts {
	caches, _ := kvLayouts(t, blocks, c.Layers)
	return caches
}

// kvPlace is where the keys and values of a layer are: in which cache, and as which of its
// layers.
type kvPlace struct{ cache, layer int }

// kvLayouts returns the caches of layers and where in them each layer is.
func kvLayouts(t gguf.Type, blocks int, layers []Layer) (caches KVLayouts, places []kvPlace) {
	for n, l := range layers {
		if l.CacheBack > 0 && l.CacheBack <= n {
			places = append(places, places[n-l.CacheBack])
			continue
		}
		i := slices.IndexFunc(caches, func(c device.KVLayout) bool {
			return c.KVHeads == l.KVHeads && c.HeadDim == l.HeadDim && c.Latent == l.Latent
		})
		if i < 0 {
			i = len(caches)
			caches = append(caches, device.KVLayout{Type: t, Blocks: blocks, KVHeads: l.KVHeads, HeadDim: l.HeadDim, Latent: l.Latent})
		}
		places = append(places, kvPlace{i, caches[i].Layers})
		caches[i].Layers++
	}
	return caches, places
}

// Shared returns the first layer whose keys and values others read too: it and those behind it
// must be on one device. It is the number of layers if there is none.
func (c Config) Shared() int {
	first := len(c.Layers)
	for i, l := range c.Layers {
		if l.CacheBack > 0 {
			first = min(first, i-l.CacheBack)
		}
	}
	return first
}

// ScratchBytes is what the activations of a model take.
func (c Config) ScratchBytes(maxRows, maxOut int) int64 {
	var shapes shapes
	m, s := c.outline(&shapes, Options{CacheType: gguf.F16, Blocks: 1, MaxRows: maxRows, MaxOut: maxOut})
	m.program(s, maxRows)
	return shapes.allocated
}

// WorkBytes is what dev needs beside weights, activations and KV cache to run a model: of
// its programs, it records those that Load would, over tensors that are not there.
func (c Config) WorkBytes(dev device.Device, o Options) int64 {
	var shapes shapes
	m, s := c.outline(&shapes, o)
	var programs []*device.Program
	for _, rows := range buckets(o.MaxRows) {
		programs = append(programs, m.program(s, rows))
	}
	return dev.WorkBytes(programs...)
}

// outline returns a model that can be recorded, but not run: in one stage, over tensors
// that are not there.
func (c Config) outline(shapes *shapes, o Options) (*Model, *stage) {
	s := &stage{last: len(c.Layers), embeds: true, outputs: true, alloc: shapes.alloc, layers: make([]weights, len(c.Layers))}
	for _, w := range c.wanted() {
		*s.place(w) = shapes.tensor(w.rows, w.cols)
	}
	var caches KVLayouts
	caches, s.places = kvLayouts(o.CacheType, o.Blocks, c.Layers)
	for i, layout := range caches {
		s.kv = append(s.kv, device.KV{ID: int32(i + 1), Layout: layout})
	}
	return &Model{config: c, options: o.withDefaults()}, s
}

// shapes makes tensors that are not there.
type shapes struct {
	last      int32
	allocated int64
}

func (s *shapes) tensor(rows, cols int) device.Tensor {
	s.last++
	return device.Tensor{ID: s.last, Type: gguf.F32, Rows: rows, Cols: cols}
}

func (s *shapes) alloc(rows, cols int) (device.Tensor, error) {
	s.allocated += 4 * int64(rows) * int64(cols)
	return s.tensor(rows, cols), nil
}
