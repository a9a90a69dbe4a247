package model_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

// The error of a product against float64 over the dequantised weights is the rounding of its
// activations: in float64 over the same rounded activations, what is left is that of float32 sums.
func TestErrorsOfQuantisedProductsAreThoseOfRoundedActivations(t *testing.T) {
	for _, dev := range []struct {
		name  string
		open  func() (device.Device, error)
		types []gguf.Type
		steps float32 // of the largest activation of a block of 32; 0: activations are not rounded
	}{
		{"ref", func() (device.Device, error) { return ref.New(), nil }, cpu.WeightTypes(), 0},
		{"cpu", openCPU, cpu.WeightTypes(), 127},
		{"cuda", cudaOpener(t), cuda.WeightTypes(), 32512},
	} {
		for _, typ := range cpu.WeightTypes() {
			if elements, _ := typ.Block(); elements == 1 {
				continue
			}
			if !slices.Contains(dev.types, typ) {
				t.Logf("fidelity: product of %-8s on %-5s NOT COVERED: no products with weights in it", typ, dev.name)
				continue
			}
			t.Run(typ.String()+" on "+dev.name, func(t *testing.T) {
				const outs, cols, rows = 48, 1280, 5
				rng := rand.New(rand.NewPCG(5, uint64(typ)))
				data := devicetest.RandomWeight(rng, typ, outs, cols, 1)
				weights := make([]float32, outs*cols)
				if err := gguf.Dequantize(typ, data, weights); err != nil {
					t.Fatal(err)
				}
				if dev.name == "cuda" && typ != gguf.Q8_0 && cuda.Converts(typ) == gguf.Q8_0 { // then it is the error over the converted weights
					converted := make([]byte, outs*gguf.Q8_0.RowBytes(cols))
					gguf.QuantizeQ8_0(weights, converted)
					if err := gguf.Dequantize(gguf.Q8_0, converted, weights); err != nil {
						t.Fatal(err)
					}
				}
				x := make([]float32, rows*cols)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				got := productOn(t, dev.open, typ, data, outs, x, rows)
				exact := product64(weights, outs, x, rows)
				rounded := exact
				if dev.steps > 0 {
					rounded = product64(weights, outs, roundedTo(x, dev.steps), rows)
				}
				off, explained, left := distance(got, exact), distance(rounded, exact), distance(got, rounded)
				t.Logf("fidelity: product of %-8s on %-5s is off by %.2g, rounded activations explain %.2g, float32 sums %.2g of 2e-06", typ, dev.name, off, explained, left)
				if !(left <= 2e-6) {
					t.Errorf("off by %g, of which rounded activations explain %g; %g are left", off, explained, left)
				}
			})
		}
	}
}

// productOn returns x · weightsᵀ as a device computes it.
func productOn(t *testing.T, openDevice func() (device.Device, error), typ gguf.Type, data []byte, outs int, x []float32, rows int) (y []float64) {
	t.Helper()
	dev, err := openDevice()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	cols := len(x) / rows
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := dev.Upload(typ, outs, cols, data)
	fail(err)
	var bytes []byte
	for _, v := range x {
		bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(v))
	}
	table, err := dev.Upload(gguf.F32, rows, cols, bytes)
	fail(err)
	in, err := dev.Alloc(rows, cols)
	fail(err)
	out, err := dev.Alloc(rows, outs)
	fail(err)
	p := device.NewProgram(rows, rows)
	p.Embed(in, table)
	p.MatMul(out, w, in)
	program, err := dev.Compile(p)
	fail(err)
	b := &device.Batch{Tables: [][][]int32{{{0}}}}
	for i := range int32(rows) {
		b.Tokens, b.Pos, b.Seq = append(b.Tokens, i), append(b.Pos, i), append(b.Seq, 0)
	}
	fail(program.Run(b))
	values := make([]float32, rows*outs)
	fail(dev.Read(values, out, 0))
	for _, v := range values {
		y = append(y, float64(v))
	}
	return y
}

// product64 returns x · weightsᵀ in float64.
func product64(weights []float32, outs int, x []float32, rows int) (y []float64) {
	cols := len(x) / rows
	for r := range rows {
		for o := range outs {
			sum := 0.0
			for i := range cols {
				sum += float64(weights[o*cols+i]) * float64(x[r*cols+i])
			}
			y = append(y, sum)
		}
	}
	return y
}

// roundedTo rounds blocks of 32 values to steps steps of their largest, as devices do.
func roundedTo(x []float32, steps float32) (rounded []float32) {
	for first := 0; first < len(x); first += 32 {
		block := x[first : first+32]
		largest := float32(0)
		for _, v := range block {
			largest = max(largest, v, -v)
		}
		for _, v := range block {
			rounded = append(rounded, float32(math.RoundToEven(float64(v*(steps/largest))))*(largest/steps))
		}
	}
	return rounded
}

// distance returns the length of got - want, relative to that of want.
func distance(got, want []float64) float64 {
	difference, length := 0.0, 0.0
	for i := range want {
		difference += (got[i] - want[i]) * (got[i] - want[i])
		length += want[i] * want[i]
	}
	return math.Sqrt(difference / length)
}
