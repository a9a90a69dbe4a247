package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

// A program is fused, its products merged and their rounded inputs kept; none of it
// may show. Random programs must leave the same bits in every activation as their
// operations compiled and run one by one.
func TestFusedProgramsEqualTheirOperationsOneByOne(t *testing.T) {
	const width, rows, vocab, programs = 64, 6, 20, 60
	for _, path := range cpu.Paths() {
		for seed := range uint64(programs) {
			t.Run(fmt.Sprintf("%s, program %d", path, seed), func(t *testing.T) {
				whole := newRandomProgram(t, path, 1+int(seed%3), seed, width, rows, vocab)
				single := newRandomProgram(t, path, 1, seed, width, rows, vocab)
				b := upTo(3, rows)
				b.Out = []int32{1, 2, 5}
				run(t, compile(t, whole.d, whole.p), b)

				gathered := &device.Batch{Tokens: b.Tokens[:3], Pos: b.Pos[:3], Seq: b.Seq[:3], Tables: b.Tables}
				batch := b
				for _, op := range single.p.Ops {
					p := device.NewProgram(rows, rows)
					p.Ops = []device.Op{op}
					run(t, compile(t, single.d, p), batch)
					if op.Kind == device.OpGatherRows {
						batch = gathered
					}
				}
				for i := range whole.x {
					for r := range rows {
						if !sameBits(read(t, whole.d, whole.x[i], r), read(t, single.d, single.x[i], r)) {
							t.Fatalf("activation %d, row %d differs after %v", i, r, kinds(whole.p))
						}
					}
				}
			})
		}
	}
}

type randomProgram struct {
	d device.Device
	p *device.Program
	x []device.Tensor // activations it works on
}

func newRandomProgram(t *testing.T, path string, threads int, seed uint64, width, rows, vocab int) randomProgram {
	d, err := cpu.OpenWith(cpu.Options{Threads: threads, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	rng := rand.New(rand.NewPCG(seed, 17))
	r := randomProgram{d: d, p: device.NewProgram(rows, rows)}
	for range 5 {
		r.x = append(r.x, alloc(t, d, rows, width))
	}
	types := []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.F16, gguf.F32}
	weight := func() device.Tensor {
		typ := types[rng.IntN(len(types))]
		return upload(t, d, typ, width, width, devicetest.RandomWeight(rng, typ, width, width, 0.1))
	}
	vector := func() device.Tensor {
		return upload(t, d, gguf.F32, 1, width, floatBytes(normal(rng, width)))
	}
	kv := allocKV(t, d, device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1, Layers: 1, KVHeads: 2, HeadDim: width / 2})
	any := func() device.Tensor { return r.x[rng.IntN(len(r.x))] }
	other := func(x device.Tensor) device.Tensor {
		for {
			if y := any(); y.ID != x.ID {
				return y
			}
		}
	}
	for _, x := range r.x {
		r.p.Embed(x, upload(t, d, gguf.F32, vocab, width, floatBytes(normal(rng, vocab*width))))
	}
	// Positions 0 to 2 stay zeros, which is as good as anything.
	gather := rng.IntN(40)
	for i := range 40 {
		x := any()
		kind := rng.IntN(10)
		if i == gather {
			r.p.GatherRows(other(x), x)
			continue
		}
		if i > gather && kind >= 8 {
			kind = rng.IntN(8)
		}
		switch kind {
		case 0, 1, 2, 3:
			r.p.MatMul(other(x), weight(), x)
		case 4:
			r.p.RMSNorm(any(), x, vector(), 1e-5)
		case 5:
			r.p.AddBias(x, vector())
		case 6:
			r.p.Add(other(x), x)
		case 7:
			r.p.GLU(any(), x, any(), device.SiLU)
		case 8:
			r.p.RoPE(x, device.RoPE{HeadDim: width / 2, Dims: width / 2, Base: []float64{1e4, 5e5}[rng.IntN(2)], Scale: 1, NeoX: rng.IntN(2) == 0})
		case 9:
			r.p.StoreKV(kv, 0, x, other(x))
			r.p.Attention(other(x), x, kv, 0, device.Attention{Heads: 2, Scale: 0.2})
		}
	}
	if err := r.p.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

func kinds(p *device.Program) (names []string) {
	for _, op := range p.Ops {
		names = append(names, op.Kind.String())
	}
	return slices.Clip(names)
}
