package engine

import (
	"context"
	"strings"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/model"
	"m40-llm/infer/record"
)

// status holds the engine's Status. The step loop writes it; any goroutine may read it.
type status struct {
	mu        sync.Mutex
	current   infer.Status
	steps     [64]stepTime  // ring of the last steps
	next      int           // index in steps of the next step
	drain     int           // steps until all answers that have started are expected to have ended
	stepStart time.Time     // when the step in progress began
	requested string        // name under which the loaded model was requested
	changed   chan struct{} // closed at the next change of state
}

// stepTime records how long one step took and how many tokens it generated.
type stepTime struct {
	took   time.Duration
	tokens int
}

func newStatus() *status { return &status{changed: make(chan struct{})} }

// update changes the status and wakes the callers of wait if the state changed.
func (s *status) update(change func(*infer.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current.State
	change(&s.current)
	if s.current.State != before {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// beginStep records that a step of so many rows has started. The device may hang in it.
func (s *status) beginStep(now time.Time, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepStart, s.current.Step.Rows = now, rows
}

// endStep records that the step has ended, successfully or not. It does nothing if none is in progress.
func (s *status) endStep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := &s.current.Step
	if step.Rows == 0 {
		return
	}
	step.Rows, step.LongestMS = 0, max(step.LongestMS, record.Milliseconds(now.Sub(s.stepStart)))
}

// recordReads adds the bytes that a step read from memory; 0: not known.
func (s *status) recordReads(took time.Duration, bytes int64) {
	if bytes == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Reads.Bytes += bytes
	s.current.Reads.Seconds += took.Seconds()
}

// recordStep adds a step to the decode rate.
func (s *status) recordStep(took time.Duration, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps[s.next] = stepTime{took, tokens}
	s.next = (s.next + 1) % len(s.steps)
}

// countAhead counts the tokens of a step ahead, and of them those that infer.Ahead calls missed and dropped.
func (s *status) countAhead(tokens, missed, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.current.Ahead
	a.Tokens, a.Missed, a.Dropped = a.Tokens+int64(tokens), a.Missed+int64(missed), a.Dropped+int64(dropped)
}

// setCacheUsed sets how many bytes the KV cache takes.
func (s *status) setCacheUsed(used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Cache.Used = used
}

// countSaves sets how many KV caches were written to files.
func (s *status) countSaves(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Cache.Saves = n
}

func (s *status) setCounts(running, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Running, s.current.Queued = running, queued
	if queued == 0 {
		s.current.WaitS = 0
	}
	if running == 0 {
		s.steps = [len(s.steps)]stepTime{} // the rate of the next answers must not include these
	}
}

// setWait sets how long the last of those who wait is expected to.
func (s *status) setWait(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.WaitS = d.Seconds()
}

// setDrain sets in how many steps all answers that have started are expected to have ended.
func (s *status) setDrain(steps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain = steps
}

// stepTime returns how long the last steps took on average; 0 if there were none.
func (s *status) stepTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meanStep()
}

// meanStep is stepTime for callers that have locked mu.
func (s *status) meanStep() time.Duration {
	n, took := 0, time.Duration(0)
	for _, step := range s.steps {
		if step.took > 0 {
			n, took = n+1, took+step.took
		}
	}
	return took / time.Duration(max(1, n))
}

func (s *status) setLoading(m *openModel) {
	s.update(func(now *infer.Status) {
		s.requested = m.name
		*now = infer.Status{State: infer.StateLoading, Model: m.info, Notice: m.notices(), TemplateVars: m.format.ThinkingVars(), Running: now.Running, Queued: now.Queued,
			Setup: now.Setup, SetupNotice: now.SetupNotice, KeepAliveS: now.KeepAliveS}
		now.Loading = infer.Loading{Model: m.info.Name, Total: model.WeightBytes(m.file)}
	})
}

// setReady makes l the model that is ready. bandwidth is that of its memory in bytes per second; 0: not known.
func (s *status) setReady(l *loadedModel, took time.Duration, bandwidth float64) {
	s.update(func(now *infer.Status) {
		now.State = infer.StateReady
		now.Device = l.info
		now.CacheType = l.receipt.CacheType
		now.ContextLength = l.plan.Context
		now.Reads.Bandwidth = bandwidth
		now.Ahead.On = l.ahead
		now.Cache = infer.Cache{Planned: l.plan.Planned(), Used: l.plan.Taken, State: l.plan.State}
		if l.identity.Key != "" {
			now.Cache.Key = l.identity.Hash()
		}
		now.Notice = strings.Trim(now.Notice+"; "+l.plan.Notice, "; ")
		now.Memory = l.memory
		now.LoadMS = record.Milliseconds(took)
		now.Packing = l.packing.progress()
	})
}

// setUnloaded records that the model is not in memory any more.
func (s *status) setUnloaded() {
	s.update(func(now *infer.Status) {
		now.State, now.Cache, now.Memory, now.LoadMS, now.Packing = infer.StateUnloaded, infer.Cache{}, nil, 0, infer.Packing{}
	})
}

// setUnload records when the model will be unloaded; the zero time: it will not.
func (s *status) setUnload(at time.Time) {
	s.update(func(now *infer.Status) {
		now.UnloadUnix = 0
		if !at.IsZero() {
			now.UnloadUnix = at.Unix()
		}
	})
}

// setSetup records the setup with which models are loaded from now on.
func (s *status) setSetup(setup infer.Setup) {
	s.update(func(now *infer.Status) { now.Setup, now.Reload = setup, nil })
}

// setSetupNotice records why a setup was undone.
func (s *status) setSetupNotice(why string) {
	s.update(func(now *infer.Status) { now.SetupNotice = why })
}

func (s *status) setFailed(e *fault.Error) {
	s.update(func(now *infer.Status) { now.State, now.Error = infer.StateFailed, e })
}

func (s *status) snapshot(now time.Time) infer.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := s.current
	if snapshot.Step.Rows > 0 {
		snapshot.Step.ForMS = record.Milliseconds(now.Sub(s.stepStart))
	}
	tokens, took := 0, time.Duration(0)
	for _, step := range s.steps {
		tokens += step.tokens
		took += step.took
	}
	if took > 0 {
		snapshot.Decode = float64(tokens) / took.Seconds()
		snapshot.EndS = infer.Roughly(time.Duration(s.drain) * s.meanStep()).Seconds()
	}
	return snapshot
}

// modelName returns the name of the model that is loaded or being loaded.
func (s *status) modelName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requested
}

// wait returns nil when the model is ready, or the error for which it is not.
func (s *status) wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		now, changed := s.current, s.changed
		s.mu.Unlock()
		switch now.State {
		case infer.StateReady, infer.StateUnloaded:
			return nil
		case infer.StateFailed:
			return now.Error
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
