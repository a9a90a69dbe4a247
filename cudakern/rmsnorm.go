package cudakern

// RMSNorm divides every row, or every head of a row, by the root of its mean square.
type RMSNorm struct{ rows *Function }

// NewRMSNorm loads the kernel.
func NewRMSNorm(c *Context) (*RMSNorm, error) {
	rows, err := c.kernel("rmsnorm", "rmsnorm")
	return &RMSNorm{rows}, err
}

// Enqueue computes dst = x / sqrt(mean(x²) + eps) · w, over each of heads times cols float32
// in a row. dst may be x. All addresses are multiples of 16.
func (k *RMSNorm) Enqueue(s *Stream, dst, x, w Ptr, heads, cols int, eps float32, rows Ptr, capacity int) error {
	if err := checkLaunch("RMSNorm", capacity, heads*cols); err != nil {
		return err
	}
	return k.rows.Launch(s, Dim3{X: heads, Y: capacity}, Dim3{X: threads}, normBytes,
		dst, x, w, int32(cols), eps, rows)
}

// normBytes of shared memory hold the sums of a block's warps: norm.cuh.
const normBytes = 4 * threads / 32
