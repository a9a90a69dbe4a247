package sample

import (
	"math"
	"slices"
)

// pool is what is left of the vocabulary as it passes through the chain. It sorts
// lazily: until a stage has cut it, head holds only as many of the row's best
// tokens as somebody needed, and grow adds to it.
// INVARIANT: head is in canonical order, and what else is in the pool comes after it.
type pool struct {
	table  *table // all tokens, after mask, bias and penalties
	head   []candidate
	count  int     // candidates in the pool; more than len(head) only before the first cut
	mass   float64 // sum of the weights of all of them
	scale  scale   // gives the weights
	ranker ranker
	buffer []candidate // storage of head
}

// fill starts over with all tokens of a table, of which d is the softmax.
func (p *pool) fill(t *table, d distribution) {
	p.table, p.head, p.count, p.mass = t, nil, d.count, d.mass
	p.scale = scale{top: d.max, inverse: 1}
}

// need makes head at least n candidates long, as far as there are so many.
func (p *pool) need(n int) {
	if len(p.head) == p.count || len(p.head) >= n {
		return
	}
	keys := p.table.best(n, &p.ranker)
	p.buffer = slices.Grow(p.buffer[:0], len(keys))[:len(keys)]
	for i, key := range keys {
		logit := keyLogit(key)
		p.buffer[i] = candidate{keyID(key), logit, p.scale.weight(logit)}
	}
	p.head = p.buffer
}

// firstHead covers nearly every distribution that a language model computes, and
// is cheap to select.
const firstHead = 256

// grow makes head longer by a good deal, or returns false where it is complete.
func (p *pool) grow() bool {
	if len(p.head) == p.count {
		return false
	}
	p.need(max(firstHead, 4*len(p.head)))
	return p.table.err == nil
}

// keep cuts the pool down to head[from:to] and returns the share of the mass that
// is gone.
func (p *pool) keep(from, to int) (removed float64) {
	if to-from == p.count {
		return 0
	}
	p.head = p.head[from:to]
	mass := 0.0
	for i := range p.head {
		mass += p.head[i].weight
	}
	removed = math.Max(0, 1-mass/p.mass)
	p.count, p.mass = len(p.head), mass
	return removed
}

func (p *pool) topK(k int) (removed float64) {
	k = min(k, p.count)
	p.need(k)
	return p.keep(0, k)
}

func (p *pool) typicalP(share float64) (removed float64) {
	p.need(p.count)
	return p.keep(typicalP(p.head, p.scale, share))
}

func (p *pool) topP(share float64) (removed float64) {
	p.need(firstHead)
	for {
		kept, reached := topP(p.head, share*p.mass)
		if reached || !p.grow() {
			return p.keep(0, kept)
		}
	}
}

func (p *pool) minP(share float64) (removed float64) {
	p.need(firstHead)
	for {
		kept := minP(p.head, share)
		if kept < len(p.head) || !p.grow() {
			return p.keep(0, kept)
		}
	}
}

// temperature divides the logits by t > 0.
func (p *pool) temperature(t float64) (removed float64) {
	p.need(firstHead)
	before, massBefore := p.scale, p.mass
	// At a tiny t the quotient would be infinite, and infinity times 0 is NaN.
	p.scale = scale{top: float64(p.head[0].logit), inverse: math.Min(1/t, math.MaxFloat64)}
	p.mass = 0
	for i := range p.head {
		w := p.scale.weight(p.head[i].logit)
		p.head[i].weight = w
		p.mass += w
	}
	if len(p.head) < p.count {
		p.mass = p.scale.mass(p.table.all())
	}
	for {
		removed, complete := moved(p.head, before, massBefore, p.scale, p.mass)
		if complete || !p.grow() {
			return removed
		}
	}
}

// greedy keeps the best candidate.
func (p *pool) greedy() (removed float64) {
	return p.topK(1)
}

// draw returns the token at u, in [0, 1), of the distribution's cumulative sum.
func (p *pool) draw(u float64) int32 {
	p.need(firstHead)
	for {
		id, ok := pick(p.head, u*p.mass)
		if ok {
			return id
		}
		if !p.grow() {
			// u*mass lies above the sum by a rounding error: the last of any weight.
			last := len(p.head) - 1
			for last > 0 && p.head[last].weight == 0 {
				last--
			}
			return p.head[last].id
		}
	}
}
