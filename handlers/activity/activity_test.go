package activity

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/handlers/access"
	"m40-llm/infer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine generates the events that a test sends, until the context or the channel ends.
type engine struct {
	events  chan infer.Event
	started chan struct{}
}

func (e *engine) generate(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		close(e.started)
		for {
			select {
			case event, open := <-e.events:
				if !open || !yield(event, nil) {
					return
				}
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
				return
			}
		}
	}
}

// start begins an answer. What it yields goes to seen, and the error with which it ends to ended.
func start(t *testing.T, s *Service, o Origin, model string) (e *engine, seen chan infer.Event, ended chan error) {
	t.Helper()
	e = &engine{events: make(chan infer.Event), started: make(chan struct{})}
	seen, ended = make(chan infer.Event), make(chan error, 1)
	generate := s.Observe(e.generate)
	go func() {
		var last error
		for event, err := range generate(With(context.Background(), o), infer.Request{Model: model}) {
			if last = err; err == nil {
				seen <- event
			}
		}
		ended <- last
	}()
	<-e.started
	return e, seen, ended
}

func TestList_FollowsEachAnswerFromTheQueueToItsEnd(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := New(func(_ context.Context, person string) (string, error) {
		return map[string]string{"a": "Anna"}[person], nil
	})
	s.now = func() time.Time { return now }
	e, seen, ended := start(t, s, Origin{Person: "a", Key: "script"}, "guide")
	only := func() Answer {
		t.Helper()
		list, err := s.List(t.Context(), access.Local)
		if err != nil || len(list.Answers) != 1 || list.Others != (Others{}) {
			t.Fatalf("got %+v (%v), want one answer", list, err)
		}
		return list.Answers[0]
	}
	if a := only(); a.Name != "Anna" || a.Own || a.Key != "script" || a.Model != "guide" || a.State() != Waiting || !a.Since.Equal(now) {
		t.Errorf("before any event: %+v", a)
	}
	token := infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: "secret"}}
	prompt := infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: "secret", Prompt: true}}
	for _, step := range []struct {
		event  infer.Event
		state  State
		tokens int
		rate   float64
	}{
		{infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2, WaitS: 5}}, Waiting, 0, 0},
		{infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{}}, Waiting, 0, 0},
		{infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Total: 9}}, Reading, 0, 0},
		{prompt, Reading, 0, 0},
		{token, Writing, 1, 0},
		{token, Writing, 2, 0.5}, // the clock goes on by two seconds a step
		{token, Writing, 3, 0.5},
	} {
		e.events <- step.event
		<-seen
		a := only()
		if a.State() != step.state || a.Tokens != step.tokens || a.Rate != step.rate {
			t.Errorf("after %s: state %s, %d tokens, %v a second", step.event.Type, a.State(), a.Tokens, a.Rate)
		}
		now = now.Add(2 * time.Second)
	}
	if a := only(); a.For != 14*time.Second {
		t.Errorf("it is said to last for %v", a.For)
	}
	close(e.events)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if list, err := s.List(t.Context(), access.Local); err != nil || len(list.Answers) != 0 {
		t.Errorf("after its end: %+v (%v)", list, err)
	}
}

func TestList_ShowsPeopleTheirOwnAnswersAndCountsTheOthers(t *testing.T) {
	s := New(nil)
	anna, ben := access.Principal{Owner: "a"}, access.Principal{Owner: "b"}
	var ends []chan error
	for _, o := range []Origin{{Person: "a", Chat: "1"}, {Person: "b"}, {}} {
		e, seen, ended := start(t, s, o, "")
		ends = append(ends, ended)
		if o.Person == "b" {
			e.events <- infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{}}
			<-seen
		}
	}
	for name, tc := range map[string]struct {
		who    access.Principal
		listed []int64
		others Others
		err    error
	}{
		"Anna":      {anna, []int64{1}, Others{Running: 1, Waiting: 1}, nil},
		"Ben":       {ben, []int64{2}, Others{Waiting: 2}, nil},
		"the owner": {access.Local, []int64{1, 2, 3}, Others{}, nil},
		"nobody":    {access.Principal{}, nil, Others{}, access.ErrDenied},
	} {
		list, err := s.List(t.Context(), tc.who)
		if !errors.Is(err, tc.err) || len(list.Answers) != len(tc.listed) || list.Others != tc.others {
			t.Errorf("%s sees %+v (%v)", name, list, err)
			continue
		}
		for i, a := range list.Answers {
			if a.ID != tc.listed[i] || a.Own != (a.Person == tc.who.Owner) {
				t.Errorf("%s sees %+v", name, a)
			}
		}
	}
	for id, ended := range ends {
		if err := s.Stop(access.Local, fmt.Sprint(id+1)); err != nil {
			t.Error(err)
		}
		<-ended
	}
}

func TestStop_IsForThePersonAndTheOwnerAndSaysWho(t *testing.T) {
	anna, ben := access.Principal{Owner: "a"}, access.Principal{Owner: "b"}
	for name, tc := range map[string]struct {
		who  access.Principal
		want error
	}{"Anna": {anna, ErrStopped}, "the owner": {access.Local, ErrStoppedByOwner}} {
		s := New(nil)
		_, _, ended := start(t, s, Origin{Person: "a"}, "")
		for other, who := range map[string]access.Principal{"Ben": ben, "nobody": {}} {
			if err := s.Stop(who, "1"); !errors.Is(err, ErrEnded) {
				t.Errorf("stopped by %s: %v", other, err)
			}
		}
		if err := s.Stop(tc.who, "2"); !errors.Is(err, ErrEnded) {
			t.Errorf("an answer that never was: %v", err)
		}
		if err := s.Stop(tc.who, "1"); err != nil {
			t.Errorf("stopped by %s: %v", name, err)
		}
		if err := <-ended; !errors.Is(err, tc.want) {
			t.Errorf("stopped by %s it ends with %v", name, err)
		}
		if err := s.Stop(tc.who, "1"); !errors.Is(err, ErrEnded) {
			t.Errorf("stopped again: %v", err)
		}
	}
}

// A client that goes away gets no error of somebody who stops answers.
func TestObserve_LeavesTheErrorsOfOthers(t *testing.T) {
	s := New(nil)
	want := errors.New("the engine failed")
	generate := s.Observe(func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) { yield(infer.Event{}, want) }
	})
	for _, err := range generate(t.Context(), infer.Request{}) {
		if !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
	}
	if len(s.answers) != 0 {
		t.Error("an answer that failed is listed")
	}
}

func BenchmarkObserve_AToken(b *testing.B) {
	s := New(nil)
	token := infer.Event{Type: infer.EventToken, Token: &infer.Token{}}
	generate := s.Observe(func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			for b.Loop() {
				yield(token, nil)
			}
		}
	})
	for range generate(b.Context(), infer.Request{}) {
	}
}
