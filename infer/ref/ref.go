// Package ref is the reference device in plain Go: slow, obviously correct, and the oracle that
// every other device is compared with. Each operation is its formula as a loop. Products and sums
// are accumulated in float64 from left to right, so that a result is as close to the exact value as
// float32 allows and depends only on its own row.
package ref

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Device is the reference device. It implements device.Device.
type Device struct {
	tensors []tensor // by ID-1
	caches  []cache  // by ID-1
	states  []states // by ID-1
	closed  bool
}

type tensor struct {
	device.Tensor
	blocks []byte    // of a weight, as in the model file
	values []float32 // of an activation
}

// New opens the device. All its memory is Go memory.
func New() *Device { return &Device{} }

func (d *Device) Info() device.Info {
	return device.Info{Kind: "ref", Name: "plain Go, 1 thread", Path: "go", Threads: 1}
}

func (d *Device) WeightBytes(t gguf.Type, rows, cols int) (int64, error) {
	elements, bytes := t.Block()
	if elements == 0 || cols%int(elements) != 0 {
		return 0, fmt.Errorf("rows of %d values cannot be stored as %s", cols, t)
	}
	if err := gguf.Dequantize(t, make([]byte, bytes), make([]float32, elements)); err != nil {
		return 0, err
	}
	return int64(rows) * int64(t.RowBytes(cols)), nil
}

// WorkBytes returns 0: programs need no memory besides their tensors.
func (d *Device) WorkBytes(...*device.Program) int64 { return 0 }

func (d *Device) Upload(t gguf.Type, rows, cols int, data []byte) (device.Tensor, error) {
	want, err := d.WeightBytes(t, rows, cols)
	if err != nil {
		return device.Tensor{}, err
	}
	if int64(len(data)) != want {
		return device.Tensor{}, fmt.Errorf("weight (%d, %d) of type %s has %d bytes, want %d", rows, cols, t, len(data), want)
	}
	return d.add(tensor{Tensor: device.Tensor{Type: t, Rows: rows, Cols: cols}, blocks: data}), nil
}

func (d *Device) Alloc(rows, cols int) (device.Tensor, error) {
	return d.add(tensor{
		Tensor: device.Tensor{Type: gguf.F32, Rows: rows, Cols: cols},
		values: make([]float32, rows*cols),
	}), nil
}

func (d *Device) add(t tensor) device.Tensor {
	t.ID = int32(len(d.tensors) + 1)
	d.tensors = append(d.tensors, t)
	return t.Tensor
}

func (d *Device) AllocKV(l device.KVLayout) (device.KV, error) {
	c, err := newCache(l)
	if err != nil {
		return device.KV{}, err
	}
	d.caches = append(d.caches, c)
	return device.KV{ID: int32(len(d.caches)), Layout: l}, nil
}

func (d *Device) ReadKV(dst []byte, kv device.KV, block int32) error {
	c, err := d.block(kv, block, dst)
	if err == nil {
		copy(dst, c.block(block).bytes)
	}
	return err
}

func (d *Device) WriteKV(kv device.KV, block int32, src []byte) error {
	c, err := d.block(kv, block, src)
	if err == nil {
		b := c.block(block)
		copy(b.bytes, src)
		c.decode(b)
	}
	return err
}

// block returns the cache of a block. data is what it is copied to or from.
func (d *Device) block(kv device.KV, block int32, data []byte) (*cache, error) {
	if kv.ID < 1 || int(kv.ID) > len(d.caches) || d.caches[kv.ID-1].KVLayout != kv.Layout {
		return nil, fmt.Errorf("ref: KV cache %d does not belong to this device", kv.ID)
	}
	if err := kv.Layout.CheckBlock(block, data); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	return &d.caches[kv.ID-1], nil
}

func (d *Device) Read(dst []float32, t device.Tensor, row int) error {
	values, err := d.rowOf(t, row, len(dst))
	copy(dst, values)
	return err
}

// Candidates returns the row itself in All.
func (d *Device) Candidates(logits device.Tensor, row int) (device.Candidates, error) {
	all, err := d.rowOf(logits, row, logits.Cols)
	return device.Candidates{All: all}, err
}

func (d *Device) Write(t device.Tensor, row int, src []float32) error {
	values, err := d.rowOf(t, row, len(src))
	copy(values, src)
	return err
}

// rowOf returns n values of an activation, whole rows beginning at row row.
func (d *Device) rowOf(t device.Tensor, row, n int) ([]float32, error) {
	values, err := d.activation(t)
	switch {
	case err != nil:
		return nil, err
	case !t.HasRows(row, n):
		return nil, fmt.Errorf("%d values are not whole rows of an activation (%d, %d) from row %d on", n, t.Rows, t.Cols, row)
	}
	return values[row*t.Cols:][:n], nil
}

func (d *Device) activation(t device.Tensor) ([]float32, error) {
	if d.closed {
		return nil, errClosed
	}
	if t.ID < 1 || int(t.ID) > len(d.tensors) || d.tensors[t.ID-1].values == nil {
		return nil, fmt.Errorf("tensor %d is not an activation of this device", t.ID)
	}
	return d.tensors[t.ID-1].values, nil
}

var errClosed = errors.New("the device is closed")

func (d *Device) Close() error {
	*d = Device{closed: true}
	return nil
}

func (d *Device) Compile(p *device.Program) (device.Executable, error) {
	if d.closed {
		return nil, errClosed
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	for i, op := range p.Ops {
		if operations[op.Kind] == nil {
			return nil, fmt.Errorf("operation %d: %s is not supported", i, op.Kind)
		}
	}
	return &executable{d, p}, nil
}

type executable struct {
	d *Device
	p *device.Program
}

func (x *executable) Run(b *device.Batch) error {
	if x.d.closed {
		return errClosed
	}
	if err := b.Check(x.p.Limits()); err != nil {
		return err
	}
	rows := len(b.Tokens)
	for _, op := range x.p.Ops {
		if op.Kind == device.OpGatherRows {
			rows = len(b.Out)
		}
		operations[op.Kind](x.d, op, b, rows)
	}
	return nil
}

// row returns row r of an activation.
func (d *Device) row(t device.Tensor, r int) []float32 {
	return d.tensors[t.ID-1].values[r*t.Cols : (r+1)*t.Cols]
}

// weightRow dequantises row r of a weight. It cannot fail: Upload checked the type.
func (d *Device) weightRow(dst []float32, w device.Tensor, r int) {
	n := w.Type.RowBytes(w.Cols)
	if err := gguf.Dequantize(w.Type, d.tensors[w.ID-1].blocks[r*n:(r+1)*n], dst); err != nil {
		panic(err)
	}
}

// vector returns the values of a weight of one row, nil if w is none.
func (d *Device) vector(w device.Tensor) []float32 {
	if w.None() {
		return nil
	}
	v := make([]float32, w.Cols)
	d.weightRow(v, w, 0)
	return v
}

// dot returns the dot product of a and b. It is excluded from the race detector because nearly all
// time is spent here, ten times as much with it, and only one goroutine uses a device.
//
//go:norace
func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func add(dst, x []float32) {
	for i := range dst {
		dst[i] += x[i]
	}
}

// rmsNorm: dst = x / sqrt(mean(x²) + eps) · w
func rmsNorm(dst, x, w []float32, eps float32) {
	scale := 1 / math.Sqrt(dot(x, x)/float64(len(x))+float64(eps))
	for i := range dst {
		dst[i] = float32(float64(x[i]) * scale * float64(w[i]))
	}
}

// layerNorm: dst = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias, which may be nil
func layerNorm(dst, x, w, bias []float32, eps float32) {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += float64(v) / float64(len(x))
	}
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean) / float64(len(x))
	}
	scale := 1 / math.Sqrt(variance+float64(eps))
	for i := range dst {
		y := (float64(x[i]) - mean) * scale * float64(w[i])
		if bias != nil {
			y += float64(bias[i])
		}
		dst[i] = float32(y)
	}
}

// glu: dst = a(gate) · up; if up is nil, dst = a(gate)
func glu(dst, gate, up []float32, a device.Activation) {
	for i := range dst {
		g, u := float64(gate[i]), 1.0
		if up != nil {
			u = float64(up[i])
		}
		z := g
		switch a {
		case device.SquaredReLU:
			dst[i] = float32(max(g, 0) * max(g, 0) * u)
			continue
		case device.ExactGELU:
			dst[i] = float32(g / 2 * math.Erfc(-g/math.Sqrt2) * u)
			continue
		case device.Identity:
			dst[i] = float32(g * u)
			continue
		case device.Sigmoid:
			dst[i] = float32(sigmoid(g) * u)
			continue
		case device.Softplus:
			dst[i] = float32(softplus(g) * u)
			continue
		case device.Exp:
			dst[i] = float32(math.Exp(g) * u)
			continue
		case device.GELU:
			z = 2 * math.Sqrt(2/math.Pi) * (g + 0.044715*g*g*g)
		case device.ClampedSwiGLU:
			g, u = min(g, 7), min(max(u, -7), 7)+1
			z = 1.702 * g
		}
		dst[i] = float32(g * sigmoid(z) * u)
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// gate: x = x · sigmoid(gate), with as many gates as values, or one
func gate(x, gate []float32) {
	for i := range x {
		x[i] = float32(float64(x[i]) * sigmoid(float64(gate[i%len(gate)])))
	}
}

func copyColumns(dst, x []float32, c device.Columns) {
	for part := range c.Parts {
		to, from := part*len(dst)/c.Parts+c.To, part*len(x)/c.Parts+c.From
		copy(dst[to:to+c.Width], x[from:])
	}
}

// mix: dst[i] += Σ_j factors[i·m+j] · x[j], with parts of width values; nil factors are 1
func mix(dst, x, factors []float32, width int) {
	sources := len(x) / width
	for k := range dst {
		i, sum := k/width, float64(dst[k])
		for j := range sources {
			factor := 1.0
			if factors != nil {
				factor = float64(factors[i*sources+j])
			}
			sum += factor * float64(x[j*width+k%width])
		}
		dst[k] = float32(sum)
	}
}

// matchRMS: x = x · sqrt(mean(y²) / max(mean(x²), floor)) for each part of x as long as y
func matchRMS(x, y []float32, floor float32) {
	n := len(y)
	for i := 0; i < len(x); i += n {
		part := x[i : i+n]
		mean := max(dot(part, part)/float64(n), float64(floor))
		scale(part, float32(math.Sqrt(dot(y, y)/float64(n)/mean)), 0)
	}
}

// sparsify: x = max(0, x - mean(x) - factor · sqrt(mean((x - mean(x))²)))
func sparsify(x []float32, factor float32) {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += float64(v) / float64(len(x))
	}
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean) / float64(len(x))
	}
	for i, v := range x {
		x[i] = float32(max(0, float64(v)-mean-float64(factor)*math.Sqrt(variance)))
	}
}

// scale: x = x · factor, then x = cap · tanh(x / cap) unless cap is 0
func scale(x []float32, factor, cap float32) {
	for i := range x {
		x[i] = float32(capped(float64(x[i])*float64(factor), float64(cap)))
	}
}

func capped(x, cap float64) float64 {
	if cap == 0 {
		return x
	}
	return cap * math.Tanh(x/cap)
}

// rope rotates pair i of every head by pos · frequencies[i] radians.
func rope(x []float32, r device.RoPE, frequencies []float64, pos int) {
	magnitude := float64(cmp.Or(r.Magnitude, 1))
	for head := 0; head < len(x); head += r.HeadDim {
		for i := range r.Dims / 2 {
			sin, cos := math.Sincos(float64(pos) * frequencies[i])
			sin, cos = sin*magnitude, cos*magnitude
			j, k := head+2*i, head+2*i+1
			if r.NeoX {
				j, k = head+i, head+i+r.Dims/2
			}
			a, b := float64(x[j]), float64(x[k])
			x[j], x[k] = float32(a*cos-b*sin), float32(a*sin+b*cos)
		}
	}
}
