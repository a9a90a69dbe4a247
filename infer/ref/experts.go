package ref

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// route: dst = the numbers of the experts with the largest scores, of equal scores the lowest
// numbers, then their weights. bias and scales may be nil.
func route(dst, logits []float32, r device.Routing, bias, scales []float32) {
	scores := scoresOf(logits, r.Score)
	order := slices.Clone(logits)
	if !r.RanksByLogits() {
		for e, score := range scores {
			order[e] = float32(score)
			if bias != nil {
				order[e] += bias[e]
			}
		}
	}
	open := make([]bool, r.Experts) // experts that can still be chosen
	size := r.Experts               // experts in a group
	if !r.Ungrouped() {
		size /= r.Groups
	}
	for e := range open {
		open[e] = r.Ungrouped() || rankOfGroup(order, e/size, size, r.Score) < r.GroupsUsed
	}
	sum := 0.0
	chosen := make([]int, r.Used)
	for i := range chosen {
		best := -1
		for e, x := range order {
			if open[e] && (best < 0 || x > order[best]) {
				best = e
			}
		}
		if r.Score == device.ScoreSparseMixer {
			scores[best] = shareOfNear(logits, open, logits[best])
		}
		open[best], chosen[i] = false, best
		sum += scores[best]
	}
	if !r.Normalize {
		sum = 1
	}
	for i, e := range chosen {
		weight := scores[e] / sum * float64(r.Scale)
		if scales != nil {
			weight *= float64(scales[e])
		}
		dst[i], dst[r.Used+i] = float32(e), float32(weight)
	}
}

// scoresOf returns the softmax of logits, or the sigmoid of each.
func scoresOf(logits []float32, score device.Score) []float64 {
	top, total := math.Inf(-1), 0.0
	for _, x := range logits {
		top = max(top, float64(x))
	}
	for _, x := range logits {
		total += math.Exp(float64(x) - top)
	}
	scores := make([]float64, len(logits))
	for e, x := range logits {
		scores[e] = math.Exp(float64(x)-top) / total
		if score == device.ScoreSigmoid {
			scores[e] = sigmoid(float64(x))
		}
	}
	return scores
}

// shareOfNear returns the largest softmax over the open experts whose logits are near top, the largest logit of open ones.
func shareOfNear(logits []float32, open []bool, top float32) float64 {
	sum := 0.0
	for e, x := range logits {
		if open[e] && !(top-x > device.SparseMixerMargin*max(x, -x, top)) {
			sum += math.Exp(float64(x) - float64(top))
		}
	}
	return 1 / sum
}

// rankOfGroup returns the number of groups that rank before group g: those with a larger group
// score, and those before g with an equal one. Groups are of size experts.
func rankOfGroup(scores []float32, g, size int, score device.Score) (rank int) {
	groupScore := func(g int) float32 {
		best := slices.Clone(scores[g*size:][:size])
		slices.Sort(best)
		slices.Reverse(best)
		if score == device.ScoreSoftmax || size == 1 {
			return best[0]
		}
		return best[0] + best[1]
	}
	own := groupScore(g)
	for other := range len(scores) / size {
		if theirs := groupScore(other); theirs > own || theirs == own && other < g {
			rank++
		}
	}
	return rank
}

// expertMatMul: part i of dst = weights of expert routes[i] · x, or · part i of x if x has an
// input for each expert. If routes is nil, part i uses expert i.
func (d *Device) expertMatMul(dst, x, routes []float32, w device.Tensor, outs int) {
	weights := make([]float32, w.Cols)
	for i := range len(dst) / outs {
		expert := i
		if routes != nil {
			expert = int(routes[i])
		}
		in := x
		if len(x) > w.Cols {
			in = x[i*w.Cols:][:w.Cols]
		}
		for o := range outs {
			d.weightRow(weights, w, expert*outs+o)
			dst[i*outs+o] = float32(dot(weights, in))
		}
	}
}

// expertBias: part i of dst += bias[routes[i]]
func (d *Device) expertBias(dst, routes []float32, bias device.Tensor) {
	values := make([]float32, bias.Cols)
	for i, expert := range routes[:len(routes)/2] {
		d.weightRow(values, bias, int(expert))
		add(dst[i*bias.Cols:][:bias.Cols], values)
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
