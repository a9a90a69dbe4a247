// Package devicetest checks that a device keeps the contract of package device: every operation
// is compared with the reference device on odd sizes, a row has the same bits in every batch, and
// invalid calls return errors.
package devicetest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

// Suite selects what to test.
type Suite struct {
	// Open opens variants of the device. The first is compared with the reference; the
	// others, with another number of threads for example, must agree with it bit for bit.
	Open []func() (device.Device, error)

	// Types are the weight types that the device supports.
	Types []gguf.Type

	// SameBits are those of Types for which the same bits are demanded whichever rows share a
	// batch; nil: all.
	SameBits []gguf.Type

	// Halves says that products with F16 and BF16 weights may round activations to halves.
	Halves bool

	// OnlyProducts skips ways to fill the KV cache, and operations with recurrent state, because another
	// suite of the same device tests them.
	OnlyProducts bool
}

// Run runs the whole suite.
func Run(t *testing.T, s Suite) {
	t.Run("operations", s.operations)
	t.Run("quantised caches", s.quantizedCaches)
	t.Run("same bits", s.sameBits)
	t.Run("rows of prompts", s.prompts)
	t.Run("errors", s.errors)
}

func open(t *testing.T, f func() (device.Device, error)) device.Device {
	t.Helper()
	d, err := f()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func openRef() (device.Device, error) { return ref.New(), nil }

// rig records a program on one device. All rigs have the same seed: two that make the same calls
// have the same weights and inputs.
type rig struct {
	t    *testing.T
	dev  device.Device
	p    *device.Program
	rng  *rand.Rand
	rows int
}

func newRig(t *testing.T, dev device.Device, rows int) *rig {
	return &rig{t: t, dev: dev, p: device.NewProgram(rows, rows), rng: rand.New(rand.NewPCG(1, 2)), rows: rows}
}

// weight uploads a random weight whose values are of order 1.
func (r *rig) weight(typ gguf.Type, rows, cols int) device.Tensor {
	r.t.Helper()
	return r.upload(typ, rows, cols, RandomWeight(r.rng, typ, rows, cols, 1))
}

func (r *rig) upload(typ gguf.Type, rows, cols int, data []byte) device.Tensor {
	r.t.Helper()
	w, err := r.dev.Upload(typ, rows, cols, data)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (r *rig) vector(values []float32) device.Tensor {
	r.t.Helper()
	return r.upload(gguf.F32, 1, len(values), floatBytes(values))
}

func (r *rig) alloc(cols int) device.Tensor {
	r.t.Helper()
	a, err := r.dev.Alloc(r.rows, cols)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// input records an activation with the given rows: row i of values is embedded for token i, and
// counting batches have token i in row i.
func (r *rig) input(values []float32, cols int) device.Tensor {
	r.t.Helper()
	x := r.alloc(cols)
	r.p.Embed(x, r.upload(gguf.F32, len(values)/cols, cols, floatBytes(values)))
	return x
}

// random records an input of normally distributed random numbers.
func (r *rig) random(cols int, scale float64) device.Tensor {
	return r.input(normal(r.rng, r.rows*cols, scale), cols)
}

func (r *rig) kv(l device.KVLayout) device.KV {
	r.t.Helper()
	kv, err := r.dev.AllocKV(l)
	if err != nil {
		r.t.Fatal(err)
	}
	return kv
}

func (r *rig) compile() device.Executable {
	r.t.Helper()
	if err := r.p.Err(); err != nil {
		r.t.Fatal(err)
	}
	x, err := r.dev.Compile(r.p)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func (r *rig) run(x device.Executable, b *device.Batch) {
	r.t.Helper()
	if err := x.Run(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(out device.Tensor, row int) []float32 {
	r.t.Helper()
	values := make([]float32, out.Cols)
	if err := r.dev.Read(values, out, row); err != nil {
		r.t.Fatal(err)
	}
	return values
}

// counting returns a batch with tokens 0, 1, 2 … at positions start, start+1 … of one sequence.
func counting(rows, start int, table []int32) *device.Batch {
	b := &device.Batch{Tables: [][][]int32{{table}}, States: []int32{0}}
	for i := range rows {
		b.Tokens = append(b.Tokens, int32(i))
		b.Pos = append(b.Pos, int32(start+i))
		b.Seq = append(b.Seq, 0)
	}
	return b
}

// RandomWeight returns the data of a random weight of shape (rows, cols) in format typ. Values
// have a standard deviation of about scale.
func RandomWeight(rng *rand.Rand, typ gguf.Type, rows, cols int, scale float64) []byte {
	n := rows * cols
	switch typ {
	case gguf.F32:
		return floatBytes(normal(rng, n, scale))
	case gguf.F16:
		data := make([]byte, 0, 2*n)
		for _, x := range normal(rng, n, scale) {
			data = binary.LittleEndian.AppendUint16(data, gguf.F32ToF16(x))
		}
		return data
	}
	elements, size := typ.Block()
	data := make([]byte, n/int(elements)*int(size))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for block := data; len(block) > 0; block = block[size:] {
		if err := gguf.SetRandomScale(typ, block[:size], scale*float64(1-2*rng.IntN(2))); err != nil {
			panic(err)
		}
	}
	return data
}

func normal(rng *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * scale)
	}
	return x
}

func floatBytes(x []float32) []byte {
	data := make([]byte, 0, 4*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
