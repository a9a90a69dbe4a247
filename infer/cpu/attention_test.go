package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

// Attention over several splits of 256 positions, on both sides of their borders.
func TestAttentionOverLongSequences(t *testing.T) {
	const length = 600
	for _, c := range []struct {
		typ                 device.CacheType
		heads, kvHeads, dim int
		window              int
	}{
		{device.CacheOf(gguf.F16), 8, 2, 64, 0},
		{device.CacheOf(gguf.F16), 3, 1, 33, 0},
		{device.CacheOf(gguf.F16), 5, 1, 80, 300},
		{device.CacheOf(gguf.Q8_0), 8, 2, 64, 0},
		{device.CacheOf(gguf.Q4_0), 5, 1, 96, 300},
		{device.CacheType{Keys: gguf.Q8_0, Values: gguf.Q4_0}, 2, 2, 128, 0},
		{device.CacheOf(gguf.F32), 2, 2, 5, 0},
		{device.CacheOf(gguf.F32), 6, 1, 48, 256},
		{device.CacheOf(gguf.F32), 7, 7, 1, 257},
	} {
		t.Run(fmt.Sprintf("%s cache, %d heads over %d of %d, window %d", c.typ, c.heads, c.kvHeads, c.dim, c.window), func(t *testing.T) {
			// Every position is stored, then attended to from rows at the end of each
			// chunk; sizes of chunks differ from device to device.
			answers := func(d device.Device, chunk int) (all [][]float32) {
				defer d.Close()
				rng := rand.New(rand.NewPCG(15, 16))
				kv := allocKV(t, d, device.KVLayout{Type: c.typ, Blocks: length/32 + 1, Layers: 2, KVHeads: c.kvHeads, HeadDim: c.dim})
				p := device.NewProgram(chunk, chunk)
				table := func(cols int) device.Tensor {
					x := alloc(t, d, chunk, cols)
					p.Embed(x, upload(t, d, gguf.F32, length, cols, floatBytes(normal(rng, length*cols))))
					return x
				}
				q, k, v := table(c.heads*c.dim), table(c.kvHeads*c.dim), table(c.kvHeads*c.dim)
				y := alloc(t, d, chunk, c.heads*c.dim)
				p.StoreKV(kv, 1, k, v)
				p.Attention(y, q, kv, 1, device.Attention{Heads: c.heads, Scale: float32(1 / math.Sqrt(float64(c.dim))), Window: c.window})
				e := compile(t, d, p)
				for start := 0; start < length; start += chunk {
					b := upTo(start, min(chunk, length-start))
					for i := range b.Tokens {
						b.Tokens[i] = int32(start + i)
					}
					for i := range b.Tables[0][0] { // blocks in reverse order
						b.Tables[0][0][i] = int32(length/32 - i)
					}
					run(t, e, b)
					for i := range b.Tokens {
						all = append(all, read(t, d, y, i))
					}
				}
				return all
			}
			want := answers(ref.New(), length)
			for _, path := range cpu.Paths() {
				t.Run(path, func(t *testing.T) {
					var first [][]float32
					for _, v := range []struct{ threads, chunk int }{{1, 64}, {3, 600}, {2, 7}} {
						d, err := cpu.OpenWith(cpu.Options{Threads: v.threads, Path: path})
						if err != nil {
							t.Fatal(err)
						}
						got := answers(d, v.chunk)
						if first == nil {
							first = got
						}
						for pos := range got {
							if !sameBits(got[pos], first[pos]) {
								t.Fatalf("position %d in chunks of %d on %d threads has other bits", pos, v.chunk, v.threads)
							}
							for i := range got[pos] {
								if off := math.Abs(float64(got[pos][i] - want[pos][i])); !(off <= 3e-6) {
									t.Fatalf("position %d, element %d: got %g, want %g", pos, i, got[pos][i], want[pos][i])
								}
							}
						}
					}
				})
			}
		})
	}
}

// Weights so small that products with them would be denormal numbers count as zero, also between
// splits of 256 positions.
func TestAttentionIgnoresPositionsFarBelowTheBest(t *testing.T) {
	const length, best, dim = 300, 290, 2
	values := make([]float32, length*dim) // of position i: its score as a key, and as a value 0, or huge if it is not the best
	for i := range length {
		values[dim*i], values[dim*i+1] = -81, 0x1p+115
	}
	values[dim*best], values[dim*best+1] = 0, 3
	onEveryPath(t, 2, func(t *testing.T, d device.Device) {
		kv := allocKV(t, d, device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: length/32 + 1, Layers: 1, KVHeads: 1, HeadDim: dim})
		p := device.NewProgram(length, length)
		x := feed(t, d, p, dim, values)
		ones := make([]float32, length*dim)
		for i := range length {
			ones[dim*i] = 1
		}
		q, y := feed(t, d, p, dim, ones), alloc(t, d, length, dim)
		p.StoreKV(kv, 0, x, x)
		p.Attention(y, q, kv, 0, device.Attention{Heads: 1, Scale: 1})
		run(t, compile(t, d, p), upTo(0, length))
		if got := read(t, d, y, length-1); got[1] != 3 {
			t.Errorf("the best position has the value 3, the result is %g", got[1])
		}
	})
}

// Rows that attend to the same positions are computed together if they follow each other.
func TestAttentionInBothDirectionsHasTheSameBitsInAnyOrderOfRows(t *testing.T) {
	lengths := []int{1, 70, 3, 17, 301, 33}
	rows := 0
	for _, n := range lengths {
		rows += n
	}
	for _, c := range []struct {
		typ                 device.CacheType
		heads, kvHeads, dim int
		window              int
		alibi               float32
	}{
		{device.CacheOf(gguf.F32), 4, 4, 72, 0, 0},
		{device.CacheOf(gguf.F32), 3, 3, 5, 0, 0},
		{device.CacheOf(gguf.F16), 6, 2, 40, 0, 0},
		{device.CacheOf(gguf.Q8_0), 2, 2, 64, 0, 0},
		{device.CacheOf(gguf.F32), 20, 1, 16, 0, 0},
		{device.CacheOf(gguf.F32), 2, 2, 24, 9, 0},
		{device.CacheOf(gguf.F32), 2, 2, 24, 0, 8},
	} {
		t.Run(fmt.Sprintf("%s cache, %d heads over %d of %d, window %d, bias %g", c.typ, c.heads, c.kvHeads, c.dim, c.window, c.alibi), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(25, 26))
			keys, values := normal(rng, rows*c.kvHeads*c.dim), normal(rng, rows*c.kvHeads*c.dim)
			queries := normal(rng, rows*c.heads*c.dim)
			// answers returns the results in the order of sequences and positions. apart: rows of different sequences alternate
			answers := func(d device.Device, apart bool) [][]float32 {
				defer d.Close()
				blocks := 0
				b := &device.Batch{Tables: [][][]int32{nil}}
				for _, n := range lengths {
					var table []int32
					for range (n + device.BlockSize - 1) / device.BlockSize {
						table = append(table, int32(blocks))
						blocks++
					}
					b.Tables[0] = append(b.Tables[0], table)
				}
				var order []int // of the rows, by their numbers in the order of sequences
				add := func(seq, first, pos int) {
					b.Tokens, b.Seq, b.Pos = append(b.Tokens, int32(first+pos)), append(b.Seq, int32(seq)), append(b.Pos, int32(pos))
					order = append(order, first+pos)
				}
				if apart {
					for pos := range 301 {
						first := 0
						for seq, n := range lengths {
							if pos < n {
								add(seq, first, pos)
							}
							first += n
						}
					}
				} else {
					first := 0
					for seq, n := range lengths {
						for pos := range n {
							add(seq, first, pos)
						}
						first += n
					}
				}
				kv := allocKV(t, d, device.KVLayout{Type: c.typ, Blocks: blocks, Layers: 1, KVHeads: c.kvHeads, HeadDim: c.dim})
				p := device.NewProgram(rows, rows)
				table := func(data []float32) device.Tensor {
					x := alloc(t, d, rows, len(data)/rows)
					p.Embed(x, upload(t, d, gguf.F32, rows, len(data)/rows, floatBytes(data)))
					return x
				}
				q, k, v, y := table(queries), table(keys), table(values), alloc(t, d, rows, c.heads*c.dim)
				p.StoreKV(kv, 0, k, v)
				p.Attention(y, q, kv, 0, device.Attention{Heads: c.heads, Scale: 0.3, Bidirectional: true, Window: c.window, MaxBias: c.alibi})
				run(t, compile(t, d, p), b)
				all := make([][]float32, rows)
				for i, row := range order {
					all[row] = read(t, d, y, i)
				}
				return all
			}
			want := answers(ref.New(), false)
			for _, path := range cpu.Paths() {
				t.Run(path, func(t *testing.T) {
					var results [2][][]float32
					for i, threads := range []int{1, 3} {
						d, err := cpu.OpenWith(cpu.Options{Threads: threads, Path: path})
						if err != nil {
							t.Fatal(err)
						}
						results[i] = answers(d, i > 0)
					}
					for row := range want {
						if !sameBits(results[0][row], results[1][row]) {
							t.Fatalf("row %d has other bits if rows of other sequences are between those of its own", row)
						}
						for i := range want[row] {
							if off := math.Abs(float64(results[0][row][i] - want[row][i])); !(off <= 3e-6) {
								t.Fatalf("row %d, element %d: got %g, want %g", row, i, results[0][row][i], want[row][i])
							}
						}
					}
				})
			}
		})
	}
}
