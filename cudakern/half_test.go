package cudakern_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// halfShapes are (outputs, inputs): single ones, partial bands, blocks, parts and tiles, and more outputs than a block has.
var halfShapes = [][2]int{{1, 1}, {3, 33}, {5, 256}, {37, 1056}, {133, 1312}, {9, 4096}}

// TestHalfProducts compares products with F16 and BF16 weights by matrix units with float64, and then checks that a row has the
// same bits in launches for other numbers of rows, which have other kernels.
func TestHalfProducts(t *testing.T) {
	for _, name := range []string{"f16", "bf16"} {
		for _, shape := range halfShapes[:fixtures.At(4, len(halfShapes), len(halfShapes))] {
			w := cudakern.Weights{Type: name, Outputs: shape[0], Inputs: shape[1]}
			t.Run(fmt.Sprintf("%s (%d, %d)", name, w.Outputs, w.Inputs), func(t *testing.T) {
				r := newExactRig(t)
				k, err := cudakern.NewMatMul(r.c, name)
				r.must(err)
				rng := rand.New(rand.NewPCG(uint64(w.Outputs), uint64(w.Inputs)))
				data := devicetest.RandomWeight(rng, weightTypes[name], w.Outputs, w.Inputs, 1)
				weights := r.load(w, data)
				const most = 130
				x := outliers(rng, most*w.Inputs)
				all := r.product(k, weights, w, x, most)
				r.compare(k, w, all, data, x)

				for _, c := range []struct{ first, rows, capacity int }{
					{0, 1, 1}, {129, 1, 2}, {5, 3, 4}, {0, 8, 8}, {3, 9, 16}, {9, 2, 16}, {0, 32, 32}, {64, 17, 32}, {7, 64, 64}, {0, 33, 64}, {1, 70, 128}, {31, 1, 512}, {0, 0, 4},
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

// outliers returns n normal random numbers, some of which are large, as in real activations.
func outliers(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
		if rng.IntN(50) == 0 {
			x[i] *= 60
		}
	}
	return x
}

// TestHalfProductsOfExtremes checks products with activations that a half cannot hold, and with those that no float holds.
func TestHalfProductsOfExtremes(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name     string
		x        float32
		relative float64 // error; below 0: the product is not finite
	}{
		{"above the largest half", 1e6, 5e-4},
		{"of one sixteenth of the least normal half", 0x1p-18, 5e-2},
		{"infinity", inf, -1},
		{"NaN", float32(math.NaN()), -1},
	} {
		for _, name := range []string{"f16", "bf16"} {
			for _, capacity := range []int{1, 16, 64} {
				t.Run(fmt.Sprintf("%s, %s in a launch for %d rows", c.name, name, capacity), func(t *testing.T) {
					r, w := newExactRig(t), cudakern.Weights{Type: name, Outputs: 2, Inputs: 64}
					k, err := cudakern.NewMatMul(r.c, name)
					r.must(err)
					data := devicetest.RandomWeight(rand.New(rand.NewPCG(3, 4)), weightTypes[name], w.Outputs, w.Inputs, 1)
					x := make([]float32, w.Inputs)
					x[37] = c.x
					want := make([]float32, w.Outputs*w.Inputs)
					r.must(gguf.Dequantize(weightTypes[name], data, want))
					for i, got := range r.product(k, r.load(w, data), w, x, capacity) {
						exact := float64(want[i*w.Inputs+37]) * float64(c.x)
						if finite := math.Abs(float64(got)) <= math.MaxFloat32; finite != (c.relative >= 0) {
							t.Errorf("output %d: got %g", i, got)
						} else if finite && math.Abs(float64(got)-exact) > c.relative*math.Abs(exact) {
							t.Errorf("output %d: got %g, want %g", i, got, exact)
						}
					}
				})
			}
		}
	}
}

// TestBFloatWeightsBecomeHalves checks what the rounding of BF16 weights to halves costs: nothing where a half has them, little below, and
// an infinite product above.
func TestBFloatWeightsBecomeHalves(t *testing.T) {
	for _, c := range []struct {
		name   string
		weight float32
		want   float64
		within float64
	}{
		{"the least normal half is exact", 0x1p-14, 0x1p-14, 0},
		{"a weight below it keeps an absolute error", 0x1.8p-20, 0x1.8p-20, 0x1p-25},
		{"the largest weight that a half has is exact", 65280, 65280, 0},
		{"a larger one is infinite", 0x1p16, math.Inf(1), 0},
	} {
		for _, capacity := range []int{1, 4, 8, 16, 32, 128} {
			t.Run(fmt.Sprintf("%s in a launch for %d rows", c.name, capacity), func(t *testing.T) {
				r, w := newExactRig(t), cudakern.Weights{Type: "bf16", Outputs: 1, Inputs: 32}
				k, err := cudakern.NewMatMul(r.c, w.Type)
				r.must(err)
				data := make([]byte, 2*w.Inputs)
				binary.LittleEndian.PutUint16(data[2*5:], uint16(math.Float32bits(c.weight)>>16))
				x := make([]float32, w.Inputs)
				x[5] = 1
				got := float64(r.product(k, r.load(w, data), w, x, capacity)[0])
				if got != c.want && !(math.Abs(got-c.want) <= c.within) {
					t.Errorf("weight %g: got %g, want %g within %g", c.weight, got, c.want, c.within)
				}
			})
		}
	}
}
