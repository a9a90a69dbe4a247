package cudakern

// RMSNorm divides every row by the root of its mean square.
type RMSNorm struct{ rows *Function }

// NewRMSNorm loads the kernel.
func NewRMSNorm(c *Context) (*RMSNorm, error) {
	rows, err := c.kernel("rmsnorm", "rmsnorm")
	return &RMSNorm{rows}, err
}

// Enqueue computes dst = x / sqrt(mean(x²) + eps) · w, rows of cols float32. dst may be x.
// All addresses are multiples of 16.
func (k *RMSNorm) Enqueue(s *Stream, dst, x, w Ptr, cols int, eps float32, rows Ptr, capacity int) error {
	if err := checkLaunch("RMSNorm", capacity, cols); err != nil {
		return err
	}
	const warps = threads / 32
	return k.rows.Launch(s, Dim3{X: 1, Y: capacity}, Dim3{X: threads}, 4*warps,
		dst, x, w, int32(cols), eps, rows)
}
