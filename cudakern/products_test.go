package cudakern_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// typesAtLevel returns the types of weights whose kernels are compared at the present level: all in torture, else one of each
// layout and way to unpack.
func typesAtLevel() []string {
	return fixtures.At([]string{"f16", "q8_0", "q4_k"}, []string{"f32", "f16", "q8_0", "q4_0", "q5_1", "q2_k", "q4_k", "q6_k", "iq4_xs"}, cudakern.WeightTypes())
}

// weightTypes are the types of weights by their names in kernels.
var weightTypes = map[string]gguf.Type{}

func init() {
	for _, t := range gguf.Types() {
		weightTypes[strings.ToLower(t.String())] = t
	}
}

// productShapes are (outputs, inputs): single ones, partial bands, blocks and tiles, and more tiles than are
// staged in shared memory at once.
var productShapes = [][2]int{{1, 1}, {3, 33}, {5, 32}, {4, 256}, {37, 1024}, {33, 1056}, {2, 1280}, {7, 2304}, {1, 9472}}

// shapesOf returns the shapes whose rows consist of whole blocks of typ; with -short only the smaller ones.
func shapesOf(typ gguf.Type) [][2]int {
	elements, _ := typ.Block()
	return slices.DeleteFunc(slices.Clone(productShapes), func(s [2]int) bool {
		return s[1]%int(elements) != 0 || testing.Short() && s[1] > 1<<12
	})
}

type rig struct {
	testing.TB
	c *cudakern.Context
	s *cudakern.Stream
}

func newRig(t testing.TB) rig {
	d := device(t)
	return rig{t, d.Context, d.Stream}
}

func (r rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r rig) alloc(n int64) cudakern.Ptr {
	r.Helper()
	p, err := r.c.Alloc(max(n, 1))
	r.must(err)
	r.Cleanup(func() { r.must(r.c.Free(p)) })
	return p
}

func (r rig) upload(data []byte) cudakern.Ptr {
	r.Helper()
	p := r.alloc(int64(len(data)))
	r.must(r.s.Upload(p, data))
	return p
}

func (r rig) download(p cudakern.Ptr, n int) []byte {
	r.Helper()
	data := make([]byte, n)
	r.must(r.s.Download(data, p))
	r.must(r.s.Sync())
	return data
}

func (r rig) load(w cudakern.Weights, data []byte) cudakern.Ptr {
	r.Helper()
	size, _, err := w.Bytes()
	r.must(err)
	p := r.alloc(size)
	l, err := cudakern.NewLoader(r.c)
	r.must(err)
	r.must(l.Load(p, w, data))
	r.must(l.Close())
	return p
}

func floatsOf(data []byte) []float32 {
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.NativeEndian.Uint32(data[4*i:]))
	}
	return values
}

func bytesOf(values []float32) (data []byte) {
	for _, v := range values {
		data = binary.NativeEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

func int32Bytes(v int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(v)) }

// product computes x · wᵀ for len(x) / w.Inputs rows in a launch for capacity rows.
func (r rig) product(k *cudakern.MatMul, weights cudakern.Ptr, w cudakern.Weights, x []float32, capacity int) []float32 {
	r.Helper()
	rows := len(x) / w.Inputs
	activation, err := cudakern.NewActivation(r.c, k.Kind(capacity))
	r.must(err)
	count, prepared := r.upload(int32Bytes(rows)), r.alloc(activation.Bytes(w.Inputs, capacity))
	dst := r.upload(bytes.Repeat([]byte{0xff}, 4*(rows+1)*w.Outputs))
	r.must(activation.Enqueue(r.s, prepared, r.upload(bytesOf(x)), w.Inputs, count, capacity))
	product := cudakern.Product{Dst: dst, Weights: weights, W: w}
	r.must(k.Enqueue(r.s, prepared, count, capacity, false, r.scratch(k, capacity, product), product))
	out := r.download(dst, 4*(rows+1)*w.Outputs)
	if past := out[4*rows*w.Outputs:]; !bytes.Equal(past, bytes.Repeat([]byte{0xff}, len(past))) {
		r.Fatalf("a product of %d rows wrote past its last row", rows)
	}
	return floatsOf(out[:4*rows*w.Outputs])
}

// scratch returns the memory that a launch of products needs beside the products.
func (r rig) scratch(k *cudakern.MatMul, capacity int, products ...cudakern.Product) cudakern.Scratch {
	r.Helper()
	sums, arrivals := k.Scratch(capacity, products...)
	if sums == 0 {
		return cudakern.Scratch{}
	}
	return cudakern.Scratch{Sums: r.alloc(sums), Arrivals: r.upload(make([]byte, arrivals))}
}

// TestProducts compares every kernel with the product of the dequantized weights in float64, and then checks
// that a row has the same bits in launches with other rows.
func TestProducts(t *testing.T) {
	for _, name := range cudakern.WeightTypes() {
		for _, shape := range shapesOf(weightTypes[name]) {
			w := cudakern.Weights{Type: name, Outputs: shape[0], Inputs: shape[1]}
			t.Run(fmt.Sprintf("%s (%d, %d)", name, w.Outputs, w.Inputs), func(t *testing.T) {
				r := newRig(t)
				k, err := cudakern.NewMatMul(r.c, name)
				r.must(err)
				rng := rand.New(rand.NewPCG(uint64(w.Outputs), uint64(w.Inputs)))
				data := devicetest.RandomWeight(rng, weightTypes[name], w.Outputs, w.Inputs, 1)
				weights := r.load(w, data)
				const most = 33
				x := make([]float32, most*w.Inputs)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
					if rng.IntN(50) == 0 {
						x[i] *= 60 // outliers, as in real activations
					}
				}
				all := r.product(k, weights, w, x, most)
				r.compare(k, w, all, data, x)

				for _, c := range []struct{ first, rows, capacity int }{
					{0, 1, 1}, {0, 2, 2}, {0, 3, 3}, {0, 5, 5}, {0, 8, 8}, {0, 9, 9},
					{32, 1, 1}, {7, 2, 4}, {9, 3, 64}, {31, 1, 8}, {0, 0, 4},
				} {
					got := r.product(k, weights, w, x[c.first*w.Inputs:][:c.rows*w.Inputs], c.capacity)
					if want := all[c.first*w.Outputs:][:c.rows*w.Outputs]; !slices.Equal(got, want) {
						t.Errorf("rows %d to %d in a launch for %d rows differ from the same among %d", c.first, c.first+c.rows-1, c.capacity, most)
					}
				}
			})
		}
	}
}

// TestExactUnits compares the bits of products by newer units with those of sm_52's few rows, and those of many rows by all units with those of
// dp2a, for outputs and rows that leave blocks of threads incomplete, lanes without blocks, and one more tile for some lanes than for others.
func TestExactUnits(t *testing.T) {
	for _, d := range append([]exactDevice{{cudakern.UnitsXMAD, "9.0", 64}}, exactDevices...) {
		other := cudakern.UnitsDP2A
		if d.units == other {
			other = cudakern.UnitsXMAD
		}
		for _, name := range typesAtLevel() {
			elements, _ := weightTypes[name].Block()
			if elements == 1 {
				continue // floats have no such units
			}
			for _, c := range []struct{ outputs, inputs, rows int }{{5, 256, 3}, {9, 2304, 1}, {37, 1280, 5}, {70, 2304, 8}, {70, 2304, 19}, {3, 9472, 12}, {133, 256, 64}, {37, 1280, 70}, {260, 2304, 67}, {4, 9472, 64}} {
				if c.rows < d.from || d.units == cudakern.UnitsDP2A && c.rows > 8 || testing.Short() && (c.outputs > 200 || c.inputs > 4096) {
					continue
				}
				t.Run(fmt.Sprintf("%s %s (%d, %d) %d rows", d, name, c.outputs, c.inputs, c.rows), func(t *testing.T) {
					r, w := newExactRigOf(t, d.capability), cudakern.Weights{Type: name, Outputs: c.outputs, Inputs: c.inputs}
					rng := rand.New(rand.NewPCG(uint64(c.outputs), uint64(c.inputs)))
					weights := r.load(w, devicetest.RandomWeight(rng, weightTypes[name], w.Outputs, w.Inputs, 1))
					x := make([]float32, c.rows*c.inputs)
					for i := range x {
						x[i] = float32(rng.NormFloat64())
						if rng.IntN(50) == 0 {
							x[i] *= 60
						}
					}
					var results [2][]float32
					for i, units := range []cudakern.Units{other, d.units} {
						r.c.Units = units
						k, err := cudakern.NewMatMul(r.c, name)
						r.must(err)
						capacity := c.rows
						if units == cudakern.UnitsXMAD && capacity >= 64 {
							capacity = 256 // fewer have kernels of few rows
						}
						results[i] = r.product(k, weights, w, x, capacity)
					}
					for i, want := range results[0] {
						if got := results[1][i]; math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("row %d, output %d: got %g, want %g", i/c.outputs, i%c.outputs, got, want)
						}
					}
				})
			}
		}
	}
}

// multiplyFloats reports whether units have a way of their own to multiply float weights of a type: units dp2a do as xmad.
func multiplyFloats(units cudakern.Units, name string) bool {
	return units == cudakern.UnitsXMAD || units == cudakern.UnitsMMA && name != "f32"
}

// exactDevice has units that sm_52 has not got, for from rows or more.
type exactDevice struct {
	units      cudakern.Units
	capability string
	from       int
}

// exactDevices: products of 64 rows and more have another kernel where multiprocessors have 228 KB of shared memory.
var exactDevices = []exactDevice{{cudakern.UnitsDP2A, "9.0", 1}, {cudakern.UnitsMMA, "9.0", 5}, {cudakern.UnitsMMA, "8.6", 64}}

func (d exactDevice) String() string { return fmt.Sprintf("%s of %s", d.units, d.capability) }

// newExactRig is newRig on a device with all units.
func newExactRig(t testing.TB) rig { return newExactRigOf(t, "9.0") }

// newExactRigOf is newExactRig; an emulated device has this compute capability.
func newExactRigOf(t testing.TB, capability string) rig {
	t.Setenv("M40_LLM_EMU_CAPABILITY", capability)
	r := newRig(t)
	if units := r.c.Properties().Units(); units != cudakern.UnitsMMA {
		t.Skipf("the device has units %s", units)
	}
	return r
}

// newProductRig returns a rig with these units, and what computes products of capacity rows and quantises them.
func newProductRig(t testing.TB, capability string, units cudakern.Units, weights string, capacity int) (rig, *cudakern.MatMul, *cudakern.Activation) {
	r := newExactRigOf(t, capability)
	r.c.Units = units
	k, err := cudakern.NewMatMul(r.c, weights)
	r.must(err)
	activation, err := cudakern.NewActivation(r.c, k.Kind(capacity))
	r.must(err)
	return r, k, activation
}

// TestProductsOfOneLaunch checks that products that share a launch have the same bits as separate ones, and
// that adding to dst has the same bits as adding afterwards.
func TestProductsOfOneLaunch(t *testing.T) {
	for _, rows := range []int{1, 3, 8, 13} {
		t.Run(fmt.Sprintf("%d rows", rows), func(t *testing.T) {
			r, rng := newRig(t), rand.New(rand.NewPCG(uint64(rows), 8))
			k, err := cudakern.NewMatMul(r.c, "q8_0")
			r.must(err)
			const inputs = 352
			x := make([]float32, rows*inputs)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			activation, err := cudakern.NewActivation(r.c, k.Kind(rows))
			r.must(err)
			count, prepared := r.upload(int32Bytes(rows)), r.alloc(activation.Bytes(inputs, rows))
			r.must(activation.Enqueue(r.s, prepared, r.upload(bytesOf(x)), inputs, count, rows))

			var products []cudakern.Product
			var alone [][]float32
			for _, outputs := range []int{37, 1, 64} {
				w := cudakern.Weights{Type: "q8_0", Outputs: outputs, Inputs: inputs}
				weights := r.load(w, devicetest.RandomWeight(rng, gguf.Q8_0, outputs, inputs, 1))
				alone = append(alone, r.product(k, weights, w, x, rows))
				products = append(products, cudakern.Product{Dst: r.alloc(int64(4 * rows * outputs)), Weights: weights, W: w})
			}
			for number := 1; number <= len(products); number++ {
				for _, add := range []bool{false, true} {
					r.must(k.Enqueue(r.s, prepared, count, rows, add, cudakern.Scratch{}, products[:number]...))
					for i, p := range products[:number] {
						got := floatsOf(r.download(p.Dst, 4*rows*p.W.Outputs))
						for j, want := range alone[i] {
							if add {
								want += want
							}
							if got[j] != want {
								t.Fatalf("product %d of %d, add %t, value %d: got %g, want %g", i, number, add, j, got[j], want)
							}
						}
					}
				}
			}
		})
	}
}

func (r rig) compare(k *cudakern.MatMul, w cudakern.Weights, got []float32, data []byte, x []float32) {
	r.Helper()
	values := make([]float32, w.Outputs*w.Inputs)
	r.must(gguf.Dequantize(weightTypes[w.Type], data, values))
	for i, g := range got {
		ws, xs := values[i%w.Outputs*w.Inputs:][:w.Inputs], x[i/w.Outputs*w.Inputs:][:w.Inputs]
		want, allowed := 0.0, productError(k, ws, xs)
		for j := range xs {
			want += float64(ws[j]) * float64(xs[j])
		}
		if off := math.Abs(float64(g) - want); !(off <= allowed) {
			r.Fatalf("row %d, output %d: got %g, want %g, off by %.2g where %.2g is allowed", i/w.Outputs, i%w.Outputs, g, want, off, allowed)
		}
	}
}

// productError returns the bound for the error of a product: the rounding of float32 sums, and with quantised weights
// that of activations, half a unit of each block. With halves it is that of activations, too.
func productError(k *cudakern.MatMul, w, x []float32) (bound float64) {
	for i := 0; i < len(x); i += 32 {
		var sumW, maxX float64
		for j := i; j < min(i+32, len(x)); j++ {
			w, x := math.Abs(float64(w[j])), math.Abs(float64(x[j]))
			sumW, maxX = sumW+w, max(maxX, x)
			bound += 1e-6 * w * x
		}
		switch {
		case k.ExpertKind() == "i16":
			bound += maxX / 32512 / 2 * 1.001 * sumW
		case k.Kind(16) == "half":
			for j := i; j < min(i+32, len(x)); j++ {
				bound += math.Abs(float64(w[j])) * max(math.Abs(float64(x[j]))*0x1p-11, 0x1p-21)
				bound += math.Abs(float64(x[j])) * 0x1p-25 // BF16 weights that no normal half has
			}
		}
	}
	return bound
}

// TestProductErrors reports the error of products of real size, and compares it with the error that int16
// activations explain: that of the same product in float64 with rounded activations. The kernel may only add
// the rounding of float32 sums.
func TestProductErrors(t *testing.T) {
	const outputs, inputs = 64, 4096
	rng := rand.New(rand.NewPCG(11, 12))
	x := make([]float32, inputs)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
		if rng.IntN(50) == 0 {
			x[i] *= 60
		}
	}
	for _, name := range cudakern.WeightTypes() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			k, err := cudakern.NewMatMul(r.c, name)
			r.must(err)
			w := cudakern.Weights{Type: name, Outputs: outputs, Inputs: inputs}
			data := devicetest.RandomWeight(rng, weightTypes[name], outputs, inputs, 1)
			values := make([]float32, outputs*inputs)
			r.must(gguf.Dequantize(weightTypes[name], data, values))
			rounded := slices.Clone(x)
			if k.ExpertKind() == "i16" {
				roundActivations(rounded)
			}
			var squares, total, explained, added float64
			for i, got := range r.product(k, r.load(w, data), w, x, 1) {
				exact, withRounded := 0.0, 0.0
				for j, v := range values[i*inputs:][:inputs] {
					exact += float64(v) * float64(x[j])
					withRounded += float64(v) * float64(rounded[j])
				}
				squares += exact * exact
				total += math.Pow(float64(got)-exact, 2)
				explained += math.Pow(withRounded-exact, 2)
				added += math.Pow(float64(got)-withRounded, 2)
			}
			relative := func(sum float64) float64 { return math.Sqrt(sum / squares) }
			t.Logf("error %.2g of the results, of which activations explain %.2g", relative(total), relative(explained))
			if !(relative(added) < 2e-5) {
				t.Errorf("the kernel adds an error of %.2g to that of its activations", relative(added))
			}
		})
	}
}

// roundActivations rounds x as activation.cu does for path i16.
func roundActivations(x []float32) {
	for block := range slices.Chunk(x, 32) {
		largest := float32(0)
		for _, v := range block {
			largest = max(largest, max(v, -v))
		}
		scale, inverse := largest/32512, 32512/largest
		for i, v := range block {
			block[i] = float32(math.RoundToEven(float64(v*inverse))) * scale
		}
	}
}

// TestEmbeddings compares rows of tables that a Loader wrote with the values of the file, bit for bit. The
// bits of blocks are random, so some scales are huge, subnormal or not finite.
func TestEmbeddings(t *testing.T) {
	for _, name := range cudakern.WeightTypes() {
		for _, shape := range shapesOf(weightTypes[name]) {
			w := cudakern.Weights{Type: name, Outputs: shape[0], Inputs: shape[1]}
			t.Run(fmt.Sprintf("%s (%d, %d)", name, w.Outputs, w.Inputs), func(t *testing.T) {
				r, rng := newRig(t), rand.New(rand.NewPCG(uint64(w.Inputs), 7))
				_, file, err := w.Bytes()
				r.must(err)
				data := make([]byte, file)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				want := make([]float32, w.Outputs*w.Inputs)
				r.must(gguf.Dequantize(weightTypes[name], data, want))
				var tokens []byte
				for i := range w.Outputs {
					tokens = append(tokens, int32Bytes(i)...)
				}
				k, err := cudakern.NewEmbed(r.c, name)
				r.must(err)
				dst := r.alloc(int64(4 * len(want)))
				step := cudakern.Step{Tokens: r.upload(tokens), Rows: r.upload(int32Bytes(w.Outputs))}
				r.must(k.Enqueue(r.s, dst, r.load(w, data), w.Inputs, step, w.Outputs))
				for i, got := range floatsOf(r.download(dst, 4*len(want))) {
					if same := got == want[i] || got != got && want[i] != want[i]; !same {
						t.Fatalf("row %d, value %d is %g, want %g", i/w.Inputs, i%w.Inputs, got, want[i])
					}
				}
			})
		}
	}
}

// invertible are the types that unpack can convert back.
var invertible = []string{"f32", "f16", "q8_0", "q4_0", "q4_k", "q6_k"}

// TestLoader converts the output of a Loader back and compares it with the bytes of the file.
func TestLoader(t *testing.T) {
	for _, name := range invertible {
		for _, shape := range append(shapesOf(weightTypes[name]), [2]int{162, 256 << 10}) {
			w := cudakern.Weights{Type: name, Outputs: shape[0], Inputs: shape[1]}
			if w.Inputs > 1<<17 && (name != "q6_k" || testing.Short()) {
				continue // one weight that is loaded in several parts is enough
			}
			t.Run(fmt.Sprintf("%s (%d, %d)", name, w.Outputs, w.Inputs), func(t *testing.T) {
				r, rng := newRig(t), rand.New(rand.NewPCG(3, 4))
				size, file, err := w.Bytes()
				r.must(err)
				data := make([]byte, file)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				packed := r.download(r.load(w, data), int(size))
				row, band := int(file)/w.Outputs, int(size)/((w.Outputs+3)/4)
				for output := range w.Outputs {
					if got, want := unpack(w, packed[output/4*band:][:band], output%4), data[output*row:][:row]; !bytes.Equal(got, want) {
						t.Fatalf("output %d differs from the file", output)
					}
				}
			})
		}
	}
}

// unpack converts one output of a band from the layout of weights.cuh to that of a file.
func unpack(w cudakern.Weights, band []byte, output int) (row []byte) {
	format := map[string]struct{ chunks, high, scale, super int }{
		"f32": {8, 0, 0, 0}, "f16": {4, 0, 0, 0}, "q8_0": {2, 0, 2, 0}, "q4_0": {1, 0, 2, 0}, "q4_k": {1, 0, 2, 4}, "q6_k": {1, 8, 2, 2},
	}[w.Type]
	blocks := (w.Inputs + 31) / 32
	for tile := 0; tile < blocks; tile += 32 {
		n := min(blocks-tile, 32)
		take := func(size int) []byte {
			part := band[:size]
			band = band[size:]
			return part
		}
		quants, high := take(64*format.chunks*n), take(4*format.high*n)
		scales, supers := take(4*format.scale*n), take(4*format.super*(n/8))
		take(-(len(quants) + len(high) + len(scales) + len(supers)) & 15)
		var numbers []byte // of 256 inputs
		var parts [][]byte // scales of their blocks
		for block := range n {
			var words, upper []byte
			for chunk := range format.chunks {
				words = append(words, quants[((output*format.chunks+chunk)*n+block)*16:][:16]...)
			}
			if format.high > 0 {
				upper = high[(output*n+block)*8:][:8]
			}
			if format.scale == 0 {
				row = append(row, words...)
				continue
			}
			q := quantsOf(words, upper)
			scale := scales[(block*4+output)*2:][:2]
			switch w.Type {
			case "q8_0":
				row = append(row, scale...)
				for _, v := range q {
					row = append(row, v-128)
				}
			case "q4_0":
				row = append(row, scale...)
				for i := range 16 {
					row = append(row, q[i]|q[i+16]<<4)
				}
			default:
				numbers, parts = append(numbers, q...), append(parts, scale)
				if block%8 == 7 {
					super := supers[(block/8*4+output)*format.super:][:format.super]
					if w.Type == "q4_k" {
						row = append(row, rawQ4_K(numbers, parts, super)...)
					} else {
						row = append(row, rawQ6_K(numbers, parts, super)...)
					}
					numbers, parts = nil, nil
				}
			}
		}
	}
	elements, size := weightTypes[w.Type].Block()
	return row[:w.Inputs/int(elements)*int(size)]
}

// quantsOf returns the 32 quants of a block.
func quantsOf(words, upper []byte) (q []byte) {
	for i := range 32 {
		if len(words) == 32 {
			q = append(q, words[i/4*4+[]int{0, 2, 1, 3}[i%4]])
			continue
		}
		v := binary.LittleEndian.Uint32(words[i/8*4:]) >> (i%8/2*4 + i%2*16) & 15
		if len(upper) > 0 {
			bit := []int{4, 6, 12, 14, 2, 0, 10, 8}[i%16/2]
			v |= binary.LittleEndian.Uint32(upper[i/16*4:]) >> (bit + i%2*16) & 3 << 4
		}
		q = append(q, byte(v))
	}
	return q
}

func rawQ4_K(q []byte, parts [][]byte, super []byte) []byte {
	raw := append(slices.Clone(super), make([]byte, 12)...)
	for i := range 4 {
		low, high := parts[i], parts[i+4]
		raw[4+i] = low[0] | high[0]>>4<<6
		raw[8+i] = low[1] | high[1]>>4<<6
		raw[12+i] = high[0]&15 | high[1]<<4
	}
	for i := range 128 {
		at := i/32*64 + i%32
		raw = append(raw, q[at]|q[at+32]<<4)
	}
	return raw
}

func rawQ6_K(q []byte, parts [][]byte, super []byte) []byte {
	raw := make([]byte, 192)
	for i, v := range q {
		half, run, k := i/128, i%128/32, i%32
		raw[64*half+run%2*32+k] |= v & 15 << (run / 2 * 4)
		raw[128+32*half+k] |= v >> 4 << (2 * run)
	}
	for _, scale := range parts {
		raw = append(raw, scale...)
	}
	return append(raw, super...)
}

// TestProductsOfUnusualActivations checks products of zeros, tiny and huge activations, and that those of a NaN
// or an infinity are not finite.
func TestProductsOfUnusualActivations(t *testing.T) {
	fill := func(v float32, x []float32) {
		for i := range x {
			x[i] = v * float32(1+i%3)
		}
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	w := cudakern.Weights{Type: "q4_0", Outputs: 5, Inputs: 1088}
	r := newRig(t)
	k, err := cudakern.NewMatMul(r.c, w.Type)
	r.must(err)
	data := devicetest.RandomWeight(rand.New(rand.NewPCG(5, 6)), gguf.Q4_0, w.Outputs, w.Inputs, 1)
	weights := r.load(w, data)
	for _, c := range []struct {
		name string
		make func(x []float32)
		want func(y float32) bool
	}{
		{"zeros", func(x []float32) { fill(0, x) }, func(y float32) bool { return y == 0 }},
		{"numbers too small to divide by", func(x []float32) { fill(1e-41, x) }, func(y float32) bool { return math.Abs(float64(y)) < 1e-36 }},
		{"huge numbers", func(x []float32) { fill(1e30, x) }, func(y float32) bool { return math.Abs(float64(y)) < 1e36 && y != 0 }},
		{"one infinity", func(x []float32) { fill(1, x); x[1087] = inf }, func(y float32) bool { return y-y != 0 }},
		{"one negative infinity", func(x []float32) { fill(1, x); x[500] = -inf }, func(y float32) bool { return y-y != 0 }},
		{"one NaN", func(x []float32) { fill(1, x); x[33] = nan }, func(y float32) bool { return y != y }},
	} {
		x := make([]float32, w.Inputs)
		c.make(x)
		for _, rows := range []int{1, 256} {
			for i, y := range r.product(k, weights, w, slices.Repeat(x, rows), rows) {
				if !c.want(y) {
					t.Errorf("%s: output %d of row %d of %d is %g", c.name, i%w.Outputs, i/w.Outputs, rows, y)
				}
			}
		}
	}
}

func TestUnitsFollowFromTheComputeCapability(t *testing.T) {
	const consumer, dataCenter = 99 << 10, 227 << 10
	for _, c := range []struct {
		major, minor, shared int
		want                 cudakern.Units
	}{
		{5, 2, 48 << 10, cudakern.UnitsXMAD},
		{6, 0, 48 << 10, cudakern.UnitsXMAD},
		{6, 1, 48 << 10, cudakern.UnitsDP2A},
		{7, 0, 96 << 10, cudakern.UnitsDP2A},
		{7, 5, 64 << 10, cudakern.UnitsDP2A},
		{8, 0, 163 << 10, cudakern.UnitsMMA},
		{8, 6, consumer, cudakern.UnitsMMA},
		{9, 0, dataCenter, cudakern.UnitsMMA},
		{12, 0, consumer, cudakern.UnitsMMA},
		{12, 0, 64 << 10, cudakern.UnitsDP2A}, // their blocks would not fit
	} {
		p := cudakern.Properties{Major: c.major, Minor: c.minor, MaxShared: c.shared}
		if got := p.Units(); got != c.want {
			t.Errorf("compute capability %d.%d multiplies with %s, want %s", c.major, c.minor, got, c.want)
		}
	}
	t.Run("the environment can force others", func(t *testing.T) {
		for _, forced := range []cudakern.Units{cudakern.UnitsXMAD, cudakern.UnitsDP2A} {
			t.Setenv("M40_LLM_CUDA_UNITS", string(forced))
			p := cudakern.Properties{Major: 9, MaxShared: dataCenter}
			if got := p.Units(); got != forced {
				t.Errorf("got %s, want %s", got, forced)
			}
		}
	})
}

// TestPartsOfProducts compares products that several blocks compute parts of, on emulated devices of few multiprocessors, with those of blocks that
// compute all of a result, bit for bit: several products in a launch, fewer rows than there may be, added or not, and launch after launch with the
// same memory.
func TestPartsOfProducts(t *testing.T) {
	for _, c := range []struct {
		units                  cudakern.Units
		capability             string
		multiprocessors        int
		parts                  int64
		outputs                [2]int
		inputs, rows, capacity int
		blockOutputs           int64
	}{
		{cudakern.UnitsMMA, "9.0", 2, 2, [2]int{64, 0}, 1056, 64, 128, 64},
		{cudakern.UnitsMMA, "9.0", 4, 4, [2]int{37, 0}, 2048, 50, 128, 64},
		{cudakern.UnitsMMA, "9.0", 4, 2, [2]int{64, 1}, 1248, 65, 128, 64},
		{cudakern.UnitsMMA, "8.6", 4, 2, [2]int{130, 0}, 1056, 64, 64, 128},
		{cudakern.UnitsMMA, "8.6", 4, 4, [2]int{5, 0}, 2304, 64, 64, 128},
		{cudakern.UnitsXMAD, "9.0", 1, 2, [2]int{64, 0}, 1056, 64, 256, 128},
		{cudakern.UnitsXMAD, "9.0", 6, 4, [2]int{37, 0}, 2048, 150, 256, 128},
		{cudakern.UnitsXMAD, "9.0", 4, 2, [2]int{64, 1}, 1248, 65, 256, 128},
	} {
		for _, name := range []string{"q4_0", "q5_k", "q6_k", "q8_0"} {
			c := c
			elements, _ := weightTypes[name].Block()
			inputs := (c.inputs + int(elements) - 1) / int(elements) * int(elements)
			if c.units == cudakern.UnitsMMA && c.capability == "9.0" && (name == "q4_0" || name == "q8_0") {
				c.capacity, c.multiprocessors = 2*c.capacity, 2*c.multiprocessors // up to 128 rows, these have the kernel of 16 rows
			}
			t.Run(fmt.Sprintf("%s %v × %d, %d of %d rows, %s", name, c.outputs, inputs, c.rows, c.capacity, exactDevice{c.units, c.capability, 0}), func(t *testing.T) {
				t.Setenv("M40_LLM_EMU_SMS", strconv.Itoa(c.multiprocessors))
				rng := rand.New(rand.NewPCG(uint64(inputs), uint64(c.rows)))
				x := normal(rng, c.capacity*inputs, 1)
				var weights [][]byte
				for _, outputs := range c.outputs {
					weights = append(weights, devicetest.RandomWeight(rng, weightTypes[name], outputs, inputs, 1))
				}
				var results [][]byte
				for _, units := range []cudakern.Units{cudakern.UnitsDP2A, c.units} {
					r, k, activation := newProductRig(t, c.capability, units, name, c.capacity)
					count, prepared := r.upload(int32Bytes(c.rows)), r.alloc(activation.Bytes(inputs, c.capacity))
					r.must(activation.Enqueue(r.s, prepared, r.upload(bytesOf(x)), inputs, count, c.capacity))
					var products []cudakern.Product
					for i, outputs := range c.outputs {
						if outputs > 0 {
							w := cudakern.Weights{Type: name, Outputs: outputs, Inputs: inputs}
							products = append(products, cudakern.Product{Dst: r.upload(make([]byte, 4*c.capacity*outputs)), Weights: r.load(w, weights[i]), W: w})
						}
					}
					sums, arrivals := k.Scratch(c.capacity, products...)
					if want := c.parts * arrivals * 64 * c.blockOutputs; units == c.units && r.c.Properties().SMs == c.multiprocessors && (sums != want || arrivals == 0) {
						t.Errorf("%d bytes for the sums of %d blocks, want %d of them for each result", sums, arrivals/4, c.parts)
					}
					if most, mostArrivals := r.c.Properties().MostScratch(units); sums > most || arrivals > mostArrivals {
						t.Errorf("%d and %d bytes of scratch, the most should be %d and %d", sums, arrivals, most, mostArrivals)
					}
					scratch := r.scratch(k, c.capacity, products...)
					var got []byte
					for _, add := range []bool{false, true, true} {
						r.must(k.Enqueue(r.s, prepared, count, c.capacity, add, scratch, products...))
						for _, p := range products {
							got = append(got, r.download(p.Dst, 4*c.capacity*p.W.Outputs)...)
						}
					}
					results = append(results, got)
				}
				if !bytes.Equal(results[0], results[1]) {
					t.Error("results differ from those of units dp2a")
				}
			})
		}
	}
}

func TestProductsRefuseWhatTheyCannotCompute(t *testing.T) {
	r := newRig(t)
	l, err := cudakern.NewLoader(r.c)
	r.must(err)
	k, err := cudakern.NewMatMul(r.c, "q4_0")
	r.must(err)
	memory := r.alloc(1 << 16)
	good := cudakern.Weights{Type: "q4_0", Outputs: 4, Inputs: 64}
	most := cudakern.Weights{Type: "q4_0", Outputs: 1 << 20, Inputs: 64}
	enqueue := func(capacity int, of ...cudakern.Weights) error {
		var products []cudakern.Product
		for _, w := range of {
			products = append(products, cudakern.Product{Dst: memory, Weights: memory, W: w})
		}
		return k.Enqueue(r.s, memory, memory, capacity, false, cudakern.Scratch{}, products...)
	}
	for _, c := range []struct {
		name string
		err  error
	}{
		{"weights of an unknown type", l.Load(memory, cudakern.Weights{Type: "iq3_s", Outputs: 4, Inputs: 256}, nil)},
		{"rows that are no whole blocks", l.Load(memory, cudakern.Weights{Type: "q4_0", Outputs: 4, Inputs: 48}, make([]byte, 108))},
		{"no outputs", l.Load(memory, cudakern.Weights{Type: "f32", Inputs: 4}, nil)},
		{"data of another size", l.Load(memory, good, make([]byte, 143))},
		{"rows that no part of the loader holds", l.Load(memory, cudakern.Weights{Type: "f32", Outputs: 1, Inputs: 1 << 21}, make([]byte, 4<<21))},
		{"more outputs than a grid has room for", func() error {
			_, _, err := cudakern.Weights{Type: "q4_0", Outputs: 1 << 21, Inputs: 32}.Bytes()
			return err
		}()},
		{"a product with weights of another type", enqueue(1, cudakern.Weights{Type: "q8_0", Outputs: 4, Inputs: 64})},
		{"a product of no rows", enqueue(0, good)},
		{"no product", enqueue(1)},
		{"more products than one launch has", enqueue(1, good, good, good, good)},
		{"products of different activations", enqueue(1, good, cudakern.Weights{Type: "q4_0", Outputs: 4, Inputs: 96})},
		{"products of more outputs than a grid has room for", enqueue(1, most, most)},
		{"a kind that there is not", func() error { _, err := cudakern.NewActivation(r.c, "i8"); return err }()},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	r.must(l.Close())
}
