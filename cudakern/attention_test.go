package cudakern_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/fixtures"
)

// attentionCase is a shape of attention, and how large queries and keys are.
type attentionCase struct {
	cache                    cudakern.CacheType
	heads, kvHeads, dim      int
	window                   int
	inputScale, tolerance    float64
	sequences, longest, rows int
	limit                    float32
	after                    int // positions behind its own that a row attends to
}

const allPositions = math.MaxInt32 / 2

// before returns how far before its own position a row attends.
func (c attentionCase) before() int {
	if c.window > 0 {
		return c.window - 1
	}
	return allPositions
}

func (c attentionCase) String() string {
	return fmt.Sprintf("cache %d, %d heads over %d of %d, window %d and %d, limit %g, inputs of size %g, %d sequences of up to %d",
		c.cache, c.heads, c.kvHeads, c.dim, c.window, c.after, c.limit, c.inputScale, c.sequences, c.longest)
}

var attentionCases = []attentionCase{
	{f32Cache, 1, 1, 16, 0, 1, 2e-6, 3, 70, 33, 0, 0},
	{f32Cache, 4, 2, 16, 0, 1, 2e-6, 3, 300, 33, 0, 0},
	{f32Cache, 6, 2, 64, 0, 1, 2e-6, 2, 260, 33, 0, 0},
	{f32Cache, 8, 1, 128, 0, 1, 2e-6, 2, 140, 17, 0, 0},
	{f32Cache, 3, 3, 7, 0, 1, 2e-6, 2, 140, 33, 0, 0},
	{f32Cache, 2, 1, 80, 0, 1, 2e-6, 2, 140, 33, 0, 0},
	{f32Cache, 2, 2, 256, 0, 1, 2e-6, 2, 140, 17, 0, 0},
	{f32Cache, 4, 2, 16, 1, 1, 2e-6, 2, 300, 33, 0, 0},
	{f32Cache, 4, 2, 16, 16, 1, 2e-6, 2, 300, 33, 0, 0},
	{f32Cache, 4, 2, 16, 150, 1, 2e-6, 2, 400, 33, 0, 0},
	{f32Cache, 4, 2, 16, 0, 30, 1e-4, 2, 300, 33, 0, 0}, // scores in the hundreds: one position has almost all the weight
	{f32Cache, 4, 2, 16, 16, 30, 1e-5, 2, 300, 33, 50, 0},
	{f16Cache, 4, 2, 16, 0, 1, 2e-6, 3, 300, 33, 0.5, 0},
	{f16Cache, 4, 2, 16, 0, 1, 2e-6, 3, 300, 33, 0, 0},
	{f16Cache, 6, 2, 64, 33, 1, 2e-6, 2, 260, 33, 0, 0},
	{f16Cache, 3, 1, 7, 0, 1, 2e-6, 2, 140, 33, 0, 0},
	{f16Cache, 5, 1, 96, 0, 1, 2e-6, 2, 140, 17, 0, 0},
	{f16Cache, 32, 8, 128, 0, 1, 2e-6, 1, 140, 8, 0, 0},
	{f16Cache, 20, 1, 32, 0, 1, 2e-6, 2, 140, 17, 0, 0}, // more heads in a group than a block computes
	{f16Cache, 8, 4, 256, 0, 1, 2e-6, 1, 140, 9, 0, 0},
	{f32Cache, 4, 2, 16, 0, 1, 2e-6, 3, 300, 33, 0, allPositions},
	{f16Cache, 6, 2, 64, 33, 1, 2e-6, 2, 260, 33, 0, 32},
	{f32Cache, 3, 3, 7, 130, 1, 2e-6, 2, 300, 33, 0, 129},
	{f16Cache, 2, 1, 8, 0, 1, 2e-6, 1, 17000, 3, 0, 0},  // more units than the merge combines in one iteration
	{f16Cache, 7, 1, 128, 0, 1, 2e-6, 1, 9000, 3, 0, 0}, // the same by heads, with more units than blocks, and 4 and 3 heads of a block
	{f16Cache, 2, 1, 64, 5000, 1, 2e-6, 1, 5300, 3, 0, 0},
	{q8Cache, 4, 2, 32, 0, 1, 2e-6, 3, 300, 33, 0.5, 0},
	{q4Cache, 5, 1, 96, 0, 1, 2e-6, 2, 140, 33, 0, 0},
	{q8q4Cache, 6, 2, 64, 33, 1, 2e-6, 2, 400, 33, 0, 0},
	{q4Cache, 9, 3, 64, 0, 1, 2e-6, 2, 700, 33, 0, 32},
	{q8Cache, 32, 8, 128, 0, 1, 2e-6, 2, 300, 17, 0, 0},
	{q4Cache, 3, 3, 128, 150, 1, 2e-6, 2, 400, 13, 50, 0},
	{cudakern.CacheType{Keys: cudakern.FormatQ4, Values: cudakern.FormatQ8}, 7, 1, 128, 0, 1, 2e-6, 1, 9000, 3, 0, 0}, // more units than blocks
	{cudakern.CacheType{Keys: cudakern.FormatF16, Values: cudakern.FormatQ8}, 4, 2, 128, 0, 1, 2e-6, 2, 140, 13, 0, 0},
	{cudakern.CacheType{Keys: cudakern.FormatQ8, Values: cudakern.FormatF16}, 4, 1, 64, 0, 1, 2e-6, 2, 140, 33, 0, 0},
	{q4Cache, 4, 2, 256, 0, 1, 2e-6, 1, 140, 9, 0, 0},
	{q8Cache, 2, 1, 288, 40, 1, 2e-6, 1, 140, 9, 0, 0},
	{q4Cache, 20, 1, 32, 0, 1, 2e-6, 2, 140, 17, 0, 0},
}

// Types of caches.
var (
	f32Cache  = cudakern.CacheOf(cudakern.FormatF32)
	f16Cache  = cudakern.CacheOf(cudakern.FormatF16)
	q8Cache   = cudakern.CacheOf(cudakern.FormatQ8)
	q4Cache   = cudakern.CacheOf(cudakern.FormatQ4)
	q8q4Cache = cudakern.CacheType{Keys: cudakern.FormatQ8, Values: cudakern.FormatQ4}
)

// attentionRig is a filled cache. Elements at which no position is stored are NaN.
type attentionRig struct {
	*testDevice
	c            attentionCase
	k            *cudakern.Attention
	cache        cudakern.Cache
	keys, values [][]float32 // per sequence: (positions, kv heads, dim), as the cache rounds them
	tables       cudakern.Ptr
	stride       int
	arrivals     cudakern.Ptr
}

const attentionLayer, attentionLayers = 1, 2

func newAttentionRig(t *testing.T, rng *rand.Rand, c attentionCase) *attentionRig {
	r := &attentionRig{testDevice: device(t), c: c, stride: (c.longest + 31) / 32}
	var err error
	r.k, err = cudakern.NewAttention(r.Context, c.cache, c.heads, c.kvHeads, c.dim, 0, c.limit > 0)
	r.Must(err)
	store, err := cudakern.NewStoreKV(r.Context, c.cache)
	r.Must(err)
	r.arrivals = r.Buffer(int(cudakern.AttentionArrivals(c.heads)))
	r.Must(r.Stream.Fill(r.arrivals, 0, cudakern.AttentionArrivals(c.heads)))

	blocks := c.sequences*r.stride + 2
	cols := c.kvHeads * c.dim
	bytes := blocks * attentionLayers * (rowBytes(c.cache.Keys, cols) + rowBytes(c.cache.Values, cols)) * 32
	r.cache = cudakern.Cache{Data: r.Buffer(bytes), Type: c.cache, Layers: attentionLayers, KVHeads: c.kvHeads, HeadDim: c.dim}
	r.Must(r.Stream.Fill(r.cache.Data, 0xff, int64(bytes)))
	var tables []int32
	for _, block := range rng.Perm(blocks)[:c.sequences*r.stride] {
		tables = append(tables, int32(block))
	}
	r.tables = r.Upload(tables)

	for s := range c.sequences {
		length := r.length(s)
		keys, values := normal(rng, length*cols, c.inputScale), normal(rng, length*cols, 1)
		pos, seq := make([]int32, length), make([]int32, length)
		for p := range length {
			pos[p], seq[p] = int32(p), int32(s)
		}
		step := cudakern.Step{Rows: r.Upload([]int32{int32(length)}), Pos: r.Upload(pos), Seq: r.Upload(seq), Tables: r.tables, Stride: r.stride, Blocks: r.stride}
		r.Must(store.Enqueue(r.Stream, r.cache, attentionLayer, r.uploadFloats(keys), r.uploadFloats(values), step, length))
		if c.cache.Keys.Quantized() {
			keys = rotated(keys)
		}
		r.keys, r.values = append(r.keys, cached(c.cache.Keys, keys)), append(r.values, cached(c.cache.Values, values))
	}
	return r
}

func (r *attentionRig) length(seq int) int { return r.c.longest - 5*seq }

func (r *attentionRig) scale() float32 { return float32(1 / math.Sqrt(float64(r.c.dim))) }

// params returns those of the case, for queries that are rotated.
func (r *attentionRig) params(dst, q cudakern.Ptr, step cudakern.Step, capacity int, workspace cudakern.Ptr) cudakern.AttentionParams {
	return cudakern.AttentionParams{
		Dst: dst, Q: q, Cache: r.cache, Layer: attentionLayer, Scale: r.scale(), Limit: r.c.limit, Before: r.c.before(), After: r.c.after,
		Step: step, Capacity: capacity, Workspace: workspace, Arrivals: r.arrivals,
	}
}

// run computes rows at pos of seq in a launch for capacity.
func (r *attentionRig) run(q []float32, pos, seq []int32, capacity int) []float32 {
	r.T.Helper()
	n := len(q)
	dst := r.uploadFloats(append(make([]float32, n), untouched))
	last := make([]int32, len(pos))
	for i := range last {
		last[i] = int32(r.length(int(seq[i])) - 1)
	}
	array := func(values []int32) cudakern.Ptr { // with places for capacity rows
		return r.Upload(append(slices.Clone(values), make([]int32, max(0, capacity-len(values)))...))
	}
	step := cudakern.Step{Rows: r.Upload([]int32{int32(len(pos))}), Pos: array(pos), Last: array(last), Seq: array(seq), Tables: r.tables, Stride: r.stride, Blocks: r.stride}
	workspace := cudakern.Ptr(0)
	if bytes := r.k.Workspace(capacity, r.stride); bytes > 0 {
		workspace = r.Buffer(int(bytes))
		r.Must(r.Stream.Fill(workspace, 0xff, bytes))
	}
	params := r.params(dst, r.uploadFloats(q), step, capacity, workspace)
	r.Must(r.k.Enqueue(r.Stream, params))
	out := r.downloadFloats(dst, n+1)
	if out[n] != untouched {
		r.T.Fatalf("attention of %d rows in a bucket of %d wrote after its last row", len(pos), capacity)
	}
	for name, enqueue := range map[string]enqueueAttention{"by heads": r.k.EnqueueByHeads, "apart": r.k.EnqueueApart} {
		r.Must(r.Stream.Fill(dst, 0xff, int64(4*n)))
		r.Must(enqueue(r.Stream, params))
		if got := r.downloadFloats(dst, n+1); !sameBits(got, out) {
			r.T.Fatalf("attention of %d rows in a bucket of %d %s has other bits, or wrote after its last row", len(pos), capacity, name)
		}
	}
	r.Must(r.Free(dst))
	r.Must(r.Free(workspace))
	return out[:n]
}

// want computes the attention of a row by its formula.
func (r *attentionRig) want(q []float32, pos, seq int) []float32 {
	c := r.c
	out := make([]float32, 0, len(q))
	if c.cache.Keys.Quantized() { // q·k is (H q)·(H k) / 32
		q = rotated(q)
		for i := range q {
			q[i] /= 32
		}
	}
	first, last := max(0, pos-c.before()), min(r.length(seq)-1, pos+c.after)
	for h := range c.heads {
		kvHead := h / (c.heads / c.kvHeads)
		at := func(x []float32, p, i int) float64 { return float64(x[(p*c.kvHeads+kvHead)*c.dim+i]) }
		weights := make([]float64, last+1)
		top := math.Inf(-1)
		for p := first; p <= last; p++ {
			for i := range c.dim {
				weights[p] += float64(q[h*c.dim+i]) * at(r.keys[seq], p, i)
			}
			weights[p] *= float64(r.scale())
			if limit := float64(c.limit); limit > 0 {
				weights[p] = limit * math.Tanh(weights[p]/limit)
			}
			top = max(top, weights[p])
		}
		sum := 0.0
		for p := first; p <= last; p++ {
			weights[p] = math.Exp(weights[p] - top)
			sum += weights[p]
		}
		for i := range c.dim {
			mean := 0.0
			for p := first; p <= last; p++ {
				mean += weights[p] * at(r.values[seq], p, i)
			}
			out = append(out, float32(mean/sum))
		}
	}
	return out
}

func TestAttentionIsASoftmaxOverThePositionsThatARowAttendsTo(t *testing.T) {
	for _, c := range attentionCases {
		t.Run(c.String(), func(t *testing.T) { testAttention(t, c) })
	}
}

// TestAttentionByMatrixUnits is the same with attention_mma.cu: groups of several sizes, windows, positions behind a row's own, and more units than blocks.
func TestAttentionByMatrixUnits(t *testing.T) {
	t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
	cases := []attentionCase{
		{f16Cache, 3, 1, 128, 150, 1, 2e-6, 2, 420, 13, 0, 40},
		{f16Cache, 4, 2, 128, 0, 1, 2e-6, 2, 300, 13, 0, 0},
		{f16Cache, 20, 2, 128, 0, 1, 2e-6, 1, 140, 13, 0, 0}, // two blocks of 5 heads
		{f16Cache, 1, 1, 128, 0, 1, 2e-6, 3, 260, 33, 0, 0},
		{f16Cache, 14, 2, 128, 33, 1, 2e-6, 2, 290, 9, 0, 0},
		{f16Cache, 8, 1, 128, 0, 30, 3e-5, 1, 300, 9, 0, 0}, // scores in the hundreds
		{f16Cache, 2, 1, 128, 0, 1, 2e-6, 1, 7000, 3, 0, 0},
	}
	for _, c := range cases[:fixtures.At(1, len(cases)-1, len(cases))] {
		t.Run(c.String(), func(t *testing.T) { testAttention(t, c) })
	}
}

// testAttention compares rows alone with their formula, and in company with each alone.
func testAttention(t *testing.T, c attentionCase) {
	rng := rand.New(rand.NewPCG(9, uint64(c.heads*c.dim+c.window)))
	r := newAttentionRig(t, rng, c)

	// Rows at consecutive positions, as in prefill, and single rows, as in decode.
	var pos, seq []int32
	for len(pos) < c.rows {
		s := rng.IntN(c.sequences)
		length := r.length(s)
		run := min(1+rng.IntN(12), c.rows-len(pos))
		from := rng.IntN(length - run + 1)
		if len(pos) == 0 {
			from = length - run
		}
		for i := range run {
			pos, seq = append(pos, int32(from+i)), append(seq, int32(s))
		}
	}
	width := c.heads * c.dim
	q := normal(rng, c.rows*width, c.inputScale)
	var alone []float32
	for row := range c.rows {
		own := q[row*width : (row+1)*width]
		got := r.run(own, pos[row:row+1], seq[row:row+1], 1)
		for i, w := range r.want(own, int(pos[row]), int(seq[row])) {
			if difference := math.Abs(float64(got[i]) - float64(w)); !(difference <= 3*c.tolerance) {
				t.Fatalf("position %d of sequence %d, head %d, element %d: got %g, want %g, off by %.2g",
					pos[row], seq[row], i/c.dim, i%c.dim, got[i], w, difference)
			}
		}
		alone = append(alone, got...)
	}
	for _, rows := range []int{2, 3, 8, 13, 33} {
		if rows > c.rows {
			break
		}
		for _, capacity := range append(buckets(rows), 128) { // at which consecutive rows share blocks
			if got := r.run(q[:rows*width], pos[:rows], seq[:rows], capacity); !sameBits(got, alone[:rows*width]) {
				t.Fatalf("%d rows in a bucket of %d give other bits than each alone", rows, capacity)
			}
		}
	}
}

func TestAttentionRefusesHeadsWithoutAKernel(t *testing.T) {
	e := device(t)
	for _, c := range []struct{ heads, kvHeads, dim int }{{1, 1, 0}, {1, 1, 33}, {1, 1, 66}, {1, 1, 130}, {1, 1, 264}, {3, 2, 64}, {0, 1, 64}, {1, 0, 64}} {
		if _, err := cudakern.NewAttention(e.Context, f16Cache, c.heads, c.kvHeads, c.dim, 0, false); err == nil {
			t.Errorf("%d heads over %d of %d elements were not refused", c.heads, c.kvHeads, c.dim)
		}
	}
	a, err := cudakern.NewAttention(e.Context, f16Cache, 4, 2, 64, 0, false)
	e.Must(err)
	x := e.uploadFloats(make([]float32, 4*64))
	cache := cudakern.Cache{Data: x, Type: f16Cache, Layers: 1, KVHeads: 2, HeadDim: 32}
	p := cudakern.AttentionParams{Dst: x, Q: x, Cache: cache, Scale: 1, Step: cudakern.Step{Stride: 1, Blocks: 1}, Capacity: 1, Workspace: x, Arrivals: x}
	if err := a.Enqueue(e.Stream, p); err == nil {
		t.Error("a cache of other heads was not refused")
	}
	p.Cache.Type, p.Cache.HeadDim = q8Cache, 64
	if err := a.Enqueue(e.Stream, p); err == nil {
		t.Error("a cache of another type was not refused")
	}
}

// TestAttentionStoresKeysAndQuantizesItsResult compares a launch that rotates and stores the row's key and value
// and quantises its result with separate launches.
func TestAttentionStoresKeysAndQuantizesItsResult(t *testing.T) {
	for _, c := range []struct {
		heads, kvHeads, dim int
		dims                int
		neox                bool
		kind                string
		windowed            bool
		matrix              bool // matrix units compute it
	}{
		{heads: 8, kvHeads: 2, dim: 128, dims: 128, kind: "i16"},
		{heads: 14, kvHeads: 2, dim: 64, dims: 32, neox: true, windowed: true}, // 4 and 3 heads of a group
		{heads: 4, kvHeads: 2, dim: 128, dims: 128, neox: true},
		{heads: 16, kvHeads: 16, dim: 64, dims: 64, neox: true, kind: "f32"},
		{heads: 32, kvHeads: 2, dim: 32, dims: 16, kind: "i16"}, // heads of a group share keys in two blocks
		{heads: 6, kvHeads: 3, dim: 40, dims: 24, neox: true, windowed: true},
		{heads: 16, kvHeads: 4, dim: 64, dims: 64, kind: "f32", windowed: true},
		{heads: 3, kvHeads: 3, dim: 16, dims: 16, neox: true},
		{heads: 8, kvHeads: 2, dim: 128, dims: 96, neox: true, kind: "i16", matrix: true},
		{heads: 2, kvHeads: 2, dim: 128, dims: 128, windowed: true, matrix: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			if c.matrix {
				t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
			}
			rng := rand.New(rand.NewPCG(3, uint64(c.heads*c.dim)))
			shape := attentionCase{f16Cache, c.heads, c.kvHeads, c.dim, 0, 1, 0, 1, 420, 1, 0, 0}
			if c.windowed {
				shape.window = 150
			}
			r := newAttentionRig(t, rng, shape)
			store, err := cudakern.NewStoreKV(r.Context, f16Cache)
			r.Must(err)
			frequencies := make([]float64, c.dims/2)
			for i := range frequencies {
				frequencies[i] = math.Pow(1e4, -2*float64(i)/float64(c.dims))
			}
			angles, err := cudakern.AngleTable(frequencies)
			r.Must(err)
			rotation := cudakern.Rotation{Dims: c.dims, NeoX: c.neox, AngleTable: r.uploadBytes(angles), Magnitude: 0.75}
			width := c.heads * c.dim
			for _, pos := range []int32{0, 31, 32, 127, 128, 300, 415} {
				q, keys, values := normal(rng, width, 1), normal(rng, c.kvHeads*c.dim, 1), normal(rng, c.kvHeads*c.dim, 1)
				rotation.Keys, rotation.Values = r.uploadFloats(keys), r.uploadFloats(values)
				step := cudakern.Step{Rows: r.Upload([]int32{1}), Pos: r.Upload([]int32{pos}), Last: r.Upload([]int32{pos}), Seq: r.Upload([]int32{0}), Tables: r.tables, Stride: r.stride, Blocks: r.stride}
				workspace := r.Buffer(int(r.k.Workspace(1, r.stride)))
				nan := r.uploadFloats(slices.Repeat([]float32{float32(math.NaN())}, c.kvHeads*c.dim))
				elements := r.cacheElements()
				run := func(enqueue enqueueAttention, rotated *cudakern.Rotation, kind string, dst cudakern.Ptr, q cudakern.Ptr) {
					p := r.params(dst, q, step, 1, workspace)
					p.Rotation, p.Kind = rotated, kind
					r.Must(enqueue(r.Stream, p))
				}
				rotatedQ, want := r.uploadFloats(q), r.uploadFloats(make([]float32, width))
				r.Must(store.EnqueueRoPE(r.Stream, r.cache, attentionLayer, rotatedQ, width, rotation, step, 1))
				run(r.k.Enqueue, nil, "", want, rotatedQ)
				wantFloats, wantCache := r.downloadFloats(want, width), r.downloadCache(r.cache, elements)
				for name, enqueue := range map[string]enqueueAttention{"of whole rows": r.k.Enqueue, "by heads": r.k.EnqueueByHeads} {
					got := r.uploadFloats(make([]float32, width))
					r.Must(store.Enqueue(r.Stream, r.cache, attentionLayer, nan, nan, step, 1)) // what a launch does not store
					run(enqueue, &rotation, "", got, r.uploadFloats(q))
					if !sameBits(r.downloadFloats(got, width), wantFloats) {
						t.Fatalf("position %d, %s: other bits than after a separate launch", pos, name)
					}
					if !sameBits(r.downloadCache(r.cache, elements), wantCache) {
						t.Fatalf("position %d, %s: another cache than after a separate launch", pos, name)
					}
					if c.kind == "" {
						continue
					}
					activation, err := cudakern.NewActivation(r.Context, c.kind)
					r.Must(err)
					size := int(activation.Bytes(width, 1))
					gotQuantized, wantQuantized := r.Buffer(size), r.Buffer(size)
					r.Must(r.Stream.Fill(gotQuantized, 0xff, int64(size)))
					run(enqueue, nil, c.kind, gotQuantized, rotatedQ)
					r.Must(activation.Enqueue(r.Stream, wantQuantized, want, width, step.Rows, 1))
					if !slices.Equal(r.Download(gotQuantized, size/4), r.Download(wantQuantized, size/4)) {
						t.Fatalf("position %d, %s: the result is not quantised as by a separate launch", pos, name)
					}
				}
			}
		})
	}
}

// enqueueAttention is Enqueue, EnqueueByHeads or EnqueueApart of an attention.
type enqueueAttention func(cudakern.Queue, cudakern.AttentionParams) error

// cacheElements returns the number of elements of the cache.
func (r *attentionRig) cacheElements() int {
	return (r.c.sequences*r.stride + 2) * attentionLayers * 2 * 32 * r.c.kvHeads * r.c.dim
}

// Results over a quantised cache are quantised as by a separate launch, by heads too.
func TestAttentionOverQuantizedCachesQuantizesItsResult(t *testing.T) {
	for _, kind := range []string{"i16", "f32"} {
		rng := rand.New(rand.NewPCG(4, 4))
		const heads, dim, pos = 8, 128, 290
		r := newAttentionRig(t, rng, attentionCase{q8q4Cache, heads, 2, dim, 0, 1, 0, 1, 300, 1, 0, 0})
		activation, err := cudakern.NewActivation(r.Context, kind)
		r.Must(err)
		q := normal(rng, heads*dim, 1)
		rows := r.Upload([]int32{1})
		size := int(activation.Bytes(heads*dim, 1))
		want := r.Buffer(size)
		r.Must(activation.Enqueue(r.Stream, want, r.uploadFloats(r.run(q, []int32{pos}, []int32{0}, 1)), heads*dim, rows, 1))
		step := cudakern.Step{Rows: rows, Pos: r.Upload([]int32{pos}), Last: r.Upload([]int32{pos}), Seq: r.Upload([]int32{0}), Tables: r.tables, Stride: r.stride, Blocks: r.stride}
		workspace := r.Buffer(int(r.k.Workspace(1, r.stride)))
		for name, enqueue := range map[string]enqueueAttention{"of whole rows": r.k.Enqueue, "by heads": r.k.EnqueueByHeads} {
			got := r.Buffer(size)
			p := r.params(got, r.uploadFloats(q), step, 1, workspace)
			p.Kind = kind
			r.Must(enqueue(r.Stream, p))
			if !slices.Equal(r.Download(got, size/4), r.Download(want, size/4)) {
				t.Errorf("%s: the result is not quantised to %s as by a separate launch", name, kind)
			}
		}
	}
}

// rowBytes returns the bytes of cols elements in a cache.
func rowBytes(f cudakern.Format, cols int) int {
	switch f {
	case cudakern.FormatF32:
		return 4 * cols
	case cudakern.FormatF16:
		return 2 * cols
	case cudakern.FormatQ8:
		return cols + cols/32*2
	}
	return cols/2 + cols/32*2
}

// rotated returns blocks of 32 elements of x multiplied by the Hadamard matrix, in the order of device.KVLayout.RotatesKeys.
func rotated(x []float32) []float32 {
	x = slices.Clone(x)
	for block := range slices.Chunk(x, 32) {
		for step := 1; step < 32; step *= 2 {
			for i := range block {
				if i&step == 0 {
					block[i], block[i+step] = block[i]+block[i+step], block[i]-block[i+step]
				}
			}
		}
	}
	return x
}

// cached returns the values that a cache has for x: the formulas of device.CacheType.
func cached(f cudakern.Format, x []float32) (all []float32) {
	if f == cudakern.FormatF32 {
		return x
	}
	if f == cudakern.FormatF16 {
		for _, v := range x {
			all = append(all, nearestHalf(v))
		}
		return all
	}
	for block := range slices.Chunk(x, 32) {
		var m float32 // the element with the largest magnitude, the negative one of two
		bad := false
		for _, v := range block {
			bad = bad || v-v != 0
			if size, most := math.Abs(float64(v)), math.Abs(float64(m)); size > most || size == most && v < 0 {
				m = v
			}
		}
		steps, least, most := float32(-8), float32(-8), float32(7)
		if f == cudakern.FormatQ8 {
			steps, least, most, m = 127, -127, 127, float32(math.Abs(float64(m)))
		}
		scale, factor := nearestHalf(m/steps), steps/m
		for _, v := range block {
			code := max(least, min(most, float32(math.RoundToEven(float64(v*factor)))))
			switch {
			case bad:
				all = append(all, float32(math.NaN()))
			case math.IsInf(float64(factor), 0): // also of zeros
				all = append(all, 0)
			default:
				all = append(all, code*scale)
			}
		}
	}
	return all
}
