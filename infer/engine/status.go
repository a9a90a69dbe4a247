package engine

import (
	"context"
	"strings"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/model"
	"m40-llm/infer/record"
)

// board is the engine's Status, written by the step loop and read by anyone.
type board struct {
	mu      sync.Mutex
	status  infer.Status
	steps   [64]stepTime  // the last ones, a ring
	next    int           // place of the next step
	begun   time.Time     // when the step that is being computed was
	target  string        // name under which the resident model was asked for
	changed chan struct{} // closed at the next change of state
}

// stepTime is what one step did for running answers.
type stepTime struct {
	took   time.Duration
	tokens int
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// update changes the status and wakes those who wait for a change of state.
func (b *board) update(change func(*infer.Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.status.State
	change(&b.status)
	if b.status.State != before {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// begin notes that a step of so many rows is being computed. The device may hang in it.
func (b *board) begin(now time.Time, rows int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun, b.status.Step.Rows = now, rows
}

// end notes that it has ended, in whichever way.
func (b *board) end(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := &b.status.Step
	st.Rows, st.LongestMS = 0, max(st.LongestMS, record.Milliseconds(now.Sub(b.begun)))
}

// step notes a step that gave tokens tokens to running answers.
func (b *board) step(took time.Duration, tokens int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps[b.next] = stepTime{took, tokens}
	b.next = (b.next + 1) % len(b.steps)
}

// grow notes how many bytes the KV cache takes.
func (b *board) grow(used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Cache.Used = used
}

func (b *board) count(running, queued int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Running, b.status.Queued = running, queued
	if running == 0 {
		b.steps = [len(b.steps)]stepTime{} // the next answer has its own speed
	}
}

func (b *board) loading(s *source) {
	b.update(func(st *infer.Status) {
		b.target = s.name
		*st = infer.Status{State: infer.StateLoading, Model: s.info, Notice: s.notices(), TemplateVars: s.format.ThinkingVars(), Running: st.Running, Queued: st.Queued}
		st.Loading = infer.Loading{Model: s.info.Name, Total: model.WeightBytes(s.file)}
	})
}

func (b *board) ready(r *resident, took time.Duration) {
	b.update(func(st *infer.Status) {
		st.State = infer.StateReady
		st.Device = r.info
		st.CacheType = r.receipt.CacheType
		st.ContextLength = r.plan.Context
		st.Cache = infer.Cache{Planned: r.plan.Planned(), Used: r.plan.Used(0)}
		st.Notice = strings.Trim(st.Notice+"; "+r.plan.Notice, "; ")
		st.LoadMS = record.Milliseconds(took)
	})
}

func (b *board) failed(e *infer.Error) {
	b.update(func(st *infer.Status) { st.State, st.Error = infer.StateFailed, e })
}

func (b *board) snapshot(now time.Time) infer.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	if s.Step.Rows > 0 {
		s.Step.ForMS = record.Milliseconds(now.Sub(b.begun))
	}
	tokens, took := 0, time.Duration(0)
	for _, step := range b.steps {
		tokens += step.tokens
		took += step.took
	}
	if took > 0 {
		s.Decode = float64(tokens) / took.Seconds()
	}
	return s
}

// resident returns the name of the model that is resident, or is to be.
func (b *board) resident() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.target
}

// wait returns when the model is ready, or why it is not.
func (b *board) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		s, changed := b.status, b.changed
		b.mu.Unlock()
		switch s.State {
		case infer.StateReady:
			return nil
		case infer.StateFailed:
			return s.Error
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
