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
	quantizedRows    = 4    // up to this many rows, the result may be written quantised
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

// Rotation has the keys and values that a launch stores, and by what it rotates the keys and the queries before: the arguments of
// RoPE.Enqueue.
type Rotation struct {
	Keys, Values Ptr // rows of float32; the keys are not rotated
	Dims         int // leading elements of a head that are rotated
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

// CanQuantize reports whether Enqueue can quantise its result, for capacity rows of heads
// values of dim elements.
func CanQuantize(heads, dim, capacity int) bool {
	return capacity <= quantizedRows && dim%blockInputs == 0 && heads*dim%(blockInputs*tileBlocks) == 0
}

// AttentionParams describes the attention of a step over one layer of a cache.
type AttentionParams struct {
	Dst, Q        Ptr // rows of one float32 vector for each query head; they must differ
	Cache         Cache
	Layer         int
	Scale         float32 // by which products of queries and keys are multiplied
	Limit         float32 // soft cap of scores: s becomes Limit · tanh(s / Limit); 0: none
	Before, After int     // a row attends to so many positions before and after its own, up to Step.Last
	Sinks         Ptr     // attention sinks, one float32 for each query head, or 0
	Step          Step
	Capacity      int       // maximum rows of Step
	Workspace     Ptr       // Workspace(Capacity, Step.Blocks) bytes that nothing else uses meanwhile
	Arrivals      Ptr       // AttentionArrivals bytes that are 0; the launch leaves them 0
	Rotation      *Rotation // not nil: Q is not rotated yet, the cache lacks the row's key and value, and After is 0
	Kind          string    // not "": Dst becomes the result quantised to it
}

// Enqueue computes Dst = softmax(Q·kᵀ·Scale)·v for every row and query head.
func (a *Attention) Enqueue(to Queue, p AttentionParams) error {
	return a.enqueue(to, p, p.Capacity >= shareRows)
}

// EnqueueApart computes the bits of Enqueue. It is faster for many rows of which most are of different sequences.
func (a *Attention) EnqueueApart(to Queue, p AttentionParams) error {
	if p.Capacity < shareRows {
		return a.EnqueueByHeads(to, p)
	}
	return a.enqueue(to, p, false)
}

// EnqueueByHeads computes the bits of Enqueue. It is faster for up to 4 rows of heads that share keys and values.
func (a *Attention) EnqueueByHeads(to Queue, p AttentionParams) error {
	if a.byHeads == nil || p.Capacity > a.headsRows {
		return a.Enqueue(to, p)
	}
	return a.launch(to, attentionLaunch{kernel: *a.byHeads, heads: a.headsPerBlock, rows: 1, threads: headsThreads, together: 2, shared: a.headsShared}, p)
}

// enqueue is Enqueue. shares: neighbouring rows of a sequence share a block.
func (a *Attention) enqueue(to Queue, p AttentionParams, shares bool) error {
	if a.matrix != nil {
		if p.Limit > 0 {
			return fmt.Errorf("attention without a soft cap cannot limit scores to %g", p.Limit)
		}
		return a.launch(to, a.matrix.launch(p.Capacity, shares, a.overlaps), p)
	}
	k := attentionLaunch{kernel: *a.attend, heads: a.perRow, rows: 1, threads: attentionThreads, together: 8}
	each, queries := 4*32*a.width, a.queries            // each: bytes of a result
	results := queries*each + max(a.keys, queries*each) // of the units so far, and of one, or its keys
	if shares {
		queries = a.prefillQueries()
		k.kernel, k.rows, results = *a.prefill, queries/a.perRow, 2*queries*each
		if a.products() {
			results = 2 * promptSlice // instead of results: those are in registers and Dst
		}
	}
	k.shared = 4*queries*(unitPositions+a.stride+2*4+8) + results
	if p.Rotation != nil {
		k.kernel.overlaps = a.overlaps // no other kernel stores keys and values of this step
		k.shared += each
	}
	return a.launch(to, k, p)
}

// attentionLaunch is a kernel of attention, and what a block of it computes.
type attentionLaunch struct {
	kernel          Function
	heads, rows     int // query heads of a row, rows
	threads, shared int
	together        int // about how many blocks run on a multiprocessor at the same time; each requests its next unit while it computes one
}

func (a *Attention) launch(to Queue, k attentionLaunch, p AttentionParams) error {
	if err := a.check(p); err != nil {
		return err
	}
	groups := a.kvHeads * blocksFor(a.heads/a.kvHeads, k.heads)
	grid := Dim3{X: 1, Y: groups, Z: blocksFor(p.Capacity, k.rows)}
	if p.Capacity <= splitRows {
		// Enough blocks to fill the GPU, for any length of the sequences.
		grid.X = min(units(p.Step.Blocks), max(1, k.together*a.sms/(groups*p.Capacity)))
	}
	last, inner := p.Scale, float32(0)
	if p.Limit > 0 {
		last, inner = p.Limit, p.Scale/p.Limit
	}
	last = float32(float64(last) * math.Log2E)
	var r Rotation
	distance, pairStride := int32(0), int32(0)
	if p.Rotation != nil {
		r = *p.Rotation
		distance, pairStride = pairing(r.Dims, r.NeoX)
	}
	dst, dstQuantized := p.Dst, Ptr(0)
	if p.Kind != "" {
		dst, dstQuantized = 0, p.Dst
	}
	arguments := slices.Concat([]any{dst, p.Workspace, p.Arrivals, p.Q}, p.Cache.arguments(), []any{
		int32(p.Layer), int32(p.Cache.Layers), int32(a.heads), int32(a.kvHeads), int32(a.dim), int32(a.values), p.Sinks,
		last, inner, int32(p.Before), int32(p.After), int32(k.rows), int32(k.heads), int32(units(p.Step.Blocks)),
		p.Step.Pos, p.Step.Last, p.Step.Seq, p.Step.Tables, int32(p.Step.Stride), p.Step.Rows,
		r.Keys, r.Values, int32(r.Dims / 2), distance, pairStride, r.AngleTable, r.Magnitude, dstQuantized, int32(slices.Index(attentionKinds, p.Kind)),
	})
	return k.kernel.Launch(to, grid, Dim3{X: k.threads}, k.shared, arguments...)
}

// attentionKinds are the kinds of AttentionParams by their code in a kernel: NO_IMAGE, … of attention.cu.
var attentionKinds = []string{"", kindI16, kindF32}

// check returns an error if a cannot compute p.
func (a *Attention) check(p AttentionParams) error {
	if err := checkLaunch("Attention", p.Capacity, a.heads*a.dim); err != nil {
		return err
	}
	switch c := p.Cache; {
	case c.Type != a.cache:
		return fmt.Errorf("attention over a cache of type %d cannot read one of type %d", a.cache, c.Type)
	case c.KVHeads != a.kvHeads || c.HeadDim != a.dim || c.Latent != a.latent:
		return fmt.Errorf("attention over %d heads of %d elements cannot read a cache of %d heads of %d", a.kvHeads, a.dim, c.KVHeads, c.HeadDim)
	case p.Rotation != nil && !CanStore(c.Type, a.heads, a.kvHeads, a.dim, a.latent, p.Capacity):
		return fmt.Errorf("attention cannot store keys and values of %d rows of heads of %d elements", p.Capacity, a.dim)
	case p.Kind != "" && (!slices.Contains(attentionKinds, p.Kind) || !CanQuantize(a.heads, a.values, p.Capacity)):
		return fmt.Errorf("attention of %d rows of %d heads cannot quantise their result to %q", p.Capacity, a.heads, p.Kind)
	}
	return nil
}
