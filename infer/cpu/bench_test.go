package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

// Several weights of one shape, read in turn, so that none waits in a cache.
const benchWeights = 12

// BenchmarkMatMul reports the bytes of weights that a step reads a second, and the
// multiplications and additions it does.
func BenchmarkMatMul(b *testing.B) {
	const outs, cols = 8192, 2048
	for _, path := range cpu.Paths() {
		for _, typ := range []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.F16, gguf.F32} {
			rng := rand.New(rand.NewPCG(1, 2))
			data := make([][]byte, benchWeights)
			one := devicetest.RandomWeight(rng, typ, outs, cols, 0.02)
			for i := range data {
				data[i] = append([]byte(nil), one...)
			}
			for _, rows := range []int{1, 2, 4, 8, 128} {
				b.Run(fmt.Sprintf("%s/%s/rows=%d", path, typ, rows), func(b *testing.B) {
					benchMatMul(b, path, typ, outs, cols, rows, data)
				})
			}
		}
	}
}

func benchMatMul(b *testing.B, path string, typ gguf.Type, outs, cols, rows int, data [][]byte) {
	d, err := cpu.OpenPath(0, path)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	p := device.NewProgram(rows, rows)
	x, y := alloc(b, d, rows, cols), alloc(b, d, rows, outs)
	p.Embed(x, upload(b, d, typ, outs, cols, data[0]))
	for _, w := range data {
		p.MatMul(y, upload(b, d, typ, outs, cols, w), x)
	}
	batch := upTo(0, rows)
	e := compile(b, d, p)
	for b.Loop() {
		if err := e.Run(batch); err != nil {
			b.Fatal(err)
		}
	}
	seconds := b.Elapsed().Seconds() / float64(b.N) / benchWeights
	b.ReportMetric(float64(len(data[0]))/seconds/1e9, "GB/s")
	b.ReportMetric(2*float64(rows)*float64(outs)*float64(cols)/seconds/1e9, "Gop/s")
	b.ReportMetric(0, "ns/op")
}
