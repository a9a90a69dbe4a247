package ref

import (
	"math"

	"m40-llm/infer/device"
)

// route: dst = the experts with the largest logits, of equal ones the first, then softmax
// of all logits at them.
func route(dst, logits []float32, r device.Routing) {
	top := math.Inf(-1)
	for _, x := range logits {
		top = max(top, float64(x))
	}
	total := 0.0
	for _, x := range logits {
		total += math.Exp(float64(x) - top)
	}
	chosen, weights := dst[:r.Used], make([]float64, r.Used)
	taken := make([]bool, r.Experts)
	sum := 0.0
	for i := range chosen {
		best := -1
		for e, x := range logits {
			if !taken[e] && (best < 0 || x > logits[best]) {
				best = e
			}
		}
		taken[best] = true
		chosen[i] = float32(best)
		weights[i] = math.Exp(float64(logits[best])-top) / total
		sum += weights[i]
	}
	if !r.Normalize {
		sum = 1
	}
	for i, w := range weights {
		dst[r.Used+i] = float32(w / sum * float64(r.Scale))
	}
}

// expertMatMul: part i of dst = w[experts[i]] · x, or · part i of x if x has as many.
func (d *Device) expertMatMul(dst, x, routes []float32, w device.Tensor, outs int) {
	used := len(routes) / 2
	weights := make([]float32, w.Cols)
	for i, expert := range routes[:used] {
		in := x
		if len(x) > w.Cols {
			in = x[i*w.Cols:][:w.Cols]
		}
		for o := range outs {
			d.weightRow(weights, w, int(expert)*outs+o)
			dst[i*outs+o] = float32(dot(weights, in))
		}
	}
}

// expertSum: dst = Σ weight[i] · part i of x
func expertSum(dst, x, routes []float32) {
	used := len(routes) / 2
	for j := range dst {
		sum := 0.0
		for i, weight := range routes[used:] {
			sum += float64(weight) * float64(x[i*len(dst)+j])
		}
		dst[j] = float32(sum)
	}
}
