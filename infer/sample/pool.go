package sample

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// pool holds the candidates that are left as they pass through the stages. It sorts lazily:
// until a stage removes candidates, head holds only as many of the best tokens as were
// needed so far, and grow adds more.
// INVARIANT: head is in canonical order, and precedes all other candidates.
type pool struct {
	table  *table // logits of all tokens, after mask, bias and penalties
	head   []candidate
	count  int     // number of candidates; more than len(head) only before any were removed
	mass   float64 // sum of the weights of all candidates
	dot    float64 // sum of weight * exponent of all candidates; valid until candidates are removed or a temperature is applied
	scale  scale   // maps logits to weights
	ranker ranker
	buffer []candidate // storage of head

	edited   table     // table points to it after the first change of a logit
	unknown  bool      // of a stored row: the sums are not those of all candidates, because logits changed that were not stored
	row      []float32 // storage of edited
	oldProbs []float64 // probabilities before an edit
}

// fill resets the pool to all tokens of a table, whose softmax is d.
func (p *pool) fill(t *table, d distribution) {
	p.table, p.head, p.count, p.mass, p.dot, p.unknown = t, nil, d.count, d.mass, d.dot, false
	p.scale = scale{top: d.max, inverse: 1}
}

// ensure extends head to at least n candidates, or to all if there are fewer.
func (p *pool) ensure(n int) {
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

// initialHead is enough candidates for nearly every distribution of a language model, and
// few enough to select quickly.
const initialHead = 256

// grow extends head about fourfold. It returns false if head is complete or the logits
// cannot be fetched.
func (p *pool) grow() bool {
	if len(p.head) == p.count {
		return false
	}
	p.ensure(max(initialHead, 4*len(p.head)))
	return p.table.err == nil
}

// truncate reduces the pool to head[from:to] and returns the share of the mass removed.
func (p *pool) truncate(from, to int) (removed float64) {
	if to-from == p.count {
		return 0
	}
	p.head = p.head[from:to]
	mass := 0.0
	for i := range p.head {
		mass += p.head[i].weight
	}
	removed = math.Max(0, 1-mass/p.mass)
	p.count, p.mass, p.unknown = len(p.head), mass, false
	if from > 0 { // weights relative to the removed top may be tiny or 0
		p.scale.top = float64(p.head[0].logit)
		p.reweigh()
	}
	return removed
}

// reweigh recomputes the weights of head after a change of scale or logits, and sets mass to
// their sum.
func (p *pool) reweigh() {
	p.mass = 0
	for i := range p.head {
		p.head[i].weight = p.scale.weight(p.head[i].logit)
		p.mass += p.head[i].weight
	}
}

func (p *pool) topK(k int) (removed float64) {
	k = min(k, p.count)
	p.ensure(k)
	return p.truncate(0, min(k, len(p.head))) // fewer if the logits cannot be fetched
}

// topNSigma keeps the candidates whose logit is at most n standard deviations below the
// largest.
func (p *pool) topNSigma(n float64) (removed float64) {
	p.ensure(initialHead)
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
	return p.truncateAt(func(c candidate) bool { return float64(c.logit) < floor }, 0)
}

func (p *pool) typicalP(share float64, minKeep int) (removed float64) {
	p.ensure(p.count)
	if top := float64(p.head[0].logit); top != p.scale.top {
		p.scale.top = top // so that the surprise of equal candidates is exactly the entropy
		p.reweigh()
	}
	return p.truncate(typicalP(p.head, p.scale, share, minKeep))
}

func (p *pool) topP(share float64, minKeep int) (removed float64) {
	p.needSums()
	p.ensure(initialHead)
	for {
		kept, reached := topP(p.head, share*p.mass, minKeep)
		if reached || !p.grow() {
			return p.truncate(0, kept)
		}
	}
}

func (p *pool) minP(share float64, minKeep int) (removed float64) {
	p.ensure(initialHead)
	floor := share * p.head[0].weight
	return p.truncateAt(func(c candidate) bool { return c.weight < floor }, minKeep)
}

// xtc removes all but the least likely of the candidates whose probability is at least
// threshold.
func (p *pool) xtc(threshold float64, minKeep int) (removed float64) {
	p.needSums()
	above := p.countBefore(func(c candidate) bool { return c.weight < threshold*p.mass })
	if above < 2 || p.count-(above-1) < minKeep {
		return 0
	}
	p.ensure(p.count)
	return p.truncate(above-1, len(p.head))
}

// mirostat keeps the candidates whose surprise is at most mu bits, and always the likeliest.
func (p *pool) mirostat(mu float64) (removed float64) {
	p.needSums()
	p.ensure(initialHead)
	logMass := math.Log(p.mass)
	return p.truncateAt(func(c candidate) bool { return logMass-p.scale.exponent(c.logit) > mu*math.Ln2 }, 1)
}

// truncateAt keeps the candidates before the first for which out is true, but at least
// minKeep.
// PRECOND: out is true for all candidates after one for which it is true.
func (p *pool) truncateAt(out func(candidate) bool, minKeep int) (removed float64) {
	kept := max(1, p.countBefore(out), min(minKeep, p.count))
	p.ensure(kept)
	return p.truncate(0, min(kept, len(p.head)))
}

// countBefore returns the number of candidates before the first for which out is true.
// PRECOND: as for truncateAt.
func (p *pool) countBefore(out func(candidate) bool) int {
	p.ensure(initialHead)
	for {
		n := sort.Search(len(p.head), func(i int) bool { return out(p.head[i]) })
		if n < len(p.head) || !p.grow() {
			return n
		}
	}
}

// temperature divides the logits by t >= 0.
func (p *pool) temperature(t float64) (removed float64) {
	p.needSums()
	p.ensure(initialHead)
	before, massBefore := p.scale, p.mass
	// If t is 0 or almost 0, 1/t is infinite, and infinity times 0 is NaN.
	p.scale = scale{top: float64(p.head[0].logit), inverse: math.Min(1/t, math.MaxFloat64)}
	p.reweigh()
	if len(p.head) < p.count {
		p.mass = p.scale.mass(p.table.all())
	}
	for {
		removed, complete := movedMass(p.head, before, massBefore, p.scale, p.mass)
		if complete || !p.grow() {
			return removed
		}
	}
}

// dynamicTemperature divides the logits by a temperature interpolated from low to high by
// the entropy, divided by the largest possible entropy, to the power of exponent. A single
// candidate is left unchanged.
func (p *pool) dynamicTemperature(low, high, exponent float64) (removed float64) {
	p.ensure(initialHead)
	if p.count == 1 {
		return 0
	}
	p.needSums()
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

// draw returns the first candidate at which the cumulative probability exceeds u in [0, 1).
func (p *pool) draw(u float64) candidate {
	p.needSums()
	p.ensure(initialHead)
	for {
		i, ok := pick(p.head, u*p.mass)
		if ok {
			return p.head[i]
		}
		if !p.grow() {
			// Rounding made u*mass larger than the sum: take the last with a weight.
			last := len(p.head) - 1
			for last > 0 && p.head[last].weight == 0 {
				last--
			}
			return p.head[last]
		}
	}
}

// change returns the new logit of a token, or logit if it does not apply to the token. Both
// are divided by the temperature if that has been applied.
type change func(id int32, logit float64) float64

// edit applies f to the logits of the tokens in ids, the only ones that f may change. lowers reports
// whether f never makes a logit of a token larger. It returns the probability moved between tokens.
func (p *pool) edit(ids []int32, f change, lowers func(id int32) bool) (moved float64, err error) {
	switch {
	case len(ids) == 0:
		return 0, nil
	case len(p.head) == p.count:
		return p.editHead(f), nil
	case p.table.stored:
		return p.editStored(ids, f, lowers)
	}
	return p.editRow(ids, f)
}

// editHead implements edit if all candidates are in head.
func (p *pool) editHead(f change) (moved float64) {
	p.oldProbs = p.oldProbs[:0]
	top := math.Inf(-1)
	for i := range p.head {
		c := &p.head[i]
		p.oldProbs = append(p.oldProbs, c.weight/p.mass)
		c.logit = p.scale.change(c.id, c.logit, f)
		top = math.Max(top, float64(c.logit))
	}
	p.scale.top = top
	p.reweigh()
	for i := range p.head {
		moved += math.Max(0, p.head[i].weight/p.mass-p.oldProbs[i])
	}
	slices.SortFunc(p.head, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
	})
	p.reweigh() // so that mass is summed in the new order
	return moved
}

// editRow implements edit on the whole row, since any token may move to any rank.
func (p *pool) editRow(ids []int32, f change) (moved float64, err error) {
	row, err := p.editableRow()
	if err != nil {
		return 0, err
	}
	mass, dot, top := p.mass, p.dot, p.scale.top
	p.oldProbs = p.oldProbs[:0]
	gone := 0.0
	for _, id := range ids {
		w := p.scale.weight(row[id])
		p.oldProbs = append(p.oldProbs, w/mass)
		gone += w
		dot -= p.scale.dot(row[id], w)
		row[id] = p.scale.change(id, row[id], f)
		top = math.Max(top, float64(row[id]))
	}
	p.head = nil
	if p.mass -= gone; p.mass < mass/2 || top > p.scale.top {
		// The rest of the old sum is mainly rounding error, or has another scale.
		p.recomputeSums(row)
	} else {
		for _, id := range ids {
			w := p.scale.weight(row[id])
			p.mass += w
			dot += p.scale.dot(row[id], w)
		}
		p.dot = dot
	}
	// Renormalisation makes all other tokens gain or all lose probability. So either the
	// total gain or the total loss is entirely among ids.
	var gained, lost float64
	for i, id := range ids {
		change := p.scale.weight(row[id])/p.mass - p.oldProbs[i]
		gained += math.Max(0, change)
		lost += math.Max(0, -change)
	}
	return math.Max(gained, lost), nil
}

// recomputeSums recomputes the sums of a whole row. An applied temperature is kept.
// PRECOND: some logit is finite, and none is NaN or +Inf.
func (p *pool) recomputeSums(row []float32) {
	d, _ := softmax(row)
	inverse := p.scale.inverse
	p.fill(p.table, d)
	if inverse != 1 {
		p.scale.inverse = inverse
		p.mass = p.scale.mass(row)
	}
}

// editableRow copies the logits on the first call, makes table use the copy, and returns it.
func (p *pool) editableRow() ([]float32, error) {
	if p.table != &p.edited {
		from := p.table
		logits := from.all()
		if logits == nil {
			return nil, from.err
		}
		p.row = append(p.row[:0], logits...)
		p.edited = table{logits: p.row, keys: p.edited.keys[:0], vocab: from.vocab, count: from.count}
		p.table = &p.edited
	}
	return p.row, nil
}

// mask removes the tokens that m does not allow. It returns ErrMasked if none is left.
// PRECOND: no other stage has run.
func (p *pool) mask(m Mask) (removed float64, err error) {
	row, err := p.editableRow()
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
