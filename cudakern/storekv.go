package cudakern

import "fmt"

// StoreKV copies keys and values into a cache.
type StoreKV struct {
	store, rope *Function
	overlaps    bool
}

// NewStoreKV loads the kernel for caches of float16 (half) or float32.
func NewStoreKV(c *Context, half bool) (*StoreKV, error) {
	module := "storekv_" + element(half)
	store, err := c.kernel(module, module)
	if err != nil {
		return nil, err
	}
	rope, err := c.kernel(module, "storekv_rope_"+element(half))
	return &StoreKV{store, rope, half && c.properties.overlaps()}, err
}

// Enqueue stores every row of keys and values, (KVHeads, HeadDim) float32 each, in layer layer
// of the cache at the row's position. Float16 is rounded to nearest, ties to even.
func (k *StoreKV) Enqueue(to Queue, cache Cache, layer int, keys, values Ptr, step Step, capacity int) error {
	cols := cache.KVHeads * cache.HeadDim
	if err := checkLaunch("StoreKV", capacity, cols); err != nil {
		return err
	}
	return k.store.early(k.overlaps, capacity).Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		cache.Data, keys, values, int32(layer), int32(cache.Layers), int32(cache.KVHeads), int32(cache.HeadDim),
		step.Pos, step.Seq, step.Tables, int32(step.Stride), step.Rows)
}

// EnqueueRoPE rotates the queries, rows of cols float32, in place as RoPE.Enqueue does, and stores the
// rotated keys and the values as Enqueue does. keys is not modified. HeadDim must be even.
func (k *StoreKV) EnqueueRoPE(to Queue, cache Cache, layer int, queries Ptr, cols int, keys, values Ptr, dims int, neox bool, angleTable Ptr, magnitude float32, step Step, capacity int) error {
	all := cols + 2*cache.KVHeads*cache.HeadDim
	if err := checkLaunch("StoreKV", capacity, cols); err != nil {
		return err
	}
	if cache.HeadDim%2 != 0 {
		return fmt.Errorf("StoreKV cannot rotate heads of %d elements", cache.HeadDim)
	}
	distance, pairStride := pairing(dims, neox)
	return k.rope.early(k.overlaps, capacity).Launch(to, Dim3{X: blocksFor(all/2, threads), Y: capacity}, Dim3{X: threads}, 4*dims,
		cache.Data, queries, int32(cols/cache.HeadDim), keys, values, int32(layer), int32(cache.Layers), int32(cache.KVHeads), int32(cache.HeadDim),
		int32(dims/2), distance, pairStride, angleTable, magnitude, step.Pos, step.Seq, step.Tables, int32(step.Stride), step.Rows)
}
