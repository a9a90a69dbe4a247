package cpu_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

// Threads wait for each other at the end of every phase, so the number of phases is part of what a small model costs.
func TestOperationsShareAPhaseWhereTheyMay(t *testing.T) {
	const width = 64
	d, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var x [6]device.Tensor
	for i := range x {
		if x[i], err = d.Alloc(8, width); err != nil {
			t.Fatal(err)
		}
	}
	w, err := d.Upload(gguf.Q8_0, width, width, make([]byte, width*gguf.Q8_0.RowBytes(width)))
	if err != nil {
		t.Fatal(err)
	}
	norm, err := d.Upload(gguf.F32, 1, width, make([]byte, 4*width))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: width})
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := d.Upload(gguf.F32, width, 4, make([]byte, 4*4*width))
	if err != nil {
		t.Fatal(err)
	}
	state, err := d.AllocState(device.StateLayout{Slots: 1, Values: 3 * device.ConvValues(kernel)})
	if err != nil {
		t.Fatal(err)
	}
	rope := device.RoPE{HeadDim: width, Dims: width, Base: 1e4, Scale: 1}

	for _, c := range []struct {
		name   string
		record func(p *device.Program)
		want   int
	}{
		{"a layer of a transformer", func(p *device.Program) {
			p.Embed(x[0], w)
			p.RMSNorm(x[1], x[0], norm, 1e-5) // 1: angles, embedding, norm, rounding
			p.MatMul(x[2], w, x[1])
			p.MatMul(x[3], w, x[1])
			p.MatMul(x[4], w, x[1]) // 2: Q, K, V
			p.RoPE(x[2], rope)
			p.RoPE(x[3], rope)
			p.StoreKV(kv, 0, x[3], x[4])                                         // 3
			p.Attention(x[5], x[2], kv, 0, device.Attention{Heads: 1, Scale: 1}) // 4
			p.MatMul(x[1], w, x[5])                                              // 5: rounding, 6: product
			p.Add(x[0], x[1])                                                    //
			p.RMSNorm(x[1], x[0], norm, 1e-5)                                    // 7: sum, norm, rounding
			p.MatMul(x[2], w, x[1])                                              //
			p.MatMul(x[3], w, x[1])                                              // 8: gate, up
			p.GLU(x[2], x[2], x[3], device.SiLU)                                 // 9: with rounding
			p.MatMul(x[1], w, x[2])                                              // 10
			p.Add(x[0], x[1])                                                    // 11
		}, 11},
		{"products of one input into the same output follow each other", func(p *device.Program) {
			p.MatMul(x[1], w, x[0])
			p.MatMul(x[1], w, x[0])
		}, 3},
		{"products of different inputs round each", func(p *device.Program) {
			p.MatMul(x[1], w, x[0])
			p.MatMul(x[3], w, x[2])
		}, 4},
		{"a recurrence", func(p *device.Program) {
			for i := range 3 {
				p.Conv(x[i+1], x[0], kernel, device.Tensor{}, state, i*device.ConvValues(kernel))
				p.Activate(x[i+1], x[i+1], device.SiLU)
			} // 1: three convolutions with what follows each
			p.Activate(x[3], x[3], device.SiLU) // 2
			p.Conv(x[4], x[3], kernel, device.Tensor{}, state, 0)
			p.Conv(x[5], x[4], kernel, device.Tensor{}, state, device.ConvValues(kernel)) // 3, 4: it reads the other
		}, 4},
		{"nothing runs in the phase of gathered rows", func(p *device.Program) {
			p.Add(x[0], x[1])
			p.GatherRows(x[2], x[0])
			p.Add(x[0], x[2])
		}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := device.NewProgram(8, 8)
			c.record(p)
			e, err := d.Compile(p)
			if err != nil {
				t.Fatal(err)
			}
			if got := e.(interface{ Phases() int }).Phases(); got != c.want {
				t.Errorf("%d phases, want %d", got, c.want)
			}
		})
	}
}

// Of more threads than there are cores, some are always late with an item of a phase, and others complete it.
func TestLateThreadsDoNotChangeBits(t *testing.T) {
	const rows, width, heads, dim, layers, length = 3, 512, 4, 64, 4, 700
	for _, typ := range []gguf.Type{gguf.Q4_K, gguf.F32} {
		t.Run(typ.String(), func(t *testing.T) {
			// Returns the outputs of some steps, and how many items were completed for late threads.
			answers := func(threads, steps int) (all [][]float32, helped int) {
				d, err := cpu.Open(threads)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				rng := rand.New(rand.NewPCG(7, 8))
				kv := allocKV(t, d, device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: length/device.BlockSize + 1, Layers: layers, KVHeads: heads, HeadDim: dim})
				p := device.NewProgram(rows, rows)
				x := alloc(t, d, rows, width)
				q, att := alloc(t, d, rows, heads*dim), alloc(t, d, rows, heads*dim)
				k, v := alloc(t, d, rows, heads*dim), alloc(t, d, rows, heads*dim)
				weight := func(outs, cols int) device.Tensor {
					return upload(t, d, typ, outs, cols, devicetest.RandomWeight(rng, typ, outs, cols, 0.05))
				}
				norm := upload(t, d, gguf.F32, 1, width, floatBytes(normal(rng, width)))
				p.Embed(x, weight(length, width))
				for layer := range layers {
					n := alloc(t, d, rows, width)
					p.RMSNorm(n, x, norm, 1e-5)
					for _, to := range []device.Tensor{q, k, v} {
						p.MatMul(to, weight(heads*dim, width), n)
					}
					p.StoreKV(kv, layer, k, v)
					p.Attention(att, q, kv, layer, device.Attention{Heads: heads, Scale: 0.125})
					p.MatMul(n, weight(width, heads*dim), att)
					p.Add(x, n)
				}
				e := compile(t, d, p)
				for i := range steps {
					batch := upTo(i*rows%(length-rows), rows)
					for r := range batch.Tokens {
						batch.Tokens[r] = int32((i*rows + r) % length)
					}
					run(t, e, batch)
					for r := range rows {
						all = append(all, read(t, d, x, r))
					}
				}
				return all, e.(interface{ Helped() int }).Helped()
			}
			const steps = 600
			want, _ := answers(1, steps)
			got, helped := answers(4*runtime.NumCPU(), steps)
			t.Logf("%d items were completed for late threads", helped)
			for i := range want {
				if !sameBits(got[i], want[i]) {
					t.Fatalf("row %d of step %d has other bits than on one thread", i%rows, i/rows)
				}
			}
		})
	}
}
