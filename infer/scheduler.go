package infer

import (
	"cmp"
	"slices"
	"time"
)

// scheduler decides which tokens of which sequences a step computes. It knows
// neither devices nor models nor clocks: the same calls give the same plans.
//
// Sequences wait in the order of their arrival and run up to limits.sequences at a
// time. In every step every running sequence computes at least one token, so none
// starves. Where memory runs out, the youngest gives way to the older ones, and is
// the next to run again.
type scheduler struct {
	limits  limits
	alone   pace   // of prefill in a step without decode
	mixed   pace   // of prefill beside decode
	model   string // the resident one, "" if there is none
	blocks  *blocks
	waiting []*sequence // next one first
	running []*sequence // oldest first

	decodeTime time.Duration // of the last step without prefill
}

// limits bound a step.
type limits struct {
	sequences int // running at the same time
	rows      int // tokens computed, at least sequences
	logits    int // rows whose logits are wanted, at least sequences
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

const (
	// chunkTime is how long a step should take that has only prefill.
	chunkTime = 250 * time.Millisecond

	// mixedTime is what a step that decodes may always take beside prefill; more if
	// decode alone takes more than half of it.
	mixedTime = 50 * time.Millisecond
)

// share is the part of a step that one sequence gets: its next rows tokens.
type share struct {
	seq    *sequence
	rows   int
	wanted []int // positions of the rows whose logits are wanted, filled in later
}

// add queues q.
func (s *scheduler) add(q *sequence) { s.waiting = append(s.waiting, q) }

// remove ends q, wherever it stands. What it computed stays in the cache unless
// keep is false.
func (s *scheduler) remove(q *sequence, keep bool) {
	if i := slices.Index(s.waiting, q); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	i := slices.Index(s.running, q)
	if i < 0 {
		return
	}
	s.running = slices.Delete(s.running, i, i+1)
	if keep {
		s.blocks.close(&q.table, q.tokens[:q.computed])
	} else {
		s.blocks.discard(&q.table)
	}
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
// sequences that were running are gone: reset returns them.
func (s *scheduler) reset(model string, b *blocks) []*sequence {
	running := s.running
	s.model, s.blocks, s.running = model, b, nil
	// Small steps first: on a slow machine a large one could take minutes.
	rows := s.limits.rows
	s.alone = pace{rows: min(32, rows), least: min(16, rows), most: rows}
	s.mixed = pace{rows: min(8, rows), least: 1, most: rows}
	return running
}

// wanted returns the sequence whose model has to become resident before anything
// can run, or nil. Running sequences finish first.
func (s *scheduler) wanted() *sequence {
	if len(s.running) > 0 || len(s.waiting) == 0 || s.waiting[0].model == s.model {
		return nil
	}
	return s.waiting[0]
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
			youngest := s.running[len(s.running)-1]
			s.preempt(youngest)
			if youngest == q {
				break
			}
		}
	}
}

// preempt sends q back to the front of the queue. It computes its tokens anew when
// it runs again, but for those that are still in the cache then.
func (s *scheduler) preempt(q *sequence) {
	s.remove(q, true)
	q.computed = 0
	s.waiting = slices.Insert(s.waiting, 0, q)
}

// admit lets waiting sequences run, in order, as long as their tokens fit. One that
// waits for another model holds up those behind it: their turn comes after its own.
func (s *scheduler) admit() {
	for i := 0; i < len(s.waiting) && len(s.running) < s.limits.sequences; {
		q := s.waiting[i]
		if q.model != s.model {
			return
		}
		if s.prefixUnderway(q) {
			i++
			continue
		}
		table, cached, ok := s.blocks.open(q.tokens, q.reusable())
		if !ok {
			return
		}
		q.table, q.computed, q.cached = table, cached, cached
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.running = append(s.running, q)
	}
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
	left := max(len(prefill), min(rows, s.limits.rows-decoding))
	slices.SortStableFunc(prefill, func(a, b *share) int { return cmp.Compare(a.seq.missing(), b.seq.missing()) })
	for i, w := range prefill {
		w.rows = min(w.seq.missing(), left/(len(prefill)-i))
		if w.seq.unscored() {
			w.rows = min(w.rows, 1+(s.limits.logits-len(plan))/scoring)
		}
		left -= w.rows
	}
	return plan
}
