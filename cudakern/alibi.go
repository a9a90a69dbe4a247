package cudakern

import (
	"fmt"
	"math"
	"slices"
)

// ALiBi computes attention with linear biases.
type ALiBi struct{ attend *Function }

const (
	alibiThreads = 128
	alibiWarps   = alibiThreads / 32
	maxALiBiDim  = 4 * alibiThreads
)

// NewALiBi loads the kernel for caches of type t.
func NewALiBi(c *Context, t CacheType) (*ALiBi, error) {
	name := "alibi_" + t.element()
	attend, err := c.kernel(name, name)
	return &ALiBi{attend}, err
}

// CheckALiBi returns an error if Enqueue cannot compute heads of dim elements over kvHeads heads of keys and values.
func CheckALiBi(heads, kvHeads, dim, latent int) error {
	switch {
	case latent > 0:
		return fmt.Errorf("attention with linear biases cannot read a latent cache")
	case dim > maxALiBiDim:
		return fmt.Errorf("attention with linear biases has heads of %d elements, the limit is %d", dim, maxALiBiDim)
	case kvHeads < 1 || heads%kvHeads != 0:
		return fmt.Errorf("%d heads cannot share %d heads of keys and values", heads, kvHeads)
	}
	return nil
}

// Enqueue computes dst = softmax(q·kᵀ·scale - slope·distance)·v over layer layer of the cache, for every row and each of heads heads.
// A row attends to the positions that Attention.Enqueue names. maxBias determines the slopes: see device.Attention. dst and q are rows of
// heads float32 vectors and must differ.
func (k *ALiBi) Enqueue(to Queue, dst, q Ptr, cache Cache, layer, heads int, scale, maxBias float32, before, after int, step Step, capacity int) error {
	if err := checkLaunch("ALiBi", capacity, heads*cache.HeadDim); err != nil {
		return err
	}
	if err := CheckALiBi(heads, cache.KVHeads, cache.HeadDim, cache.Latent); err != nil {
		return err
	}
	arguments := slices.Concat([]any{dst, q}, cache.arguments(), []any{
		int32(layer), int32(cache.Layers), int32(heads), int32(cache.KVHeads), int32(cache.HeadDim),
		float32(float64(scale) * math.Log2E), maxBias, int32(before), int32(after), step.Pos, step.Last, step.Seq, step.Tables, int32(step.Stride), step.Rows,
	})
	return k.attend.Launch(to, Dim3{X: heads, Y: capacity}, Dim3{X: alibiThreads}, 4*(cache.HeadDim+alibiThreads+2*alibiWarps), arguments...)
}
