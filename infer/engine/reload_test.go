package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
)

func TestEngine_UnloadsAModelThatNobodyUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { b.onStep, o.KeepAlive = g.wait, time.Minute })
		b.WaitReady(t.Context())
		synctest.Wait()
		if s := b.Status(); s.KeepAliveS != 60 || s.UnloadUnix != time.Now().Add(time.Minute).Unix() {
			t.Errorf("it would be unloaded at %d, after %g s", s.UnloadUnix, s.KeepAliveS)
		}
		time.Sleep(50 * time.Second)
		a := b.stream(request(span(10, 20), 3), nil)
		g.next(1)
		time.Sleep(time.Hour) // an answer that takes long uses the model
		if s := b.Status(); s.State != infer.StateReady || s.UnloadUnix != 0 || s.Running != 1 {
			t.Errorf("while an answer is written the status is %+v", s)
		}
		g.open()
		if <-a.ended; a.reply.err != nil {
			t.Fatal(a.reply.err)
		}
		time.Sleep(59 * time.Second)
		if s := b.Status(); s.State != infer.StateReady {
			t.Errorf("59 s after an answer the model is %s", s.State)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := b.Status(); s.State != infer.StateUnloaded || s.Model.Name != "toy" || s.Cache != (infer.Cache{}) || s.UnloadUnix != 0 || b.open != 0 {
			t.Errorf("after 61 s the status is %+v, with %d devices open", s, b.open)
		}
		if err := b.WaitReady(t.Context()); err != nil {
			t.Errorf("an unloaded model is not ready: %v", err)
		}
		if a := b.ask(request(span(10, 20), 3)); a.err != nil || len(a.tokens) != 3 || b.opened != 2 {
			t.Errorf("afterwards %d tokens, %v, %d loads", len(a.tokens), a.err, b.opened)
		}
	})
}

func TestEngine_ARequestSaysHowLongItsModelStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench, o *Options) { o.KeepAlive = time.Minute })
		b.WaitReady(t.Context())
		ask := func(seconds float64, tokens int) {
			r := request(span(10, 20), tokens)
			r.KeepAliveS = &seconds
			if a := b.ask(r); a.err != nil {
				t.Fatal(a.err)
			}
			synctest.Wait()
		}
		ask(300, 3)
		time.Sleep(299 * time.Second)
		synctest.Wait()
		if s := b.Status(); s.State != infer.StateReady || s.KeepAliveS != 300 {
			t.Errorf("before its time the status is %+v", s)
		}
		ask(-1, 3)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if s := b.Status(); s.State != infer.StateReady || s.KeepAliveS != 0 || s.UnloadUnix != 0 {
			t.Errorf("after a day the status is %+v", s)
		}
		ask(0, 0)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if s := b.Status(); s.State != infer.StateUnloaded || b.open != 0 {
			t.Errorf("after a request that unloads it the status is %+v", s)
		}
		if a := b.ask(request(span(10, 20), 3)); a.err != nil || b.Status().KeepAliveS != 60 {
			t.Errorf("loaded again it stays for %g s, %v", b.Status().KeepAliveS, a.err)
		}
	})
}

func TestEngine_TheEndOfAnAnswerIsToldWhenTheStatusHasIt(t *testing.T) {
	b := newBench(t, func(b *bench, o *Options) { o.KeepAlive = time.Minute })
	b.WaitReady(t.Context())
	for i := range 100 {
		r := request(span(10, 20), 1)
		r.KeepAliveS = new(float64(100 + i))
		for e, err := range b.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			if s := b.Status(); e.Type == infer.EventDone && (s.KeepAliveS != *r.KeepAliveS || s.Running != 0) {
				t.Fatalf("answer %d has ended and the status has %g s and %d running", i, s.KeepAliveS, s.Running)
			}
		}
	}
}

// closing is the kind of an answer that calls a function when it is closed.
type closing struct {
	writing
	call func()
}

func (c closing) close() (isLast bool) {
	c.call()
	return c.writing.close()
}

func TestLoop_AnAnswerLeavesTheStatusBeforeItsLastEvent(t *testing.T) {
	l := &loop{status: newStatus(), inbox: newInbox(1), models: &openModels{}, answers: map[*sequence]*answer{}}
	a := &answer{sequence: newSequence("m", span(0, 3), false), reader: reader{model: &openModel{users: 2}, format: &chatformat.Format{}}, mail: newMailbox()}
	l.sched.running, l.answers[a.sequence] = []*sequence{a.sequence}, a
	l.status.setCounts(1, 0)
	closed := false
	a.kind = closing{call: func() {
		closed = true
		if events, _, _ := a.mail.take(); len(events) > 0 || l.status.current.Running != 0 {
			t.Errorf("before the answer is closed it has sent %+v, and %d run by the status", events, l.status.current.Running)
		}
	}}
	l.finish(a, &infer.Done{}, record.Receipt{}, time.Time{})
	events, ended, err := a.mail.take()
	if !closed || len(events) != 1 || events[0].Type != infer.EventDone || !ended || err != nil {
		t.Errorf("closed: %v; the answer has sent %+v, ended: %v, %v", closed, events, ended, err)
	}
}

func TestEngine_ReloadsWithAnotherSetup(t *testing.T) {
	t.Run("running answers end first, and others wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := make(gate)
			threads := 0
			b := newBench(t, func(b *bench, o *Options) { b.onStep, o.SetThreads = g.wait, func(n int) { threads = n } })
			first := b.stream(request(span(10, 20), 5), nil)
			g.next(2)
			setup := infer.Setup{ContextLength: 64, CacheType: "f32", Threads: 3, Draft: DraftOff}
			if err := b.Reload(t.Context(), setup); err != nil {
				t.Fatal(err)
			}
			second := b.stream(request(span(20, 30), 5), nil)
			synctest.Wait()
			g.next(1)
			if s := b.Status(); s.Reload == nil || *s.Reload != setup || s.Running != 1 || s.Queued != 1 || s.CacheType != "f16" {
				t.Errorf("while the first answer runs the status is %+v", s)
			}
			g.open()
			for _, a := range []*stream{first, second} {
				if <-a.ended; a.reply.err != nil || len(a.reply.tokens) != 5 {
					t.Errorf("%d tokens, %v", len(a.reply.tokens), a.reply.err)
				}
			}
			if s := b.Status(); s.Reload != nil || s.Setup != setup || s.ContextLength != 64 || s.CacheType != "f32" || threads != 3 || b.opened != 2 {
				t.Errorf("afterwards %+v, %d threads, %d loads", s, threads, b.opened)
			}
			if first.reply.done.Receipt.CacheType != "f16" || second.reply.done.Receipt.CacheType != "f32" {
				t.Errorf("caches of %s and %s", first.reply.done.Receipt.CacheType, second.reply.done.Receipt.CacheType)
			}
		})
	})
	t.Run("a setup that does not fit is undone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(b *bench, o *Options) { o.ContextLength = 64 })
			if err := b.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.mu.Lock()
			b.memory = memoryFor(t, Options{ContextLength: 64}, 2)
			b.mu.Unlock()
			if err := b.Reload(t.Context(), infer.Setup{ContextLength: 256}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if s := b.Status(); s.State != infer.StateReady || s.ContextLength != 64 || s.Setup.ContextLength != 64 || !strings.Contains(s.SetupNotice, "are free") {
				t.Errorf("the status is %+v", s)
			}
			if a := b.ask(request(span(10, 20), 3)); a.err != nil || len(a.tokens) != 3 {
				t.Errorf("afterwards %d tokens, %v", len(a.tokens), a.err)
			}
		})
	})
	t.Run("an invalid setup is refused", func(t *testing.T) {
		b := newBench(t, nil)
		for _, s := range []infer.Setup{{CacheType: "q4"}, {ContextLength: -1}, {ContextLength: 1 << 30}, {Threads: -1}, {Threads: 5000}, {Draft: "nobody"}} {
			e, _ := b.Reload(t.Context(), s).(*fault.Error)
			if e == nil || e.Code != fault.CodeInvalid || e.Param == "" {
				t.Errorf("%+v: got %v", s, e)
			}
		}
	})
	t.Run("an engine that is closed says nothing of a reload", func(t *testing.T) {
		b := newBench(t, nil)
		b.WaitReady(t.Context())
		b.Close()
		if err := b.Reload(t.Context(), infer.Setup{ContextLength: 64}); err != errClosed || b.Status().Reload != nil {
			t.Errorf("it returns %v and says %+v", err, b.Status().Reload)
		}
	})
	t.Run("a model that was unloaded is loaded with it later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(b *bench, o *Options) { o.KeepAlive = time.Minute })
			b.WaitReady(t.Context())
			time.Sleep(2 * time.Minute)
			if err := b.Reload(t.Context(), infer.Setup{ContextLength: 64}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if s := b.Status(); s.State != infer.StateUnloaded || s.Setup.ContextLength != 64 || s.Reload != nil {
				t.Errorf("the status is %+v", s)
			}
			if a := b.ask(request(span(10, 20), 3)); a.err != nil || b.Status().ContextLength != 64 {
				t.Errorf("%v, a context of %d", a.err, b.Status().ContextLength)
			}
		})
	})
	t.Run("a preempted answer ends before", func(t *testing.T) {
		s := newTestScheduler(limits{Answers: 1, Rows: 8, Logits: 8}, 8, 4)
		started := &sequence{modelKey: s.model, tokens: []int32{1}, started: true}
		s.add(started)
		if s.draining = true; s.drained() {
			t.Error("it is drained while an answer that has begun waits")
		}
		fresh := &sequence{modelKey: s.model, tokens: []int32{2}}
		s.add(fresh)
		s.schedule()
		if len(s.running) != 1 || s.running[0] != started {
			t.Errorf("%d run", len(s.running))
		}
	})
}
