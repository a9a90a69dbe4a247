package cudakern

// Norm is RMSNorm and LayerNorm, over every row or every head of a row.
type Norm struct{ rms, layer *Function }

// NewNorm loads the kernels.
func NewNorm(c *Context) (*Norm, error) {
	rms, err := c.kernel("rmsnorm", "rmsnorm")
	if err != nil {
		return nil, err
	}
	layer, err := c.kernel("rmsnorm", "layernorm")
	return &Norm{rms, layer}, err
}

// Parts are what of a row is normed by itself: Heads times Cols float32. Weights of them have
// weights of their own, all or with 1 none.
type Parts struct{ Heads, Cols, Weights int }

// Enqueue computes dst = x / sqrt(mean(x²) + eps) · w. dst may be x. All addresses are multiples
// of 16.
func (k *Norm) Enqueue(s *Stream, dst, x, w Ptr, p Parts, eps float32, rows Ptr, capacity int) error {
	if err := checkLaunch("RMSNorm", capacity, p.Heads*p.Cols); err != nil {
		return err
	}
	return k.rms.Launch(s, Dim3{X: p.Heads, Y: capacity}, Dim3{X: threads}, normBytes,
		dst, x, w, int32(p.Weights), int32(p.Cols), eps, rows)
}

// EnqueueLayer computes dst = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias, which is as
// long as a row or 0: none. dst may be x.
func (k *Norm) EnqueueLayer(s *Stream, dst, x, w, bias Ptr, p Parts, eps float32, rows Ptr, capacity int) error {
	if err := checkLaunch("LayerNorm", capacity, p.Heads*p.Cols); err != nil {
		return err
	}
	return k.layer.Launch(s, Dim3{X: p.Heads, Y: capacity}, Dim3{X: threads}, normBytes,
		dst, x, w, bias, int32(p.Weights), int32(p.Cols), eps, rows)
}

// normBytes of shared memory hold the sums of a block's warps: norm.cuh.
const normBytes = 4 * threads / 32
