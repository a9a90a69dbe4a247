package cudakern

import (
	"fmt"
	"math"
)

// Attention is causal grouped-query attention over a paged cache.
type Attention struct {
	attend, prefill *Function
	merge           *Function

	heads, kvHeads, dim int
	values              int // width of a value, dim if the cache is not latent
	width               int // elements of a value that one lane holds
	queries             int // most query vectors of a block: that of attend
	perRow              int // query heads that share a block
	sms                 int
}

const (
	unitPositions    = 128 // positions that are attended to as one: attention.cu
	attentionThreads = 128 // one for each of them
	splitRows        = 16  // up to so many rows, units of a row are spread over blocks
	shareRows        = 128 // from so many rows on, neighbouring rows share a block
	prefillQueries   = 16  // query vectors of such a block
	wideDim          = 128 // above it a thread has registers for 8 query vectors only, above its double for 4
	mostDim          = 1024
)

// NewAttention loads the kernels for caches of float16 (half) or float32, heads query
// heads over kvHeads of dim elements, with values of so many: any up to 32, even up to 64, a
// multiple of 4 up to 128, of 8 up to 256 or of 16 up to 512. Fewer values than dim are the first
// elements of the keys of a latent cache.
func NewAttention(c *Context, half bool, heads, kvHeads, dim, values int) (*Attention, error) {
	width := 1 // elements of a value that one lane holds
	for width < 16 && values > 32*width {
		width *= 2
	}
	switch {
	case values < 1 || values > dim || values > 32*width || values%width != 0 || dim%min(width, 8) != 0 || dim > mostDim:
		return nil, fmt.Errorf("there is no attention kernel for heads of %d elements with values of %d", dim, values)
	case kvHeads < 1 || heads < 1 || heads%kvHeads != 0:
		return nil, fmt.Errorf("%d query heads cannot share %d heads of keys and values", heads, kvHeads)
	}
	a := &Attention{heads: heads, kvHeads: kvHeads, dim: dim, values: values, width: width, queries: 1, sms: c.Properties().SMs}
	a.perRow = min(heads/kvHeads, 8, a.prefillQueries())
	for a.queries < a.perRow {
		a.queries *= 2
	}
	module := "attention_" + element(half)
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

// Workspace returns the bytes of device memory that Enqueue needs for a row bucket where
// a sequence has up to blocks KV blocks.
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

// Enqueue computes dst = softmax(q·kᵀ·scale)·v over layer layer of the cache, for every
// row and head over the positions of the row's sequence that the row sees: its own and
// those before, the last window of them unless window is 0. Scaled scores s become
// limit · tanh(s / limit) unless limit is 0. sinks are 0 or heads float32, the scores of a
// position more whose value is zero. dst and q are rows of heads float32 vectors and differ. workspace is memory of Workspace(capacity,
// step.Blocks) bytes that nothing else uses meanwhile.
func (a *Attention) Enqueue(s *Stream, dst, q Ptr, cache Cache, layer int, scale, limit float32, window int, sinks Ptr, step Step, capacity int, workspace Ptr) error {
	if err := checkLaunch("Attention", capacity, a.heads*a.dim); err != nil {
		return err
	}
	if cache.KVHeads != a.kvHeads || cache.HeadDim != a.dim || cache.values() != a.values {
		return fmt.Errorf("Attention for %d heads of %d cannot read a cache of %d heads of %d", a.kvHeads, a.dim, cache.KVHeads, cache.HeadDim)
	}
	if window <= 0 {
		window = math.MaxInt32
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
		// Enough blocks to fill the device, whatever the length of the sequences.
		grid.X = min(units(step.Blocks), max(1, 8*a.sms/(groups*capacity)))
	} else {
		workspace = 0
	}
	last, inner := scale, float32(0)
	if limit > 0 {
		last, inner = limit, scale/limit
	}
	last = float32(float64(last) * math.Log2E)
	shared := 4 * queries * (unitPositions + (a.dim+3)/4*4 + 2*32*a.width + 2*4 + 8)
	err := attend.Launch(s, grid, Dim3{X: attentionThreads}, shared,
		dst, workspace, q, cache.Data, int32(layer), int32(cache.Layers), cache.parts(), int32(a.heads), int32(a.kvHeads), int32(a.dim), int32(a.values), sinks,
		last, inner, int32(window), int32(rows), int32(a.perRow), int32(units(step.Blocks)),
		step.Pos, step.Seq, step.Tables, int32(step.Stride), step.Rows)
	if err != nil || !split {
		return err
	}
	return a.merge.Launch(s, Dim3{X: a.heads, Y: capacity}, Dim3{X: attentionThreads}, 4*3*attentionThreads,
		dst, workspace, sinks, int32(a.heads), int32(a.values), int32(window), int32(units(step.Blocks)), step.Pos, step.Rows)
}
