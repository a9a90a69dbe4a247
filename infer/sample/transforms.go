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

// penalise returns the logit of a token that occurs count times in the window. The repeat
// penalty divides a positive logit and multiplies any other, so that a value above 1 never
// makes a token likelier.
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

// topP returns the number of leading candidates that reach the target mass, including the
// one that crosses it, but at least minKeep. If all of them do not reach it, it returns
// their number and false.
// PRECOND: canonical order, at least one candidate.
func topP(c []candidate, target float64, minKeep int) (kept int, reached bool) {
	sum := 0.0
	for i := range c {
		sum += c[i].weight
		if sum >= target && i+1 >= minKeep {
			return i + 1, true
		}
	}
	return len(c), false
}

// deviation accumulates numbers to compute their standard deviation.
type deviation struct {
	n           int
	first       float64 // subtracted from all numbers, so that their squares do not lose the differences
	sum, square float64
}

func (d *deviation) add(x float32) {
	if d.n == 0 {
		d.first = float64(x)
	}
	d.n++
	y := float64(x) - d.first
	d.sum += y
	d.square += float64(y * y)
}

// sigma returns the population standard deviation.
func (d *deviation) sigma() float64 {
	mean := d.sum / float64(d.n)
	return math.Sqrt(math.Max(0, d.square/float64(d.n)-float64(mean*mean)))
}

// dotProduct returns the sum of weight * exponent.
func dotProduct(c []candidate, s scale) (dot float64) {
	for i := range c {
		dot += s.dot(c[i].logit, c[i].weight)
	}
	return dot
}

// typicalP returns the range c[from:to] of the locally typical candidates: those whose
// surprise -ln(p) is nearest to the entropy, added until their mass exceeds the share p and
// they are at least minKeep. Of two equally near, the likelier is added first. They form a
// range because surprise increases in canonical order.
// PRECOND: canonical order, at least one candidate; the weights are those of s.
func typicalP(c []candidate, s scale, p float64, minKeep int) (from, to int) {
	// ln(mass) is omitted from entropy and surprises, because it cancels.
	mass := 0.0
	for i := range c {
		mass += c[i].weight
	}
	entropy := -dotProduct(c, s) / mass
	excess := func(i int) float64 { return -s.exponent(c[i].logit) - entropy }

	from = sort.Search(len(c), func(i int) bool { return excess(i) >= 0 })
	to = from
	for sum := 0.0; (sum <= p*mass || to-from < minKeep) && to-from < len(c); {
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

// movedMass returns the total variation distance between the distributions of two scales. A
// lower temperature only adds to the likeliest candidates and a higher one only takes from
// them, so the sum ends at the first candidate that changes in the other direction. If c
// ends before that, complete is false.
// PRECOND: canonical order.
func movedMass(c []candidate, before scale, massBefore float64, after scale, massAfter float64) (sum float64, complete bool) {
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

// pick returns the index of the first candidate at which the cumulative weight exceeds
// target; ok is false if that of all candidates does not.
// PRECOND: canonical order, at least one candidate.
func pick(c []candidate, target float64) (i int, ok bool) {
	sum := 0.0
	for i := range c {
		sum += c[i].weight
		if sum > target {
			return i, true
		}
	}
	return 0, false
}

// clampFinite clamps a logit to the range of float32.
func clampFinite(logit float64) float32 {
	return float32(max(-math.MaxFloat32, min(math.MaxFloat32, logit)))
}
