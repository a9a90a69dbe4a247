package cudakern_test

import (
	"bytes"
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

// promptTypes returns the types of weights with kernels for rows of prompts that are compared at the present level.
func promptTypes(c *cudakern.Context) []string {
	return slices.DeleteFunc(typesAtLevel(), func(name string) bool { return !cudakern.HasPromptMatMul(c, name) })
}

// promptProducts computes x · wᵀ of several weights of one type for rows of prompts, or adds it to before, in a launch for capacity rows.
func (r rig) promptProducts(k *cudakern.PromptMatMul, weights []cudakern.Ptr, w []cudakern.Weights, x []float32, capacity int, before float32, add bool) (out [][]float32) {
	r.Helper()
	rows := len(x) / w[0].Inputs
	image, err := cudakern.NewActivation(r.c, k.Kind())
	r.must(err)
	count, prepared := r.upload(int32Bytes(rows)), r.alloc(image.Bytes(w[0].Inputs, capacity))
	r.must(image.Enqueue(r.s, prepared, r.upload(bytesOf(x)), w[0].Inputs, count, capacity))
	var products []cudakern.Product
	for i, w := range w {
		dst := r.upload(bytesOf(slices.Repeat([]float32{before}, (rows+1)*w.Outputs)))
		products = append(products, cudakern.Product{Dst: dst, Weights: weights[i], W: w})
	}
	r.must(k.Enqueue(r.s, prepared, count, capacity, add, r.alloc(k.HalfBytes(products...)), products...))
	for i, w := range w {
		got := r.download(products[i].Dst, 4*(rows+1)*w.Outputs)
		if past := got[4*rows*w.Outputs:]; !bytes.Equal(past, bytesOf(slices.Repeat([]float32{before}, w.Outputs))) {
			r.Fatalf("a product of %d rows wrote past its last row", rows)
		}
		out = append(out, floatsOf(got[:4*rows*w.Outputs]))
	}
	return out
}

// TestProductsOfPrompts compares products of rows of prompts with those of the weights and activations, rounded to halves, in float64, and then checks that
// a row has the same bits in launches for other numbers of rows.
func TestProductsOfPrompts(t *testing.T) {
	for _, name := range promptTypes(newExactRig(t).c) {
		for _, shape := range [][2]int{{1, 32}, {37, 1056}, {133, 1280}, {9, 4096}, {130, 33}, {3, 256}}[:fixtures.At(2, 3, 6)] {
			w := cudakern.Weights{Type: name, Outputs: shape[0], Inputs: shape[1]}
			if elements, _ := weightTypes[name].Block(); w.Inputs%int(elements) != 0 {
				w.Inputs = (w.Inputs + 255) / 256 * 256
			}
			t.Run(fmt.Sprintf("%s (%d, %d)", name, w.Outputs, w.Inputs), func(t *testing.T) {
				r := newExactRig(t)
				k, err := cudakern.NewPromptMatMul(r.c, name)
				r.must(err)
				rng := rand.New(rand.NewPCG(uint64(w.Outputs), uint64(w.Inputs)))
				data := devicetest.RandomWeight(rng, weightTypes[name], w.Outputs, w.Inputs, 1)
				weights := r.load(w, data)
				const most = 130
				x := outliers(rng, most*w.Inputs)
				compute := func(x []float32, capacity int) []float32 {
					return r.promptProducts(k, []cudakern.Ptr{weights}, []cudakern.Weights{w}, x, capacity, 7, false)[0]
				}
				all := compute(x, most)
				compareHalves(t, w, all, data, x)
				for _, c := range []struct{ first, rows, capacity int }{
					{129, 1, 64}, {3, 70, 128}, {0, 129, 256}, {0, 0, 64},
				} {
					got := compute(x[c.first*w.Inputs:][:c.rows*w.Inputs], c.capacity)
					if want := all[c.first*w.Outputs:][:c.rows*w.Outputs]; !slices.Equal(got, want) {
						t.Errorf("rows %d to %d in a launch for %d rows differ from the same among %d", c.first, c.first+c.rows-1, c.capacity, most)
					}
				}
			})
		}
	}
}

// compareHalves compares products with those of rounded weights and activations, within what adding in float32 may lose.
func compareHalves(t *testing.T, w cudakern.Weights, got []float32, data []byte, x []float32) {
	t.Helper()
	values := make([]float32, w.Outputs*w.Inputs)
	if err := gguf.Dequantize(weightTypes[w.Type], data, values); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		values[i] = gguf.F16ToF32(gguf.F32ToF16(v))
	}
	for row := range len(x) / w.Inputs {
		for o := range w.Outputs {
			var sum, all float64
			for i := range w.Inputs {
				term := float64(values[o*w.Inputs+i]) * 16 * float64(gguf.F16ToF32(gguf.F32ToF16(x[row*w.Inputs+i]/16)))
				sum, all = sum+term, all+math.Abs(term)
			}
			if v := float64(got[row*w.Outputs+o]); !(math.Abs(v-sum) <= 1e-5*all) {
				t.Fatalf("row %d, output %d: got %g, want %g", row, o, v, sum)
			}
		}
	}
}

// TestProductsOfPromptsOfOneLaunch checks that products that share a launch have the same bits as separate ones, and that adding has those of adding afterwards.
func TestProductsOfPromptsOfOneLaunch(t *testing.T) {
	for _, name := range promptTypes(newExactRig(t).c) {
		t.Run(name, func(t *testing.T) {
			r, rng := newExactRig(t), rand.New(rand.NewPCG(5, 6))
			k, err := cudakern.NewPromptMatMul(r.c, name)
			r.must(err)
			var list []cudakern.Weights
			var weights []cudakern.Ptr
			for _, outputs := range []int{130, 3, 64} {
				w := cudakern.Weights{Type: name, Outputs: outputs, Inputs: 256}
				list = append(list, w)
				weights = append(weights, r.load(w, devicetest.RandomWeight(rng, weightTypes[name], w.Outputs, w.Inputs, 1)))
			}
			x := outliers(rng, 65*256)
			together := r.promptProducts(k, weights, list, x, 128, 3, false)
			added := r.promptProducts(k, weights, list, x, 128, 3, true)
			for i, w := range list {
				alone := r.promptProducts(k, weights[i:i+1], list[i:i+1], x, 128, 3, false)[0]
				if !slices.Equal(together[i], alone) {
					t.Errorf("product %d of a launch, of %d outputs, differs from one alone", i, w.Outputs)
				}
				for j, v := range alone {
					if got := added[i][j]; got != 3+v {
						t.Fatalf("product %d, value %d: got %g added to 3, want %g", i, j, got, 3+v)
					}
				}
			}
		})
	}
}

func TestProductsOfPromptsRefuseWhatTheyCannotCompute(t *testing.T) {
	r := newExactRig(t)
	if _, err := cudakern.NewPromptMatMul(r.c, "f32"); err == nil {
		t.Error("weights in F32 are rounded to halves")
	}
	k, err := cudakern.NewPromptMatMul(r.c, "q8_0")
	r.must(err)
	p := cudakern.Product{W: cudakern.Weights{Type: "q8_0", Outputs: 32, Inputs: 64}}
	other, narrow := p, p
	other.W.Type, narrow.W.Inputs = "q4_0", 32
	for _, products := range [][]cudakern.Product{{}, {p, p, p, p}, {p, other}, {p, narrow}} {
		if err := k.Enqueue(r.s, 0, 0, 64, false, 0, products...); err == nil {
			t.Errorf("%d products were launched together: %+v", len(products), products)
		}
	}
}

// TestMemoryOfRoundedWeights checks that no launch needs more than MostHalfBytes says.
func TestMemoryOfRoundedWeights(t *testing.T) {
	r := newExactRig(t)
	k, err := cudakern.NewPromptMatMul(r.c, "q4_k")
	r.must(err)
	for _, c := range []struct {
		outputs, products int
		want              int64
	}{{4096, 3, 3 * 4096 * 4096 * 2}, {14336, 2, 2 * 14336 * 4096 * 2}, {28672, 2, 28672 * 4096 * 2}, {65536, 1, 65536 * 4096 * 2}} {
		p := cudakern.Product{W: cudakern.Weights{Type: "q4_k", Outputs: c.outputs, Inputs: 4096}}
		if got := k.HalfBytes(slices.Repeat([]cudakern.Product{p}, c.products)...); got != c.want {
			t.Errorf("%d products of %d outputs need %d bytes, want %d", c.products, c.outputs, got, c.want)
		}
		if most := cudakern.MostHalfBytes(p.W); most < c.want {
			t.Errorf("%d products of %d outputs need %d bytes, MostHalfBytes is %d", c.products, c.outputs, c.want, most)
		}
	}
}
