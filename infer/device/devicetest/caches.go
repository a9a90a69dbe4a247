package devicetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// quantizedCaches compares attention over caches with quantised keys or values with attention over a cache of F32 that has the values
// of their codes, bit for bit.
func (s Suite) quantizedCaches(t *testing.T) {
	const chunk = 35
	for _, keys := range device.CacheTypes {
		for _, values := range device.CacheTypes {
			typ := device.CacheType{Keys: keys, Values: values}
			if _, err := device.ParseCacheType(typ.String()); err != nil || typ.Fits(1) {
				continue
			}
			for _, c := range []struct{ heads, kvHeads, dim, latent, window, length int }{
				{3, 1, 64, 0, 0, 280}, {4, 2, 32, 0, 0, 70}, {8, 1, 128, 0, 50, 70}, {5, 1, 96, 0, 0, 70}, {2, 2, 256, 0, 0, 70}, {2, 1, 288, 0, 0, 70}, {6, 2, 64, 0, 1, 35}, {9, 1, 160, 128, 0, 70}, {3, 1, 96, 40, 1, 35},
			} {
				length := c.length
				t.Run(fmt.Sprintf("%s, %d heads over %d of %d, latent %d, window %d", typ, c.heads, c.kvHeads, c.dim, c.latent, c.window), func(t *testing.T) {
					if c.latent > 0 && keys != values {
						t.Skip("a latent cache has keys alone")
					}
					width := c.kvHeads * c.dim
					answers := func(typ device.CacheType, round func(t gguf.Type, x []float32) []float32) (all [][]float32) {
						r := newRig(t, open(t, s.Open[0]), chunk)
						q := normal(r.rng, length*c.heads*c.dim, 1)
						k, v := normal(r.rng, length*width, 1), normal(r.rng, length*width, 1)
						if c.window == 1 { // a row reads its own key and value alone
							oddRows(k, width)
							oddRows(v, width)
						}
						if typ == f32 && c.latent == 0 && !device.CacheOf(keys).Fits(1) {
							k, q = rotated(k, 1), rotated(q, 1.0/32)
						}
						k, v = round(keys, k), round(values, v)
						embed := func(values []float32, cols int) device.Tensor {
							x := r.alloc(cols)
							r.p.Embed(x, r.upload(gguf.F32, length, cols, floatBytes(values)))
							return x
						}
						cache := r.kv(device.KVLayout{Type: typ, Blocks: length/device.BlockSize + 2, Layers: 2, KVHeads: c.kvHeads, HeadDim: c.dim, Latent: c.latent})
						stored, out := embed(v, width), r.alloc(c.heads*cache.Layout.ValueDim())
						if c.latent > 0 {
							stored = device.Tensor{}
						}
						r.p.StoreKV(cache, 1, embed(k, width), stored)
						r.p.Attention(out, embed(q, c.heads*c.dim), cache, 1, device.Attention{Heads: c.heads, Scale: 0.1, Window: c.window})
						x := r.compile()
						var table []int32
						for i := range length/device.BlockSize + 1 {
							table = append(table, int32(length/device.BlockSize+1-i))
						}
						for start := 0; start < length; start += chunk {
							b := counting(chunk, start, table)
							for i := range b.Tokens {
								b.Tokens[i] = int32(start + i)
							}
							r.run(x, b)
							for i := range chunk {
								all = append(all, r.read(out, i))
							}
						}
						return all
					}
					got := answers(typ, func(_ gguf.Type, x []float32) []float32 { return x })
					want := answers(f32, rounded)
					for pos := range want {
						for i := range want[pos] {
							if a, b := got[pos][i], want[pos][i]; math.Float32bits(a) != math.Float32bits(b) && !(a != a && b != b) {
								t.Fatalf("position %d, element %d: got %g, with the values of the codes in F32 %g", pos, i, a, b)
							}
						}
					}
				})
			}
		}
	}
}

// oddRows makes rows of x, of width elements, ones that are hard to quantise.
func oddRows(x []float32, width int) {
	row := func(i int) []float32 { return x[i*width : (i+1)*width] }
	fill := func(i int, v func(j int) float32) {
		for j := range row(i) {
			row(i)[j] = v(j)
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	fill(0, func(int) float32 { return 0 })
	fill(1, func(j int) float32 { return float32(j%32) - 16 })           // whole numbers, the largest negative
	fill(2, func(j int) float32 { return 16 - float32(j%32) })           // … positive
	fill(3, func(j int) float32 { return float32(j%2*2-1) * 7 })         // both
	fill(4, func(j int) float32 { return float32(j%64) * 0x1p-149 })     // denormal
	fill(5, func(j int) float32 { return float32(j) * 0x1p-20 })         // scales below the normal ones of F16
	fill(6, func(j int) float32 { return (float32(j%32) - 7.5) / 2 })    // halves
	fill(7, func(j int) float32 { return float32(j%16) * 0x1p-126 })     // the least normal ones
	fill(8, func(j int) float32 { return (float32(j%32) - 31.5) * 1e4 }) // beyond F16, as their scales are not
	row(9)[1], row(10)[33%width], row(11)[width-1] = nan, inf, -inf
	row(12)[0], row(12)[31] = inf, nan
	fill(13, func(int) float32 { return 3e38 })
	fill(14, func(j int) float32 { return -float32(j % 2) })
}

// rotated returns blocks of 32 elements of x multiplied by the Hadamard matrix and by factor: see device.KVLayout.RotatesKeys.
func rotated(x []float32, factor float32) (all []float32) {
	var times func(x []float32) []float32
	times = func(x []float32) (y []float32) {
		if len(x) == 1 {
			return x
		}
		low, high := times(x[:len(x)/2]), times(x[len(x)/2:])
		for i := range low {
			y = append(y, low[i]+high[i])
		}
		for i := range low {
			y = append(y, low[i]-high[i])
		}
		return y
	}
	for block := range slices.Chunk(x, 32) {
		for _, v := range times(block) {
			all = append(all, v*factor)
		}
	}
	return all
}

// rounded returns the values that codes of type t stand for: the formulas of device.CacheType, one block at a time.
func rounded(t gguf.Type, x []float32) (all []float32) {
	switch t {
	case gguf.F32:
		return x
	case gguf.F16:
		for _, v := range x {
			all = append(all, gguf.F16ToF32(gguf.F32ToF16(v)))
		}
		return all
	}
	for block := range slices.Chunk(x, 32) {
		m, bad := float32(0), false // the element with the largest magnitude
		for _, v := range block {
			bad = bad || math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)
			if size := float32(math.Abs(float64(v))); size > float32(math.Abs(float64(m))) || v < 0 && size == m {
				m = v
			}
		}
		steps, offset, most := float32(127), float32(0), float32(127)
		if t == gguf.Q4_0 {
			steps, offset, most = -8, 8, 15
		} else if m < 0 {
			m = -m
		}
		scale, factor := gguf.F16ToF32(gguf.F32ToF16(m/steps)), steps/m
		for _, v := range block {
			switch {
			case bad:
				all = append(all, float32(math.NaN()))
			case math.IsInf(float64(factor), 0):
				all = append(all, 0)
			default:
				code := min(float32(math.RoundToEven(float64(v*factor)))+offset, most)
				all = append(all, (code-offset)*scale)
			}
		}
	}
	return all
}
