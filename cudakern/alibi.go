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

// Enqueue computes Dst = softmax(Q·kᵀ·Scale - slope·distance)·v for every row and each of heads heads. maxBias determines the slopes: see
// device.Attention. Scores have no cap and no sinks, nothing is rotated or quantised, and Workspace and Arrivals are not needed.
func (k *ALiBi) Enqueue(to Queue, p AttentionParams, heads int, maxBias float32) error {
	cache, step := p.Cache, p.Step
	if err := checkLaunch("ALiBi", p.Capacity, heads*cache.HeadDim); err != nil {
		return err
	}
	if err := CheckALiBi(heads, cache.KVHeads, cache.HeadDim, cache.Latent); err != nil {
		return err
	}
	arguments := slices.Concat([]any{p.Dst, p.Q}, cache.arguments(), []any{
		int32(p.Layer), int32(cache.Layers), int32(heads), int32(cache.KVHeads), int32(cache.HeadDim),
		float32(float64(p.Scale) * math.Log2E), maxBias, int32(p.Before), int32(p.After), step.Pos, step.Last, step.Seq, step.Tables, int32(step.Stride), step.Rows,
	})
	return k.attend.Launch(to, Dim3{X: heads, Y: p.Capacity}, Dim3{X: alibiThreads}, 4*(cache.HeadDim+alibiThreads+2*alibiWarps), arguments...)
}
