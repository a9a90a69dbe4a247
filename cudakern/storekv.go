package cudakern

import "fmt"

// StoreKV copies keys and values into a cache.
type StoreKV struct {
	store, rope *Function // the same, unless the cache is of float16
	overlaps    bool
}

// NewStoreKV loads the kernel for caches of type t.
func NewStoreKV(c *Context, t CacheType) (*StoreKV, error) {
	module := "storekv_" + t.element()
	store, err := c.kernel(module, module)
	if err != nil || !t.half() {
		return &StoreKV{store, store, c.properties.overlaps()}, err
	}
	rope, err := c.kernel(module, "storekv_rope_f16")
	return &StoreKV{store, rope, c.properties.overlaps()}, err
}

// Enqueue stores every row of keys and values, (KVHeads, HeadDim) float32 each, in layer layer
// of the cache at the row's position, in the formats of the cache. Float16 is rounded to nearest, ties to even. values is 0 for a latent cache.
func (k *StoreKV) Enqueue(to Queue, cache Cache, layer int, keys, values Ptr, step Step, capacity int) error {
	if !cache.Type.half() {
		return k.enqueueAny(to, cache, layer, rotatedQueries{}, keys, values, step, capacity)
	}
	cols := cache.KVHeads * cache.HeadDim
	if err := checkLaunch("StoreKV", capacity, cols); err != nil {
		return err
	}
	return k.store.early(k.overlaps, capacity).Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		cache.Data, keys, values, int32(layer), int32(cache.Layers), int32(cache.KVHeads), int32(cache.HeadDim),
		step.Pos, step.Seq, step.Tables, int32(step.Stride), step.Rows)
}

// EnqueueRoPE rotates the queries, rows of cols float32, in place as RoPE.Enqueue does, and stores the
// rotated keys and the values of r as Enqueue does. r.Keys is not modified. HeadDim must be even.
func (k *StoreKV) EnqueueRoPE(to Queue, cache Cache, layer int, queries Ptr, cols int, r Rotation, step Step, capacity int) error {
	all := cols + 2*cache.KVHeads*cache.HeadDim
	if err := checkLaunch("StoreKV", capacity, cols); err != nil {
		return err
	}
	if cache.HeadDim%2 != 0 {
		return fmt.Errorf("StoreKV cannot rotate heads of %d elements", cache.HeadDim)
	}
	distance, pairStride := pairing(r.Dims, r.NeoX)
	if !cache.Type.half() {
		q := rotatedQueries{queries, cols, r.Dims / 2, distance, pairStride, r.AngleTable, r.Magnitude}
		return k.enqueueAny(to, cache, layer, q, r.Keys, r.Values, step, capacity)
	}
	return k.rope.early(k.overlaps, capacity).Launch(to, Dim3{X: blocksFor(all/2, threads), Y: capacity}, Dim3{X: threads}, 4*r.Dims,
		cache.Data, queries, int32(cols/cache.HeadDim), r.Keys, r.Values, int32(layer), int32(cache.Layers), int32(cache.KVHeads), int32(cache.HeadDim),
		int32(r.Dims/2), distance, pairStride, r.AngleTable, r.Magnitude, step.Pos, step.Seq, step.Tables, int32(step.Stride), step.Rows)
}

// rotatedQueries are queries that storekv_any.cu rotates, as well as keys; the zero value: none.
type rotatedQueries struct {
	queries              Ptr
	cols, pairs          int
	distance, pairStride int32
	angleTable           Ptr
	magnitude            float32
}

// enqueueAny launches storekv_any.cu.
func (k *StoreKV) enqueueAny(to Queue, cache Cache, layer int, q rotatedQueries, keys, values Ptr, step Step, capacity int) error {
	cols, parts := cache.KVHeads*cache.HeadDim, 2
	if cache.Latent > 0 {
		parts = 1
	}
	if err := checkLaunch("StoreKV", capacity, cols); err != nil {
		return err
	}
	for _, f := range []Format{cache.Type.Keys, cache.Type.Values}[:parts] {
		if f.Quantized() && cache.HeadDim%32 != 0 {
			return fmt.Errorf("StoreKV cannot quantize heads of %d elements, which are no multiple of 32", cache.HeadDim)
		}
	}
	whole := func(n int) int { return blocksFor(n, 32) * 32 } // warps
	queryThreads := whole(q.cols / 2)
	all := queryThreads + parts*whole(cols)
	arguments := append(cache.arguments(),
		q.queries, int32(queryThreads), int32(q.cols/cache.HeadDim), keys, values, int32(layer), int32(cache.Layers), int32(cache.KVHeads), int32(cache.HeadDim),
		int32(q.pairs), q.distance, max(q.pairStride, 1), q.angleTable, q.magnitude, step.Pos, step.Seq, step.Tables, int32(step.Stride), step.Rows)
	return k.store.early(k.overlaps, capacity).Launch(to, Dim3{X: blocksFor(all, threads), Y: capacity}, Dim3{X: threads}, 8*q.pairs, arguments...)
}
