package sample

import (
	"math"
	"slices"
)

// needSums makes the pool's table return ErrNotStored if the sums over all candidates are not known.
func (p *pool) needSums() {
	if p.unknown && p.table.err == nil {
		p.table.err = ErrNotStored
	}
}

// probability returns that of a token among the candidates; 0: it is not among them; -1: it was not
// stored. It does not change the pool.
func (p *pool) probability(id int32) float64 {
	for i := range p.head {
		if p.head[i].id == id {
			return p.head[i].weight / p.mass
		}
	}
	if len(p.head) == p.count {
		return 0
	}
	logit, known := p.table.known(id)
	switch {
	case !known:
		return -1
	case math.IsInf(float64(logit), -1):
		return 0
	}
	return p.scale.weight(logit) / p.mass
}

func (p *pool) probabilities(ids []int32) []float64 {
	list := make([]float64, len(ids))
	for i, id := range ids {
		list[i] = p.probability(id)
	}
	return list
}

// drawn says where among the candidates the token id is, which u drew.
func (p *pool) drawn(u float64, id int32) *Drawn {
	sum := 0.0
	for i := range p.head {
		if p.head[i].id == id {
			return &Drawn{U: u, From: sum / p.mass, To: (sum + p.head[i].weight) / p.mass}
		}
		sum += p.head[i].weight
	}
	return &Drawn{U: u}
}

// known returns the logit of a token if nothing has to be fetched for it.
func (t *table) known(id int32) (logit float32, known bool) {
	if t.logits != nil {
		return t.logits[id], true
	}
	for _, key := range t.keys {
		if keyID(key) == id {
			return keyLogit(key), true
		}
	}
	return 0, len(t.keys) == t.count
}

// A change of logits may concern tokens that were not stored. These come after the last one that was,
// and stay there if the change lowers them. So do stored ones that fall below it; they count as not
// stored from then on. What stays above it is known exactly, but the sums over all candidates are not,
// if the logit of a changed token is not.

// editStored implements edit on a stored row. It returns ErrNotStored if a token that was not stored may
// rise among those that were.
func (p *pool) editStored(ids []int32, f change, lowers func(id int32) bool) (moved float64, err error) {
	from := p.table
	last := from.keys[len(from.keys)-1]
	all := len(from.keys) == from.count
	keys := append(make([]uint64, 0, len(from.keys)), from.keys...)
	at := make(map[int32]int, len(keys))
	for i, key := range keys {
		at[keyID(key)] = i
	}
	e := edit{pool: p, mass: p.mass, dot: p.dot, top: p.scale.top}
	for _, id := range ids {
		i, known := at[id]
		if !known {
			if !all && !lowers(id) {
				return 0, ErrNotStored
			}
			p.unknown = p.unknown || !all
			continue
		}
		logit := keyLogit(keys[i])
		changed := p.scale.change(id, logit, f)
		e.add(logit, changed)
		keys[i] = rankKey(changed, id)
	}
	slices.SortFunc(keys, func(a, b uint64) int { return -compareKeys(a, b) })
	if !all {
		n, _ := slices.BinarySearchFunc(keys, last, func(a, b uint64) int { return -compareKeys(a, b) })
		for n < len(keys) && keys[n] == last {
			n++
		}
		if n == 0 {
			return 0, ErrNotStored
		}
		keys = keys[:n]
	}
	p.edited = table{keys: keys, vocab: from.vocab, count: from.count, fetch: notStored, stored: true}
	p.table, p.head = &p.edited, nil
	return e.end(keyLogit(keys[0]))
}

func compareKeys(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// edit sums up a change of the logits of a stored row.
type edit struct {
	pool           *pool
	mass, dot, top float64 // before it
	gone           float64 // mass of the changed tokens before it
	old, now       []float32
}

func (e *edit) add(logit, changed float32) {
	e.gone += e.pool.scale.weight(logit)
	e.old, e.now = append(e.old, logit), append(e.now, changed)
}

// end sets the sums of the pool, whose largest logit is top, and returns the probability moved. What is
// left of a sum after most of it was taken away is not exact enough.
func (e *edit) end(top float32) (moved float64, err error) {
	p := e.pool
	rest, dot := e.mass-e.gone, e.dot
	for _, logit := range e.old {
		dot -= p.scale.dot(logit, p.scale.weight(logit))
	}
	before := p.scale
	if rest < e.mass/2 || float64(top) > e.top {
		scale := scale{top: float64(top), inverse: p.scale.inverse}
		shift := (e.top - float64(top)) * p.scale.inverse
		by := math.Exp(shift)
		p.unknown = p.unknown || rest < 1e-4*e.mass || by > 1e30
		rest, dot = rest*by, (dot+shift*rest)*by
		p.scale = scale
	}
	p.mass, p.dot = rest, dot
	for _, logit := range e.now {
		w := p.scale.weight(logit)
		p.mass += w
		p.dot += p.scale.dot(logit, w)
	}
	var gained, lost float64
	for i := range e.old {
		change := p.scale.weight(e.now[i])/p.mass - before.weight(e.old[i])/e.mass
		gained += math.Max(0, change)
		lost += math.Max(0, -change)
	}
	return math.Max(gained, lost), nil
}
