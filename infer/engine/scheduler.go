package engine

import (
	"cmp"
	"slices"
	"time"
)

// scheduler decides which tokens of which sequences a step computes. It knows
// neither devices nor models nor clocks: the same calls give the same plans.
//
// Up to limits.Answers sequences run at a time, and each computes at least one token in every
// step; prompts pause where answers alongside them would keep too little of their speed (sharing.go).
// Those that wait are admitted in this order: first those of the client with the fewest running
// sequences, so that every client gets the same part of the device; of one client, first those
// that never ran, so that every answer begins soon, then the oldest.
//
// A sequence keeps its place for a time slice of sliceSteps steps, and longer while no other one needs
// the place. Then it may be preempted, and keeps its memory as long as there is enough. Where
// memory runs out, sequences that wait lose theirs first, and then the youngest running one is
// preempted.
type scheduler struct {
	limits  limits
	alone   pace // of prefill in a step without decode rows
	sharing sharing
	model   string // key of the loaded model, "" if there is none
	blocks  *blocks
	states  *states     // nil: the model has no recurrent state
	waiting []*sequence // next one first, as of the last order
	running []*sequence // oldest first
	clock   int64       // counts arrivals and preemptions

	drafters [ways]drafter // nil: none in this way
	draftErr error         // of the drafter that failed last, for the log
	costs    stepCosts
	rates    [ways]rate // of all answers
	forced   int        // tokens of each draft, for tests; 0: as many as gain

	draining     bool // sequences that were not started wait
	promptsApart bool // a step has rows of prompts or of answers, not both: see sequence.answerRows
	streams      bool // steps of prompts copy weights first (placement.Plan.Stream), which takes as long for fewer rows
}

// limits bound a step. They are placement.StepLimits, declared here so that this file imports
// nothing.
type limits struct {
	Answers int // running at the same time
	Rows    int // tokens computed, at least Answers
	Logits  int // rows whose logits are computed, at least Answers
}

// pace is how many tokens of prefill a step takes on, adapted to how long steps take. A prompt's
// chunks then last about as long on any machine: short enough to cancel, to show progress and to
// admit others.
type pace struct{ rows, least, most int }

// learn adapts the pace to a step that had used tokens of prefill and took took, where goal was
// the aim.
func (p *pace) learn(used int, took, goal time.Duration) {
	switch {
	case took > goal:
		p.rows = max(p.least, p.rows/2)
	case took < goal/2 && used >= p.rows:
		p.rows = min(p.most, p.rows*2)
	}
}

// atLeast makes n rows the fewest.
func (p *pace) atLeast(n int) {
	p.least = min(max(p.least, n), p.most)
	p.rows = max(p.rows, p.least)
}

// sliceSteps is the minimum number of steps before a sequence may be preempted. A request for
// three tokens waits no longer than that for a place; a preemption costs next to nothing.
const sliceSteps = 16

// overtakers is how many arrivals, for each place, may be admitted before a preempted sequence.
const overtakers = 32

// chunkTime is the aim for a step that has only prefill.
const chunkTime = 250 * time.Millisecond

// scheduled is one sequence's rows in a step: rows tokens from position from on, and then those of a draft, which
// may turn out to be others.
type scheduled struct {
	seq   *sequence
	from  int // all tokens before it are computed, or will be by the steps before
	rows  int
	draft []int32
	by    way // that drafted

	decode bool // the step gives it a token; see sequence.decodes
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

// remove ends q, running or waiting. What it computed stays in the cache unless keep is false.
func (s *scheduler) remove(q *sequence, keep bool) {
	if i := slices.Index(s.waiting, q); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else if i := slices.Index(s.running, q); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
	}
	s.release(q, keep)
}

// release frees the memory of q. When q runs again, it computes its tokens again, except those
// still in the cache; keep leaves them there.
func (s *scheduler) release(q *sequence, keep bool) {
	if q.table.empty() {
		return
	}
	s.forgetDrafts(q)
	if keep && !q.unshared {
		s.blocks.close(&q.table, q.ids(q.computed))
	} else {
		s.blocks.discard(&q.table)
	}
	if s.states != nil {
		if !keep {
			s.states.discard(q.ids(len(q.tokens)), q.audience.scope)
		}
		s.states.release(q.slot)
		s.releaseSpare(q)
		q.slot = noSlot
	}
	q.computed, q.again = 0, 0
}

// rewind truncates the memory of q to its tokens after some were removed. The last token left is
// computed again, because its logits are needed.
func (s *scheduler) rewind(q *sequence) {
	if q.computed <= len(q.tokens) {
		return
	}
	if s.states == nil {
		q.computed = s.blocks.truncate(&q.table, len(q.tokens)-1)
		return
	}
	for limit := len(q.tokens) - 1; ; {
		snapshot, n := s.states.snapshot(q.ids(limit), q.audience.scope)
		if q.computed = s.blocks.truncate(&q.table, n); q.computed == n {
			s.states.restore(q.slot, snapshot)
			return
		}
		limit = q.computed
	}
}

// reset makes model, with an empty cache and without recurrent state, the loaded one; "" is none. It
// returns the sequences that were running. Those that wait lose their memory.
func (s *scheduler) reset(model string, b *blocks) []*sequence {
	running := s.running
	for _, q := range slices.Concat(running, s.waiting) {
		q.table, q.slot, q.spare, q.computed, q.again = blockTable{}, noSlot, noSlot, 0, 0
	}
	s.model, s.blocks, s.states, s.running = model, b, nil, nil
	s.drafters, s.costs, s.rates, s.promptsApart, s.streams = [ways]drafter{}, stepCosts{}, [ways]rate{}, false, false
	// Small steps first: on a slow machine a large one could take minutes.
	rows := s.limits.Rows
	s.alone = pace{rows: min(32, rows), least: min(16, rows), most: rows}
	s.sharing = newSharing(rows)
	return running
}

// useStates makes states, nil if the model has none, the slots of recurrent state. One more than there are
// answers at once stays for a snapshot, so that places run out before slots: those who wait then take turns.
func (s *scheduler) useStates(states *states) {
	if s.states = states; states != nil {
		s.limits.Answers = min(s.limits.Answers, max(1, len(states.slots)-1))
	}
}

// wanted returns the sequence whose model has to be loaded before anything can run, or nil.
// Sequences that were started finish first.
func (s *scheduler) wanted() *sequence {
	if len(s.running) > 0 || len(s.waiting) == 0 {
		return nil
	}
	s.order()
	if s.waiting[0].modelKey == s.model || slices.ContainsFunc(s.waiting, s.mayRunFirst) {
		return nil
	}
	return s.waiting[0]
}

// mayRunFirst reports whether q may run although one for another model is before it.
func (s *scheduler) mayRunFirst(q *sequence) bool { return q.started && q.modelKey == s.model }

// drained reports whether no sequence is running.
func (s *scheduler) drained() bool {
	return len(s.running) == 0 && !slices.ContainsFunc(s.waiting, s.mayRunFirst)
}

// starved returns the next sequence if there is too little memory for it though no other runs,
// else nil. The caller has got an empty plan.
func (s *scheduler) starved() *sequence {
	resumes := func(q *sequence) bool { return q.restoring || q.paused } // its blocks may be what the others lack
	if len(s.running) > 0 || slices.ContainsFunc(s.waiting, resumes) {
		return nil
	}
	held := false
	for _, q := range s.waiting {
		held = held || q.modelKey != s.model
		if !held || s.mayRunFirst(q) {
			return q
		}
	}
	return nil
}

// schedule plans the next step. It is empty if nothing can run.
func (s *scheduler) schedule() []scheduled {
	s.grow()
	s.admit()
	plan := s.divide()
	for i := range plan {
		plan[i].from, plan[i].decode = plan[i].seq.computed, plan[i].seq.decodes()
	}
	s.addDrafts(plan)
	return plan
}

// advance records that plan has been computed, and how long that took, since the step before if there was no pause. Drafts are not part of the
// sequences yet: see accept.
func (s *scheduler) advance(plan []scheduled, took time.Duration) {
	decode, prefill := 0, 0
	prompts := len(plan) > 0 && plan[0].seq.readsPrompt()
	for _, part := range plan {
		if part.seq.decodes() {
			decode++
		} else {
			prefill += part.rows
		}
		part.seq.computed += part.rows
		part.seq.again = 0
		part.seq.steps++
		if part.seq.unshared {
			s.blocks.trim(&part.seq.table, part.seq.computed)
		} else {
			if len(part.draft) == 0 { // else the state is after the draft: see accept
				s.saveState(part.seq)
			}
			s.blocks.commit(&part.seq.table, part.seq.ids(part.seq.computed))
		}
	}
	if prompts && len(plan) < len(s.running) {
		s.sharing.paused(prefill, took)
		return
	}
	if decode == 0 && prefill > 0 && !s.streams {
		s.alone.learn(prefill, took, chunkTime)
	}
	s.sharing.record(decode, prefill, took)
}

// saveState makes a snapshot of the recurrent state of q if one is due.
func (s *scheduler) saveState(q *sequence) {
	if s.states == nil {
		return
	}
	if passing := q.missing() == 0; passing || q.computed%s.states.every == 0 || q.computed == s.states.last(len(q.tokens)) {
		s.states.save(q.slot, q.ids(q.computed), q.audience, passing)
	}
}

// grow allocates memory for the next step of each running sequence, the oldest first.
func (s *scheduler) grow() {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		for !s.blocks.grow(&q.table, len(q.tokens), q.computed) {
			if s.reclaim(q) {
				continue
			}
			youngest := s.running[len(s.running)-1]
			s.preempt(youngest)
			s.release(youngest, true)
			if youngest == q {
				break
			}
		}
	}
}

// reclaim frees the memory of a waiting sequence other than q, from the end of the queue. It
// returns false if none has any.
func (s *scheduler) reclaim(q *sequence) bool {
	for _, w := range slices.Backward(s.waiting) {
		if w != q && !w.table.empty() {
			s.release(w, true)
			return true
		}
	}
	return false
}

// preempt moves q back to the queue. It keeps its memory.
func (s *scheduler) preempt(q *sequence) {
	i := slices.Index(s.running, q)
	s.running = slices.Delete(s.running, i, i+1)
	s.enqueue(q)
}

// pause makes q wait, without a place, until paused is cleared. It keeps its memory while no other one needs it.
func (s *scheduler) pause(q *sequence) {
	if q.paused = true; slices.Contains(s.running, q) {
		s.preempt(q)
	}
}

// pauses reports whether a sequence is paused.
func (s *scheduler) pauses() bool {
	return slices.ContainsFunc(s.waiting, func(q *sequence) bool { return q.paused })
}

// order sorts the waiting sequences by who is admitted first.
func (s *scheduler) order() {
	if len(s.waiting) < 2 {
		return
	}
	later := int64(overtakers * s.limits.Answers)
	after := func(q *sequence, at int64) int64 {
		if q.preempted {
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

// admit starts waiting sequences, in order, as long as their tokens fit, in free places and in
// those of sequences whose time slice is over. A sequence for another model blocks those after
// it that were not started.
func (s *scheduler) admit() {
	s.order()
	for i, held := 0, s.draining; i < len(s.waiting); {
		q := s.waiting[i]
		held = held || q.modelKey != s.model
		if held && !s.mayRunFirst(q) || q.restoring || q.paused || q.table.empty() && s.prefixUnderway(q) {
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
		victim, richer := s.victim(q)
		if victim == nil || !s.openPreempting(victim, q, richer) {
			return
		}
		s.start(q)
		s.order()
		i, held = 0, s.draining
	}
}

// open allocates memory for the next step of q; with reclaim, also that of other waiting sequences.
func (s *scheduler) open(q *sequence, reclaim bool) bool {
	for {
		if !q.table.empty() {
			if s.blocks.grow(&q.table, len(q.tokens), q.computed) {
				return true
			}
		} else if s.allocate(q) {
			return true
		}
		if !reclaim || !s.reclaim(q) {
			return false
		}
	}
}

// allocate allocates memory for q, which has none, with the longest prefix that is cached.
func (s *scheduler) allocate(q *sequence) bool {
	reusable, snapshot := q.reusable(), int32(noSlot)
	if s.states != nil {
		snapshot, reusable = s.cachedState(q.ids(reusable), q.audience.scope)
		if snapshot == noSlot && s.states.free() == noSlot {
			return false
		}
	}
	table, cached, ok := s.blocks.open(q.ids(len(q.tokens)), reusable, q.audience)
	if !ok {
		return false
	}
	if s.states != nil {
		if cached < reusable { // a part of the prefix made room for the rest
			s.blocks.close(&table, q.ids(cached))
			return false
		}
		q.slot = s.states.take(snapshot)
	}
	q.table, q.computed, q.cached = table, cached, cached
	return true
}

// cachedState returns the longest snapshot in scope after a prefix of tokens whose keys and values are cached
// too, and the length of the prefix.
func (s *scheduler) cachedState(tokens []int32, scope string) (snapshot int32, length int) {
	for {
		snapshot, length = s.states.snapshot(tokens, scope)
		cached := s.blocks.cachedBlocks(tokens[:length], scope) * s.blocks.size
		if cached >= length {
			return snapshot, length
		}
		tokens = tokens[:cached]
	}
}

// start moves q, which has its memory, to the running sequences.
func (s *scheduler) start(q *sequence) {
	i := slices.Index(s.waiting, q)
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.running = append(s.running, q)
	q.started, q.steps = true, 0
}

// victim returns the sequence to preempt for q, or nil if q has to wait. Its time slice is over,
// and its client has at least two more running than that of q, or is that of q, which precedes
// it. The client with the most running is taken first, and of it the last answer of a request, or
// the youngest. richer reports whether that client then still has as many running as that of q.
func (s *scheduler) victim(q *sequence) (victim *sequence, richer bool) {
	running := s.countClients()
	own := running[q.client]
	for _, r := range s.running {
		has := running[r.client]
		switch {
		case r.steps < sliceSteps:
			continue
		case r.client == q.client && !q.precedes(r), r.client != q.client && own > 0 && has < own+2:
			continue
		}
		if victim == nil || cmp.Or(cmp.Compare(has, running[victim.client]), cmp.Compare(r.sibling, victim.sibling)) > 0 ||
			has == running[victim.client] && r.sibling == victim.sibling && (has > 1 || r.steps > victim.steps) {
			victim = r
		}
	}
	return victim, victim != nil && running[victim.client] >= own+2
}

// precedes reports whether q gets the place of r, of the same client, whose time slice is over.
func (q *sequence) precedes(r *sequence) bool {
	if q.sibling != r.sibling {
		return q.sibling < r.sibling
	}
	return !q.preempted || q.arrival < r.arrival
}

// openPreempting allocates memory for q and preempts victim. It returns false if there is not
// enough. The victim loses its own memory only if its client is richer. If both are of one
// client, half of the memory has to stay free, so that running sequences can grow.
func (s *scheduler) openPreempting(victim, q *sequence, richer bool) bool {
	switch {
	case richer:
		if !s.open(q, true) {
			if s.blocks.lacks(len(q.tokens), &victim.table) {
				return false
			}
			s.release(victim, true)
			if !s.open(q, false) {
				s.preempt(victim) // it has no memory any more and is admitted as any other
				return false
			}
		}
	case victim.client == q.client && !s.blocks.hasSpare(len(q.tokens)):
		return false
	case !s.open(q, false):
		return false
	}
	victim.preempted = true
	s.preempt(victim)
	return true
}

// prefixUnderway reports whether a running sequence is computing complete blocks that q can share
// a few steps later. Several answers to one prompt then cost one prefill.
func (s *scheduler) prefixUnderway(q *sequence) bool {
	have := -1
	for _, r := range s.running {
		if r.decodes() {
			continue
		}
		common := commonPrefix(r.ids(len(r.tokens)), q.ids(q.reusable()))
		if r.audience.scope != q.audience.scope {
			common = min(common, r.audience.public)
		}
		common /= s.blocks.size
		if common <= r.computed/s.blocks.size {
			continue
		}
		if have < 0 {
			have = s.blocks.cachedBlocks(q.ids(q.reusable()), q.audience.scope)
		}
		if common > have {
			return true
		}
	}
	return false
}

// divide distributes the rows of a step: one to each sequence in decode, the rest evenly to those
// in prefill, unless they pause; what one does not need goes to the others. The plan has the order of running.
func (s *scheduler) divide() []scheduled {
	if len(s.running) > 0 && s.running[0].whole {
		return s.pack()
	}
	running, prompts := s.alike()
	plan := make([]scheduled, len(running))
	var prefill []*scheduled
	scoring, again := 0, 0
	for i, q := range running {
		plan[i] = scheduled{seq: q, rows: 1}
		if !q.decodes() {
			prefill = append(prefill, &plan[i])
		} else {
			plan[i].rows = q.missing()
			again += q.missing() - 1
		}
		if q.unscored() {
			scoring++
		}
	}
	decoding, left := len(plan)-len(prefill), s.alone.rows
	switch {
	case prompts && s.streams:
		left = s.limits.Rows - decoding
	case prompts:
		if len(running) < len(s.running) { // answers wait
			left = s.sharing.rows
		}
		left = min(left, s.limits.Rows) - decoding
	case decoding > 0 && s.sharing.pays():
		return slices.DeleteFunc(plan, func(part scheduled) bool { return !part.seq.decodes() })
	case decoding > 0:
		left = min(s.sharing.rows, s.limits.Rows) - decoding - again
	}
	left = max(len(prefill), left)
	room := s.limits.Rows - len(plan) - again // for more than one row each
	slices.SortStableFunc(prefill, func(a, b *scheduled) int { return cmp.Compare(a.seq.next(), b.seq.next()) })
	for i, part := range prefill {
		part.rows = min(part.seq.next(), max(1, left/(len(prefill)-i))) // pictures of those before may have taken more than their share
		if part.seq.unscored() {
			part.rows = min(part.rows, 1+(s.limits.Logits-len(plan))/scoring)
		}
		if s.states != nil {
			part.rows = min(part.rows, s.states.until(part.seq.computed, len(part.seq.tokens))-part.seq.computed)
		}
		part.rows = part.seq.withWholePictures(part.rows, room+1)
		left -= part.rows
		room -= max(0, part.rows-1)
	}
	return slices.DeleteFunc(plan, func(part scheduled) bool { return part.rows == 0 })
}

// alike returns the running sequences whose next rows one step may have, and whether all of them are rows of prompts that are not computed
// as those of answers are. Where there are both, they take turns, as steps with and without rows of prompts do in other models.
func (s *scheduler) alike() (list []*sequence, prompts bool) {
	if !s.promptsApart {
		return s.running, false
	}
	var answers []*sequence
	for _, q := range s.running {
		if q.readsPrompt() {
			q.again = 0 // what an undone draft leaves to compute again is a part of the prompt as any other
			list = append(list, q)
		} else {
			answers = append(answers, q)
		}
	}
	if len(list) == 0 || len(answers) > 0 && s.sharing.pays() {
		return answers, false
	}
	return list, true
}

// repeats reports whether the step after plan, and after n-1 others with the same sequences, has these sequences, too.
// All that run have their next token by then.
func (s *scheduler) repeats(plan []scheduled, n int) bool {
	return len(plan) == len(s.running) || s.sharing.paysAfter(n)
}

// pack distributes the rows of a step among sequences that are computed whole: the oldest first, then
// as many as fit.
func (s *scheduler) pack() (plan []scheduled) {
	left := max(s.alone.rows, s.running[0].missing())
	for _, q := range s.running {
		if n := q.missing(); n <= left {
			plan = append(plan, scheduled{seq: q, rows: n})
			left -= n
		}
	}
	return plan
}
