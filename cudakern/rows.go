package cudakern

// AddRows adds activations to activations, or one bias to all rows of them.
type AddRows struct{ add, bias *Function }

// NewAddRows loads the kernels.
func NewAddRows(c *Context) (*AddRows, error) {
	add, err := c.kernel("rows", "add_rows")
	if err != nil {
		return nil, err
	}
	bias, err := c.kernel("rows", "add_bias")
	return &AddRows{add, bias}, err
}

// Enqueue computes dst += x, rows of cols float32.
func (k *AddRows) Enqueue(s *Stream, dst, x Ptr, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("Add", capacity, cols); err != nil {
		return err
	}
	return k.add.Launch(s, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, int32(cols), rows)
}

// EnqueueBias computes x[r] += bias for every row r, rows of cols float32.
func (k *AddRows) EnqueueBias(s *Stream, x, bias Ptr, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("AddBias", capacity, cols); err != nil {
		return err
	}
	return k.bias.Launch(s, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		x, bias, int32(cols), rows)
}

// Gate is the activation function of a gated linear unit.
type Gate int32

const (
	SiLU Gate = iota // x / (1 + e^-x)
	GELU             // the one by tanh
)

// GLU is what stands between the products of a feed-forward layer: a gated linear unit.
type GLU struct{ rows *Function }

// NewGLU loads the kernel.
func NewGLU(c *Context) (*GLU, error) {
	rows, err := c.kernel("rows", "glu")
	return &GLU{rows}, err
}

// Enqueue computes dst = g(gate) · up, rows of cols float32. dst may be gate.
func (k *GLU) Enqueue(s *Stream, dst, gate, up Ptr, g Gate, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("GLU", capacity, cols); err != nil {
		return err
	}
	return k.rows.Launch(s, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, gate, up, int32(g), int32(cols), rows)
}

// ScaleRows multiplies activations by a number, and may cap them softly.
type ScaleRows struct{ rows *Function }

// NewScaleRows loads the kernel.
func NewScaleRows(c *Context) (*ScaleRows, error) {
	rows, err := c.kernel("rows", "scale_rows")
	return &ScaleRows{rows}, err
}

// Enqueue computes x = x · factor, and x = limit · tanh(x / limit) after it unless limit is 0,
// rows of cols float32.
func (k *ScaleRows) Enqueue(s *Stream, x Ptr, factor, limit float32, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("Scale", capacity, cols); err != nil {
		return err
	}
	return k.rows.Launch(s, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		x, factor, limit, int32(cols), rows)
}

// GatherRows picks rows of an activation.
type GatherRows struct{ rows *Function }

// NewGatherRows loads the kernel.
func NewGatherRows(c *Context) (*GatherRows, error) {
	rows, err := c.kernel("rows", "gather_rows")
	return &GatherRows{rows}, err
}

// Enqueue computes dst[i] = x[step.Out[i]], rows of cols float32, for up to capacity
// rows of step.Outs.
func (k *GatherRows) Enqueue(s *Stream, dst, x Ptr, cols int, step Step, capacity int) error {
	if err := checkLaunch("GatherRows", capacity, cols); err != nil {
		return err
	}
	return k.rows.Launch(s, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, int32(cols), step.Out, step.Outs)
}
