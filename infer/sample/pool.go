package sample

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// pool is what is left of the vocabulary as it passes through the chain. It sorts
// lazily: until a stage has cut it, head holds only as many of the table's best
// tokens as somebody needed, and grow adds to it.
// INVARIANT: head is in canonical order, and what else is in the pool comes after it.
type pool struct {
	table  *table // all tokens, after mask, bias and penalties
	head   []candidate
	count  int     // candidates in the pool; more than len(head) only before the first cut
	mass   float64 // sum of the weights of all of them
	dot    float64 // sum of weight * exponent of all of them; only before the first cut and the temperature
	scale  scale   // gives the weights
	ranker ranker
	buffer []candidate // storage of head

	edited table     // what table points to after the first change of logits
	row    []float32 // storage of edited
	before []float64 // probabilities that an edit changes
}

// fill starts over with all tokens of a table, of which d is the softmax.
func (p *pool) fill(t *table, d distribution) {
	p.table, p.head, p.count, p.mass, p.dot = t, nil, d.count, d.mass, d.dot
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
	if from > 0 { // what is left may weigh next to nothing, or nothing, beside what is gone
		p.scale.top = float64(p.head[0].logit)
		p.weigh()
	}
	return removed
}

// weigh weighs head anew after a change of scale or logits. mass is that of head.
func (p *pool) weigh() {
	p.mass = 0
	for i := range p.head {
		p.head[i].weight = p.scale.weight(p.head[i].logit)
		p.mass += p.head[i].weight
	}
}

func (p *pool) topK(k int) (removed float64) {
	k = min(k, p.count)
	p.need(k)
	return p.keep(0, k)
}

// topNSigma keeps the candidates whose logit is at most n standard deviations of
// all candidates' logits below the largest.
func (p *pool) topNSigma(n float64) (removed float64) {
	p.need(firstHead)
	var spread deviation
	if len(p.head) == p.count {
		for i := range p.head {
			spread.add(p.head[i].logit)
		}
	} else {
		for _, logit := range p.table.all() {
			if !math.IsInf(float64(logit), -1) {
				spread.add(logit)
			}
		}
	}
	floor := float64(p.head[0].logit) - n*spread.sigma()
	return p.keepUntil(func(c candidate) bool { return float64(c.logit) < floor }, 0)
}

func (p *pool) typicalP(share float64, minKeep int) (removed float64) {
	p.need(p.count)
	if top := float64(p.head[0].logit); top != p.scale.top {
		p.scale.top = top // so that equal candidates have exactly the entropy as their surprise
		p.weigh()
	}
	return p.keep(typicalP(p.head, p.scale, share, minKeep))
}

func (p *pool) topP(share float64, minKeep int) (removed float64) {
	p.need(firstHead)
	for {
		kept, reached := topP(p.head, share*p.mass, minKeep)
		if reached || !p.grow() {
			return p.keep(0, kept)
		}
	}
}

func (p *pool) minP(share float64, minKeep int) (removed float64) {
	p.need(firstHead)
	floor := share * p.head[0].weight
	return p.keepUntil(func(c candidate) bool { return c.weight < floor }, minKeep)
}

// xtc removes all candidates of at least the threshold's probability but the least
// likely of them.
func (p *pool) xtc(threshold float64, minKeep int) (removed float64) {
	above := p.until(func(c candidate) bool { return c.weight < threshold*p.mass })
	if above < 2 || p.count-(above-1) < minKeep {
		return 0
	}
	p.need(p.count)
	return p.keep(above-1, len(p.head))
}

// mirostat keeps the candidates whose surprise is at most mu bits, the likeliest
// always.
func (p *pool) mirostat(mu float64) (removed float64) {
	p.need(firstHead)
	logMass := math.Log(p.mass)
	return p.keepUntil(func(c candidate) bool { return logMass-p.scale.exponent(c.logit) > mu*math.Ln2 }, 1)
}

// keepUntil keeps the candidates before the first that is out, and at least minKeep.
// PRECOND: all that follow one that is out are out.
func (p *pool) keepUntil(out func(candidate) bool, minKeep int) (removed float64) {
	kept := max(1, p.until(out), min(minKeep, p.count))
	p.need(kept)
	return p.keep(0, min(kept, len(p.head)))
}

// until returns how many candidates stand before the first that is out.
// PRECOND: as of keepUntil.
func (p *pool) until(out func(candidate) bool) int {
	p.need(firstHead)
	for {
		n := sort.Search(len(p.head), func(i int) bool { return out(p.head[i]) })
		if n < len(p.head) || !p.grow() {
			return n
		}
	}
}

// temperature divides the logits by t >= 0.
func (p *pool) temperature(t float64) (removed float64) {
	p.need(firstHead)
	before, massBefore := p.scale, p.mass
	// At a t of 0 or nearly so the quotient would be infinite, and infinity times 0 is NaN.
	p.scale = scale{top: float64(p.head[0].logit), inverse: math.Min(1/t, math.MaxFloat64)}
	p.weigh()
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

// dynamicTemperature divides the logits by a temperature from low to high: how far
// it goes from low to high is the entropy, as a share of what it could be at most,
// to the power of exponent. One candidate alone is left as it is.
func (p *pool) dynamicTemperature(low, high, exponent float64) (removed float64) {
	p.need(firstHead)
	if p.count == 1 {
		return 0
	}
	dot := p.dot
	if len(p.head) == p.count {
		dot = dotProduct(p.head, p.scale)
	}
	share := (math.Log(p.mass) - dot/p.mass) / math.Log(float64(p.count))
	return p.temperature(low + (high-low)*math.Pow(math.Max(0, math.Min(1, share)), exponent))
}

// greedy keeps the best candidate.
func (p *pool) greedy() (removed float64) {
	return p.topK(1)
}

// draw returns the candidate at u, in [0, 1), of the distribution's cumulative sum.
func (p *pool) draw(u float64) candidate {
	p.need(firstHead)
	for {
		i, ok := pick(p.head, u*p.mass)
		if ok {
			return p.head[i]
		}
		if !p.grow() {
			// u*mass lies above the sum by a rounding error: the last of any weight.
			last := len(p.head) - 1
			for last > 0 && p.head[last].weight == 0 {
				last--
			}
			return p.head[last]
		}
	}
}

// change returns the new logit of a token, divided by the temperature if that has
// been applied, or the same where the token is none of those to be changed.
type change func(id int32, logit float64) float64

// edit changes the logits of some tokens. It returns the probability that has passed
// from some tokens to others.
func (p *pool) edit(ids []int32, f change) (moved float64, err error) {
	switch {
	case len(ids) == 0:
		return 0, nil
	case len(p.head) == p.count:
		return p.editHead(f), nil
	}
	return p.editRow(ids, f)
}

// editHead is edit where all candidates are in head.
func (p *pool) editHead(f change) (moved float64) {
	p.before = p.before[:0]
	top := math.Inf(-1)
	for i := range p.head {
		c := &p.head[i]
		p.before = append(p.before, c.weight/p.mass)
		c.logit = p.scale.change(c.id, c.logit, f)
		top = math.Max(top, float64(c.logit))
	}
	p.scale.top = top
	p.weigh()
	for i := range p.head {
		moved += math.Max(0, p.head[i].weight/p.mass-p.before[i])
	}
	slices.SortFunc(p.head, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
	})
	p.weigh() // in the new order
	return moved
}

// editRow is edit of the whole row, which can lift any token to any rank.
func (p *pool) editRow(ids []int32, f change) (moved float64, err error) {
	row, err := p.ownRow()
	if err != nil {
		return 0, err
	}
	mass, dot, top := p.mass, p.dot, p.scale.top
	p.before = p.before[:0]
	gone := 0.0
	for _, id := range ids {
		w := p.scale.weight(row[id])
		p.before = append(p.before, w/mass)
		gone += w
		dot -= p.scale.dot(row[id], w)
		row[id] = p.scale.change(id, row[id], f)
		top = math.Max(top, float64(row[id]))
	}
	p.head = nil
	if p.mass -= gone; p.mass < mass/2 || top > p.scale.top {
		// What is left of the old sum is what rounding left of it, or of no scale.
		p.sumUp(row)
	} else {
		for _, id := range ids {
			w := p.scale.weight(row[id])
			p.mass += w
			dot += p.scale.dot(row[id], w)
		}
		p.dot = dot
	}
	// The untouched tokens all gain or all lose, by renormalisation. So either what
	// was gained or what was lost is entirely among the touched.
	var gained, lost float64
	for i, id := range ids {
		change := p.scale.weight(row[id])/p.mass - p.before[i]
		gained += math.Max(0, change)
		lost += math.Max(0, -change)
	}
	return math.Max(gained, lost), nil
}

// sumUp computes the sums of a whole row anew; a temperature that has been applied
// stays.
// PRECOND: a logit is finite, and none is NaN or +Inf.
func (p *pool) sumUp(row []float32) {
	d, _ := softmax(row)
	inverse := p.scale.inverse
	p.fill(p.table, d)
	if inverse != 1 {
		p.scale.inverse = inverse
		p.mass = p.scale.mass(row)
	}
}

// ownRow makes the table one whose logits may be changed, and returns them.
func (p *pool) ownRow() ([]float32, error) {
	if p.table != &p.edited {
		from := p.table
		logits := from.all()
		if logits == nil {
			return nil, from.err
		}
		p.row = append(p.row[:0], logits...)
		p.edited = table{logits: p.row, vocab: from.vocab, count: from.count}
		p.table = &p.edited
	}
	return p.row, nil
}

// mask removes the tokens that may not come, or returns ErrMasked where none that
// can be chosen may.
// PRECOND: nothing else has been done to the pool.
func (p *pool) mask(m Mask) (removed float64, err error) {
	row, err := p.ownRow()
	if err != nil {
		return 0, err
	}
	before := distribution{max: p.scale.top, mass: p.mass, dot: p.dot, count: p.count}
	after, err := m.apply(row, before)
	if err != nil {
		return 0, err
	}
	p.edited.count = after.count
	p.fill(&p.edited, after)
	return math.Max(0, 1-after.mass*expNeg(after.max-before.max)/before.mass), nil
}
