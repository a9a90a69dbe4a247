package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// WeightBytes returns the size of all tensors in f, in bytes.
func WeightBytes(f *gguf.File) (total int64) {
	for _, t := range f.Tensors() {
		total += t.Size()
	}
	return total
}

// Reads is what steps of a model read from memory, in bytes.
type Reads struct {
	weights int64 // all but the embedding table and experts
	experts int64 // those of one row
	layers  []layerReads
	state   int64 // recurrent state of a row's sequence, read and written
}

// layerReads is what a row reads of the KV cache in a layer.
type layerReads struct {
	block  int64 // bytes of a block
	window int   // positions; 0: all
}

// ReadsOf returns what steps of the model in f read, with a KV cache in format t.
func ReadsOf(f *gguf.File, c Config, t device.CacheType) (r Reads, err error) {
	tensors, err := c.find(f)
	if err != nil {
		return Reads{}, err
	}
	for _, t := range tensors {
		if t.part == onHost {
			continue
		}
		bytes := int64(t.rows) * int64(t.Type.RowBytes(t.cols)) // a tensor that the file lacks has no Size
		switch l := c.Layers[t.layer]; t.slot {
		case tokenEmbd, tokenPerLayer:
		case ffnGateExperts, ffnUpExperts, ffnGateUpExperts, ffnDownExperts:
			r.experts += bytes / int64(l.Routing.Experts) * int64(l.Routing.Used)
		default:
			r.weights += bytes
		}
	}
	r.state = 2 * c.StateLayout(1).Bytes()
	for i, l := range c.Layers {
		one := Config{Layers: c.Layers[i : i+1]}
		r.layers = append(r.layers, layerReads{one.KVLayout(t, 1).BlockBytes(), l.Window})
	}
	return r, nil
}

// Experts returns how many bytes of experts a row reads.
func (r Reads) Experts() int64 { return r.experts }

// Step returns how many bytes a step of so many rows reads, for sequences with so many positions each.
// known is false where that depends on which experts the rows have in common.
func (r Reads) Step(rows int, positions ...int) (bytes int64, known bool) {
	bytes = r.weights + r.experts
	for _, n := range positions {
		bytes += r.state
		for _, l := range r.layers {
			read := int64(n)
			if l.window > 0 {
				read = min(read, int64(l.window))
			}
			bytes += l.block * read / device.BlockSize
		}
	}
	return bytes, rows == 1 || r.experts == 0
}

// StepBytes returns how many bytes a step for one row reads: all weights of the model in f except
// the embedding table and the experts that the row does not use, and positions positions of a KV
// cache in format t.
func StepBytes(f *gguf.File, c Config, t device.CacheType, positions int) (int64, error) {
	r, err := ReadsOf(f, c, t)
	n, _ := r.Step(1, positions)
	return n, err
}

// Layout returns the size of weights in the layout of a device or a file. Every device.Device
// is one.
type Layout interface {
	WeightBytes(t gguf.Type, rows, cols int) (int64, error)
}

// FileLayout is the layout of a model file.
type FileLayout struct{}

// WeightBytes returns the size of a weight in the file, in bytes.
func (FileLayout) WeightBytes(t gguf.Type, rows, cols int) (int64, error) {
	return int64(rows) * int64(t.RowBytes(cols)), nil
}

// Parts are the sizes of the parts of a model in a device's memory, in bytes.
type Parts struct {
	Embedding int64
	Output    int64 // output layer and its norm, if the embedding table is on another device
	Layers    []int64
	Experts   []int64 // of Layers, the feed-forward layer with its experts, where that can be on another device; nil: nowhere
	Parted    []int64 // of Layers, the feed-forward layer, where that can be on another device for prompts
	Streams   bool    // the device can compute all of these with weights that stay in main memory: see Options.Stream

	all int64 // all on one device, where tied embedding and output weights are stored once
}

// PartBytes returns the sizes of the parts of the model in f on dev. It fails if dev has no kernel
// for the type of a tensor.
func PartBytes(f *gguf.File, c Config, dev Layout) (Parts, error) {
	p := Parts{Layers: make([]int64, len(c.Layers))}
	tensors, err := c.find(f)
	if err != nil {
		return p, err
	}
	counted, apart, parted := map[source]bool{}, c.expertLayers(tensors), c.partedLayers(tensors)
	if slices.Contains(apart, true) {
		p.Experts = make([]int64, len(c.Layers))
	}
	p.Parted = make([]int64, len(c.Layers))
	_, p.Streams = dev.(device.Streamer)
	converter, converts := dev.(device.Converter)
	for _, t := range tensors {
		if t.part == onHost {
			continue
		}
		bytes, err := dev.WeightBytes(t.Type, t.rows, t.cols)
		if err != nil {
			return p, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		switch t.part {
		case everyLayer:
			p.Layers[t.layer] += bytes
			if apart[t.layer] && t.slot.feedsForward() {
				p.Experts[t.layer] += bytes
			}
			if parted[t.layer] && t.slot.feedsForward() {
				p.Parted[t.layer] += bytes
				p.Streams = p.Streams && !(converts && converter.Converts(t.Type) != t.Type)
			}
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

// DeviceBytes returns how many bytes all tensors of the model in f take on dev. It fails as
// PartBytes does.
func DeviceBytes(f *gguf.File, dev Layout) (int64, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return 0, err
	}
	p, err := PartBytes(f, c, dev)
	return p.all, err
}

// KVLayouts are the KV caches of layers, one for each cache group and shape of keys and values.
type KVLayouts []device.KVLayout

// BlockBytes returns the size of one block over all layers, in bytes.
func (l KVLayouts) BlockBytes() (total int64) {
	for _, layout := range l {
		total += layout.BlockBytes()
	}
	return total
}

// Bytes returns the size of all caches, in bytes.
func (l KVLayouts) Bytes() (total int64) {
	for _, layout := range l {
		total += layout.Bytes()
	}
	return total
}

// CacheGroup is a set of layers whose keys and values are needed for as long: they have the same block
// tables.
type CacheGroup struct {
	Window int // positions that a row reads, its own included; 0: all
}

// Needs returns the first position that rows from position pos on read.
func (g CacheGroup) Needs(pos int) int {
	if g.Window == 0 {
		return 0
	}
	return max(0, pos-g.Window+1)
}

// Span returns the most blocks that a sequence needs at a time in steps of at most rows rows, in a group
// with a window.
func (g CacheGroup) Span(rows int) int {
	return (g.Window-1+device.BlockSize+rows+device.BlockSize-1)/device.BlockSize + 1
}

// CacheGroups returns the cache groups of the model, ordered by their first layers.
func (c Config) CacheGroups() (groups []CacheGroup) {
	for i, g := range c.layerGroups() {
		if c.Layers[i].Attends() && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	if groups == nil { // no layer has keys and values
		return []CacheGroup{{}}
	}
	return groups
}

// GroupOf returns the number of the cache group that layer is in; 0 for a layer without attention.
func (c Config) GroupOf(layer int) int {
	return max(0, slices.Index(c.CacheGroups(), c.layerGroups()[layer]))
}

// layerGroups returns the cache group of each layer. Layers with one window are in one group, unless
// there are more windows than groups may be: then all are in the one without a window.
func (c Config) layerGroups() []CacheGroup {
	groups := make([]CacheGroup, len(c.Layers))
	windows := map[int]bool{}
	for i, l := range c.Layers {
		if !l.Bidirectional { // else its window is on both sides of a row, and the whole text in one step
			groups[i] = CacheGroup{l.Window}
		}
		if l.Attends() {
			windows[groups[i].Window] = true
		}
	}
	if len(windows) > device.MaxGroups {
		clear(groups)
	}
	for i, l := range slices.Backward(c.Layers) { // a layer that reads the cache of another needs it as long
		if from := i - l.KVLayersBack; from >= 0 && from < i {
			groups[from] = groups[from].with(groups[i])
		}
	}
	for i, l := range c.Layers {
		if from := i - l.KVLayersBack; from >= 0 && from < i {
			groups[i] = groups[from]
		}
	}
	return groups
}

// with returns a group with all positions that g or other need.
func (g CacheGroup) with(other CacheGroup) CacheGroup {
	if g.Window == 0 || other.Window == 0 {
		return CacheGroup{}
	}
	return CacheGroup{max(g.Window, other.Window)}
}

// cacheType returns the format of the layer's KV cache where that of the model is t.
func (l Layer) cacheType(t device.CacheType) device.CacheType {
	switch {
	case l.F32Cache:
		return device.CacheOf(gguf.F32)
	case !t.Fits(l.HeadDim):
		for _, of := range []*gguf.Type{&t.Keys, &t.Values} {
			if !device.CacheOf(*of).Fits(l.HeadDim) {
				*of = gguf.F16
			}
		}
	}
	if l.Latent > 0 {
		t.Values = t.Keys
	}
	return t
}

// NotQuantized says which layers keep another format of the KV cache than t, which is quantised, and why, as a sentence without a full
// stop; empty: none.
func (c Config) NotQuantized(t device.CacheType) string {
	if t.Fits(1) {
		return ""
	}
	var odd, exact []int
	width := 0
	for i, l := range c.Layers {
		switch {
		case !l.Attends() || l.KVLayersBack > 0:
		case l.F32Cache:
			exact = append(exact, i)
		case !t.Fits(l.HeadDim):
			odd, width = append(odd, i), l.HeadDim
		}
	}
	var parts []string
	if odd != nil {
		parts = append(parts, fmt.Sprintf("the KV cache of %s stays f16: its heads have %d elements, and %s has blocks of 32", layerNames(odd), width, t))
	}
	if exact != nil {
		parts = append(parts, fmt.Sprintf("the KV cache of %s stays f32, because rounding it changes the answers most", layerNames(exact)))
	}
	return strings.Join(parts, "; ")
}

// layerNames names layers with ascending numbers: layer 3, or layers 0-5, 7.
func layerNames(numbers []int) string {
	var runs []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		run := strconv.Itoa(numbers[i])
		if end > i {
			run += "-" + strconv.Itoa(numbers[end])
		}
		runs, i = append(runs, run), end+1
	}
	if len(numbers) == 1 {
		return "layer " + runs[0]
	}
	return "layers " + strings.Join(runs, ", ")
}

// KVLayout returns the KV caches of the model, of blocks blocks in format t. Layers with F32Cache have one of F32, and those whose heads are
// not whole blocks of t one of F16.
func (c Config) KVLayout(t device.CacheType, blocks int) KVLayouts {
	caches, _ := c.kvLayouts(Options{CacheType: t, Blocks: blocks}, 0, len(c.Layers))
	return caches
}

// kvPlace locates the keys and values of a layer: index of the cache, and layer in that cache.
type kvPlace struct{ cache, layer int }

// kvLayouts returns the caches of layers from to to-1, and the place of each layer that has attention.
func (c Config) kvLayouts(o Options, from, to int) (caches KVLayouts, places []kvPlace) {
	groups, all := c.layerGroups(), c.CacheGroups()
	for n, l := range c.Layers[from:to] {
		if !l.Attends() {
			places = append(places, kvPlace{-1, -1})
			continue
		}
		if l.KVLayersBack > 0 && l.KVLayersBack <= n {
			places = append(places, places[n-l.KVLayersBack])
			continue
		}
		group, format := slices.Index(all, groups[from+n]), l.cacheType(o.CacheType)
		i := slices.IndexFunc(caches, func(c device.KVLayout) bool {
			return c.Type == format && c.Group == group && c.KVHeads == l.KVHeads && c.HeadDim == l.HeadDim && c.Latent == l.Latent
		})
		if i < 0 {
			i = len(caches)
			cache := device.KVLayout{Type: format, Group: group, Blocks: o.Blocks, KVHeads: l.KVHeads, HeadDim: l.HeadDim, Latent: l.Latent}
			if o.GroupBlocks != nil {
				cache.Table, cache.Blocks = o.Blocks, o.GroupBlocks[group]
			}
			caches = append(caches, cache)
		}
		places = append(places, kvPlace{i, caches[i].Layers})
		caches[i].Layers++
	}
	return caches, places
}

// Shared returns the first layer whose keys and values others read too: it and those after it
// must be on one device. It is the number of layers if there is none.
func (c Config) FirstSharedKV() int {
	first := len(c.Layers)
	for i, l := range c.Layers {
		if l.KVLayersBack > 0 {
			first = min(first, i-l.KVLayersBack)
		}
	}
	return first
}

// ScratchBytes returns the size of all activations of a model, in bytes, for steps of up to maxRows
// rows and the logits of up to maxOut.
func (c Config) ScratchBytes(maxRows, maxOut int) int64 {
	var shapes shapes
	m, s := c.outline(&shapes, Options{CacheType: device.CacheOf(gguf.F16), Blocks: 1, MaxRows: maxRows, MaxOut: maxOut})
	m.program(s, steps{rows: maxRows})
	vectors := int64(c.Deepstack) * int64(maxRows) * int64(c.Dim) * 4 // of pictures, after layers
	return shapes.allocated + vectors
}

// WorkBytes returns how many bytes dev needs to run a model in addition to weights, activations
// and KV cache. It records the programs that Load would compile, without allocating their tensors.
func (c Config) WorkBytes(dev device.Device, o Options) int64 {
	var shapes shapes
	m, s := c.outline(&shapes, o)
	var programs []*device.Program
	s.ownPrompts = o.Prompts && dev.Info().Prompts && !c.Embeds()
	for _, steps := range m.compiled(s) {
		programs = append(programs, m.program(s, steps))
	}
	return dev.WorkBytes(programs...)
}

// Check returns an error if dev cannot compute an operation of the model with a KV cache in format t; see device.Checker.
func (c Config) Check(dev device.Device, t device.CacheType) error {
	checker, ok := dev.(device.Checker)
	if !ok {
		return nil
	}
	var shapes shapes
	m, s := c.outline(&shapes, Options{CacheType: t, Blocks: 1, MaxRows: 1})
	return checker.Check(m.program(s, steps{rows: 1}))
}

// outline returns a model whose programs can be recorded but not run: one stage, with tensors
// that have no memory.
func (c Config) outline(shapes *shapes, o Options) (*Model, *stage) {
	o = o.withDefaults()
	s := &stage{last: len(c.Layers), embeds: true, outputs: true, alloc: shapes.alloc, layers: make([]weights, len(c.Layers)), common: newCommon()}
	for _, w := range c.wanted() {
		if to := s.place(w); to != nil {
			*to = shapes.tensor(w.rows, w.cols)
		}
	}
	var caches KVLayouts
	caches, s.places = c.kvLayouts(o, 0, len(c.Layers))
	for i, layout := range caches {
		s.kv = append(s.kv, device.KV{ID: int32(i + 1), Layout: layout})
	}
	s.state.ID = 1
	s.state.Layout, s.stateAt = c.stateLayout(o.States, 0, len(c.Layers))
	return &Model{config: c, options: o}, s
}

// shapes creates tensors without memory.
type shapes struct {
	last      int32 // tensor ID
	allocated int64 // bytes that alloc would have allocated
}

func (s *shapes) tensor(rows, cols int) device.Tensor {
	s.last++
	return device.Tensor{ID: s.last, Type: gguf.F32, Rows: rows, Cols: cols}
}

func (s *shapes) alloc(rows, cols int) (device.Tensor, error) {
	s.allocated += 4 * int64(rows) * int64(cols)
	return s.tensor(rows, cols), nil
}
