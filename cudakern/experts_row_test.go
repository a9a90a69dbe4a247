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

// TestMixturesOfFewRowsHaveTheBitsOfSeparateLaunches compares the two launches of a mixture of experts with those of its norm, products, GLU and sum, bit
// for bit: with more groups than blocks, partial tiles, more experts of a row than a block has warps, fewer, some of which are no number, fewer rows than there may be, no row, and values that are not finite.
func TestMixturesOfFewRowsHaveTheBitsOfSeparateLaunches(t *testing.T) {
	type pair struct{ gate, down string }
	var pairs []pair
	for _, name := range typesAtLevel() {
		if elements, _ := weightTypes[name].Block(); elements > 1 && name != "q8_0" {
			pairs = append(pairs, pair{name, "q8_0"}, pair{"q4_0", name})
		}
	}
	for _, units := range []cudakern.Units{cudakern.UnitsXMAD, cudakern.UnitsDP2A} {
		for _, p := range pairs {
			for _, c := range []struct {
				width, inner   int
				experts, used  int
				choice         string
				rows, capacity int
				x, weight      float64 // a value among those of the last row and of the norm's weights
			}{
				{256, 256, 5, 2, "randomly", 1, 1, 0, 0},
				{1280, 768, 40, 8, "randomly", 1, 1, 1e4, 1},
				{256, 1280, 9, 3, "the same", 2, 4, 1, 1},
				{512, 256, 20, 12, "randomly", 4, 4, math.NaN(), 1},
				{256, 256, 6, 4, "invalid numbers", 1, 2, 1, math.Inf(1)},
				{256, 512, 3, 1, "randomly", 0, 1, 0, 0},
				{512, 256, 17, 16, "randomly", 1, 1, 0, 0},
				{256, 256, 64, 4, "randomly", 7, 8, 0, 0},
			} {
				t.Run(fmt.Sprintf("%s %s and %s, %d of %d experts (%d, %d) chosen %s, %d of %d rows", units, p.gate, p.down, c.used, c.experts, c.width, c.inner, c.choice, c.rows, c.capacity), func(t *testing.T) {
					if units == cudakern.UnitsXMAD && p.down == "q8_0" {
						p.down = "q4_k"
					}
					t.Setenv("M40_LLM_EMU_SMS", "1") // two blocks at the same time
					r, gates, activation := newProductRig(t, "9.0", units, p.gate, 1)
					downs, err := cudakern.NewMatMul(r.c, p.down)
					r.must(err)
					if gates.CanMix(downs, c.width, c.inner, c.experts, c.used, c.capacity) {
						t.Fatal("kernels that are not loaded can compute a mixture")
					}
					for _, k := range []*cudakern.MatMul{gates, downs} {
						r.must(k.LoadMixtures(r.c))
					}
					if !gates.CanMix(downs, c.width, c.inner, c.experts, c.used, c.capacity) || gates.CanMix(downs, c.width, c.inner, c.experts, c.used, 9) || gates.CanMix(downs, c.width, c.inner, c.experts, 17, 1) || gates.CanMix(downs, c.width, c.inner+2, c.experts, c.used, 1) {
						t.Fatal("other mixtures than these can be computed")
					}
					rng := rand.New(rand.NewPCG(uint64(c.width), uint64(c.used)))
					routes := r.uploadRoutes(mixture{experts: c.experts, used: c.used, rows: max(c.rows, 1), choice: c.choice}.routes(rng))
					product := func(name string, outputs, inputs int) cudakern.ExpertProduct {
						w := cudakern.Weights{Type: name, Outputs: c.experts * outputs, Inputs: inputs}
						at := r.load(w, devicetest.RandomWeight(rng, weightTypes[name], w.Outputs, inputs, 1))
						w.Outputs = outputs
						return cudakern.ExpertProduct{Dst: r.alloc(int64(4 * c.capacity * c.used * outputs)), Weights: at, W: w, Experts: c.experts, Used: c.used, Routes: routes}
					}
					m := cudakern.ExpertMixture{Gate: product(p.gate, c.inner, c.width), Up: product(p.gate, c.inner, c.width), Down: product(p.down, c.width, c.inner), GLU: cudakern.SiLU}
					m.Down.Own = true
					x, weight := normal(rng, c.capacity*c.width, 1), normal(rng, c.width, 1)
					x[max(c.rows-1, 0)*c.width+100], weight[40] = float32(c.x), float32(c.weight)
					m.Norm = cudakern.Normalized{X: r.upload(bytesOf(x)), W: r.upload(bytesOf(weight)), Eps: 1e-5}
					count := r.upload(int32Bytes(c.rows))

					experts, err := cudakern.NewExperts(r.c)
					r.must(err)
					pairs, slots := r.alloc(4), c.capacity*c.used
					normed, gated := r.alloc(activation.Bytes(c.width, c.capacity)), r.alloc(activation.Bytes(c.inner, slots))
					r.must(experts.EnqueueCount(r.s, pairs, c.used, count))
					r.must(activation.EnqueueRMSNorm(r.s, normed, m.Norm.X, m.Norm.W, c.width, m.Norm.Eps, count, c.capacity))
					r.must(gates.EnqueueExperts(r.s, normed, pairs, c.capacity, m.Gate))
					r.must(gates.EnqueueExperts(r.s, normed, pairs, c.capacity, m.Up))
					r.must(activation.EnqueueGLU(r.s, gated, m.Gate.Dst, m.Up.Dst, m.GLU, c.inner, pairs, slots))
					r.must(downs.EnqueueExperts(r.s, gated, pairs, c.capacity, m.Down))
					before := normal(rng, c.capacity*c.width, 1)
					want := r.upload(bytesOf(before))
					r.must(experts.EnqueueSum(r.s, want, m.Down.Dst, routes, c.used, c.width, count, c.capacity))

					fused := r.alloc(activation.Bytes(c.inner, slots))
					m.Down.Dst = r.upload(bytesOf(before))
					r.must(gates.EnqueueExpertGates(r.s, fused, m, count, c.capacity))
					r.must(downs.EnqueueExpertSum(r.s, fused, m, count, c.capacity))
					size := 4 * c.capacity * c.width
					if !bytes.Equal(r.download(m.Down.Dst, size), r.download(want, size)) {
						t.Error("the mixture has other bits than separate launches")
					}
					sums := floatsOf(r.download(want, size))
					for i := range sums {
						if i < c.rows*c.width {
							sums[i] = before[i] + sums[i]
						}
					}
					m.Add, m.Down.Dst = true, r.upload(bytesOf(before))
					r.must(downs.EnqueueExpertSum(r.s, fused, m, count, c.capacity))
					for i, got := range floatsOf(r.download(m.Down.Dst, size)) {
						if got != sums[i] && !(got != got && sums[i] != sums[i]) {
							t.Fatalf("value %d with what was there is %v, want %v", i, got, sums[i])
						}
					}
				})
			}
		}
	}
}
