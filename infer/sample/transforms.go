package sample

import (
	"math"
	"sort"
)

// candidate is a token that may still be chosen.
type candidate struct {
	id     int32
	logit  float32 // after bias and penalties
	weight float64 // its probability times the mass of the pool
}

// penalise returns the logit of a token that stands count times in the window of
// the penalties. The repeat penalty divides a positive logit and multiplies any
// other, so that it never makes a token likelier.
func penalise(logit float64, count int, repeat, presence, frequency float64) float64 {
	if count == 0 {
		return logit
	}
	if logit > 0 {
		logit /= repeat
	} else {
		logit *= repeat
	}
	return logit - presence - float64(float64(count)*frequency)
}

// topP returns how many leading candidates it takes to reach the target mass, the
// one that crosses it included. Where all of them together do not, it returns
// their number and false.
// PRECOND: canonical order, at least one candidate.
func topP(c []candidate, target float64) (kept int, reached bool) {
	sum := 0.0
	for i := range c {
		sum += c[i].weight
		if sum >= target {
			return i + 1, true
		}
	}
	return len(c), false
}

// minP returns how many candidates are at least p times as likely as the first.
// PRECOND: canonical order, at least one candidate, p <= 1.
func minP(c []candidate, p float64) int {
	floor := p * c[0].weight
	return sort.Search(len(c), func(i int) bool { return c[i].weight < floor })
}

// typicalP returns the window c[from:to] of the locally typical candidates: those
// whose surprise -ln(p) is nearest to the entropy (its mean), taken outwards from
// there until their mass exceeds the share p. Of two equally near the likelier is
// taken first. They are a window because surprise grows along the canonical order.
// PRECOND: canonical order, at least one candidate; s gave the weights.
func typicalP(c []candidate, s scale, p float64) (from, to int) {
	// ln(mass) is left out of both entropy and surprises: it cancels.
	mass, dot := 0.0, 0.0
	for i := range c {
		if w := c[i].weight; w > 0 {
			mass += w
			dot += float64(w * s.exponent(c[i].logit))
		}
	}
	entropy := -dot / mass
	excess := func(i int) float64 { return -s.exponent(c[i].logit) - entropy }

	from = sort.Search(len(c), func(i int) bool { return excess(i) >= 0 })
	to = from
	for sum := 0.0; sum <= p*mass && to-from < len(c); {
		if from > 0 && (to == len(c) || -excess(from-1) <= excess(to)) {
			from--
			sum += c[from].weight
		} else {
			sum += c[to].weight
			to++
		}
	}
	return from, to
}

// moved returns the probability that passes from the candidates of one scale to
// the others when it is replaced by another: the total variation distance.
// Sharpening only feeds the likeliest candidates, flattening only drains them, so
// the sum ends at the first that the change does not touch that way; where c ends
// before, complete is false.
// PRECOND: canonical order.
func moved(c []candidate, before scale, massBefore float64, after scale, massAfter float64) (sum float64, complete bool) {
	sign := 1.0
	if after.inverse < before.inverse {
		sign = -1
	}
	for i := range c {
		gain := sign * (after.weight(c[i].logit)/massAfter - before.weight(c[i].logit)/massBefore)
		if gain <= 0 {
			return sum, true
		}
		sum += gain
	}
	return sum, false
}

// pick returns the candidate at which the running sum of weights exceeds target,
// or false where all of them together do not.
// PRECOND: canonical order, at least one candidate.
func pick(c []candidate, target float64) (id int32, ok bool) {
	sum := 0.0
	for i := range c {
		sum += c[i].weight
		if sum > target {
			return c[i].id, true
		}
	}
	return 0, false
}

// clampFinite keeps a logit in the range of float32; a masked one stays masked.
func clampFinite(logit float64) float32 {
	if math.IsInf(logit, -1) {
		return float32(logit)
	}
	return float32(max(-math.MaxFloat32, min(math.MaxFloat32, logit)))
}
