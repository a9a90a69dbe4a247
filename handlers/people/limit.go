package people

import (
	"context"
	"errors"
	"iter"
	"sync"

	"m40-llm/handlers/activity"
	"m40-llm/infer"
	"m40-llm/store"
)

// turns counts the answers of each person that are being generated.
type turns struct {
	mu      sync.Mutex
	running map[string]int
	freed   chan struct{} // closed when an answer ends
}

// Limited returns a function like generate that generates no more answers of a person at once than
// their limit. Further ones wait, before they enter the engine's queue, until one of the person's
// answers ends. The request's Client is the id of the person; other clients, such as the owner's
// programs, have no limit.
func (s *Service) Limited(generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]) func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
	return func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			release, err := s.turn(ctx, r.Client)
			if err != nil {
				yield(infer.Event{}, err)
				return
			}
			defer release()
			generate(ctx, r)(yield)
		}
	}
}

// turn waits until another answer of a person may be generated.
func (s *Service) turn(ctx context.Context, person string) (release func(), err error) {
	for {
		p, err := s.opt.Store.Person(ctx, person)
		if errors.Is(err, store.ErrNotFound) || err == nil && p.Answers == 0 {
			return func() {}, nil
		}
		if err != nil {
			return nil, err
		}
		freed, ok := s.turns.take(person, p.Answers)
		if ok {
			activity.AtLimit(ctx, 0)
			return func() { s.turns.release(person) }, nil
		}
		activity.AtLimit(ctx, p.Answers)
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *turns) take(person string, limit int) (freed <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[person] >= limit {
		return t.freed, false
	}
	t.running[person]++
	return nil, true
}

func (t *turns) release(person string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[person]--; t.running[person] == 0 {
		delete(t.running, person)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}
