package cudakern

// StoreKV copies keys and values into a cache.
type StoreKV struct{ store *Function }

// NewStoreKV loads the kernel for caches of float16 (half) or float32.
func NewStoreKV(c *Context, half bool) (*StoreKV, error) {
	store, err := c.kernel("storekv_"+element(half), "storekv_"+element(half))
	return &StoreKV{store}, err
}

// Enqueue stores every row of k and v, (KVHeads, HeadDim) float32 each, in layer layer
// of the cache at the row's position. Float16 is rounded to nearest, ties to even.
func (k *StoreKV) Enqueue(s *Stream, cache Cache, layer int, keys, values Ptr, step Step, capacity int) error {
	cols := cache.KVHeads * cache.HeadDim
	if err := checkLaunch("StoreKV", capacity, cols); err != nil {
		return err
	}
	return k.store.Launch(s, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		cache.Data, keys, values, int32(layer), int32(cache.Layers), int32(cache.KVHeads), int32(cache.HeadDim),
		step.Pos, step.Seq, step.Tables, int32(step.Stride), step.Rows)
}
