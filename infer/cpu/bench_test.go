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
		for _, typ := range cpu.WeightTypes() {
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
	d, err := cpu.OpenWith(cpu.Options{Path: path})
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

// BenchmarkModel runs a model of the shape of Llama 3.2 1B with random weights: one
// row a step, as one answer does, eight answers at once, and a prompt.
func BenchmarkModel(b *testing.B) {
	for _, typ := range []gguf.Type{gguf.Q8_0, gguf.Q4_0} {
		for _, c := range []struct{ rows, start int }{{1, 0}, {1, 2000}, {8, 0}, {128, 0}} {
			b.Run(fmt.Sprintf("%s/rows=%d/position=%d", typ, c.rows, c.start), func(b *testing.B) {
				benchModel(b, typ, c.rows, c.start)
			})
		}
	}
}

func benchModel(b *testing.B, typ gguf.Type, rows, start int) {
	const (
		layers, vocab, width, hidden = 16, 128256, 2048, 8192
		heads, kvHeads, dim          = 32, 8, 64
	)
	d, err := cpu.Open(0)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	var bytes int
	weight := func(outs, cols int) device.Tensor {
		piece := devicetest.RandomWeight(rng, typ, 16, cols, 0.02)
		data := make([]byte, 0, outs*typ.RowBytes(cols))
		for len(data) < cap(data) {
			data = append(data, piece...)
		}
		bytes += len(data)
		return upload(b, d, typ, outs, cols, data)
	}
	norm := upload(b, d, gguf.F32, 1, width, floatBytes(normal(rng, width)))
	kv := allocKV(b, d, device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: (start+rows)/32 + 1, Layers: layers, KVHeads: kvHeads, HeadDim: dim})
	p := device.NewProgram(rows, 1)
	x, n, q, att, o := alloc(b, d, rows, width), alloc(b, d, rows, width), alloc(b, d, rows, width), alloc(b, d, rows, width), alloc(b, d, rows, width)
	k, v := alloc(b, d, rows, kvHeads*dim), alloc(b, d, rows, kvHeads*dim)
	gate, up := alloc(b, d, rows, hidden), alloc(b, d, rows, hidden)
	last, logits := alloc(b, d, 1, width), alloc(b, d, 1, vocab)
	rope := device.RoPE{HeadDim: dim, Dims: dim, Base: 5e5, Scale: 1}
	table := weight(vocab, width)
	p.Embed(x, table)
	for l := range layers {
		p.RMSNorm(n, x, norm, 1e-5)
		p.MatMul(q, weight(width, width), n)
		p.MatMul(k, weight(kvHeads*dim, width), n)
		p.MatMul(v, weight(kvHeads*dim, width), n)
		p.RoPE(q, rope)
		p.RoPE(k, rope)
		p.StoreKV(kv, l, k, v)
		p.Attention(att, q, kv, l, device.Attention{Heads: heads, Scale: 0.125})
		p.MatMul(o, weight(width, width), att)
		p.Add(x, o)
		p.RMSNorm(n, x, norm, 1e-5)
		p.MatMul(gate, weight(hidden, width), n)
		p.MatMul(up, weight(hidden, width), n)
		p.GLU(gate, gate, up, device.SiLU)
		p.MatMul(o, weight(width, hidden), gate)
		p.Add(x, o)
	}
	p.GatherRows(last, x)
	p.RMSNorm(last, last, norm, 1e-5)
	p.MatMul(logits, table, last)
	e := compile(b, d, p)
	batch := upTo(start, rows)
	batch.Out = []int32{int32(rows - 1)}
	for b.Loop() {
		run(b, e, batch)
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(rows)/seconds, "tok/s")
	b.ReportMetric(float64(bytes)/seconds/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAttention reports the time of one row's attention in the layers of some models, and how
// fast it reads the cache. With one block for all positions, the cache is in that of the processor.
func BenchmarkAttention(b *testing.B) {
	const most = 8192 // positions
	for _, path := range cpu.Paths() {
		for _, m := range []struct {
			model               string
			typ                 device.CacheType
			layers              int
			heads, kvHeads, dim int
		}{
			{"llama-1b", device.CacheOf(gguf.F16), 16, 32, 8, 64},
			{"llama-1b", device.CacheOf(gguf.F32), 16, 32, 8, 64},
			{"llama-1b", device.CacheOf(gguf.Q8_0), 16, 32, 8, 64},
			{"llama-1b", device.CacheOf(gguf.Q4_0), 16, 32, 8, 64},
			{"llama-1b", device.CacheType{Keys: gguf.Q8_0, Values: gguf.Q4_0}, 16, 32, 8, 64},
			{"llama-8b, 8 of 32 layers", device.CacheOf(gguf.F16), 8, 32, 8, 128},
			{"llama-8b, 8 of 32 layers", device.CacheOf(gguf.Q8_0), 8, 32, 8, 128},
			{"llama-8b, 8 of 32 layers", device.CacheOf(gguf.Q4_0), 8, 32, 8, 128},
			{"qwen3.5-0.8b", device.CacheOf(gguf.F16), 6, 8, 2, 256},
			{"granite4-1b", device.CacheOf(gguf.F16), 4, 12, 4, 128},
			{"8 heads of 128 a kv head", device.CacheOf(gguf.F16), 8, 32, 4, 128},
			{"heads of 64 with own keys", device.CacheOf(gguf.F16), 8, 8, 8, 64},
		} {
			layout := device.KVLayout{Type: m.typ, Blocks: most / device.BlockSize, Layers: m.layers, KVHeads: m.kvHeads, HeadDim: m.dim}
			b.Run(fmt.Sprintf("%s/%s %s", path, m.model, m.typ), func(b *testing.B) {
				d, err := cpu.OpenWith(cpu.Options{Path: path})
				if err != nil {
					b.Fatal(err)
				}
				defer d.Close()
				kv := allocKV(b, d, layout)
				for _, c := range []struct {
					rows, context int
					oneBlock      bool
				}{{1, 512, false}, {1, 4096, false}, {1, 4096, true}, {1, 8192, false}, {32, 4096, false}} {
					b.Run(fmt.Sprintf("rows=%d/context=%d/one block=%t", c.rows, c.context, c.oneBlock), func(b *testing.B) {
						benchAttention(b, d, kv, m.heads, c.rows, c.context, c.oneBlock)
					})
				}
			})
		}
	}
}

func benchAttention(b *testing.B, d device.Device, kv device.KV, heads, rows, context int, oneBlock bool) {
	l := kv.Layout
	fill, p := device.NewProgram(device.BlockSize, 1), device.NewProgram(rows, 1)
	rng := rand.New(rand.NewPCG(5, 6))
	embed := func(p *device.Program, cols int) device.Tensor {
		x := alloc(b, d, p.Rows, cols)
		p.Embed(x, upload(b, d, gguf.F32, p.Rows, cols, floatBytes(normal(rng, p.Rows*cols))))
		return x
	}
	k, v := embed(fill, l.KVHeads*l.HeadDim), embed(fill, l.KVHeads*l.HeadDim)
	q, y := embed(p, heads*l.HeadDim), alloc(b, d, rows, heads*l.HeadDim)
	for layer := range l.Layers {
		fill.StoreKV(kv, layer, k, v)
		p.Attention(y, q, kv, layer, device.Attention{Heads: heads, Scale: 0.125})
	}
	e := compile(b, d, fill)
	table := upTo(0, context).Tables
	for i := range table[0][0] {
		if oneBlock {
			table[0][0][i] = 0
		}
	}
	for start := 0; start < context; start += device.BlockSize {
		batch := upTo(start, device.BlockSize)
		batch.Tables, batch.Out = table, []int32{0}
		run(b, e, batch)
	}
	e = compile(b, d, p)
	batch := upTo(context-rows, rows)
	batch.Tables, batch.Out = table, []int32{0}
	for b.Loop() {
		run(b, e, batch)
	}
	seconds := b.Elapsed().Seconds() / float64(b.N) / float64(rows)
	b.ReportMetric(1e3*seconds, "ms/row")
	b.ReportMetric(float64(context/device.BlockSize)*float64(l.BlockBytes())/seconds/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
}
