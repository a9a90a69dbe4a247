package cudakern

// AddRows adds activations, or a bias to all rows, or computes decays of recurrent state after adding a bias.
type AddRows struct{ add, bias, decays *Function }

// NewAddRows loads the kernels.
func NewAddRows(c *Context) (*AddRows, error) {
	k := &AddRows{}
	var err error
	if k.add, err = c.kernel("rows", "add_rows"); err != nil {
		return nil, err
	}
	if k.bias, err = c.kernel("rows", "add_bias"); err != nil {
		return nil, err
	}
	k.decays, err = c.kernel("rows", "decays")
	return k, err
}

// Enqueue computes dst += x, rows of cols float32.
func (k *AddRows) Enqueue(to Queue, dst, x Ptr, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("Add", capacity, cols); err != nil {
		return err
	}
	return k.add.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, int32(cols), rows)
}

// EnqueueBias computes x[r] += bias for every row r, rows of cols float32.
func (k *AddRows) EnqueueBias(to Queue, x, bias Ptr, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("AddBias", capacity, cols); err != nil {
		return err
	}
	return k.bias.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		x, bias, int32(cols), rows)
}

// EnqueueDecays computes x[r] = e^(w · ln(1 + e^(x[r] + bias))) for every row r, rows of cols float32; w has
// cols values or one.
func (k *AddRows) EnqueueDecays(to Queue, x, bias, w Ptr, values, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("Decays", capacity, cols); err != nil {
		return err
	}
	return k.decays.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		x, bias, w, int32(values), int32(cols), rows)
}

// Gate is the activation function of a gated linear unit.
type Gate int32

const (
	SiLU          Gate = iota // x / (1 + e^-x)
	GELU                      // tanh approximation
	ClampedSwiGLU             // of gpt-oss: glu_of in math.cuh
	SquaredReLU               // max(x, 0)²
	ExactGELU                 // x · (1 + erf(x / sqrt(2))) / 2; GLU has kernels of its own for it and those that follow, Activation none
	Identity                  // x
	Sigmoid                   // 1 / (1 + e^-x)
	Softplus                  // ln(1 + e^x)
	Exp                       // e^x
)

// GLU is the gated linear unit of a feed-forward layer.
type GLU struct{ rows, exact, function *Function }

// NewGLU loads the kernels.
func NewGLU(c *Context) (*GLU, error) {
	k := &GLU{}
	var err error
	if k.rows, err = c.kernel("rows", "glu"); err != nil {
		return nil, err
	}
	if k.exact, err = c.kernel("rows", "glu_exact"); err != nil {
		return nil, err
	}
	k.function, err = c.kernel("rows", "glu_scan")
	return k, err
}

// Enqueue computes dst = g(gate) · up, rows of cols float32, or g(gate) if up is 0. dst may be gate.
func (k *GLU) Enqueue(to Queue, dst, gate, up Ptr, g Gate, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("GLU", capacity, cols); err != nil {
		return err
	}
	grid, block := Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}
	switch {
	case g == ExactGELU:
		return k.exact.Launch(to, grid, block, 0, dst, gate, up, int32(cols), rows)
	case g >= Identity:
		return k.function.Launch(to, grid, block, 0, dst, gate, up, int32(g-Identity), int32(cols), rows)
	}
	return k.rows.Launch(to, grid, block, 0, dst, gate, up, int32(g), int32(cols), rows)
}

// ScaleRows multiplies activations by a number (with an optional soft cap), by weights, by the sigmoid
// of a gate, or by a factor that depends on the position.
type ScaleRows struct{ rows, weights, gate, byPosition *Function }

// NewScaleRows loads the kernels.
func NewScaleRows(c *Context) (*ScaleRows, error) {
	k := &ScaleRows{}
	var err error
	if k.rows, err = c.kernel("rows", "scale_rows"); err != nil {
		return nil, err
	}
	if k.weights, err = c.kernel("rows", "multiply_rows"); err != nil {
		return nil, err
	}
	if k.gate, err = c.kernel("rows", "gate_rows"); err != nil {
		return nil, err
	}
	k.byPosition, err = c.kernel("rows", "scale_by_position")
	return k, err
}

// EnqueueScaleByPosition computes x = x · (1 + factor · ln(1 + floor(position / period))), rows of
// cols float32.
func (k *ScaleRows) EnqueueScaleByPosition(to Queue, x Ptr, factor float32, period, cols int, step Step, capacity int) error {
	if err := checkLaunch("ScaleByPosition", capacity, cols); err != nil {
		return err
	}
	return k.byPosition.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		x, factor, int32(period), int32(cols), step.Pos, step.Rows)
}

// Enqueue computes x = x · factor, then x = limit · tanh(x / limit) unless limit is 0, rows of cols
// float32.
func (k *ScaleRows) Enqueue(to Queue, x Ptr, factor, limit float32, cols int, rows Ptr, capacity int) error {
	return k.launch(k.rows, to, cols, capacity, x, factor, limit, int32(cols), rows)
}

// EnqueueWeights computes x = x · w, rows of cols float32; w has cols values or one.
func (k *ScaleRows) EnqueueWeights(to Queue, x, w Ptr, values, cols int, rows Ptr, capacity int) error {
	return k.launch(k.weights, to, cols, capacity, x, w, int32(values), int32(cols), rows)
}

// EnqueueGate computes x = x · sigmoid(gate), rows of cols float32; rows of gate have cols
// values or one.
func (k *ScaleRows) EnqueueGate(to Queue, x, gate Ptr, gates, cols int, rows Ptr, capacity int) error {
	return k.launch(k.gate, to, cols, capacity, x, gate, int32(gates), int32(cols), rows)
}

func (k *ScaleRows) launch(f *Function, to Queue, cols, capacity int, args ...any) error {
	if err := checkLaunch("Scale", capacity, cols); err != nil {
		return err
	}
	return f.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0, args...)
}

// CopyColumns copies columns of activations to columns of others.
type CopyColumns struct{ rows *Function }

// NewCopyColumns loads the kernel.
func NewCopyColumns(c *Context) (*CopyColumns, error) {
	rows, err := c.kernel("rows", "copy_columns")
	return &CopyColumns{rows}, err
}

// Columns selects columns to copy. Rows have Parts parts, of PartFrom columns in the source and PartTo
// in the destination; Width columns from column From of each part are copied to column To.
type Columns struct{ Parts, PartTo, PartFrom, To, From, Width int }

// Enqueue copies columns of x to dst, rows of float32.
func (k *CopyColumns) Enqueue(to Queue, dst, x Ptr, c Columns, rows Ptr, capacity int) error {
	if err := checkLaunch("Copy", capacity, c.Parts*c.Width); err != nil {
		return err
	}
	return k.rows.Launch(to, Dim3{X: blocksFor(c.Parts*c.Width, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, int32(c.Parts), int32(c.PartTo), int32(c.PartFrom), int32(c.To), int32(c.From), int32(c.Width), rows)
}

// GatherRows selects rows of an activation.
type GatherRows struct{ rows *Function }

// NewGatherRows loads the kernel.
func NewGatherRows(c *Context) (*GatherRows, error) {
	rows, err := c.kernel("rows", "gather_rows")
	return &GatherRows{rows}, err
}

// Enqueue computes dst[i] = x[step.Out[i]], rows of cols float32, for up to capacity
// rows of step.Outs.
func (k *GatherRows) Enqueue(to Queue, dst, x Ptr, cols int, step Step, capacity int) error {
	if err := checkLaunch("GatherRows", capacity, cols); err != nil {
		return err
	}
	return k.rows.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, int32(cols), step.Out, step.Outs)
}
