package cudakern

import "fmt"

// Norm is RMSNorm and LayerNorm, over each row or each head of a row.
type Norm struct{ rms, both, layer *Function }

// NewNorm loads the kernels.
func NewNorm(c *Context) (*Norm, error) {
	rms, err := c.kernel("rmsnorm", "rmsnorm")
	if err != nil {
		return nil, err
	}
	both, err := c.kernel("rmsnorm_both", "rmsnorm_both")
	if err != nil {
		return nil, err
	}
	layer, err := c.kernel("rmsnorm", "layernorm")
	return &Norm{rms, both, layer}, err
}

// Parts divides a row into Heads heads of Cols float32, which are normed separately. Weights is the
// number of rows of weights: Heads, or 1 for all heads.
type Parts struct{ Heads, Cols, Weights int }

// Enqueue computes dst = x / sqrt(mean(x²) + eps) · w. dst may be x. All addresses must be multiples
// of 16.
func (k *Norm) Enqueue(to Queue, dst, x, w Ptr, p Parts, eps float32, rows Ptr, capacity int) error {
	if err := checkLaunch("RMSNorm", capacity, p.Heads*p.Cols); err != nil {
		return err
	}
	return k.rms.Launch(to, Dim3{X: p.Heads, Y: capacity}, Dim3{X: threads}, normBytes,
		dst, x, w, int32(p.Weights), int32(p.Cols), eps, rows)
}

// InPlace are rows X that EnqueueBoth norms in place, with the weights W.
type InPlace struct {
	X, W  Ptr
	Parts Parts
}

// EnqueueBoth computes what Enqueue does for a and b in place, which have parts of as many elements. The bits are those of separate launches.
func (k *Norm) EnqueueBoth(to Queue, a, b InPlace, eps float32, rows Ptr, capacity int) error {
	if a.Parts.Cols != b.Parts.Cols {
		return fmt.Errorf("cannot norm parts of %d and of %d elements together", a.Parts.Cols, b.Parts.Cols)
	}
	if err := checkLaunch("RMSNorm", capacity, (a.Parts.Heads+b.Parts.Heads)*a.Parts.Cols); err != nil {
		return err
	}
	return k.both.Launch(to, Dim3{X: a.Parts.Heads + b.Parts.Heads, Y: capacity}, Dim3{X: threads}, normBytes,
		a.X, a.W, int32(a.Parts.Weights), int32(a.Parts.Heads), b.X, b.W, int32(b.Parts.Weights), int32(a.Parts.Cols), eps, rows)
}

// EnqueueLayer computes dst = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias. bias has as many
// values as a row, or is 0: none. dst may be x.
func (k *Norm) EnqueueLayer(to Queue, dst, x, w, bias Ptr, p Parts, eps float32, rows Ptr, capacity int) error {
	if err := checkLaunch("LayerNorm", capacity, p.Heads*p.Cols); err != nil {
		return err
	}
	return k.layer.Launch(to, Dim3{X: p.Heads, Y: capacity}, Dim3{X: threads}, normBytes,
		dst, x, w, bias, int32(p.Weights), int32(p.Cols), eps, rows)
}

// normBytes is the shared memory for the sums of a block's warps: norm.cuh.
const normBytes = 4 * threads / 32
