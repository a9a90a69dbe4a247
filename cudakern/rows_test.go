package cudakern_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/cudakern"
)

// rowCounts are the numbers of rows to test; buckets returns the capacities for each.
var rowCounts = []int{1, 2, 3, 8, 33}

// buckets returns the capacities of launches that a step of rows rows may use.
func buckets(rows int) []int {
	bucket := 1
	for bucket < rows {
		bucket *= 2
	}
	return slices.Compact([]int{rows, bucket, max(64, 2*bucket)})
}

func (e *testDevice) uploadBytes(b []byte) cudakern.Ptr {
	e.T.Helper()
	p := e.Buffer(len(b))
	e.Must(e.Stream.Upload(p, b))
	return p
}

func (e *testDevice) uploadFloats(values []float32) cudakern.Ptr {
	e.T.Helper()
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, math.Float32bits(v))
	}
	return e.uploadBytes(b)
}

func (e *testDevice) downloadFloats(p cudakern.Ptr, n int) []float32 {
	e.T.Helper()
	values := make([]float32, n)
	for i, bits := range e.Download(p, n) {
		values[i] = math.Float32frombits(uint32(bits))
	}
	return values
}

func normal(rng *rand.Rand, n int, scale float64) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64() * scale)
	}
	return values
}

// untouched is the value of activations before a kernel writes them.
const untouched = -12345.5

// inBuckets runs a kernel over rows of cols in every bucket for their number. run gets an activation with the
// capacity of the bucket, which begins with a copy of start. The rows must be close to want and have the same
// bits in every bucket; the rest of the activation must not be written.
func inBuckets(t *testing.T, e *testDevice, rows, cols int, start, want []float32, tolerance float64, run func(x, count cudakern.Ptr, capacity int)) {
	t.Helper()
	var first []float32
	for _, capacity := range buckets(rows) {
		values := slices.Concat(start, slices.Repeat([]float32{untouched}, capacity*cols-len(start)))
		x := e.uploadFloats(values)
		run(x, e.Upload([]int32{int32(rows)}), capacity)
		got := e.downloadFloats(x, capacity*cols)
		for i, v := range got[rows*cols:] {
			if v != untouched {
				t.Fatalf("bucket of %d: element %d after the %d rows was written", capacity, i, rows)
			}
		}
		got = got[:rows*cols]
		for i, w := range want {
			if difference := math.Abs(float64(got[i]) - float64(w)); !(difference <= tolerance) {
				t.Fatalf("bucket of %d, row %d, element %d: got %g, want %g, off by %.2g where %.2g is allowed", capacity, i/cols, i%cols, got[i], w, difference, tolerance)
			}
		}
		if first == nil {
			first = got
		}
		if !sameBits(got, first) {
			t.Fatalf("the bucket of %d gives other bits than the first", capacity)
		}
	}
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func largest(x []float32) (m float64) {
	for _, v := range x {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

func TestAddAddsRows(t *testing.T) {
	e := device(t)
	add, err := cudakern.NewAddRows(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, rows := range rowCounts {
		for _, cols := range []int{1, 5, 256, 1000} {
			x, y := normal(rng, rows*cols, 1), normal(rng, rows*cols, 1)
			sum, biased := slices.Clone(x), slices.Clone(x)
			for i := range x {
				sum[i] += y[i]
				biased[i] += y[i%cols]
			}
			other := e.uploadFloats(y)
			inBuckets(t, e, rows, cols, x, sum, 0, func(x, count cudakern.Ptr, capacity int) {
				e.Must(add.Enqueue(e.Stream, x, other, cols, count, capacity))
			})
			inBuckets(t, e, rows, cols, x, biased, 0, func(x, count cudakern.Ptr, capacity int) {
				e.Must(add.EnqueueBias(e.Stream, x, other, cols, count, capacity))
			})
		}
	}
}

func TestGLUMultipliesByTheSigmoid(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewGLU(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(2, 2))
	for _, rows := range rowCounts {
		for _, scale := range []float64{1e-3, 1, 40, 1e4} {
			const cols = 300
			gate, up := normal(rng, rows*cols, scale), normal(rng, rows*cols, 1)
			silu, gelu, exact := make([]float32, len(gate)), make([]float32, len(gate)), make([]float32, len(gate))
			for i, v := range gate {
				g := float64(v)
				silu[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
				gelu[i] = float32(g / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) * float64(up[i]))
				exact[i] = float32(g / 2 * math.Erfc(-g/math.Sqrt2) * float64(up[i]))
			}
			u := e.uploadFloats(up)
			for gateKind, want := range map[cudakern.Gate][]float32{cudakern.SiLU: silu, cudakern.GELU: gelu, cudakern.ExactGELU: exact} {
				inBuckets(t, e, rows, cols, gate, want, 4e-7*largest(want), func(x, count cudakern.Ptr, capacity int) {
					e.Must(k.Enqueue(e.Stream, x, x, u, gateKind, cols, count, capacity))
				})
			}
		}
	}
}

func TestGLUOfExtremeFloats(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewGLU(e.Context)
	e.Must(err)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	gate := []float32{0, float32(math.Copysign(0, -1)), inf, -200, -87.5, -88.8, 88.8, 1e-30, nan, math.MaxFloat32, -math.MaxFloat32}
	want := []float32{0, 0, inf, 0, 0, 0, 88.8, 5e-31, nan, math.MaxFloat32, 0}
	x := e.uploadFloats(gate)
	up := e.uploadFloats(slices.Repeat([]float32{1}, len(gate)))
	e.Must(k.Enqueue(e.Stream, x, x, up, cudakern.SiLU, len(gate), e.Upload([]int32{1}), 1))
	for i, got := range e.downloadFloats(x, len(gate)) {
		w := want[i]
		near := got == w || math.Abs(float64(got-w)) <= 1e-6*math.Abs(float64(w)) || w == 0 && math.Abs(float64(got)) < 1e-35
		if !near && !(got != got && w != w) {
			t.Errorf("silu(%g) is %g, want %g", gate[i], got, w)
		}
	}
}

func TestGatherRowsPicksRows(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewGatherRows(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(3, 3))
	const rows, cols = 40, 259
	x := normal(rng, rows*cols, 1)
	src := e.uploadFloats(x)
	for _, outs := range rowCounts {
		picked := rng.Perm(rows)[:outs]
		var out []int32
		var want []float32
		for _, r := range picked {
			out = append(out, int32(r))
			want = append(want, x[r*cols:(r+1)*cols]...)
		}
		numbers := e.Upload(out)
		inBuckets(t, e, outs, cols, nil, want, 0, func(dst, count cudakern.Ptr, capacity int) {
			e.Must(k.Enqueue(e.Stream, dst, src, cols, cudakern.Step{Out: numbers, Outs: count}, capacity))
		})
	}
}

func TestRMSNormDividesByTheRootOfTheMeanSquare(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewNorm(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(4, 4))
	for _, rows := range rowCounts {
		for _, cols := range []int{1, 3, 64, 100, 255, 257, 2049, 4096} {
			x, w := normal(rng, rows*cols, 3), normal(rng, cols, 1)
			const eps = 1e-5
			want := make([]float32, len(x))
			for r := range rows {
				sum := 0.0
				for _, v := range x[r*cols : (r+1)*cols] {
					sum += float64(v) * float64(v)
				}
				for i := range cols {
					want[r*cols+i] = float32(float64(x[r*cols+i]) / math.Sqrt(sum/float64(cols)+eps) * float64(w[i]))
				}
			}
			weight := e.uploadFloats(w)
			inBuckets(t, e, rows, cols, x, want, 4e-7*largest(want), func(x, count cudakern.Ptr, capacity int) {
				e.Must(k.Enqueue(e.Stream, x, x, weight, cudakern.Parts{Heads: 1, Cols: cols, Weights: 1}, eps, count, capacity))
			})
		}
	}
}

func TestRMSNormOfHeadsIsThatOfRows(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewNorm(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(14, 4))
	for _, rows := range rowCounts {
		for _, cols := range []int{1, 7, 32, 128} {
			const heads = 3
			x, weight := normal(rng, rows*heads*cols, 3), e.uploadFloats(normal(rng, cols, 1))
			apart := e.uploadFloats(x)
			e.Must(k.Enqueue(e.Stream, apart, apart, weight, cudakern.Parts{Heads: 1, Cols: cols, Weights: 1}, 1e-5, e.Upload([]int32{int32(rows * heads)}), rows*heads))
			inBuckets(t, e, rows, heads*cols, x, e.downloadFloats(apart, len(x)), 0, func(x, count cudakern.Ptr, capacity int) {
				e.Must(k.Enqueue(e.Stream, x, x, weight, cudakern.Parts{Heads: heads, Cols: cols, Weights: 1}, 1e-5, count, capacity))
			})
		}
	}
}

func TestScaleRowsScalesAndCaps(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewScaleRows(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(15, 4))
	for _, rows := range rowCounts {
		for _, limit := range []float32{0, 30} {
			const cols, factor = 300, 0.7
			x := normal(rng, rows*cols, 40)
			want := slices.Clone(x)
			for i := range want {
				want[i] *= factor
				if limit > 0 {
					want[i] = float32(float64(limit) * math.Tanh(float64(want[i])/float64(limit)))
				}
			}
			inBuckets(t, e, rows, cols, x, want, 2e-7*float64(limit), func(x, count cudakern.Ptr, capacity int) {
				e.Must(k.Enqueue(e.Stream, x, factor, limit, cols, count, capacity))
			})
		}
	}
}

func TestRMSNormOfZerosIsZero(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewNorm(e.Context)
	e.Must(err)
	zeros := make([]float32, 64)
	weight := e.uploadFloats(normal(rand.New(rand.NewPCG(5, 5)), 64, 1))
	inBuckets(t, e, 1, 64, zeros, zeros, 0, func(x, count cudakern.Ptr, capacity int) {
		e.Must(k.Enqueue(e.Stream, x, x, weight, cudakern.Parts{Heads: 1, Cols: 64, Weights: 1}, 1e-5, count, capacity))
	})
}

func TestRoPERotatesPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, c := range []struct {
		name          string
		headDim, dims int
		base, scale   float64
		neox          bool
		factors       []float32
	}{
		{"neighbouring pairs", 16, 16, 1e4, 1, false, nil},
		{"halves", 16, 16, 1e4, 1, true, nil},
		{"part of each head", 10, 6, 1e4, 1, false, nil},
		{"halves of part of each head", 10, 6, 5e5, 1, true, nil},
		{"scaled", 64, 64, 1e4, 0.25, false, nil},
		{"with frequency factors", 8, 8, 1e4, 1, true, []float32{1, 2.5, 8, 32}},
		{"with factors that raise the frequency to more than a rotation per position", 8, 8, 1e4, 1, false, []float32{0.01, 0.1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := device(t)
			k, err := cudakern.NewRoPE(e.Context)
			e.Must(err)
			table, err := cudakern.AngleTable(frequencies(c.dims, c.base, c.scale, c.factors))
			e.Must(err)
			angleTable := e.uploadBytes(table)
			for _, start := range []int{0, 1, 1000, 131000, math.MaxInt32 - 40} {
				for _, rows := range rowCounts {
					const heads = 3
					cols := heads * c.headDim
					x := normal(rng, rows*cols, 1)
					want := slices.Clone(x)
					pos := make([]int32, rows)
					for r := range rows {
						pos[r] = int32(start + r)
						for head := range heads {
							for i := range c.dims / 2 {
								angle := float64(pos[r]) * c.scale * math.Pow(c.base, -2*float64(i)/float64(c.dims))
								if c.factors != nil {
									angle /= float64(c.factors[i])
								}
								sin, cos := math.Sincos(angle)
								at := r*cols + head*c.headDim
								j, k := at+2*i, at+2*i+1
								if c.neox {
									j, k = at+i, at+i+c.dims/2
								}
								a, b := float64(x[j]), float64(x[k])
								want[j], want[k] = float32(a*cos-b*sin), float32(a*sin+b*cos)
							}
						}
					}
					positions := e.Upload(pos)
					// The angles of the reference have an error of a few parts in 2^53.
					fastest := c.scale
					if c.factors != nil {
						fastest /= float64(c.factors[0])
					}
					inBuckets(t, e, rows, cols, x, want, 1e-6+float64(start)*fastest*1e-15, func(x, count cudakern.Ptr, capacity int) {
						e.Must(k.Enqueue(e.Stream, x, cols, c.headDim, c.dims, c.neox, angleTable, 1, cudakern.Step{Pos: positions, Rows: count}, capacity))
					})
				}
			}
		})
	}
}

func frequencies(dims int, base, scale float64, factors []float32) []float64 {
	list := make([]float64, dims/2)
	for i := range list {
		list[i] = scale * math.Pow(base, -2*float64(i)/float64(dims))
		if factors != nil {
			list[i] /= float64(factors[i])
		}
	}
	return list
}

func TestAngleTableRefusesFrequenciesThatAreNotFinite(t *testing.T) {
	for _, c := range []struct {
		name    string
		dims    int
		base    float64
		factors []float32
	}{
		{"a factor of zero", 4, 1e4, []float32{1, 0}},
		{"a base that is no number", 4, math.NaN(), nil},
	} {
		if _, err := cudakern.AngleTable(frequencies(c.dims, c.base, 1, c.factors)); err == nil {
			t.Errorf("%s was not refused", c.name)
		}
	}
}

func TestLaunchersRefuseEmptyAndOversizedGrids(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewGLU(e.Context)
	e.Must(err)
	x := e.uploadFloats(make([]float32, 8))
	for _, c := range []struct{ cols, capacity int }{{0, 1}, {8, 0}, {8, 65536}} {
		if err := k.Enqueue(e.Stream, x, x, x, cudakern.SiLU, c.cols, e.Upload([]int32{1}), c.capacity); err == nil {
			t.Errorf("%d rows of %d were not refused", c.capacity, c.cols)
		}
	}
}

// embedding is a type of table: the bytes of a block of elements values, and these values.
type embedding struct {
	name            string
	elements, bytes int
	decode          func(block []byte) []float32
}

func half(b []byte) float32 { return halfToFloat(binary.LittleEndian.Uint16(b)) }

// halfToFloat converts by the definition of the format.
func halfToFloat(h uint16) float32 {
	sign, exponent, fraction := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return float32(sign * math.Ldexp(fraction, -24))
	case 31:
		if fraction != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}

// sixBits unpacks the eight scales and minimums of a Q4_K super-block.
func sixBits(packed []byte) (scale, offset [8]float32) {
	for i := range 8 {
		if i < 4 {
			scale[i], offset[i] = float32(packed[i]&63), float32(packed[i+4]&63)
		} else {
			scale[i] = float32(packed[i+4]&15 | packed[i-4]>>6<<4)
			offset[i] = float32(packed[i+4]>>4 | packed[i]>>6<<4)
		}
	}
	return scale, offset
}

var embeddings = []embedding{
	{"f32", 1, 4, func(b []byte) []float32 { return []float32{math.Float32frombits(binary.LittleEndian.Uint32(b))} }},
	{"f16", 1, 2, func(b []byte) []float32 { return []float32{half(b)} }},
	{"q8_0", 32, 34, func(b []byte) (v []float32) {
		for _, q := range b[2:] {
			v = append(v, half(b)*float32(int8(q)))
		}
		return v
	}},
	{"q4_0", 32, 18, func(b []byte) []float32 {
		v := make([]float32, 32)
		for i, q := range b[2:] {
			v[i], v[i+16] = half(b)*(float32(q&15)-8), half(b)*(float32(q>>4)-8)
		}
		return v
	}},
	{"q4_k", 256, 144, func(b []byte) []float32 {
		v := make([]float32, 256)
		scale, offset := sixBits(b[4:16])
		for group := range 4 {
			for i, q := range b[16+32*group : 48+32*group] {
				for nibble, n := range []byte{q & 15, q >> 4} {
					part := 2*group + nibble
					v[32*part+i] = float32(float32(n)*float32(half(b)*scale[part])) - float32(half(b[2:])*offset[part])
				}
			}
		}
		return v
	}},
	{"q6_k", 256, 210, func(b []byte) []float32 {
		v := make([]float32, 256)
		for h := range 2 {
			for run := range 4 {
				for i := range 32 {
					low := b[64*h+32*(run%2)+i] >> (4 * (run / 2)) & 15
					high := b[128+32*h+i] >> (2 * run) & 3
					at := 128*h + 32*run + i
					v[at] = float32(half(b[208:])*float32(int8(b[192+at/16]))) * (float32(low|high<<4) - 32)
				}
			}
		}
		return v
	}},
}

func TestEmbedDequantizesRowsExactly(t *testing.T) {
	for _, typ := range embeddings {
		t.Run(typ.name, func(t *testing.T) {
			e := device(t)
			k, err := cudakern.NewEmbed(e.Context, typ.name)
			e.Must(err)
			rng := rand.New(rand.NewPCG(7, 7))
			for _, blocks := range []int{1, 3, 9, 33} {
				const vocab = 37
				cols := blocks * typ.elements
				table := make([]byte, vocab*blocks*typ.bytes)
				for i := range table {
					table[i] = byte(rng.Uint32())
				}
				w := cudakern.Weights{Type: typ.name, Outputs: vocab, Inputs: cols}
				size, _, err := w.Bytes()
				e.Must(err)
				data := e.Buffer(int(size))
				loader, err := cudakern.NewLoader(e.Context)
				e.Must(err)
				e.Must(loader.Load(data, w, table))
				e.Must(loader.Sync())
				e.Must(loader.Close())
				for _, rows := range rowCounts {
					tokens := make([]int32, rows)
					var want []float32
					for r := range tokens {
						tokens[r] = int32(rng.IntN(vocab))
						if r == 0 {
							tokens[r] = vocab - 1
						}
						row := table[int(tokens[r])*blocks*typ.bytes:]
						for b := range blocks {
							want = append(want, typ.decode(row[b*typ.bytes:(b+1)*typ.bytes])...)
						}
					}
					dst := e.Buffer(4 * rows * cols)
					e.Must(k.Enqueue(e.Stream, dst, data, cols, cudakern.Step{Tokens: e.Upload(tokens), Rows: e.Upload([]int32{int32(rows)})}, rows))
					for i, got := range e.downloadFloats(dst, rows*cols) {
						if got != want[i] && !(got != got && want[i] != want[i]) {
							t.Fatalf("row %d, element %d: got %g, want %g", i/cols, i%cols, got, want[i])
						}
					}
				}
			}
		})
	}
}

// nearestHalf rounds to float16, ties to even, by the definition of the format.
func nearestHalf(x float32) float32 {
	a := math.Abs(float64(x))
	if a == 0 || math.IsInf(a, 0) || math.IsNaN(a) {
		return x
	}
	_, exponent := math.Frexp(a)
	step := math.Ldexp(1, max(exponent-11, -24))
	rounded := math.RoundToEven(a/step) * step
	if rounded > 65504 {
		rounded = math.Inf(1)
	}
	return float32(math.Copysign(rounded, float64(x)))
}

func TestStoreKVWritesRowsWhereTheTablesSay(t *testing.T) {
	for _, typ := range []cudakern.CacheType{f16Cache, f32Cache} {
		for _, c := range []struct{ kvHeads, dim int }{{1, 1}, {2, 7}, {3, 64}, {2, 128}} {
			for _, rows := range rowCounts {
				t.Run(fmt.Sprintf("cache %d, %d heads of %d, %d rows", typ, c.kvHeads, c.dim, rows), func(t *testing.T) {
					e := device(t)
					rng := rand.New(rand.NewPCG(8, 8))
					k, err := cudakern.NewStoreKV(e.Context, typ)
					e.Must(err)
					const blocks, layers, layer, stride = 7, 3, 1, 3
					tables := []int32{5, 0, 3, 6, 2, 1} // of two sequences
					cols := c.kvHeads * c.dim
					n := blocks * layers * 2 * cols * 32
					bytes := rowBytes(typ.Keys, n)
					data := e.Buffer(bytes)
					e.Must(e.Stream.Fill(data, 0, int64(bytes)))
					want := make([]float32, n)

					keys, values := normal(rng, rows*cols, 3), normal(rng, rows*cols, 3)
					edges := []float32{0, 65504, 65519.996, 65520, -1e6, 1e-8, 2.9802322e-8, 2.98024e-8, 6.1e-5, 1.00048828125, 1.00146484375, float32(math.Inf(-1))}
					copy(keys, edges)
					pos, seq := make([]int32, rows), make([]int32, rows)
					for r := range rows {
						seq[r] = int32(r % 2)
						pos[r] = int32(20 + r)
						block := int(tables[int(seq[r])*stride+int(pos[r])/32])
						for i := range cols {
							for kind, x := range []float32{keys[r*cols+i], values[r*cols+i]} {
								x = cached(typ.Keys, []float32{x})[0]
								head, d := i/c.dim, i%c.dim
								want[((((block*layers+layer)*2+kind)*c.kvHeads+head)*32+int(pos[r])%32)*c.dim+d] = x
							}
						}
					}
					step := cudakern.Step{Rows: e.Upload([]int32{int32(rows)}), Pos: e.Upload(pos), Seq: e.Upload(seq), Tables: e.Upload(tables), Stride: stride, Blocks: stride}
					cache := cudakern.Cache{Data: data, Type: typ, Layers: layers, KVHeads: c.kvHeads, HeadDim: c.dim}
					e.Must(k.Enqueue(e.Stream, cache, layer, e.uploadFloats(keys), e.uploadFloats(values), step, rows))
					got := e.downloadCache(cache, n)
					for i := range want {
						if got[i] != want[i] {
							t.Fatalf("element %d of the cache is %g, want %g", i, got[i], want[i])
						}
					}
				})
			}
		}
	}
}

func TestQuantizedRMSNormAndGLUHaveTheBitsOfTheSeparateKernels(t *testing.T) {
	e := device(t)
	norm, err := cudakern.NewNorm(e.Context)
	e.Must(err)
	gate, err := cudakern.NewGLU(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(9, 9))
	for _, kind := range []string{"i16", "f32"} {
		k, err := cudakern.NewActivation(e.Context, kind)
		e.Must(err)
		for _, rows := range rowCounts {
			for _, cols := range []int{1, 3, 64, 257, 1024, 2052} {
				x, y, w := e.uploadFloats(normal(rng, rows*cols, 3)), e.uploadFloats(normal(rng, rows*cols, 1)), e.uploadFloats(normal(rng, cols, 1))
				whole := e.Buffer(4 * rows * cols)
				count := e.Upload([]int32{int32(rows)})
				capacity := rows + 3
				bytes := int(k.Bytes(cols, capacity))
				want, got := e.Buffer(bytes), e.Buffer(bytes)
				same := func(what string) {
					t.Helper()
					if !slices.Equal(e.Download(want, bytes/4), e.Download(got, bytes/4)) {
						t.Fatalf("%s, kind %s, %d rows of %d: the result is another", what, kind, rows, cols)
					}
				}
				for _, p := range []cudakern.Ptr{want, got} {
					e.Must(e.Stream.Fill(p, 0, int64(bytes)))
				}
				e.Must(norm.Enqueue(e.Stream, whole, x, w, cudakern.Parts{Heads: 1, Cols: cols, Weights: 1}, 1e-5, count, rows))
				e.Must(k.Enqueue(e.Stream, want, whole, cols, count, capacity))
				e.Must(k.EnqueueRMSNorm(e.Stream, got, x, w, cols, 1e-5, count, capacity))
				same("RMSNorm")
				for _, of := range []cudakern.Gate{cudakern.SiLU, cudakern.GELU} {
					e.Must(gate.Enqueue(e.Stream, whole, x, y, of, cols, count, rows))
					e.Must(k.Enqueue(e.Stream, want, whole, cols, count, capacity))
					e.Must(k.EnqueueGLU(e.Stream, got, x, y, of, cols, count, capacity))
					same(fmt.Sprint("GLU ", of))
				}
			}
		}
	}
}

func TestStoreKVWithRoPEHasTheBitsOfTheSeparateKernels(t *testing.T) {
	e := device(t)
	rope, err := cudakern.NewRoPE(e.Context)
	e.Must(err)
	rng := rand.New(rand.NewPCG(10, 10))
	for _, typ := range []cudakern.CacheType{f16Cache, f32Cache, q8Cache, q4Cache, {Keys: cudakern.FormatQ4, Values: cudakern.FormatF16}} {
		k, err := cudakern.NewStoreKV(e.Context, typ)
		e.Must(err)
		for _, c := range []struct {
			heads, kvHeads, dim, dims int
			neox                      bool
		}{{1, 1, 2, 2, false}, {4, 2, 64, 64, true}, {6, 3, 10, 6, false}, {6, 3, 10, 6, true}, {8, 1, 128, 128, false}, {3, 1, 96, 40, true}, {5, 1, 32, 20, false}} {
			if (typ.Keys.Quantized() || typ.Values.Quantized()) && c.dim%32 != 0 {
				continue
			}
			table, err := cudakern.AngleTable(frequencies(c.dims, 1e4, 1, nil))
			e.Must(err)
			angleTable := e.uploadBytes(table)
			for _, rows := range rowCounts {
				const blocks, layers, layer, stride = 7, 2, 1, 3
				cols, kvCols := c.heads*c.dim, c.kvHeads*c.dim
				n := blocks * layers * 2 * kvCols * 32
				pos, seq := make([]int32, rows), make([]int32, rows)
				for r := range rows {
					seq[r], pos[r] = int32(r%2), int32(20+r)
				}
				step := cudakern.Step{Rows: e.Upload([]int32{int32(rows)}), Pos: e.Upload(pos), Seq: e.Upload(seq), Tables: e.Upload([]int32{5, 0, 3, 6, 2, 1}), Stride: stride, Blocks: stride}
				queries, keys, values := normal(rng, rows*cols, 1), normal(rng, rows*kvCols, 1), e.uploadFloats(normal(rng, rows*kvCols, 1))
				cache := func() cudakern.Cache {
					c := cudakern.Cache{Data: e.Buffer(4 * n), Type: typ, Layers: layers, KVHeads: c.kvHeads, HeadDim: c.dim}
					e.Must(e.Stream.Fill(c.Data, 0, int64(4*n)))
					return c
				}

				q, rotatedKeys, want := e.uploadFloats(queries), e.uploadFloats(keys), cache()
				e.Must(rope.Enqueue(e.Stream, q, cols, c.dim, c.dims, c.neox, angleTable, 0.75, step, rows))
				e.Must(rope.Enqueue(e.Stream, rotatedKeys, kvCols, c.dim, c.dims, c.neox, angleTable, 0.75, step, rows))
				e.Must(k.Enqueue(e.Stream, want, layer, rotatedKeys, values, step, rows))

				q2, got := e.uploadFloats(queries), cache()
				rotation := cudakern.Rotation{Keys: e.uploadFloats(keys), Values: values, Dims: c.dims, NeoX: c.neox, AngleTable: angleTable, Magnitude: 0.75}
				e.Must(k.EnqueueRoPE(e.Stream, got, layer, q2, cols, rotation, step, rows+2))
				if !sameBits(e.downloadFloats(q, rows*cols), e.downloadFloats(q2, rows*cols)) {
					t.Fatalf("%+v, %d rows: queries differ from those of RoPE alone", c, rows)
				}
				words := blocks * layers * (rowBytes(typ.Keys, kvCols) + rowBytes(typ.Values, kvCols)) * 32 / 4
				if !slices.Equal(e.Download(want.Data, words), e.Download(got.Data, words)) {
					t.Fatalf("%+v, %d rows: the cache differs from that of RoPE and StoreKV", c, rows)
				}
			}
		}
	}
}

func (e *testDevice) downloadCache(c cudakern.Cache, n int) []float32 {
	e.T.Helper()
	if c.Type == f32Cache {
		return e.downloadFloats(c.Data, n)
	}
	b := make([]byte, 2*n)
	e.Must(e.Stream.Download(b, c.Data))
	e.Must(e.Stream.Sync())
	values := make([]float32, n)
	for i := range values {
		values[i] = half(b[2*i:])
	}
	return values
}

// The cache has the codes and scales of the formulas, and rows that are hard to quantize have theirs.
func TestStoreKVQuantizes(t *testing.T) {
	formats := []cudakern.Format{cudakern.FormatF16, cudakern.FormatQ8, cudakern.FormatQ4}
	for _, dim := range []int{32, 96, 128} {
		for _, keyFormat := range formats {
			for _, valueFormat := range formats {
				for _, latent := range []int{0, dim - 24} {
					typ := cudakern.CacheType{Keys: keyFormat, Values: valueFormat}
					if typ == f16Cache {
						continue
					}
					t.Run(fmt.Sprintf("cache %d, heads of %d, latent %d", typ, dim, latent), func(t *testing.T) { testQuantizedStore(t, typ, dim, latent) })
				}
			}
		}
	}
}

func testQuantizedStore(t *testing.T, typ cudakern.CacheType, dim, latent int) {
	e := device(t)
	k, err := cudakern.NewStoreKV(e.Context, typ)
	e.Must(err)
	rng := rand.New(rand.NewPCG(9, uint64(dim)))
	const blocks, layers, layer, heads, rows = 3, 2, 1, 3, 40
	cols := heads * dim
	keys, values := normal(rng, rows*cols, 1), normal(rng, rows*cols, 1)
	for _, x := range [][]float32{keys, values} {
		fill := func(row int, v func(i int) float32) {
			for i := range cols {
				x[row*cols+i] = v(i)
			}
		}
		fill(0, func(int) float32 { return 0 })
		fill(1, func(i int) float32 { return float32(i%32) - 16 })
		fill(2, func(i int) float32 { return 16 - float32(i%32) })
		fill(3, func(i int) float32 { return float32(i%2*2-1) * 7 })
		fill(4, func(i int) float32 { return float32(i%64) * 0x1p-149 })
		fill(5, func(i int) float32 { return float32(i) * 0x1p-20 })
		fill(6, func(i int) float32 { return (float32(i%32) - 7.5) / 2 })
		fill(7, func(i int) float32 { return 3e38 })
		x[8*cols+3], x[9*cols+40%cols], x[10*cols] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
	}
	pos, seq := make([]int32, rows), make([]int32, rows)
	for i := range rows {
		pos[i] = int32(i)
	}
	table := []int32{2, 1}
	step := cudakern.Step{Rows: e.Upload([]int32{rows}), Pos: e.Upload(pos), Seq: e.Upload(seq), Tables: e.Upload(table), Stride: 2, Blocks: 2}
	parts := []cudakern.Format{typ.Keys, typ.Values}
	stored := e.uploadFloats(values)
	want := [][]float32{keys, values}
	if latent > 0 {
		parts, stored = parts[:1], 0
	} else if typ.Keys.Quantized() {
		want[0] = rotated(keys)
	}
	bytes := 0
	for _, f := range parts {
		bytes += blocks * layers * 32 * rowBytes(f, cols)
	}
	cache := cudakern.Cache{Data: e.Buffer(bytes), Type: typ, Layers: layers, KVHeads: heads, HeadDim: dim, Latent: latent}
	e.Must(e.Stream.Fill(cache.Data, 0xff, int64(bytes)))
	e.Must(k.Enqueue(e.Stream, cache, layer, e.uploadFloats(keys), stored, step, rows+2))
	all := make([]byte, bytes)
	e.Must(e.Stream.Download(all, cache.Data))
	e.Must(e.Stream.Sync())
	for row := range rows {
		at := (int(table[row/32])*layers + layer) * bytes / (blocks * layers)
		for kind, f := range parts {
			rounded := cached(f, want[kind][row*cols:(row+1)*cols])
			for head := range heads {
				head32 := all[at:][:32*rowBytes(f, dim)]
				for d, w := range rounded[head*dim:][:dim] {
					if got := elementOf(f, head32, dim, row%32*dim+d); math.Float32bits(got) != math.Float32bits(w) && !(got != got && w != w) && !(got == 0 && w == 0) {
						t.Fatalf("row %d, part %d, head %d, element %d: got %g, want %g", row, kind, head, d, got, w)
					}
				}
				at += len(head32)
			}
		}
	}
}

// elementOf returns an element of the keys or values of a head of dim elements in a block, which lie as formats.cuh says.
func elementOf(f cudakern.Format, head []byte, dim, i int) float32 {
	if f == cudakern.FormatF16 {
		return half(head[2*i:])
	}
	codes := 32 * dim
	if f == cudakern.FormatQ4 {
		codes /= 2
	}
	scale := half(head[codes+i/32*2:])
	if f == cudakern.FormatQ8 {
		return float32(int(head[i])-128) * scale
	}
	code := head[i/8*4+i%4]
	if i%8 >= 4 {
		code >>= 4
	}
	return float32(int(code&15)-8) * scale
}
