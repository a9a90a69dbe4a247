package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/lease"
	"m40-llm/infer/model"
	"m40-llm/infer/record"
)

// loop owns the devices, the model and all answers, and runs in one goroutine. It never waits for
// a consumer.
type loop struct {
	options Options
	caches  []device.CacheType // formats of the KV cache to try, in their order
	cache   device.CacheType   // of the model that is placed or loaded
	models  *openModels
	inbox   *inbox
	status  *status
	load    loadFunc

	keepAlive time.Duration // of the loaded model: see Options.KeepAlive

	ctx context.Context // cancelled when the engine closes

	sched    scheduler
	answers  map[*sequence]*answer // by sequence, running and waiting
	jobs     []*towerJob           // to run between steps, the oldest first
	loaded   *loadedModel
	flights  []*flight // steps that were submitted and not collected, the oldest first
	spare    []*flight // to be used again
	kv       kvFiles
	stalled  bool // nothing can be done before the inbox wakes the loop: a file is being read or written
	failures int  // consecutive failed steps
	lengths  lengths
	drafting time.Duration // before the next step
	vectors  []float32     // of the rows of a text, in the step
	setup    *infer.Setup  // to reload the model with when no answer runs; nil: none

	comparing sync.WaitGroup // goroutines of comparisons

	steps      int                      // that were collected
	stepBytes  int64                    // that the last one read from memory; 0: not known, or it read prompts too
	turn       int                      // that were submitted since the devices were taken from another engine
	handed     bool                     // to another engine, while the last steps of this turn are computed
	collected  time.Time                // when the last one was, if the loop has not waited since; else zero
	shrunk     time.Time                // when the engine looked last whether the KV cache has to shrink
	margins    map[string]map[int]int64 // by model and device, bytes that plans leave free because they were missing; see widenMargin
	bandwidths map[string]float64       // measured read bandwidth by loadedModel.metered, bytes per second; 0: it cannot be measured
}

// run runs steps until the inbox is closed.
func (l *loop) run() {
	if l.options.Model != "" {
		l.loadFirst()
	}
	for l.receive() {
		if err := contain(l.options.Logger, l.iterate); err != nil {
			l.restart(fault.Of(fault.CodeInternal, err))
		}
	}
	l.refuseJobs()
	l.finishSaves()
	l.unload(errClosed)
	for len(l.sched.waiting) > 0 {
		l.end(l.answers[l.sched.waiting[0]], errClosed, true)
	}
	l.kv.running.Wait()
	l.comparing.Wait()
}

// finishSaves waits a moment for KV caches that are being written to files.
func (l *loop) finishSaves() {
	if l.loaded != nil && l.copyStates() == nil {
		l.kv.finish(l.sched.blocks, l.loaded.forward, l.inbox.wake)
	}
}

// receive takes the new requests, and waits for some if there is nothing to do. It returns false
// when the engine closes.
func (l *loop) receive() bool {
	for {
		closed := l.takeRequests()
		l.status.setCounts(len(l.sched.running), len(l.sched.waiting))
		l.status.setDrain(l.sched.drainSteps(l.remaining))
		if closed {
			return false
		}
		if !l.stalled && l.busy() || l.packs() || len(l.jobs) > 0 {
			return true
		}
		l.idle()
		l.stalled = false
	}
}

// busy reports whether there is something to compute, to load or to store.
func (l *loop) busy() bool {
	return len(l.sched.running)+len(l.sched.waiting)+len(l.flights) > 0 || l.setup != nil || l.kv.active() || l.packs()
}

// idle waits until the inbox wakes the loop. If no request comes for a while, it measures the bandwidth of
// the memory, once for each model on a device; if none comes for the time of KeepAlive, it unloads the model. Meanwhile the
// KV cache shrinks where memory becomes short.
func (l *loop) idle() {
	l.collected = time.Time{}
	if l.loaded == nil || l.stalled {
		<-l.inbox.wake
		return
	}
	var measure, unload, shrink <-chan time.Time
	if l.steps > 0 && l.meter() != nil {
		timer := time.NewTimer(l.options.measureAfter)
		defer timer.Stop()
		measure = timer.C
	}
	if l.keepAlive > 0 {
		timer := time.NewTimer(l.keepAlive)
		defer timer.Stop()
		unload = timer.C
		l.status.setUnload(l.options.Now().Add(l.keepAlive))
		defer l.status.setUnload(time.Time{})
	}
	if l.unusedCache() {
		ticker := time.NewTicker(l.options.shrinkEvery)
		defer ticker.Stop()
		shrink = ticker.C
	}
	for {
		select {
		case <-l.inbox.wake:
		case <-measure:
			l.measure()
		case <-shrink:
			if err := l.shrinkCache(); err != nil {
				l.restart(deviceError(err))
				return
			}
			continue
		case <-unload:
			l.options.Logger.Info("model unloaded", "model", l.loaded.model.info.Name, "unused_for", l.keepAlive)
			l.unload(errClosed)
			l.status.setUnloaded()
		}
		return
	}
}

// setKeepAlive sets how long the loaded model stays without a request; 0: always.
func (l *loop) setKeepAlive(d time.Duration) {
	l.keepAlive = d
	l.status.update(func(s *infer.Status) { s.KeepAliveS = d.Seconds() })
}

// keepTime returns the time of Request.KeepAliveS.
func keepTime(seconds float64) time.Duration {
	const most = 1e9 // seconds
	if seconds < 0 || seconds > most {
		return 0
	}
	return max(1, time.Duration(seconds*float64(time.Second)))
}

func (l *loop) takeRequests() (closed bool) {
	fresh, setup, keep, jobs, closed := l.inbox.take()
	l.jobs = append(l.jobs, jobs...)
	if keep != nil && l.loaded != nil {
		l.setKeepAlive(*keep)
	}
	if setup != nil {
		l.setup, l.sched.draining = setup, true
	}
	for _, a := range fresh {
		l.answers[a.sequence] = a
		l.sched.add(a.sequence)
		if a.modelKey == l.sched.model {
			l.fit(a)
		}
	}
	return closed
}

// fit ends an answer whose prompt is too long for the loaded model. If the KV cache of its chat is stored,
// fit begins to restore it.
func (l *loop) fit(a *answer) {
	if err := a.kind.fit(a, l.loaded.plan.Context); err != nil {
		l.end(a, err, true)
		return
	}
	a.promptsApart = l.loaded.promptsApart
	a.proposal = l.propose(a)
	l.fitDrafts(a)
	if file := a.request.KVFile; file != nil {
		l.kv.restore(*file, l.loaded.identity, l.sched.blocks, l.sched.states, a.sequence)
	}
}

// iterate copies some weights, loads the model that is wanted, if another one is loaded, or computes a step: submit -> collect -> deliver.
// Between the first two, steps ahead are submitted. After all of this it runs a job.
func (l *loop) iterate() error {
	l.dropCancelled()
	l.settleComparisons()
	defer l.endTurn()
	if l.busy() {
		if err := l.work(); err != nil {
			return err
		}
	}
	l.runJob()
	return nil
}

// work is iterate without jobs.
func (l *loop) work() error {
	if l.packs() {
		l.takeTurn()
		return l.pack()
	}
	if len(l.flights) == 0 {
		plan, err := l.plan()
		if len(plan) == 0 || err != nil {
			return err
		}
		l.takeTurn()
		if err := l.submit(plan, false); err != nil {
			return err
		}
	}
	if err := l.runAhead(); err != nil {
		return err
	}
	l.handOver()
	return l.collect()
}

// takeTurn waits until the devices of the loaded model are this engine's.
func (l *loop) takeTurn() {
	l.handed = false
	if l.options.Leases != nil && l.options.Leases.Take(l.loaded.leased(), l.clients) {
		l.turn, l.collected = 0, time.Time{} // the wait is not part of a step
	}
}

// clients yields the client of each running answer.
func (l *loop) clients(yield func(lease.Client) bool) {
	for _, q := range l.sched.running {
		if !yield(lease.ClientOf(q.client)) {
			return
		}
	}
}

// endTurn lets other engines have the devices, if no step is computed on them.
func (l *loop) endTurn() {
	if l.options.Leases != nil && len(l.flights) == 0 {
		l.options.Leases.Release()
	}
}

// stepsPerTurn is how many steps an engine computes in a turn while others wait, if it can submit the second ahead of the first: a GPU
// changes between processes in 0.23 ms (H200).
const stepsPerTurn = 2

// turnIsOver reports whether no further step is submitted in this turn: another engine waits for the devices, and this one has had its
// steps, or it has handed them over.
func (l *loop) turnIsOver() bool {
	return l.handed || l.options.Leases != nil && l.turn >= stepsPerTurn && l.options.Leases.Wanted()
}

// handOver lets another engine have a GPU when the last step of a turn is submitted, so that the GPU begins the other's step before this
// program knows that its own has ended. Processors are handed over by endTurn: two engines would share their cores.
func (l *loop) handOver() {
	if !l.handed && l.loaded.leased() == lease.GPU && l.turnIsOver() {
		l.handed = true
		l.options.Leases.Release()
	}
}

// plan returns the next step. It is empty if none can be computed now, or something else was done instead.
func (l *loop) plan() ([]scheduled, error) {
	moved, err := l.moveBlocks()
	if err != nil {
		return nil, err
	}
	if l.setup != nil && l.sched.drained() {
		l.reportPositions()
		l.reload()
		return nil, nil
	}
	if q := l.sched.wanted(); q != nil {
		l.reportPositions()
		l.switchTo(l.answers[q].model)
		return nil, nil
	}
	if l.loaded != nil {
		l.loaded.growth.refused = false
		if l.options.Now().Sub(l.shrunk) >= l.options.shrinkEvery && l.unusedCache() {
			if err := l.shrinkCache(); err != nil {
				return nil, deviceError(err)
			}
		}
	}
	begin := l.options.Now()
	plan := l.sched.schedule()
	l.drafting = l.options.Now().Sub(begin)
	if err := l.sched.draftErr; err != nil {
		l.options.Logger.Warn("drafting stopped: its device failed", "error", err)
		l.sched.draftErr = nil
	}
	l.reportPositions()
	if len(plan) == 0 {
		l.stalled = !moved && (l.kv.active() || l.sched.pauses())
		l.endStarved()
	}
	return plan, nil
}

// moveBlocks copies some blocks between the KV cache and the files of chats.
func (l *loop) moveBlocks() (moved bool, err error) {
	if l.loaded == nil {
		return false, nil
	}
	if l.kv.active() {
		if err := l.copyStates(); err != nil { // a file gets what is in the slots
			return false, deviceError(err)
		}
	}
	saves := l.kv.saves
	if moved, err = l.kv.progress(l.sched.blocks, l.loaded.forward); err != nil {
		return moved, deviceError(err)
	}
	if l.kv.saves > saves {
		l.status.countSaves(l.kv.saves)
	}
	return moved, nil
}

// flight is a step that was submitted and not collected.
type flight struct {
	plan   []scheduled
	batch  device.Batch
	ticket model.Ticket
	begin  time.Time // when it was submitted
	bytes  int64     // that it reads from memory; 0: not known, or it reads prompts too

	drafting time.Duration // before it

	// Of a step ahead: the token that each row had, when the step before was collected.
	ahead bool
	drawn []int32
}

// submit submits the step of plan. If it is ahead, its rows have the tokens that those of the last submitted step draw.
func (l *loop) submit(plan []scheduled, ahead bool) error {
	f := &flight{}
	if n := len(l.spare); n > 0 {
		f, l.spare = l.spare[n-1], l.spare[:n-1]
	}
	f.plan, f.ahead, f.begin, f.bytes, f.drawn = plan, ahead, l.options.Now(), l.loaded.stepBytes(plan), f.drawn[:0]
	f.drafting, l.drafting = l.drafting, 0
	l.turn++
	for _, part := range plan {
		if a := l.answers[part.seq]; a.began.IsZero() {
			if err := a.start(f.begin, &l.loaded.buffers); err != nil {
				return err
			}
		}
	}
	l.fill(f)
	if err := l.copyStates(); err != nil {
		return deviceError(err)
	}
	if len(l.flights) == 0 {
		l.status.beginStep(f.begin, len(f.batch.Tokens))
	}
	err := readable(l.loaded.model.file, func() (err error) {
		f.ticket, err = l.loaded.forward.Submit(&f.batch)
		return err
	})
	if err != nil {
		l.status.endStep(l.options.Now())
		return deviceError(err)
	}
	l.flights = append(l.flights, f)
	return nil
}

// collect waits for the oldest step and delivers its results.
func (l *loop) collect() error {
	f := l.flights[0]
	results, err := l.wait(f)
	if err != nil {
		return deviceError(err)
	}
	now := l.options.Now()
	took := now.Sub(later(f.begin, l.collected))
	between := took // this and the last step: with the time in which the last one was sampled
	if !l.collected.IsZero() {
		between = now.Sub(l.collected)
	}
	l.steps, l.stepBytes, l.collected, l.failures = l.steps+1, f.bytes, now, 0
	counted := l.countAhead(f)
	l.loaded.packing.owed = packShare * took
	l.sched.advance(counted, between)
	without := l.recordCosts(f, between)
	l.status.recordReads(took, l.stepBytes) // before a client learns of its end
	tokens, row := 0, 0
	for i, part := range f.plan {
		n := 0
		for n < len(results) && int(results[n].Seq) == i {
			n++
		}
		if len(counted) > 0 && counted[0].seq == part.seq {
			a := l.answers[part.seq]
			before := a.length()
			accepted, err := a.kind.deliver(l, a, part, results[:n], now, settledStep{without, between})
			if err == nil {
				err = l.observe(f, part, row, part.rows+accepted)
			}
			if err != nil {
				return deviceError(err)
			}
			tokens += max(0, a.length()-before)
			counted = counted[1:]
		}
		results = results[n:]
		row += part.rows + len(part.draft)
	}
	l.spare = append(l.spare, f)
	l.status.recordStep(took, tokens)
	l.status.setCacheUsed(l.loaded.plan.Used(l.sched.blocks.written()...))
	return nil
}

// wait waits for f, the oldest step, and returns its results. The step ends in the status after a panic too: else it
// would be taken for one that hangs.
func (l *loop) wait(f *flight) (results []model.Result, err error) {
	defer func() {
		now := l.options.Now()
		if l.status.endStep(now); len(l.flights) > 0 {
			l.status.beginStep(now, len(l.flights[0].batch.Tokens))
		}
	}()
	l.flights = slices.Delete(l.flights, 0, 1)
	err = readable(l.loaded.model.file, func() (err error) {
		results, err = l.loaded.forward.Collect(f.ticket)
		return err
	})
	if err == nil && len(l.flights) > 0 {
		err = l.learnDrawn(l.flights[0])
	}
	return results, err
}

// copyStates copies the recurrent state that sequences of the next step go on from, and snapshots.
func (l *loop) copyStates() error {
	if l.sched.states == nil {
		return nil
	}
	for _, c := range l.sched.states.takeCopies() {
		if err := l.loaded.forward.CopyState(c.to, c.from); err != nil {
			return err
		}
	}
	return nil
}

// fill writes the rows of the plan of f into its batch.
func (l *loop) fill(f *flight) {
	b, plan := &f.batch, f.plan
	b.Tokens, b.Pos, b.Seq, b.Tables, b.States, b.Out = b.Tokens[:0], b.Pos[:0], b.Seq[:0], nil, b.States[:0], b.Out[:0]
	for range l.sched.blocks.pools {
		b.Tables = append(b.Tables, nil)
	}
	for i := range plan {
		q, from := plan[i].seq, plan[i].from
		l.sched.blocks.write(&q.table, from, from+plan[i].rows+len(plan[i].draft))
		for pos := from; pos < from+plan[i].rows; pos++ {
			if f.ahead || l.answers[q].kind.needs(l.answers[q], pos) {
				b.Out = append(b.Out, int32(len(b.Tokens)))
			}
			id := int32(0) // of a step ahead: not known
			if !f.ahead {
				id = q.tokens[pos]
			}
			b.Tokens = append(b.Tokens, id)
			b.Pos = append(b.Pos, int32(pos))
			b.Seq = append(b.Seq, int32(i))
		}
		for k, id := range plan[i].draft {
			b.Out = append(b.Out, int32(len(b.Tokens)))
			b.Tokens = append(b.Tokens, id)
			b.Pos = append(b.Pos, int32(len(q.tokens)+k))
			b.Seq = append(b.Seq, int32(i))
		}
		for g, held := range q.table.groups {
			b.Tables[g] = append(b.Tables[g], held.ids)
		}
		b.States = append(b.States, q.slot)
	}
	b.Prompt = plan[0].seq.readsPrompt()
	b.Ahead, b.Draws = f.ahead, l.draws(b.Draws[:0], plan)
	if fillPictures(b, plan); len(b.Inputs) > 0 {
		b.Draws = b.Draws[:0] // nothing is computed ahead of such a step
	}
}

// finish ends an answer with its done event.
func (l *loop) finish(a *answer, done *infer.Done, r record.Receipt, now time.Time) {
	l.lengths.add(a.length())
	a.finish(done, r, now)
	l.end(a, nil, true)
}

// observe gives the head of the model, if it has one, the states of n rows of part, the first of which is row row of f.
func (l *loop) observe(f *flight, part scheduled, row, n int) error {
	a := l.answers[part.seq]
	if l.sched.drafters[wayMTP] == nil || f.ahead || len(f.batch.Draws) > 0 || a == nil || a.drafts == nil || !a.drafts.mayAsk[wayMTP] {
		return nil
	}
	return l.loaded.head.observe(part.seq, part.from, row, n)
}

// end ends an answer: with err, or with nil after its done event. What it computed stays in the
// cache if keep is set.
func (l *loop) end(a *answer, err error, keep bool) {
	if l.loaded != nil && a.modelKey == l.sched.model {
		l.kv.forget(a.sequence, l.sched.blocks)
		if file := a.request.KVFile; file != nil && keep {
			l.kv.save(*file, l.loaded.identity, l.sched.blocks, l.sched.states, a.sequence)
		}
	}
	if s := a.request.KeepAliveS; s != nil && l.loaded != nil && a.modelKey == l.sched.model {
		l.setKeepAlive(keepTime(*s))
	}
	l.sched.remove(a.sequence, keep)
	l.status.setCounts(len(l.sched.running), len(l.sched.waiting))
	delete(l.answers, a.sequence)
	l.models.release(a.model)
	if a.kind.close() {
		l.inbox.leave(a.client)
	}
	if a.done != nil { // last: a client that knows of the end may read the status
		a.mail.put(infer.Event{Type: infer.EventDone, Done: a.done})
	}
	a.mail.end(err)
}

func (l *loop) dropCancelled() {
	for _, q := range slices.Concat(l.sched.running, l.sched.waiting) {
		if a := l.answers[q]; a.ctx.Err() != nil {
			l.end(a, a.ctx.Err(), true)
		}
	}
}

// remaining returns how many more tokens to expect of the answer of q.
func (l *loop) remaining(q *sequence) int {
	a := l.answers[q]
	return l.lengths.expected(a.limit - a.length())
}

// reportPositions sends those who wait their new position in the queue, and how long they are
// expected to wait. An answer that was started and preempted gets none: it just pauses.
func (l *loop) reportPositions() {
	if len(l.sched.waiting) == 0 {
		return
	}
	perStep := l.status.stepTime()
	outlook := l.sched.outlook(l.remaining)
	var last time.Duration
	for i, q := range l.sched.waiting {
		steps, known := outlook.steps(q)
		a := l.answers[q]
		if !a.began.IsZero() {
			continue
		}
		now := infer.Queued{Position: i + 1}
		if known {
			last = infer.Roughly(time.Duration(steps) * perStep)
			now.WaitS = last.Seconds()
		}
		if a.queue != now {
			a.queue = now
			a.mail.put(infer.Event{Type: infer.EventQueued, Queued: &now})
		}
	}
	l.status.setWait(last)
}

// restart ends the running answers after a failure that leaves the device or the block manager in
// an unknown state, and loads the model again. If that fails too, it gives up until the next
// request.
func (l *loop) restart(e *fault.Error) {
	l.options.Logger.Error("step failed", "code", e.Code, "error", e.Message)
	if l.loaded == nil {
		l.unload(e)
		return
	}
	m := l.models.retain(l.loaded.model)
	defer l.models.release(m)
	if e.Code == fault.CodeModelFile {
		l.models.forget(m)
		m.readErr = e
	}
	// The status is updated first, so that a client whose answer ends can read the reason.
	if l.failures++; l.failures > 1 || m.readErr != nil {
		l.giveUp(m, e)
		l.unload(e)
		return
	}
	l.status.setLoading(m)
	l.unload(e)
	l.switchTo(m)
}

// giveUp sets the status to failed with e, and ends the answers that wait for m.
func (l *loop) giveUp(m *openModel, e *fault.Error) {
	l.status.setFailed(e)
	for _, a := range l.waitingFor(m) {
		l.end(a, e, true)
	}
}

func (l *loop) waitingFor(m *openModel) (list []*answer) {
	for _, q := range l.sched.waiting {
		if q.modelKey == m.key() {
			list = append(list, l.answers[q])
		}
	}
	return list
}

func deviceError(err error) *fault.Error {
	return fault.Of(fault.CodeDevice, fmt.Errorf("the device failed: %w", err))
}
