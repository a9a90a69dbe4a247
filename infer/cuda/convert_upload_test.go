package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// TestConvertedWeights compares weights that are converted at upload with the same weights uploaded in
// the type that they are converted to: a device computes the same bits with both.
func TestConvertedWeights(t *testing.T) {
	g := openGPU(t)
	for _, typ := range cuda.WeightTypes() {
		if slices.Contains(cuda.KernelTypes(), typ) {
			continue
		}
		for _, shape := range [][2]int{{1, 256}, {5, 512}, {66, 262144}} { // the last is loaded in two parts
			if shape[0] == 66 && typ != gguf.IQ3_S {
				continue // one such weight is enough
			}
			t.Run(fmt.Sprintf("%s (%d, %d)", typ, shape[0], shape[1]), func(t *testing.T) {
				rows, cols := shape[0], shape[1]
				rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
				data := devicetest.RandomWeight(rng, typ, rows, cols, 1)
				values := make([]float32, rows*cols)
				if err := gguf.Dequantize(typ, data, values); err != nil {
					t.Fatal(err)
				}
				to := cuda.Converts(typ)
				converted := make([]byte, rows*to.RowBytes(cols))
				if typ.IsTernary() {
					gguf.TernaryToQ2_K(typ, data, converted)
				} else {
					gguf.QuantizeQ8_0(values, converted)
				}
				for i, want := range rowsOf(t, g, to, rows, cols, converted) {
					if got := rowsOf(t, g, typ, rows, cols, data)[i]; !slices.Equal(got, want) {
						t.Fatalf("result %d differs from that of %s", i, to)
					}
				}
			})
		}
	}
}

// rowsOf returns the first and the last row of a table, and their products with it.
func rowsOf(t *testing.T, g *gpu, typ gguf.Type, rows, cols int, data []byte) (results [][]float32) {
	t.Helper()
	d, err := g.open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := d.Upload(typ, rows, cols, data)
	must(err)
	bytes, err := d.WeightBytes(typ, rows, cols)
	must(err)
	to := cuda.Converts(typ)
	if want, err := d.WeightBytes(to, rows, cols); err != nil || bytes != want || w.Type != to {
		t.Errorf("the weight is %s and has %d bytes, want %s and %d, %v", w.Type, bytes, to, want, err)
	}
	x, err := d.Alloc(2, cols)
	must(err)
	y, err := d.Alloc(2, rows)
	must(err)
	p := device.NewProgram(2, 2)
	p.Embed(x, w)
	p.MatMul(y, w, x)
	executable, err := d.Compile(p)
	must(err)
	must(executable.Run(&device.Batch{Tokens: []int32{0, int32(rows - 1)}, Pos: []int32{0, 1}, Seq: []int32{0, 0}, Tables: [][][]int32{{{0}}}}))
	for row := range 2 {
		embedded, product := make([]float32, cols), make([]float32, rows)
		must(d.Read(embedded, x, row))
		must(d.Read(product, y, row))
		results = append(results, embedded, product)
	}
	return results
}

func TestAnEngineReportsWhichWeightsWereConverted(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	for typ, notice := range map[gguf.Type]string{
		gguf.Q5_K:  "",
		gguf.TQ1_0: "TQ1_0 weights are converted to Q2_K for Emulated Tesla M40 and take 1.6 times as much memory there",
		gguf.IQ3_S: "IQ3_S weights are converted to Q8_0 for Emulated Tesla M40 and take 2.5 times as much memory there",
	} {
		t.Run(typ.String(), func(t *testing.T) {
			e, err := engine.Open(engine.Options{
				Catalog:    oneModel{gguftest.TinyLlama(gguftest.Llama{Type: typ, Dim: 256, FFN: 256, Layers: 1})},
				OpenDevice: func(*gguf.File) (device.Device, error) { return cuda.Open() },
				Model:      "tiny",
				ChunkRows:  8,
				Parallel:   1,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			r := infer.DefaultRequest()
			r.Prompt, r.MaxTokens = "once", 1
			for _, err := range e.Generate(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
			}
			got := e.Status().Device.Notice
			name := e.Status().Device.Name
			if got != strings.Replace(notice, "Emulated Tesla M40", name, 1) {
				t.Errorf("the notice is %q, want %q", got, notice)
			}
		})
	}
}
