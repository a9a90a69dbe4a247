package engine

import (
	"cmp"
	"slices"
	"time"
)

// scheduler decides which tokens of which sequences a step computes. It knows
// neither devices nor models nor clocks: the same calls give the same plans.
//
// Up to limits.Answers run at a time, and each computes at least one token in every
// step. The others wait for a turn: the client with the fewest running sequences comes
// first, so that a client gets as much of the device as any other, however much it asks
// for. Of one client, those that never ran come first, so that every answer begins soon,
// and then the oldest ones.
//
// A turn lasts as long as nobody needs the place. After turnSteps steps the sequence may
// have to give way, and then keeps its memory as long as there is enough. Where memory
// runs out, what those who wait have kept goes first, and then the youngest gives way to
// the older ones.
type scheduler struct {
	limits  limits
	alone   pace   // of prefill in a step without decode
	mixed   pace   // of prefill beside decode
	model   string // the resident one, "" if there is none
	blocks  *blocks
	waiting []*sequence // next one first, as of the last order
	running []*sequence // oldest first
	clock   int64       // counts arrivals and sequences that gave way

	decodeTime time.Duration // of the last step without prefill
}

// limits bound a step: placement.StepLimits, which this file need not know.
type limits struct {
	Answers int // running at the same time
	Rows    int // tokens computed, at least Answers
	Logits  int // rows whose logits are wanted, at least Answers
}

// pace is how many tokens of prefill a step takes on, learned from how long steps
// take. A prompt's chunks then last about as long on any machine: short enough to be
// cancelled, to show progress and to let others in.
type pace struct{ rows, least, most int }

// learn notes that a step with used tokens of prefill took the time took where it
// should stay below goal.
func (p *pace) learn(used int, took, goal time.Duration) {
	switch {
	case took > goal:
		p.rows = max(p.least, p.rows/2)
	case took < goal/2 && used >= p.rows:
		p.rows = min(p.most, p.rows*2)
	}
}

// turnSteps is how many steps a turn lasts at least. Who asks for three tokens waits no
// longer than that for a place that others have; to change places costs next to nothing.
const turnSteps = 16

// overtakers is how many arrivals, for each place, may come before a sequence whose turn was
// over.
const overtakers = 32

const (
	// chunkTime is how long a step should take that has only prefill.
	chunkTime = 250 * time.Millisecond

	// mixedTime is what a step that decodes may always take beside prefill; more if
	// decode alone takes more than half of it.
	mixedTime = 50 * time.Millisecond
)

// share is the part of a step that one sequence gets: its next rows tokens.
type share struct {
	seq  *sequence
	rows int
}

// add queues q.
func (s *scheduler) add(q *sequence) {
	q.arrival = s.enqueue(q)
}

func (s *scheduler) enqueue(q *sequence) (now int64) {
	s.clock++
	q.queued = s.clock
	s.waiting = append(s.waiting, q)
	return s.clock
}

// remove ends q, wherever it stands. What it computed stays in the cache unless
// keep is false.
func (s *scheduler) remove(q *sequence, keep bool) {
	if i := slices.Index(s.waiting, q); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else if i := slices.Index(s.running, q); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
	}
	s.release(q, keep)
}

// release gives back the memory of q, which computes its tokens anew when it runs again,
// but for those that are still in the cache then; none is unless keep is set.
func (s *scheduler) release(q *sequence, keep bool) {
	if len(q.table.ids) == 0 {
		return
	}
	if keep {
		s.blocks.close(&q.table, q.tokens[:q.computed])
	} else {
		s.blocks.discard(&q.table)
	}
	q.computed = 0
}

// rewind takes the memory of q back to its tokens, if more was computed: the last ones
// are gone. The last of those that are left is computed again, because its logits are
// wanted.
func (s *scheduler) rewind(q *sequence) {
	if q.computed > len(q.tokens) {
		q.computed = s.blocks.cut(&q.table, len(q.tokens)-1)
	}
}

// reset takes model, with an empty cache, as the resident one; "" is none. The
// sequences that were running are gone: reset returns them. What those who wait had kept
// is gone with the cache.
func (s *scheduler) reset(model string, b *blocks) []*sequence {
	running := s.running
	for _, q := range slices.Concat(running, s.waiting) {
		q.table, q.computed = blockTable{}, 0
	}
	s.model, s.blocks, s.running = model, b, nil
	// Small steps first: on a slow machine a large one could take minutes.
	rows := s.limits.Rows
	s.alone = pace{rows: min(32, rows), least: min(16, rows), most: rows}
	s.mixed = pace{rows: min(8, rows), least: 1, most: rows}
	return running
}

// wanted returns the sequence whose model has to become resident before anything
// can run, or nil. Sequences that have begun finish first.
func (s *scheduler) wanted() *sequence {
	if len(s.running) > 0 || len(s.waiting) == 0 {
		return nil
	}
	s.order()
	if s.waiting[0].model == s.model || slices.ContainsFunc(s.waiting, s.passes) {
		return nil
	}
	return s.waiting[0]
}

// passes reports whether q may run although another model's turn comes first.
func (s *scheduler) passes(q *sequence) bool { return q.begun && q.model == s.model }

// starved returns the sequence whose turn it is and that cannot run, as memory lacks for it
// even while no other one runs; nil if there is none. It is for after an empty plan.
func (s *scheduler) starved() *sequence {
	if len(s.running) > 0 {
		return nil
	}
	held := false
	for _, q := range s.waiting {
		held = held || q.model != s.model
		if !held || s.passes(q) {
			return q
		}
	}
	return nil
}

// schedule plans the next step. It is empty if nothing can run.
func (s *scheduler) schedule() []share {
	s.grow()
	s.admit()
	return s.divide()
}

// advance notes that plan has been computed, and how long that took.
func (s *scheduler) advance(plan []share, took time.Duration) {
	decode, prefill := 0, 0
	for _, w := range plan {
		if w.seq.missing() == 1 {
			decode++
		} else {
			prefill += w.rows
		}
		w.seq.computed += w.rows
		w.seq.turn++
		s.blocks.commit(&w.seq.table, w.seq.tokens[:w.seq.computed])
	}
	switch {
	case prefill == 0:
		s.decodeTime = took
	case decode == 0:
		s.alone.learn(prefill, took, chunkTime)
	default:
		s.mixed.learn(prefill, took, max(2*s.decodeTime, mixedTime))
	}
}

// grow gives each running sequence memory for its newest token, the oldest first.
func (s *scheduler) grow() {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		for !s.blocks.grow(&q.table, len(q.tokens)) {
			if s.reclaim(q) {
				continue
			}
			youngest := s.running[len(s.running)-1]
			s.giveWay(youngest)
			s.release(youngest, true)
			if youngest == q {
				break
			}
		}
	}
}

// reclaim takes what a waiting sequence other than q has kept, the last one's first. It
// returns false if there is nothing to take.
func (s *scheduler) reclaim(q *sequence) bool {
	for _, w := range slices.Backward(s.waiting) {
		if w != q && len(w.table.ids) > 0 {
			s.release(w, true)
			return true
		}
	}
	return false
}

// giveWay ends the turn of q, which waits for the next one and keeps its memory.
func (s *scheduler) giveWay(q *sequence) {
	i := slices.Index(s.running, q)
	s.running = slices.Delete(s.running, i, i+1)
	s.enqueue(q)
}

// order sorts those who wait by whose turn comes first.
func (s *scheduler) order() {
	if len(s.waiting) < 2 {
		return
	}
	later := int64(overtakers * s.limits.Answers)
	after := func(q *sequence, at int64) int64 {
		if q.yielded {
			return at + later
		}
		return at
	}
	slices.SortStableFunc(s.waiting, func(a, b *sequence) int {
		return cmp.Or(cmp.Compare(a.sibling, b.sibling), cmp.Compare(after(a, a.arrival), after(b, b.arrival)))
	})
	next := s.countClients()
	for _, q := range s.waiting {
		q.rank = next[q.client]
		next[q.client]++
	}
	slices.SortStableFunc(s.waiting, func(a, b *sequence) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(after(a, a.queued), after(b, b.queued)))
	})
}

// countClients returns how many sequences run for each client.
func (s *scheduler) countClients() map[string]int {
	n := map[string]int{}
	for _, q := range s.running {
		n[q.client]++
	}
	return n
}

// admit lets waiting sequences run, in order, as long as their tokens fit, in free places
// and in those of others whose turn is over. One that waits for another model holds up
// those behind it that have not begun: their turn comes after its own.
func (s *scheduler) admit() {
	s.order()
	for i, held := 0, false; i < len(s.waiting); {
		q := s.waiting[i]
		held = held || q.model != s.model
		if held && !s.passes(q) || len(q.table.ids) == 0 && s.prefixUnderway(q) {
			i++
			continue
		}
		if len(s.running) < s.limits.Answers {
			if !s.open(q, true) {
				return
			}
			s.start(q)
			continue
		}
		giver, richer := s.giver(q)
		if giver == nil || !s.openInPlaceOf(giver, q, richer) {
			return
		}
		s.start(q)
		s.order()
		i, held = 0, false
	}
}

// open gets q the memory for its tokens, at the cost of others who wait if reclaim is set.
func (s *scheduler) open(q *sequence, reclaim bool) bool {
	for {
		if len(q.table.ids) > 0 {
			if s.blocks.grow(&q.table, len(q.tokens)) {
				return true
			}
		} else if table, cached, ok := s.blocks.open(q.tokens, q.reusable()); ok {
			q.table, q.computed, q.cached = table, cached, cached
			return true
		}
		if !reclaim || !s.reclaim(q) {
			return false
		}
	}
}

// start lets q run, which has its memory.
func (s *scheduler) start(q *sequence) {
	i := slices.Index(s.waiting, q)
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.running = append(s.running, q)
	q.begun, q.turn = true, 0
}

// giver returns the sequence that has to give its place to q, or nil if q has to wait.
// Only one whose turn is over gives way: to a client that has fewer running, or to its own
// client where that has one that had no turn yet, or an older one. The client with the most
// running gives first, and its last answer of a request, or its youngest. richer reports
// whether that client then still has as many as that of q.
func (s *scheduler) giver(q *sequence) (giver *sequence, richer bool) {
	running := s.countClients()
	own := running[q.client]
	for _, r := range s.running {
		has := running[r.client]
		switch {
		case r.turn < turnSteps:
			continue
		case r.client == q.client && !q.precedes(r), r.client != q.client && own > 0 && has < own+2:
			continue
		}
		if giver == nil || cmp.Or(cmp.Compare(has, running[giver.client]), cmp.Compare(r.sibling, giver.sibling)) > 0 ||
			has == running[giver.client] && r.sibling == giver.sibling && (has > 1 || r.turn > giver.turn) {
			giver = r
		}
	}
	return giver, giver != nil && running[giver.client] >= own+2
}

// precedes reports whether q gets the place of r. Both are of one client, and the turn of r
// is over.
func (q *sequence) precedes(r *sequence) bool {
	if q.sibling != r.sibling {
		return q.sibling < r.sibling
	}
	return !q.yielded || q.arrival < r.arrival
}

// openInPlaceOf takes memory for q and ends the turn of giver. It returns false if there is
// not enough. giver loses its own, and computes its tokens again later, only where its client
// is richer. Where both are of one client, half of the memory has to stay free, so that those
// that run can grow.
func (s *scheduler) openInPlaceOf(giver, q *sequence, richer bool) bool {
	needed := s.blocks.blocksFor(len(q.tokens))
	switch {
	case richer:
		if !s.open(q, true) {
			if s.blocks.available()+len(giver.table.ids) < needed {
				return false
			}
			s.release(giver, true)
			if !s.open(q, false) {
				s.giveWay(giver) // what it had is gone, so that it opens as any other
				return false
			}
		}
	case giver.client == q.client && !s.blocks.hasSpare(needed):
		return false
	case !s.open(q, false):
		return false
	}
	giver.yielded = true
	s.giveWay(giver)
	return true
}

// prefixUnderway reports whether a running sequence is computing complete blocks
// that q can share a few steps from now. Several answers to one prompt then cost
// one prefill.
func (s *scheduler) prefixUnderway(q *sequence) bool {
	have := -1
	for _, r := range s.running {
		if r.missing() == 1 {
			continue
		}
		common := commonPrefix(r.tokens, q.tokens[:q.reusable()]) / s.blocks.size
		if common <= r.computed/s.blocks.size {
			continue
		}
		if have < 0 {
			have = s.blocks.cachedBlocks(q.tokens[:q.reusable()])
		}
		if common > have {
			return true
		}
	}
	return false
}

// divide shares out the rows of a step: one to each sequence in decode, the rest
// evenly to those in prefill, where what one does not need goes to the others. The
// plan keeps the order of running.
func (s *scheduler) divide() []share {
	plan := make([]share, len(s.running))
	var prefill []*share
	scoring := 0
	for i, q := range s.running {
		plan[i] = share{seq: q, rows: 1}
		if q.missing() > 1 {
			prefill = append(prefill, &plan[i])
		}
		if q.unscored() {
			scoring++
		}
	}
	decoding := len(plan) - len(prefill)
	rows := s.alone.rows
	if decoding > 0 {
		rows = s.mixed.rows
	}
	left := max(len(prefill), min(rows, s.limits.Rows-decoding))
	slices.SortStableFunc(prefill, func(a, b *share) int { return cmp.Compare(a.seq.missing(), b.seq.missing()) })
	for i, w := range prefill {
		w.rows = min(w.seq.missing(), left/(len(prefill)-i))
		if w.seq.unscored() {
			w.rows = min(w.rows, 1+(s.limits.Logits-len(plan))/scoring)
		}
		left -= w.rows
	}
	return plan
}
