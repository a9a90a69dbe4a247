package fleet

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// waiter is a request for a model that is not loaded.
type waiter struct {
	client   string
	model    infer.ModelInfo
	arrival  int64              // number of the request
	reported infer.Queued       // last
	cancel   context.CancelFunc // ends what a worker does for it; nil: it does not go back into the queue
}

// visit is a request in a worker.
type visit struct {
	slot     *slot
	client   string
	cancel   context.CancelFunc // as of waiter
	start    time.Time          // when its answer began; zero: it has not
	recalled bool               // it goes back into the queue
}

var errClosed = &fault.Error{Code: fault.CodeClosed, Message: "the engine is shutting down"}

// errUnwanted ends a request whose consumer has gone.
var errUnwanted = errors.New("the request is not wanted any more")

// enter returns the visit of a request for the model called name, which leave must be given, when the model is loaded or begins to be.
// report gets the place in the queue meanwhile; it returns false if the request is not wanted any more. An empty name means the model
// that was used last, of those that suit if there are any. For a model that does not suit nothing is loaded: its worker refuses the request.
func (f *Fleet) enter(ctx context.Context, w *waiter, name string, suits func(infer.ModelInfo) bool, report func(infer.Queued) bool) (*visit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.o.Find(cmp.Or(name, f.last(suits).engine.Status().Model.Name))
	if w.model = m; w.arrival == 0 {
		f.arrivals++
		w.arrival = f.arrivals
	}
	defer f.forget(w)
	for {
		if f.closed {
			return nil, errClosed
		}
		s := f.last(suits) // says what is wrong with the model, and before that with the request
		switch {
		case err == nil && m.Error == "" && suits(m):
			if s, err = f.find(w, m); err != nil {
				return nil, err
			}
		case s.gone:
			s = nil
		}
		if s != nil {
			return f.use(s, w), nil
		}
		if err := f.wait(ctx, w, report); err != nil {
			return nil, err
		}
	}
}

// use counts a request in s. The caller has locked mu.
func (f *Fleet) use(s *slot, w *waiter) *visit {
	v := &visit{slot: s, client: w.client, cancel: w.cancel}
	s.using++
	s.used = f.o.Now()
	f.clients.enter(v.client)
	if v.cancel != nil {
		s.visits = append(s.visits, v)
	}
	return v
}

// leave ends a visit.
func (f *Fleet) leave(v *visit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, now := v.slot, f.o.Now()
	s.using--
	s.used = now
	s.visits = slices.DeleteFunc(s.visits, func(other *visit) bool { return other == v })
	if f.clients.using[v.client]--; !f.waits(v.client) {
		f.clients.forget(v.client)
	}
	if !v.start.IsZero() {
		f.times.addAnswer(now.Sub(v.start))
	}
	f.signal()
}

// find returns the slot for a request for m; nil if it has to wait. The caller has locked mu.
func (f *Fleet) find(w *waiter, m infer.ModelInfo) (*slot, error) {
	s := f.of(m)
	here := s != nil && (occupies(s.status()) || len(f.slots) == 1)
	if here && !s.draining {
		return s, nil
	}
	if !slices.Contains(f.waiting, w) {
		f.waiting = append(f.waiting, w)
	}
	f.order()
	switch {
	case f.waiting[0] != w:
		return nil, nil
	case here: // it was drained for one that comes later now
		f.stopDraining()
		return s, nil
	}
	return f.makeRoom(m)
}

// clients are those who have requests in workers, or wait and had some.
type clients struct {
	using   map[string]int   // requests in workers
	entered map[string]int64 // when the last one came to a worker, by a number that rises
	clock   int64
}

func (c *clients) enter(client string) {
	if c.using == nil {
		c.using, c.entered = map[string]int{}, map[string]int64{}
	}
	c.clock++
	c.using[client], c.entered[client] = c.using[client]+1, c.clock
}

// forget forgets a client that has no requests in workers.
func (c *clients) forget(client string) {
	if c.using[client] == 0 {
		delete(c.using, client)
		delete(c.entered, client)
	}
}

// waits reports whether a client has requests that wait. The caller has locked mu.
func (f *Fleet) waits(client string) bool {
	return slices.ContainsFunc(f.waiting, func(w *waiter) bool { return w.client == client })
}

// order sorts the requests that wait by who is next: that of the client with the fewest requests in all models; among equals that of the
// client whose last one came to a worker first, and of one client the oldest. The caller has locked mu.
func (f *Fleet) order() {
	oldest := func(a, b *waiter) int { return cmp.Compare(a.arrival, b.arrival) }
	slices.SortFunc(f.waiting, oldest)
	next, rank := map[string]int{}, map[*waiter]int{}
	for _, w := range f.waiting {
		rank[w] = f.clients.using[w.client] + next[w.client]
		next[w.client]++
	}
	slices.SortFunc(f.waiting, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(f.clients.entered[a.client], f.clients.entered[b.client]), oldest(a, b))
	})
}

// forget removes a request from those that wait. What drains for it need not any more. The caller has locked mu.
func (f *Fleet) forget(w *waiter) {
	i := slices.Index(f.waiting, w)
	if i < 0 {
		return
	}
	if f.waiting = slices.Delete(f.waiting, i, i+1); !f.waits(w.client) {
		f.clients.forget(w.client)
	}
	f.stopDraining()
	f.signal()
}

// drain lets no new requests into the models of slots, and sends those back into the queue that have not started. The caller has locked mu.
func (f *Fleet) drain(slots []*slot) {
	for _, s := range slots {
		s.draining = true
		for _, v := range s.visits {
			if v.start.IsZero() && !v.recalled {
				v.recalled = true
				v.cancel()
			}
		}
	}
}

func (f *Fleet) stopDraining() {
	for _, s := range f.slots {
		s.draining = false
	}
}

// wait waits for a change, after it has reported a new place in the queue. The caller has locked mu.
func (f *Fleet) wait(ctx context.Context, w *waiter, report func(infer.Queued) bool) error {
	changed, now := f.changed, infer.Queued{}
	if i := slices.Index(f.waiting, w); i >= 0 {
		now = f.outlook()[i]
	}
	moved := now != w.reported
	w.reported = now
	f.mu.Unlock()
	defer f.mu.Lock()
	if moved && report != nil && !report(now) {
		return errUnwanted
	}
	tick := time.NewTimer(f.o.Check) // no event says that a load has ended
	defer tick.Stop()
	select {
	case <-changed:
	case <-tick.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Generate streams one answer, as engine.Engine does.
func (f *Fleet) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		if r.Against != "" && r.AgainstDevice == "" {
			f.compare(ctx, r, yield)
			return
		}
		f.repeat(ctx, r, yield)
	}
}

// repeat makes a request until it does not go back into the queue. It returns whether the answer ended, and not because of an error or
// because yield returned false.
func (f *Fleet) repeat(ctx context.Context, r infer.Request, yield func(infer.Event, error) bool) (ended bool) {
	w := &waiter{client: r.Client}
	for first := true; ; first = false {
		again := f.generate(ctx, w, r, first, func(e infer.Event, err error) bool {
			ended = e.Type == infer.EventDone
			return yield(e, err) && !ended
		})
		if !again {
			return ended
		}
	}
}

// generate streams the answer to r. It returns true if the request has to be made again, because it went back into the queue. first: it is
// the first time that it is made.
func (f *Fleet) generate(ctx context.Context, w *waiter, r infer.Request, first bool, yield func(infer.Event, error) bool) (again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.cancel = cancel
	name := r.Model
	if r.RowFile != nil && r.RowFile.Second {
		name = r.Against
	}
	v, err := f.enter(ctx, w, name, writes, func(q infer.Queued) bool {
		return yield(infer.Event{Type: infer.EventQueued, Queued: &q}, nil)
	})
	if err != nil {
		if !errors.Is(err, errUnwanted) {
			yield(infer.Event{}, err)
		}
		return false
	}
	defer f.leave(v)
	if f.isPinned(v.slot) {
		r.KeepAliveS = nil
	}
	if e, ok := f.loading(v.slot, w.model); ok && w.reported.Position > 0 && !yield(e, nil) { // else an error of the request comes first
		return false
	}
	started := false
	for e, err := range v.slot.engine.Generate(ctx, r) {
		if !started {
			if started = e.Type == infer.EventPrefill || e.Type == infer.EventToken || e.Type == infer.EventDone; f.goesBack(v, started) {
				return true
			}
			if err != nil && f.loadsAgain(v.slot, w.model, err) {
				return true
			}
			e = f.withPlan(e, v.slot, w.model)
		}
		if !first && e.IsNote() {
			continue // it was told before
		}
		if !yield(e, err) {
			return false
		}
	}
	return false
}

// goesBack reports whether a visit was recalled. If not, started makes it stay.
func (f *Fleet) goesBack(v *visit, started bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if started && !v.recalled {
		v.start = f.o.Now()
	}
	return v.recalled
}
