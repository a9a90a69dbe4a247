package cudakern

import (
	"cmp"
	"fmt"
	"math"
)

// Attention is causal grouped-query attention over a paged cache.
type Attention struct {
	attend, prefill *Function
	merge           *Function

	heads, kvHeads, dim int
	latent              int // width of a value of a latent cache, or 0
	values              int // width of a value
	width               int // elements of a value per lane
	stride              int // floats between queries in shared memory
	queries             int // maximum query vectors of a block of attend
	perRow              int // query heads of a row that share a block
	sms                 int
}

const (
	unitPositions    = 128 // positions of a unit, the part of attention with one maximum: attention.cu
	attentionThreads = 128 // a thread for each position of a unit
	splitRows        = 16  // up to this many rows, the units of a row are divided among blocks
	shareRows        = 128 // from this many rows on, consecutive rows share a block
	prefillQueries   = 16  // query vectors of a shared block
	wideDim          = 128 // wider values leave registers for only 8 query vectors, more than twice as wide for 4
	maxDim           = 1024
)

// valueWidth returns the number of elements of a value that a lane computes.
func valueWidth(dim, latent int) int {
	width := 1
	for width < 16 && cmp.Or(latent, dim) > 32*width {
		width *= 2
		if latent > 0 {
			width *= 2 // there are kernels for every second width
		}
	}
	return width
}

// CheckAttention returns an error if there are no kernels for NewAttention with these arguments.
func CheckAttention(heads, kvHeads, dim, latent int) error {
	values, width := cmp.Or(latent, dim), valueWidth(dim, latent)
	switch {
	case values < 1 || values > dim || values > 32*width || values%width != 0 || dim%min(width, 8) != 0 || dim > maxDim:
		return fmt.Errorf("no attention kernel supports heads of %d elements with values of %d", dim, values)
	case kvHeads < 1 || heads < 1 || heads%kvHeads != 0:
		return fmt.Errorf("%d query heads cannot share %d heads of keys and values", heads, kvHeads)
	}
	return nil
}

// NewAttention loads the kernels for caches of float16 (half) or float32, with heads query heads,
// kvHeads key and value heads of dim elements. If latent is not 0, the cache is latent and has values
// of so many elements: the first of its keys. Up to 32, values may be
// any number; up to 64 it must be even; up to 128 a multiple of 4; up to 256 of 8; up to 512 of 16.
// More than 32 of a latent cache must be a multiple of 4, more than 128 of 16.
func NewAttention(c *Context, half bool, heads, kvHeads, dim, latent int) (*Attention, error) {
	if err := CheckAttention(heads, kvHeads, dim, latent); err != nil {
		return nil, err
	}
	values, width := cmp.Or(latent, dim), valueWidth(dim, latent)
	a := &Attention{heads: heads, kvHeads: kvHeads, dim: dim, latent: latent, values: values, width: width, stride: 32 * width, queries: 1, sms: c.Properties().SMs}
	a.perRow = min(heads/kvHeads, 8, a.prefillQueries())
	for a.queries < a.perRow {
		a.queries *= 2
	}
	module := "attention_" + element(half)
	if latent > 0 {
		module += "_latent"
		a.stride = (dim + 3) / 4 * 4
	}
	load := func(queries int) (*Function, error) {
		return c.kernel(module, fmt.Sprintf("%s_d%d_n%d", module, 32*width, queries))
	}
	var err error
	if a.attend, err = load(a.queries); err != nil {
		return nil, err
	}
	if a.prefill, err = load(a.prefillQueries()); err != nil {
		return nil, err
	}
	a.merge, err = c.kernel(module, module+"_merge")
	return a, err
}

func (a *Attention) prefillQueries() int {
	switch {
	case a.values > 2*wideDim:
		return 4
	case a.values > wideDim:
		return 8
	}
	return prefillQueries
}

// Workspace returns the bytes of device memory that Enqueue needs for up to capacity rows of
// sequences with up to blocks KV blocks.
func (a *Attention) Workspace(capacity, blocks int) int64 {
	return AttentionWorkspace(a.heads, a.values, capacity, blocks)
}

// AttentionWorkspace is Attention.Workspace for heads query heads and values of dim elements.
func AttentionWorkspace(heads, dim, capacity, blocks int) int64 {
	if capacity > splitRows {
		return 0
	}
	return int64(capacity) * int64(heads) * int64(units(blocks)) * int64(dim+2) * 4
}

// units returns the number of units in blocks KV blocks.
func units(blocks int) int { return blocksFor(blocks*blockPositions, unitPositions) }

// Enqueue computes dst = softmax(q·kᵀ·scale)·v over layer layer of the cache, for every row and head.
// A row attends to positions of its sequence that are at most before before its own and after after
// it, up to that in step.Last. limit is the soft cap of scores: s becomes limit · tanh(s / limit) unless limit
// is 0. sinks are attention sinks, heads float32, or 0. dst and q are rows of heads float32 vectors
// and must differ. workspace has Workspace(capacity, step.Blocks) bytes that nothing else uses
// meanwhile.
func (a *Attention) Enqueue(to Queue, dst, q Ptr, cache Cache, layer int, scale, limit float32, before, after int, sinks Ptr, step Step, capacity int, workspace Ptr) error {
	if err := checkLaunch("Attention", capacity, a.heads*a.dim); err != nil {
		return err
	}
	if cache.KVHeads != a.kvHeads || cache.HeadDim != a.dim || cache.Latent != a.latent {
		return fmt.Errorf("attention over %d heads of %d elements cannot read a cache of %d heads of %d", a.kvHeads, a.dim, cache.KVHeads, cache.HeadDim)
	}
	attend, queries, rows := a.attend, a.queries, 1
	if capacity >= shareRows {
		attend, queries = a.prefill, a.prefillQueries()
		rows = queries / a.perRow
	}
	groups := a.kvHeads * blocksFor(a.heads/a.kvHeads, a.perRow)
	grid := Dim3{X: 1, Y: groups, Z: blocksFor(capacity, rows)}
	split := capacity <= splitRows
	if split {
		// Enough blocks to fill the GPU, for any length of the sequences.
		grid.X = min(units(step.Blocks), max(1, 8*a.sms/(groups*capacity)))
	} else {
		workspace = 0
	}
	last, inner := scale, float32(0)
	if limit > 0 {
		last, inner = limit, scale/limit
	}
	last = float32(float64(last) * math.Log2E)
	shared := 4 * queries * (unitPositions + a.stride + 2*32*a.width + 2*4 + 8)
	err := attend.Launch(to, grid, Dim3{X: attentionThreads}, shared,
		dst, workspace, q, cache.Data, int32(layer), int32(cache.Layers), int32(a.heads), int32(a.kvHeads), int32(a.dim), int32(a.values), sinks,
		last, inner, int32(before), int32(after), int32(rows), int32(a.perRow), int32(units(step.Blocks)),
		step.Pos, step.Last, step.Seq, step.Tables, int32(step.Stride), step.Rows)
	if err != nil || !split {
		return err
	}
	return a.merge.Launch(to, Dim3{X: a.heads, Y: capacity}, Dim3{X: attentionThreads}, 4*3*attentionThreads,
		dst, workspace, sinks, int32(a.heads), int32(a.values), int32(before), int32(after), int32(units(step.Blocks)), step.Pos, step.Last, step.Rows)
}
