package cudakern

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Attention is causal grouped-query attention over a paged cache.
type Attention struct {
	attend, prefill *Function
	overlaps        bool // launches that store the row's key and value overlap

	cache               CacheType
	heads, kvHeads, dim int
	latent              int // width of a value of a latent cache, or 0
	values              int // width of a value
	width               int // elements of a value per lane
	stride              int // floats between queries in shared memory
	queries             int // maximum query vectors of a block of attend
	keys                int // bytes of shared memory for the keys of a unit
	perRow              int // query heads of a row that share a block
	sms                 int

	// Of attention_heads.cu; byHeads is nil if it has no kernel for these heads.
	byHeads       *Function
	headsRows     int // up to this many rows, it computes attention
	headsPerBlock int // query heads that share a block
	headsShared   int // shared memory of a block in bytes

	matrix *matrixAttention // instead of all others, or nil
}

const (
	unitPositions    = 128  // positions of a unit, the part of attention with one maximum: attention.cu
	attentionThreads = 128  // a thread for each position of a unit
	splitRows        = 16   // up to this many rows, the units of a row are divided among blocks
	imageRows        = 4    // up to this many rows, the result may be written as an image
	shareRows        = 128  // from this many rows on, consecutive rows share a block
	promptQueries    = 32   // query vectors of a shared block, with keys and values of 33 to 128 elements: attention_prompt.cuh
	prefillQueries   = 16   // of one with other values
	wideDim          = 128  // wider values leave registers for only 8 query vectors, more than twice as wide for 4
	promptSlice      = 4096 // bytes of keys or values that come to shared memory together: SLICE
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

// NewAttention loads the kernels for caches of type t, with heads query heads,
// kvHeads key and value heads of dim elements. If latent is not 0, the cache is latent and has values
// of so many elements: the first of its keys. Up to 32, values may be
// any number; up to 64 it must be even; up to 128 a multiple of 4; up to 256 of 8; up to 512 of 16.
// More than 32 of a latent cache must be a multiple of 4, more than 128 of 16. capped: scores have a soft cap.
func NewAttention(c *Context, t CacheType, heads, kvHeads, dim, latent int, capped bool) (*Attention, error) {
	if err := CheckAttention(heads, kvHeads, dim, latent); err != nil {
		return nil, err
	}
	values, width := cmp.Or(latent, dim), valueWidth(dim, latent)
	a := &Attention{cache: t, heads: heads, kvHeads: kvHeads, dim: dim, latent: latent, values: values, width: width, stride: 32 * width, queries: 1, sms: c.Properties().SMs}
	a.overlaps = c.properties.overlaps()
	if hasMatrixAttention(c, t, dim, latent, capped) {
		var err error
		a.matrix, err = newMatrixAttention(c, heads/kvHeads, dim)
		return a, err
	}
	a.perRow = min(heads/kvHeads, 8, a.prefillQueries())
	for a.queries < a.perRow {
		a.queries *= 2
	}
	if !t.half() && a.perRow > 1 {
		a.perRow, a.queries = min(a.perRow, 4), 4 // there are no other kernels
	}
	module := "attention_" + t.element()
	if latent > 0 {
		module += "_latent"
		a.stride = (dim + 3) / 4 * 4
	}
	module += fmt.Sprint("_d", 32*width)
	pieces := 16 // Keys of attention_row.cuh
	if a.queries*width > 32 {
		pieces = 8
	} else if latent == 0 {
		pieces = min(pieces, 32*width*t.elementBytes()/16)
	}
	a.keys = unitPositions * 16 * (pieces + 1)
	var err error
	if a.attend, err = c.kernel(module, fmt.Sprintf("%s_n%d", module, a.queries)); err != nil {
		return nil, err
	}
	if err = a.loadHeads(c, t); err != nil {
		return nil, err
	}
	a.prefill, err = c.kernel(module, module+"_rows")
	return a, err
}

// products reports whether rows of a prompt are computed by products of matrices: attention_prompt.cuh.
func (a *Attention) products() bool { return a.latent == 0 && 1 < a.width && 32*a.width <= wideDim }

func (a *Attention) prefillQueries() int {
	switch {
	case a.products():
		return promptQueries
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

// AttentionArrivals returns the bytes of device memory in which Enqueue counts blocks, for heads query heads.
func AttentionArrivals(heads int) int64 { return 4 * splitRows * int64(heads) }

// units returns the number of units in blocks KV blocks.
func units(blocks int) int { return blocksFor(blocks*blockPositions, unitPositions) }

// Rotation has the keys and values of a row that Enqueue rotates and stores itself, as StoreKV.EnqueueRoPE
// does, and the arguments of RoPE.Enqueue, by which the queries are rotated too.
type Rotation struct {
	Keys, Values Ptr
	Dims         int
	NeoX         bool
	AngleTable   Ptr
	Magnitude    float32
}

// CanStore reports whether Enqueue can store the keys and values of capacity rows. Those of several rows
// may be of one sequence, and read by each other.
func CanStore(t CacheType, heads, kvHeads, dim, latent, capacity int) bool {
	wide := min(heads/kvHeads, 8)*dim > 1024 || dim > 128
	return t.half() && capacity == 1 && latent == 0 && dim%8 == 0 && !wide
}

// CanWriteImage reports whether Enqueue can write its result as an image, for capacity rows of heads
// values of dim elements.
func CanWriteImage(heads, dim, capacity int) bool {
	return capacity <= imageRows && dim%blockInputs == 0 && heads*dim%(blockInputs*tileBlocks) == 0
}

// Enqueue computes dst = softmax(q·kᵀ·scale)·v over layer layer of the cache, for every row and head.
// A row attends to positions of its sequence that are at most before before its own and after after
// it, up to that in step.Last. limit is the soft cap of scores: s becomes limit · tanh(s / limit) unless limit
// is 0. sinks are attention sinks, heads float32, or 0. dst and q are rows of heads float32 vectors
// and must differ. workspace has Workspace(capacity, step.Blocks) bytes that nothing else uses
// meanwhile; arrivals has AttentionArrivals(heads) bytes that are 0, and are 0 again afterwards. If rotation
// is not nil, q is not rotated yet, and the cache does not have the row's key and value: it attends to none behind its own. If image is
// not "", dst becomes an image of this kind instead.
func (a *Attention) Enqueue(to Queue, dst, q Ptr, cache Cache, layer int, scale, limit float32, before, after int, sinks Ptr, step Step, capacity int, workspace, arrivals Ptr, rotation *Rotation, image string) error {
	if a.matrix != nil {
		if limit > 0 {
			return fmt.Errorf("attention without a soft cap cannot limit scores to %g", limit)
		}
		return a.launch(to, a.matrix.launch(capacity, a.overlaps), dst, q, cache, layer, scale, limit, before, after, sinks, step, capacity, workspace, arrivals, rotation, image)
	}
	k := attentionLaunch{kernel: *a.attend, heads: a.perRow, rows: 1, threads: attentionThreads, together: 8}
	each, queries := 4*32*a.width, a.queries            // each: bytes of a result
	results := queries*each + max(a.keys, queries*each) // of the units so far, and of one, or its keys
	if capacity >= shareRows {
		queries = a.prefillQueries()
		k.kernel, k.rows, results = *a.prefill, queries/a.perRow, 2*queries*each
		if a.products() {
			results = 2 * promptSlice // instead of results: those are in registers and dst
		}
	}
	k.shared = 4*queries*(unitPositions+a.stride+2*4+8) + results
	if rotation != nil {
		k.kernel.overlaps = a.overlaps // no other kernel stores keys and values of this step
		k.shared += each
	}
	return a.launch(to, k, dst, q, cache, layer, scale, limit, before, after, sinks, step, capacity, workspace, arrivals, rotation, image)
}

// EnqueueByHeads computes what Enqueue does, with the same bits. Up to 4 rows of heads that share keys and values take less time.
func (a *Attention) EnqueueByHeads(to Queue, dst, q Ptr, cache Cache, layer int, scale, limit float32, before, after int, sinks Ptr, step Step, capacity int, workspace, arrivals Ptr, rotation *Rotation, image string) error {
	if a.byHeads == nil || capacity > a.headsRows {
		return a.Enqueue(to, dst, q, cache, layer, scale, limit, before, after, sinks, step, capacity, workspace, arrivals, rotation, image)
	}
	k := attentionLaunch{kernel: *a.byHeads, heads: a.headsPerBlock, rows: 1, threads: headsThreads, together: 2, shared: a.headsShared}
	return a.launch(to, k, dst, q, cache, layer, scale, limit, before, after, sinks, step, capacity, workspace, arrivals, rotation, image)
}

// attentionLaunch is a kernel of attention, and what a block of it computes.
type attentionLaunch struct {
	kernel          Function
	heads, rows     int // query heads of a row, rows
	threads, shared int
	together        int // about how many blocks run on a multiprocessor at the same time; each requests its next unit while it computes one
}

func (a *Attention) launch(to Queue, k attentionLaunch, dst, q Ptr, cache Cache, layer int, scale, limit float32, before, after int, sinks Ptr, step Step, capacity int, workspace, arrivals Ptr, rotation *Rotation, image string) error {
	if err := checkLaunch("Attention", capacity, a.heads*a.dim); err != nil {
		return err
	}
	if cache.Type != a.cache {
		return fmt.Errorf("attention over a cache of type %d cannot read one of type %d", a.cache, cache.Type)
	}
	if cache.KVHeads != a.kvHeads || cache.HeadDim != a.dim || cache.Latent != a.latent {
		return fmt.Errorf("attention over %d heads of %d elements cannot read a cache of %d heads of %d", a.kvHeads, a.dim, cache.KVHeads, cache.HeadDim)
	}
	groups := a.kvHeads * blocksFor(a.heads/a.kvHeads, k.heads)
	grid := Dim3{X: 1, Y: groups, Z: blocksFor(capacity, k.rows)}
	if capacity <= splitRows {
		// Enough blocks to fill the GPU, for any length of the sequences.
		grid.X = min(units(step.Blocks), max(1, k.together*a.sms/(groups*capacity)))
	}
	last, inner := scale, float32(0)
	if limit > 0 {
		last, inner = limit, scale/limit
	}
	last = float32(float64(last) * math.Log2E)
	var r Rotation
	distance, pairStride := int32(0), int32(0)
	if rotation != nil {
		if r = *rotation; !CanStore(cache.Type, a.heads, a.kvHeads, a.dim, a.latent, capacity) {
			return fmt.Errorf("attention cannot store keys and values of %d rows of heads of %d elements", capacity, a.dim)
		}
		distance, pairStride = pairing(r.Dims, r.NeoX)
	}
	dstImage, kind := Ptr(0), int32(slices.Index([]string{"", imageI16, imageF32}, image)) // NO_IMAGE, … of attention.cu
	if kind != 0 {
		if kind < 0 || !CanWriteImage(a.heads, a.values, capacity) {
			return fmt.Errorf("attention of %d rows of %d heads cannot write an image %q", capacity, a.heads, image)
		}
		dst, dstImage = 0, dst
	}
	arguments := slices.Concat([]any{dst, workspace, arrivals, q}, cache.arguments(), []any{
		int32(layer), int32(cache.Layers), int32(a.heads), int32(a.kvHeads), int32(a.dim), int32(a.values), sinks,
		last, inner, int32(before), int32(after), int32(k.rows), int32(k.heads), int32(units(step.Blocks)),
		step.Pos, step.Last, step.Seq, step.Tables, int32(step.Stride), step.Rows,
		r.Keys, r.Values, int32(r.Dims / 2), distance, pairStride, r.AngleTable, r.Magnitude, dstImage, kind,
	})
	return k.kernel.Launch(to, grid, Dim3{X: k.threads}, k.shared, arguments...)
}
