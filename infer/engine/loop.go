package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

// loop owns the device, the model and all answers. It runs in one
// goroutine. Nobody else touches what it owns; it never waits for a consumer.
type loop struct {
	options Options
	cache   gguf.Type
	sources *sources
	inbox   *inbox
	board   *board
	load    loadFunc
	ctx     context.Context // ends when the engine closes

	sched    scheduler
	answers  map[*sequence]*answer // of all sequences that run or wait
	resident *resident
	batch    device.Batch
	failures int // steps that failed since the last one that did not
}

// run works until the inbox is closed.
func (l *loop) run() {
	if l.options.Model != "" {
		l.loadFirst()
	}
	for l.receive() {
		if err := contain(l.options.Logger, l.turn); err != nil {
			l.restart(infer.AsError(infer.CodeInternal, err))
		}
	}
	l.unload(errClosed)
	for len(l.sched.waiting) > 0 {
		l.end(l.answers[l.sched.waiting[0]], errClosed, true)
	}
}

// receive takes what came in, and waits for something if there is nothing to do. It
// returns false when the engine closes.
func (l *loop) receive() bool {
	for {
		closed := l.collect()
		l.board.count(len(l.sched.running), len(l.sched.waiting))
		if closed {
			return false
		}
		if len(l.sched.running)+len(l.sched.waiting) > 0 {
			return true
		}
		<-l.inbox.wake
	}
}

func (l *loop) collect() (closed bool) {
	fresh, closed := l.inbox.take()
	for _, a := range fresh {
		l.answers[a.sequence] = a
		l.sched.add(a.sequence)
		if a.model == l.sched.model {
			l.fit(a)
		}
	}
	return closed
}

// fit refuses an answer whose prompt is too long for the resident model.
func (l *loop) fit(a *answer) {
	if err := a.fit(l.resident.plan.Context); err != nil {
		l.end(a, err, true)
	}
}

// turn does one thing: it brings the model that is wanted, or computes one step.
func (l *loop) turn() error {
	l.dropCancelled()
	if q := l.sched.wanted(); q != nil {
		l.tellPositions()
		l.bring(l.answers[q].source)
		return nil
	}
	if l.resident != nil {
		l.resident.growth.refused = false
	}
	plan := l.sched.schedule()
	l.tellPositions()
	if len(plan) == 0 {
		l.endStarved()
		return nil
	}
	return l.step(plan)
}

// step computes plan: submit -> collect -> deliver.
func (l *loop) step(plan []share) error {
	begin := l.options.Now()
	for _, w := range plan {
		if a := l.answers[w.seq]; a.began.IsZero() {
			if err := a.start(begin, &l.resident.buffers); err != nil {
				return err
			}
		}
	}
	l.fill(plan)
	results, err := l.compute(begin)
	if err != nil {
		return deviceError(err)
	}
	now := l.options.Now()
	l.failures = 0
	l.sched.advance(plan, now.Sub(begin))
	tokens := 0
	for i, w := range plan {
		a, n := l.answers[w.seq], 0
		for n < len(results) && int(results[n].Seq) == i {
			n++
		}
		before := a.length()
		if err := l.deliver(a, results[:n], now); err != nil {
			return deviceError(err)
		}
		results = results[n:]
		tokens += max(0, a.length()-before)
	}
	l.board.step(now.Sub(begin), tokens)
	l.board.grow(l.resident.plan.Used(l.sched.blocks.written))
	return nil
}

// compute submits the batch and collects its results. A panic ends the step for the board too:
// else it would be taken for one that hangs.
func (l *loop) compute(begin time.Time) (results []model.Result, err error) {
	l.board.begin(begin, len(l.batch.Tokens))
	defer func() { l.board.end(l.options.Now()) }()
	err = readable(l.resident.source.file, func() error {
		ticket, err := l.resident.model.Submit(&l.batch)
		if err != nil {
			return err
		}
		results, err = l.resident.model.Collect(ticket)
		return err
	})
	return results, err
}

// fill writes the rows of plan into the batch.
func (l *loop) fill(plan []share) {
	b := &l.batch
	b.Tokens, b.Pos, b.Seq, b.Tables, b.Out = b.Tokens[:0], b.Pos[:0], b.Seq[:0], b.Tables[:0], b.Out[:0]
	for i := range plan {
		q := plan[i].seq
		l.sched.blocks.write(&q.table, q.computed, q.computed+plan[i].rows)
		for pos := q.computed; pos < q.computed+plan[i].rows; pos++ {
			if l.answers[q].wants(pos) {
				b.Out = append(b.Out, int32(len(b.Tokens)))
			}
			b.Tokens = append(b.Tokens, q.tokens[pos])
			b.Pos = append(b.Pos, int32(pos))
			b.Seq = append(b.Seq, int32(i))
		}
		b.Tables = append(b.Tables, q.table.ids)
	}
}

// deliver gives an answer its results of the step. The error is the device's. Logits that are
// not finite end this answer alone, and what it left in the cache is forgotten.
func (l *loop) deliver(a *answer, results []model.Result, now time.Time) error {
	a.prefilled()
	var done *infer.Done
	for _, result := range results {
		known, err := l.resident.row(result.Row)
		if err != nil {
			return err
		}
		if a.scores(int(result.Pos)) {
			err = a.score(known)
		} else {
			done, err = a.next(known, now)
		}
		if unread, ok := errors.AsType[*readError](err); ok {
			return unread.error
		}
		if err != nil {
			l.end(a, samplingError(err), false)
			return nil
		}
	}
	l.sched.rewind(a.sequence)
	if done == nil && a.missing() == 0 {
		done = a.full()
	}
	if done != nil {
		a.finish(done, l.resident.receipt, now)
		l.end(a, nil, true)
	}
	return nil
}

// end ends an answer: err is nil after its done event. Its work stays in the cache
// if keep is set.
func (l *loop) end(a *answer, err error, keep bool) {
	l.sched.remove(a.sequence, keep)
	l.board.count(len(l.sched.running), len(l.sched.waiting)) // before the client learns of the end
	delete(l.answers, a.sequence)
	a.mail.end(err)
	l.sources.release(a.source)
	l.inbox.leave(a.client)
}

func (l *loop) dropCancelled() {
	for _, q := range slices.Concat(l.sched.running, l.sched.waiting) {
		if a := l.answers[q]; a.ctx.Err() != nil {
			l.end(a, a.ctx.Err(), true)
		}
	}
}

// tellPositions tells those who wait that their place in the queue has changed. An
// answer that has begun and waits again just pauses.
func (l *loop) tellPositions() {
	for i, q := range l.sched.waiting {
		a := l.answers[q]
		if a.position != i+1 && a.began.IsZero() {
			a.position = i + 1
			a.mail.put(infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: i + 1}})
		}
	}
}

// restart ends the running answers after a failure that leaves the device, or the
// books of its memory, in an unknown state, and loads the model anew. If that does
// not help, it gives up until the next request.
func (l *loop) restart(e *infer.Error) {
	l.options.Logger.Error("step failed", "code", e.Code, "error", e.Message)
	if l.resident == nil {
		l.unload(e)
		return
	}
	s := l.sources.retain(l.resident.source)
	defer l.sources.release(s)
	if e.Code == infer.CodeModelFile {
		l.sources.forget(s)
		s.lost = e
	}
	// The status changes before the answers end, so that who sees them end sees why.
	if l.failures++; l.failures > 1 || s.lost != nil {
		l.giveUp(s, e)
		l.unload(e)
		return
	}
	l.board.loading(s)
	l.unload(e)
	l.bring(s)
}

// giveUp says that s cannot answer, and ends those who wait for it.
func (l *loop) giveUp(s *source, e *infer.Error) {
	l.board.failed(e)
	for _, a := range l.waitingFor(s) {
		l.end(a, e, true)
	}
}

func (l *loop) waitingFor(s *source) (list []*answer) {
	for _, q := range l.sched.waiting {
		if q.model == s.key() {
			list = append(list, l.answers[q])
		}
	}
	return list
}

func deviceError(err error) *infer.Error {
	return infer.AsError(infer.CodeDevice, fmt.Errorf("the device failed: %w", err))
}
