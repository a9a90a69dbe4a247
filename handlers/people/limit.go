package people

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/quota"
	"m40-llm/infer"
	"m40-llm/store"
)

// maxCounted is for how many people what they use of a day is counted; those beyond it are counted together.
const maxCounted = 10_000

// usedSetting is the setting of a person with what they have used of a day.
const usedSetting = "used_today"

// Limited returns a function like generate that generates no more answers of a person at once, and in a day, than
// their limits. Those beyond the first limit wait, before they enter the engine's queue, until one of the person's
// answers ends; those beyond the others fail. The request's Client is the id of the person; other clients, such as the owner's
// programs, have no limit.
func (s *Service) Limited(generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]) func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
	return func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			day, release, err := s.acquire(ctx, r.Client)
			if errors.Is(err, store.ErrNotFound) {
				generate(ctx, r)(yield)
				return
			}
			if err != nil {
				yield(infer.Event{}, err)
				return
			}
			defer release()
			begin := func() error { return s.used.Begin(r.Client, quota.Yours, day) }
			token := func() error { return s.used.Token(r.Client, quota.Yours, day) }
			quota.Limited(generate(ctx, r), begin, token)(yield)
		}
	}
}

// acquire waits until another answer of a person may be generated, and returns what they may use of a day. store.ErrNotFound:
// there is no such person.
func (s *Service) acquire(ctx context.Context, person string) (day quota.Limits, release func(), err error) {
	for {
		p, err := s.opt.Store.Person(ctx, person)
		if err != nil {
			return day, nil, err
		}
		day = dayOf(p)
		if p.Limits.AtOnce == 0 {
			return day, func() {}, nil
		}
		freed, ok := s.slots.Take(person, p.Limits.AtOnce)
		if ok {
			activity.AtLimit(ctx, 0)
			return day, func() { s.slots.Release(person) }, nil
		}
		activity.AtLimit(ctx, p.Limits.AtOnce)
		select {
		case <-freed:
		case <-ctx.Done():
			return day, nil, ctx.Err()
		}
	}
}

func dayOf(p store.Person) quota.Limits {
	return quota.Limits{Answers: p.Limits.Answers, Tokens: p.Limits.Tokens}
}

// Left says what a person may still use today; it is empty if there is no limit.
func (s *Service) Left(ctx context.Context, who access.Principal) (string, error) {
	p, err := s.opt.Store.Person(ctx, who.Owner)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return s.used.Left(p.ID, dayOf(p)).Text(ctx), nil
}

// loadUsed reads what people have used of a day.
func (s *Service) loadUsed(ctx context.Context) error {
	all, err := s.opt.Store.People(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		value, err := s.opt.Store.Setting(ctx, p.ID, usedSetting)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		var used quota.Used
		if err == nil {
			err = json.Unmarshal(value, &used)
		}
		if err != nil {
			return err
		}
		s.used.Restore(p.ID, used)
	}
	return nil
}

// saveUsed stores what was counted since the last call.
func (s *Service) saveUsed(ctx context.Context) error {
	for person, used := range s.used.Changed() {
		if _, err := s.opt.Store.Person(ctx, person); errors.Is(err, store.ErrNotFound) {
			continue // they were removed
		}
		value, _ := json.Marshal(used) // it is a text and two numbers
		if err := s.opt.Store.SetSetting(ctx, person, usedSetting, value); err != nil {
			return err
		}
	}
	return nil
}
