package devicetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// routingCase is a kind of routing, with random biases and scales if wanted.
type routingCase struct {
	device.Routing
	bias, scales bool
}

var routingCases = []routingCase{
	{device.Routing{Experts: 1, Used: 1, Scale: 1}, false, false},
	{device.Routing{Experts: 3, Used: 3, Scale: 1, Normalize: true}, false, false},
	{device.Routing{Experts: 8, Used: 2, Scale: 1, Normalize: true}, false, false},
	{device.Routing{Experts: 17, Used: 5, Scale: 2.5}, false, false},
	{device.Routing{Experts: 128, Used: 8, Scale: 1, Normalize: true}, false, false},
	{device.Routing{Experts: 300, Used: 33, Scale: 0.5, Normalize: true}, false, false},
	{device.Routing{Experts: 8, Used: 2, Scale: 2.5, Score: device.ScoreSigmoid}, false, false},
	{device.Routing{Experts: 17, Used: 5, Scale: 1, Score: device.ScoreSigmoid, Normalize: true}, true, false},
	{device.Routing{Experts: 64, Used: 6, Scale: 1, Normalize: true}, true, true},
	{device.Routing{Experts: 8, Used: 3, Scale: 1, Score: device.ScoreSigmoid, Groups: 4, GroupsUsed: 2}, true, false},
	{device.Routing{Experts: 256, Used: 8, Scale: 2.5, Score: device.ScoreSigmoid, Normalize: true, Groups: 8, GroupsUsed: 4}, true, false},
	{device.Routing{Experts: 60, Used: 4, Scale: 1, Groups: 6, GroupsUsed: 1}, false, true},
	{device.Routing{Experts: 16, Used: 2, Scale: 1, Score: device.ScoreSparseMixer}, false, false},
	{device.Routing{Experts: 300, Used: 33, Scale: 1, Score: device.ScoreSparseMixer}, false, true},
	{device.Routing{Experts: 70, Used: 33, Scale: 1, Score: device.ScoreSigmoid, Groups: 70, GroupsUsed: 40}, true, true},
}

// routing compares Route with the reference: the experts must be equal, their weights nearly.
func (s Suite) routing(t *testing.T) {
	draws := map[string]func(r *rig, n int) []float32{
		"random":        func(r *rig, n int) []float32 { return normal(r.rng, n, 2) },
		"far apart":     func(r *rig, n int) []float32 { return normal(r.rng, n, 60) },
		"all equal":     func(_ *rig, n int) []float32 { return make([]float32, n) },
		"of few values": func(r *rig, n int) []float32 { return few(r, n) },
	}
	for _, c := range routingCases {
		for name, draw := range draws {
			if name == "far apart" && !c.RanksByLogits() || name != "random" && c.bias {
				continue // the order of scores that are nearly equal, or become so with biases, depends on rounding
			}
			t.Run(fmt.Sprintf("%d of %d experts in %d groups by logits that are %s, score %d, biases %t", c.Used, c.Experts, c.Groups, name, c.Score, c.bias), func(t *testing.T) {
				for _, rows := range []int{1, 3, 33} {
					want, got := newRig(t, open(t, openRef), rows), newRig(t, open(t, s.Open[0]), rows)
					wantOut, gotOut := c.run(want, draw), c.run(got, draw)
					for row := range rows {
						w, g := want.read(wantOut, row), got.read(gotOut, row)
						if !slices.Equal(g[:c.Used], w[:c.Used]) {
							t.Fatalf("row %d of %d: the experts are %v, want %v", row, rows, g[:c.Used], w[:c.Used])
						}
						near(t, fmt.Sprintf("weights of row %d of %d", row, rows), g[c.Used:], w[c.Used:], func(i int) float64 { return 1e-5*math.Abs(float64(w[c.Used+i])) + 1e-37 })
					}
				}
			})
		}
	}
}

// run routes rows of logits that draw draws, and returns their routes.
func (c routingCase) run(r *rig, draw func(r *rig, n int) []float32) (routes device.Tensor) {
	routes, routing := r.alloc(c.Cols()), c.Routing
	logits := r.input(draw(r, r.rows*c.Experts), c.Experts)
	if c.bias {
		routing.Bias = r.vector(normal(r.rng, c.Experts, 0.3))
	}
	if c.scales {
		routing.Scales = r.vector(normal(r.rng, c.Experts, 1))
	}
	r.p.Route(routes, logits, routing)
	r.run(r.compile(), counting(r.rows, 0, []int32{0, 1}))
	return routes
}

// few draws n numbers from three values, so that most are equal.
func few(r *rig, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.rng.IntN(3))
	}
	return x
}

// experts is a test case of ExpertMatMul. Its activations are exact in 8 bits, as those of
// product.
type experts struct {
	typ               gguf.Type
	count, used       int
	outs, cols        int
	own               bool // rows have an input for each of their experts
	weights           []byte
	values, x, routes []float32 // values are the dequantised weights
}

const expertRows = 33

func newExperts(r *rig, typ gguf.Type, count, used, outs, cols int, own bool) *experts {
	e := &experts{typ: typ, count: count, used: used, outs: outs, cols: cols, own: own}
	e.weights = RandomWeight(r.rng, typ, count*outs, cols, 1)
	e.values = make([]float32, count*outs*cols)
	if err := gguf.Dequantize(typ, e.weights, e.values); err != nil {
		r.t.Fatal(err)
	}
	e.x = make([]float32, expertRows*e.inputs())
	for i := range e.x {
		e.x[i] = float32(r.rng.IntN(255) - 127)
		if i%cols%32 == 0 {
			e.x[i] = 127
		}
	}
	for range expertRows {
		for _, id := range r.rng.Perm(count)[:used] {
			e.routes = append(e.routes, float32(id))
		}
		e.routes = append(e.routes, normal(r.rng, used, 1)...)
	}
	return e
}

// inputs returns the width of a row of activations.
func (e *experts) inputs() int {
	if e.own {
		return e.used * e.cols
	}
	return e.cols
}

// of returns the input of expert i of a row, and the index of its first row of weights.
func (e *experts) of(row, i int) (x []float32, first int) {
	x = e.x[row*e.inputs():][:e.inputs()]
	if e.own {
		x = x[i*e.cols:][:e.cols]
	}
	return x, int(e.routes[row*2*e.used+i]) * e.outs
}

// record records the product for up to r.rows rows.
func (e *experts) record(r *rig, weights []byte) device.Tensor {
	out := r.alloc(e.used * e.outs)
	w := r.upload(e.typ, e.count*e.outs, e.cols, weights)
	r.p.ExpertMatMul(out, w, r.input(e.x, e.inputs()), r.input(e.routes, 2*e.used), e.count)
	return out
}

// expertMatMul compares ExpertMatMul with sums in float64, and each row alone with the same row
// in a full batch. Weights of experts that no row uses must not be read.
func (s Suite) expertMatMul(t *testing.T) {
	for _, typ := range s.Types {
		width := widths(typ, 96, 256)[0]
		for _, c := range []struct {
			count, used, outs, cols int
			own                     bool
		}{
			{1, 1, 3, width, false},
			{5, 2, 17, width, false},
			{5, 3, 40, width, true},
			{40, 6, 16, 2 * width, false},
			{3, 3, 1, 2 * width, true},
		} {
			name := fmt.Sprintf("%d of %d experts of %s (%d, %d), own inputs %t", c.used, c.count, typ, c.outs, c.cols, c.own)
			t.Run(name, func(t *testing.T) {
				together := newRig(t, open(t, s.Open[0]), expertRows)
				e := newExperts(together, typ, c.count, c.used, c.outs, c.cols, c.own)
				out := e.record(together, e.weights)
				together.run(together.compile(), counting(expertRows, 0, []int32{0, 1}))
				for row := range expertRows {
					e.check(t, row, together.read(out, row))
				}
				for i, f := range s.Open {
					e.alone(t, open(t, f), together, out, i+2)
				}
			})
		}
	}
}

// check compares a row with sums in float64.
func (e *experts) check(t *testing.T, row int, got []float32) {
	t.Helper()
	for i := range e.used {
		x, first := e.of(row, i)
		for o := range e.outs {
			w := e.values[(first+o)*e.cols:][:e.cols]
			want := 0.0
			for j := range w {
				want += float64(w[j]) * float64(x[j])
			}
			near(t, fmt.Sprintf("row %d, its expert %d, output %d", row, i, o), got[i*e.outs+o:][:1], []float32{float32(want)},
				func(int) float64 { return productError(w, x, false) + 1e-6 })
		}
	}
}

// alone runs every third row in a batch of its own, in a program for capacity rows. The weights of
// experts that the row does not use are NaN. The results must be bit-identical to those of the row
// in the full batch.
func (e *experts) alone(t *testing.T, dev device.Device, together *rig, out device.Tensor, capacity int) {
	t.Helper()
	for row := 0; row < expertRows; row += 3 {
		r := newRig(t, dev, capacity)
		used := map[int]bool{}
		for i := range e.used {
			_, first := e.of(row, i)
			used[first] = true
		}
		weights, bytes := slices.Clone(e.weights), e.typ.RowBytes(e.cols)
		for o := range e.count * e.outs {
			if !used[o/e.outs*e.outs] {
				for i := range bytes {
					weights[o*bytes+i] = 0xff
				}
			}
		}
		single := e.record(r, weights)
		batch := counting(1, 0, []int32{0, 1})
		batch.Tokens[0] = int32(row)
		r.run(r.compile(), batch)
		if !slices.Equal(r.read(single, 0), together.read(out, row)) {
			t.Fatalf("row %d: results of the row alone differ from those in the full batch", row)
		}
	}
}

// ownWeights compares ExpertMatMul without routes with ExpertMatMul with routes that choose all
// experts in order.
func (s Suite) ownWeights(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own inputs %t", own), func(t *testing.T) {
			r := newRig(t, open(t, s.Open[0]), expertRows)
			e := newExperts(r, gguf.F32, 5, 5, 7, 24, own)
			for row := range expertRows {
				for i := range e.count {
					e.routes[row*2*e.used+i] = float32(i)
				}
			}
			chosen := e.record(r, e.weights)
			all := r.alloc(e.used * e.outs)
			r.p.ExpertMatMul(all, r.upload(e.typ, e.count*e.outs, e.cols, e.weights), r.input(e.x, e.inputs()), device.Tensor{}, e.count)
			r.run(r.compile(), counting(expertRows, 0, []int32{0, 1}))
			for row := range expertRows {
				if !slices.Equal(r.read(all, row), r.read(chosen, row)) {
					t.Fatalf("row %d: results differ from those with routes", row)
				}
			}
		})
	}
}

func (s Suite) expertBias(t *testing.T) {
	for _, c := range []struct{ experts, used, cols int }{{1, 1, 1}, {5, 2, 33}, {40, 6, 100}} {
		s.compare(t, fmt.Sprintf("of %d of %d experts, of %d", c.used, c.experts, c.cols), 1e-6, func(r *rig) device.Tensor {
			x := r.random(c.used*c.cols, 1)
			var routes []float32
			for range r.rows {
				for _, id := range r.rng.Perm(c.experts)[:c.used] {
					routes = append(routes, float32(id))
				}
				routes = append(routes, normal(r.rng, c.used, 1)...)
			}
			r.p.ExpertBias(x, r.weight(gguf.F32, c.experts, c.cols), r.input(routes, 2*c.used))
			return x
		})
	}
}

func (s Suite) expertSum(t *testing.T) {
	for _, used := range []int{1, 2, 8} {
		for _, cols := range []int{1, 5, 64, 1000} {
			s.compare(t, fmt.Sprintf("of %d experts, rows of %d", used, cols), 1e-5, func(r *rig) device.Tensor {
				out, x := r.alloc(cols), r.random(used*cols, 1)
				r.p.ExpertSum(out, x, r.random(2*used, 1))
				return out
			})
		}
	}
}
