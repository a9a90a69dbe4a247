package cudakern_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
)

// mixture is a case of products with the weights of experts.
type mixture struct {
	experts, used, rows int
	choice              string // how rows choose: random, the same experts, all in order without routes, or invalid
	outputs, inputs     int
	own                 bool // rows have an input for each of their experts
}

func (m mixture) String() string {
	return fmt.Sprintf("%d of %d experts (%d, %d), %d rows that choose %s, own %t", m.used, m.experts, m.outputs, m.inputs, m.rows, m.choice, m.own)
}

// routes returns the experts and weights of each row, nil without routes.
func (m mixture) routes(rng *rand.Rand) (routes []float32) {
	for range m.rows {
		chosen := make([]float32, m.used)
		for i, expert := range rng.Perm(m.experts)[:m.used] {
			switch m.choice {
			case "without routes":
				return nil
			case "randomly":
				chosen[i] = float32(expert)
			case "the same":
				chosen[i] = float32(m.experts - 1 - i)
			case "invalid numbers":
				chosen[i] = []float32{float32(math.NaN()), -1, float32(m.experts), float32(math.Inf(1))}[i%4]
			}
		}
		routes = append(append(routes, chosen...), normal(rng, m.used, 1)...)
	}
	return routes
}

var mixtures = []mixture{
	{1, 1, 37, "randomly", 3, 64, false},
	{128, 8, 21, "randomly", 8, 32, false},
	{9, 3, 70, "randomly", 17, 96, true},
	{5, 2, 33, "the same", 6, 1088, false},
	{7, 2, 90, "the same", 37, 64, true},
	{3, 3, 19, "without routes", 5, 64, true},
	{4, 4, 5, "without routes", 130, 32, false},
	{6, 4, 7, "invalid numbers", 4, 64, false},
}

// manyMixtures take the emulation longer.
var manyMixtures = []mixture{
	{128, 8, 600, "randomly", 21, 64, false},
	{128, 8, 600, "randomly", 33, 64, true},
	{60, 4, 257, "randomly", 133, 288, true},
	{8, 2, 600, "the same", 9, 32, false},
	{2, 1, 129, "randomly", 260, 1280, false},
	{300, 33, 40, "randomly", 2, 32, false},
}

// inTorture returns all, and in the torture tests also those that take long.
func inTorture[T any](all, long []T) []T {
	if fixtures.Torture() {
		return slices.Concat(all, long)
	}
	return all
}

// A list of groups has each pair of a row and its expert once, in groups of pairs with the same expert, of which all but
// the last of an expert are full.
func TestGroupsHaveEachPairOnceWithItsExpert(t *testing.T) {
	for _, m := range inTorture(mixtures, manyMixtures) {
		for _, each := range []int{1, 4, 16, 64} {
			t.Run(fmt.Sprintf("%s, groups of %d", m, each), func(t *testing.T) {
				r := newRig(t)
				k, err := cudakern.NewExperts(r.c)
				r.must(err)
				routes := m.routes(rand.New(rand.NewPCG(uint64(m.rows), 1)))
				for _, capacity := range buckets(m.rows) {
					g := cudakern.Groups{Each: each, Experts: m.experts, Used: m.used, Capacity: capacity}
					g.List = r.upload(bytes.Repeat([]byte{0x55}, int(g.Bytes())+4))
					r.must(k.EnqueueGroups(r.s, g, r.uploadRoutes(routes), r.upload(int32Bytes(m.rows))))
					list := int32sOf(r.download(g.List, int(g.Bytes())+4))
					if list[len(list)-1] != 0x55555555 {
						t.Fatal("the list is longer than its size")
					}
					m.check(t, routes, list, g)
				}
			})
		}
	}
}

func (m mixture) check(t *testing.T, routes []float32, list []int32, g cudakern.Groups) {
	t.Helper()
	most := g.Slots() / g.Each
	seen, filled := make([]bool, m.rows*m.used), map[int32]int{}
	for group := range list[0] {
		expert, pairs := list[1+group], list[1+most+int(group)*g.Each:][:g.Each]
		if filled[expert]%g.Each != 0 {
			t.Fatalf("group %d has more rows of expert %d, whose group before is not full", group, expert)
		}
		for slot, pair := range pairs {
			if pair < 0 {
				if slot == 0 || slices.Max(pairs[slot:]) >= 0 {
					t.Fatalf("group %d has an empty slot before its end: %d", group, pairs)
				}
				break
			}
			if want := m.expertOf(routes, int(pair)); seen[pair] || expert != want {
				t.Fatalf("group %d of expert %d has pair %d of expert %d, which was there before: %t", group, expert, pair, want, seen[pair])
			}
			seen[pair] = true
			filled[expert]++
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Fatalf("no group has pair %d", i)
	}
}

// expertOf returns the expert of a pair; invalid numbers count as 0.
func (m mixture) expertOf(routes []float32, pair int) int32 {
	if routes == nil {
		return int32(pair % m.used)
	}
	if e := routes[pair/m.used*2*m.used+pair%m.used]; e >= 0 && e < float32(m.experts) {
		return int32(e)
	}
	return 0
}

// Products of grouped rows have the bits of those of each row by itself, with all sizes of groups and all units.
func TestGroupedProductsHaveTheBitsOfSingleRows(t *testing.T) {
	types := fixtures.At([]string{"q4_k"}, []string{"f16", "q8_0", "q4_k"}, cudakern.WeightTypes())
	for _, d := range append([]exactDevice{{cudakern.UnitsXMAD, "9.0", 1}}, exactDevices...) {
		for _, name := range types {
			elements, _ := weightTypes[name].Block()
			if elements == 1 && !multiplyFloats(d.units, name) {
				continue
			}
			for i, m := range inTorture(mixtures, manyMixtures) {
				m.inputs = (m.inputs + int(elements) - 1) / int(elements) * int(elements)
				if d.units == cudakern.UnitsDP2A && i%2 > 0 && i < len(mixtures) || m.inputs > 1000 && testing.Short() {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %s", d, name, m), func(t *testing.T) {
					r := newExactRigOf(t, d.capability)
					r.c.Units = d.units
					k, err := cudakern.NewMatMul(r.c, name)
					r.must(err)
					rng := rand.New(rand.NewPCG(uint64(m.outputs), uint64(m.inputs)))
					data := devicetest.RandomWeight(rng, weightTypes[name], m.experts*m.outputs, m.inputs, 1)
					p := cudakern.ExpertProduct{W: cudakern.Weights{Type: name, Outputs: m.experts * m.outputs, Inputs: m.inputs}, Experts: m.experts, Used: m.used, Own: m.own}
					p.Weights = r.load(p.W, data)
					p.W.Outputs = m.outputs
					p.Routes = r.uploadRoutes(m.routes(rng))
					inputs := m.inputs
					if m.own {
						inputs *= m.used
					}
					x := r.upload(bytesOf(normal(rng, m.rows*inputs, 1)))
					want := r.expertProduct(k, p, x, m.rows, 0)
					for _, size := range k.GroupSizes() {
						if size < d.from {
							continue
						}
						if got := r.expertProduct(k, p, x, m.rows, size); !bytes.Equal(got, want) {
							t.Errorf("groups of %d have other bits", size)
						}
					}
				})
			}
		}
	}
}

// expertProduct returns the bytes of the product of rows, in groups of size pairs, 0: without groups.
func (r rig) expertProduct(k *cudakern.MatMul, p cudakern.ExpertProduct, x cudakern.Ptr, rows, size int) []byte {
	r.Helper()
	values := rows * p.Used * p.W.Outputs
	const guard = 16
	p.Dst = r.upload(bytes.Repeat([]byte{0xff}, 4*values+guard))
	r.expertLaunches(k, p, x, rows, rows+3, size)()
	got := r.download(p.Dst, 4*values+guard)
	if !bytes.Equal(got[4*values:], bytes.Repeat([]byte{0xff}, guard)) {
		r.Fatal("a product wrote past its last row")
	}
	if slices.Contains(int32sOf(got[:4*values]), -1) {
		r.Fatal("a product did not write all results")
	}
	return got
}

// expertLaunches returns what enqueues a product for up to capacity rows and what it needs before.
func (r rig) expertLaunches(k *cudakern.MatMul, p cudakern.ExpertProduct, x cudakern.Ptr, rows, capacity, size int) func() {
	r.Helper()
	experts, err := cudakern.NewExperts(r.c)
	r.must(err)
	count := r.upload(int32Bytes(rows))
	if size > 0 {
		g := cudakern.Groups{Each: size, Experts: p.Experts, Used: p.Used, Capacity: capacity}
		g.List = r.alloc(g.Bytes())
		activation, err := cudakern.NewActivation(r.c, k.GroupKind(size))
		r.must(err)
		grouped := r.alloc(activation.Bytes(p.W.Inputs, g.Slots()))
		return func() {
			r.must(experts.EnqueueGroups(r.s, g, p.Routes, count))
			r.must(activation.EnqueueGrouped(r.s, grouped, x, p.W.Inputs, g, p.Own))
			r.must(k.EnqueueGrouped(r.s, grouped, g, p))
		}
	}
	activation, err := cudakern.NewActivation(r.c, k.ExpertKind())
	r.must(err)
	pairs := r.alloc(4)
	quantizedRows, xCapacity := count, capacity
	if p.Own {
		quantizedRows, xCapacity = pairs, capacity*p.Used
	}
	single := r.alloc(activation.Bytes(p.W.Inputs, xCapacity))
	return func() {
		r.must(experts.EnqueueCount(r.s, pairs, p.Used, count))
		r.must(activation.Enqueue(r.s, single, x, p.W.Inputs, quantizedRows, xCapacity))
		r.must(k.EnqueueExperts(r.s, single, pairs, capacity, p))
	}
}

// uploadRoutes returns 0 for no routes.
func (r rig) uploadRoutes(routes []float32) cudakern.Ptr {
	r.Helper()
	if routes == nil {
		return 0
	}
	return r.upload(bytesOf(routes))
}

func int32sOf(data []byte) []int32 {
	values := make([]int32, len(data)/4)
	for i := range values {
		values[i] = int32(binary.NativeEndian.Uint32(data[4*i:]))
	}
	return values
}

// A model with 128 heads, whose latent attention has a product for each, in a step of 512 rows.
func TestActivationsOfMoreThan65535RowsAreLaunched(t *testing.T) {
	r := newExactRig(t)
	r.c.Units = cudakern.UnitsMMA
	const capacity, heads, cols = 512, 128, 128
	products, err := cudakern.NewMatMul(r.c, "q8_0")
	r.must(err)
	g := cudakern.Groups{Each: products.GroupSize(capacity, heads, heads), Experts: heads, Used: heads, Capacity: capacity}
	p := cudakern.ExpertProduct{W: cudakern.Weights{Type: "q8_0", Outputs: cols, Inputs: cols}, Experts: heads, Used: heads, Own: true}
	if g.Slots() <= 65535 {
		t.Fatalf("%d slots are no test", g.Slots())
	}
	var launches cudakern.Recording
	for _, kind := range products.Kinds() {
		k, err := cudakern.NewActivation(r.c, kind)
		r.must(err)
		for name, err := range map[string]error{
			"grouped":                k.EnqueueGrouped(&launches, 0, 0, cols, g, true),
			"of one row each":        k.Enqueue(&launches, 0, 0, cols, 0, capacity*heads),
			"a product with groups":  products.EnqueueGrouped(&launches, 0, g, p),
			"a product without them": products.EnqueueExperts(&launches, 0, 0, capacity, p),
		} {
			if err != nil {
				t.Errorf("%s, %s: %v", kind, name, err)
			}
		}
		if k.Enqueue(&launches, 0, 0, cols, 0, 0) == nil || k.Enqueue(&launches, 0, 0, 65536*1024, 0, 1) == nil || k.Enqueue(&launches, 0, 0, cols, 0, 1<<31) == nil {
			t.Errorf("%s: no rows, or more than a grid has, were not refused", kind)
		}
	}
}

// Steps of one to four rows, and those in which few experts have several rows, are not grouped; larger groups need more
// rows of each expert.
func TestGroupSizesFollowFromTheRowsOfAnExpert(t *testing.T) {
	r := newExactRig(t)
	for _, c := range []struct {
		weights                 string
		units                   cudakern.Units
		capacity, experts, used int
		want                    int
	}{
		{"q4_k", cudakern.UnitsMMA, 1, 128, 8, 0},
		{"q4_k", cudakern.UnitsMMA, 4, 4, 4, 0},
		{"q4_k", cudakern.UnitsMMA, 8, 128, 8, 0},
		{"q4_k", cudakern.UnitsMMA, 16, 128, 8, 4},
		{"q4_k", cudakern.UnitsMMA, 128, 128, 8, 4},
		{"q8_0", cudakern.UnitsMMA, 128, 128, 8, 16},
		{"q4_k", cudakern.UnitsMMA, 256, 128, 8, 16},
		{"q4_k", cudakern.UnitsMMA, 512, 128, 8, 16},
		{"q4_k", cudakern.UnitsMMA, 512, 8, 2, 64},
		{"q4_k", cudakern.UnitsDP2A, 512, 8, 2, 4},
		{"q4_k", cudakern.UnitsXMAD, 512, 8, 2, 4},
		{"f16", cudakern.UnitsMMA, 512, 8, 2, 64},
		{"f16", cudakern.UnitsDP2A, 512, 8, 2, 4},
		{"f16", cudakern.UnitsMMA, 512, cudakern.MaxGroupedExperts + 1, 2, 0},
	} {
		r.c.Units = c.units
		k, err := cudakern.NewMatMul(r.c, c.weights)
		r.must(err)
		if got := k.GroupSize(c.capacity, c.experts, c.used); got != c.want {
			t.Errorf("%s with %s, %d rows of %d of %d experts: groups of %d, want %d", c.weights, c.units, c.capacity, c.used, c.experts, got, c.want)
		}
	}
}
