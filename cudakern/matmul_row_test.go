package cudakern_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/device/devicetest"
)

// TestProductsOfNormalizedRows compares products that normalize their rows, and quantise a GLU, with separate
// launches, and products of few rows with those of matmul.cu, bit for bit: with partial groups, blocks and tiles, more groups than blocks, fewer rows than
// there may be, no row, and rows with values that are huge or not finite. Blocks of several rows have space for weights as on a device with 228 KB
// of shared memory on a multiprocessor, and on one with 100.
func TestProductsOfNormalizedRows(t *testing.T) {
	for _, units := range []cudakern.Units{cudakern.UnitsXMAD, cudakern.UnitsDP2A, cudakern.UnitsMMA} {
		for _, name := range typesAtLevel() {
			elements, _ := weightTypes[name].Block()
			if elements == 1 && !multiplyFloats(units, name) {
				continue
			}
			for _, c := range []struct {
				outputs, inputs, rows, capacity int
				x, weight                       float64 // a value among those of the last row and of the norm's weights
				capability                      string
			}{
				{37, 256, 1, 1, 0, 0, "9.0"}, {165, 1280, 1, 1, 1e4, 1, "9.0"}, {70, 2304, 1, 1, 1, math.Inf(1), "9.0"}, {5, 256, 0, 1, 0, 0, "9.0"}, {40, 260, 1, 1, 0, 0, "9.0"}, {33, 5632, 1, 1, math.NaN(), 1, "9.0"},
				{165, 1280, 2, 2, 1e4, 1, "9.0"}, {33, 5632, 2, 2, math.NaN(), 1, "12.0"}, {40, 260, 1, 2, 0, 0, "9.0"}, {70, 2304, 4, 4, 1, math.Inf(1), "12.0"}, {37, 3840, 3, 3, 1e4, 1, "9.0"}, {165, 256, 1, 4, 0, 0, "12.0"}, {5, 256, 0, 4, 0, 0, "9.0"},
			} {
				if c.inputs%int(elements) != 0 || c.capacity > 1 && units == cudakern.UnitsXMAD && elements > 1 {
					continue // devices of these units have kernels for one row alone
				}
				units := units
				if units == cudakern.UnitsMMA {
					if c.capacity <= 2 && elements > 1 {
						continue // the kernels of dp2a
					}
					c.capability = "9.0" // others have the kernels of dp2a
				} else if c.capacity > 1 {
					units = cudakern.UnitsDP2A
				}
				t.Run(fmt.Sprintf("%s %s (%d, %d) %d of %d rows, compute capability %s", units, name, c.outputs, c.inputs, c.rows, c.capacity, c.capability), func(t *testing.T) {
					t.Setenv("M40_LLM_EMU_SMS", "1") // two blocks at the same time
					r, k, activation := newProductRig(t, c.capability, units, name, c.capacity)
					rng := rand.New(rand.NewPCG(uint64(c.outputs), uint64(c.inputs)))
					x, weight := normal(rng, c.capacity*c.inputs, 1), normal(rng, c.inputs, 1)
					x[max(c.rows-1, 0)*c.inputs+100], weight[40] = float32(c.x), float32(c.weight)
					n := cudakern.Normalized{X: r.upload(bytesOf(x)), W: r.upload(bytesOf(weight)), Eps: 1e-5}
					count := r.upload(int32Bytes(c.rows))
					var products, fused []cudakern.Product
					size := 4 * c.capacity * c.outputs
					for range 2 {
						w := cudakern.Weights{Type: name, Outputs: c.outputs, Inputs: c.inputs}
						at := r.load(w, devicetest.RandomWeight(rng, weightTypes[name], w.Outputs, w.Inputs, 1))
						empty := bytes.Repeat([]byte{0x11}, size)
						products = append(products, cudakern.Product{Dst: r.upload(empty), Weights: at, W: w})
						fused = append(fused, cudakern.Product{Dst: r.upload(empty), Weights: at, W: w})
					}
					prepared := r.alloc(activation.Bytes(c.inputs, c.capacity))
					r.must(activation.EnqueueRMSNorm(r.s, prepared, n.X, n.W, c.inputs, n.Eps, count, c.capacity))
					r.must(k.Enqueue(r.s, prepared, count, c.capacity, false, cudakern.Scratch{}, products...))
					r.must(k.EnqueueNormalized(r.s, n, count, c.capacity, fused...))
					for i := range products {
						if want, got := r.download(products[i].Dst, size), r.download(fused[i].Dst, size); !bytes.Equal(got, want) {
							t.Errorf("product %d differs from that of separate launches", i)
						}
					}
					for _, add := range []bool{true, false} {
						r.must(k.Enqueue(r.s, prepared, count, c.capacity, add, cudakern.Scratch{}, products[0]))
						r.must(k.EnqueueOne(r.s, prepared, k.Kind(c.capacity), count, c.capacity, add, fused[0]))
						if want, got := r.download(products[0].Dst, size), r.download(fused[0].Dst, size); !bytes.Equal(got, want) {
							t.Errorf("a product of activations in units differs, added: %v", add)
						}
					}
					gatedBytes := int(activation.Bytes(c.outputs, c.capacity))
					gated := []cudakern.Ptr{r.upload(make([]byte, gatedBytes)), r.upload(make([]byte, gatedBytes))}
					for _, g := range []cudakern.Gate{cudakern.SiLU, cudakern.SquaredReLU} {
						r.must(activation.EnqueueGLU(r.s, gated[0], products[0].Dst, products[1].Dst, g, c.outputs, count, c.capacity))
						r.must(k.EnqueueGated(r.s, gated[1], k.Kind(c.capacity), n, g, count, c.capacity, products[0], products[1]))
						if want, got := r.download(gated[0], gatedBytes), r.download(gated[1], gatedBytes); !bytes.Equal(got, want) {
							t.Errorf("gate %d: the GLU differs from that of separate launches", g)
						}
					}
				})
			}
		}
	}
}

// TestProductsOfGatedUnits compares products of units that a GLU of gate and up has written for them with those of separate launches, bit for bit: for all types of
// weights that write them and all that read them, with partial tiles, more tiles than are copied first, more groups than blocks, fewer rows than
// there may be, and rows with values that are not finite.
func TestProductsOfGatedUnits(t *testing.T) {
	type pair struct{ gate, down string }
	var pairs []pair
	for _, name := range typesAtLevel() {
		if elements, _ := weightTypes[name].Block(); elements > 1 {
			pairs = append(pairs, pair{"q4_0", name}, pair{name, "q4_k"}, pair{name, "q6_k"}, pair{name, "q8_0"})
		}
	}
	for _, p := range pairs {
		for _, c := range []struct {
			inputs, between, outputs, rows int
			value                          float64 // of the last row
		}{{256, 1280, 37, 4, 1e4}, {512, 256, 165, 3, math.Inf(1)}, {256, 5376, 40, 1, 0}, {256, 256, 5, 0, 0}} {
			t.Run(fmt.Sprintf("%s for %s (%d, %d, %d) %d rows", p.gate, p.down, c.inputs, c.between, c.outputs, c.rows), func(t *testing.T) {
				t.Setenv("M40_LLM_EMU_SMS", "1")
				const capacity = 4
				r, k, activation := newProductRig(t, "9.0", cudakern.UnitsMMA, p.gate, capacity)
				down, err := cudakern.NewMatMul(r.c, p.down)
				r.must(err)
				kind := down.GatedKind(c.between, capacity)
				if kind == down.Kind(capacity) {
					t.Fatal("the product has no units")
				}
				rng := rand.New(rand.NewPCG(uint64(c.inputs), uint64(c.between)))
				x := normal(rng, capacity*c.inputs, 1)
				x[max(c.rows-1, 0)*c.inputs+100] = float32(c.value)
				n := cudakern.Normalized{X: r.upload(bytesOf(x)), W: r.upload(bytesOf(normal(rng, c.inputs, 1))), Eps: 1e-5}
				count := r.upload(int32Bytes(c.rows))
				product := func(name string, outputs, inputs int) cudakern.Product {
					w := cudakern.Weights{Type: name, Outputs: outputs, Inputs: inputs}
					at := r.load(w, devicetest.RandomWeight(rng, weightTypes[name], outputs, inputs, 1))
					return cudakern.Product{Dst: r.upload(bytesOf(normal(rng, capacity*outputs, 1))), Weights: at, W: w}
				}
				gate, up, want := product(p.gate, c.between, c.inputs), product(p.gate, c.between, c.inputs), product(p.down, c.outputs, c.between)
				got, size := want, 4*capacity*c.outputs
				got.Dst = r.upload(r.download(want.Dst, size))

				prepared, of, units := r.alloc(activation.Bytes(c.inputs, capacity)), r.alloc(activation.Bytes(c.between, capacity)), r.alloc(cudakern.QuantizedBytes(kind, c.between, capacity))
				r.must(activation.EnqueueRMSNorm(r.s, prepared, n.X, n.W, c.inputs, n.Eps, count, capacity))
				r.must(k.Enqueue(r.s, prepared, count, capacity, false, cudakern.Scratch{}, gate, up))
				r.must(activation.EnqueueGLU(r.s, of, gate.Dst, up.Dst, cudakern.SiLU, c.between, count, capacity))
				r.must(k.EnqueueGated(r.s, units, kind, n, cudakern.SiLU, count, capacity, gate, up))
				for _, add := range []bool{true, false} {
					r.must(down.Enqueue(r.s, of, count, capacity, add, cudakern.Scratch{}, want))
					r.must(down.EnqueueOne(r.s, units, kind, count, capacity, add, got))
					if want, got := r.download(want.Dst, size), r.download(got.Dst, size); !bytes.Equal(got, want) {
						t.Errorf("the product of units differs, added: %v", add)
					}
				}
			})
		}
	}
}
