// The tests are outside of the package: for one inside, its C code is compiled once more.
package cpu_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// onEveryPath runs a test on each path that this machine has.
func onEveryPath(t *testing.T, threads int, test func(t *testing.T, d device.Device)) {
	for _, path := range cpu.Paths() {
		t.Run(path, func(t *testing.T) {
			d, err := cpu.OpenWith(cpu.Options{Threads: threads, Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			test(t, d)
		})
	}
}

func alloc(t testing.TB, d device.Device, rows, cols int) device.Tensor {
	t.Helper()
	x, err := d.Alloc(rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func upload(t testing.TB, d device.Device, typ gguf.Type, rows, cols int, data []byte) device.Tensor {
	t.Helper()
	w, err := d.Upload(typ, rows, cols, data)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func allocKV(t testing.TB, d device.Device, l device.KVLayout) device.KV {
	t.Helper()
	kv, err := d.AllocKV(l)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func compile(t testing.TB, d device.Device, p *device.Program) device.Executable {
	t.Helper()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	e, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func run(t testing.TB, e device.Executable, b *device.Batch) {
	t.Helper()
	if err := e.Run(b); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, d device.Device, x device.Tensor, row int) []float32 {
	t.Helper()
	values := make([]float32, x.Cols)
	if err := d.Read(values, x, row); err != nil {
		t.Fatal(err)
	}
	return values
}

// feed records an activation that holds values, row by row, in a batch of upTo.
func feed(t testing.TB, d device.Device, p *device.Program, cols int, values []float32) device.Tensor {
	t.Helper()
	x := alloc(t, d, p.Rows, cols)
	p.Embed(x, upload(t, d, gguf.F32, len(values)/cols, cols, floatBytes(values)))
	return x
}

// upTo is a batch of rows with tokens 0, 1, 2 … at positions from start on of one
// sequence, over the KV blocks 0, 1, 2 …
func upTo(start, rows int) *device.Batch {
	b := &device.Batch{Tables: [][][]int32{{{}}}}
	for i := range rows {
		b.Tokens = append(b.Tokens, int32(i))
		b.Pos = append(b.Pos, int32(start+i))
		b.Seq = append(b.Seq, 0)
	}
	for i := range (start+rows-1)/device.BlockSize + 1 {
		b.Tables[0][0] = append(b.Tables[0][0], int32(i))
	}
	return b
}

func floatBytes(values []float32) (data []byte) {
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

func normal(rng *rand.Rand, n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	return values
}

// sameBits also holds for NaN, which equals nothing as a number.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}
