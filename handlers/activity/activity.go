// Package activity lists the answers that are being generated or wait at this moment, with the
// person who asked for each, and stops them. It knows no HTTP, and neither questions nor answers:
// the owner of the server sees that a person uses the engine, and not what for.
package activity

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Errors of answers that were stopped through Stop.
var (
	ErrStopped        = fault.Errorf(fault.CodeStopped, "the answer was stopped on the page Activity")
	ErrStoppedByOwner = fault.Errorf(fault.CodeStopped, "the owner of this server stopped the answer")
)

// ErrEnded is returned for an answer that has ended, or never was.
var ErrEnded = fault.New(fault.CodeAnswerEnded, "this answer has ended already")

// Generate is the method of an engine that generates answers.
type Generate = func(context.Context, infer.Request) iter.Seq2[infer.Event, error]

// Origin says on whose behalf an answer is generated. Without Chat the request is one of a program.
type Origin struct {
	Person string // id
	Key    string // name of the API key that authenticated the request; empty: none did
	Chat   string // id of the chat
	Replay bool   // the chat repeats an answer that it has

	Compared bool // it is one of several answers that the person compares
}

type contextKey struct{}

// With returns a context for requests to an engine on behalf of o.
func With(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, contextKey{}, o)
}

// Answer is an answer that is being generated, or waits.
type Answer struct {
	Origin
	ID    int64
	Name  string // of the person; empty: unknown
	Own   bool   // it is that of the person who reads the list
	Model string // as the request has it; empty: the one that is loaded
	Since time.Time
	For   time.Duration // since then
	Last  infer.Event   // progress that was reported last: queued, loading or prefill; without a type: none yet
	Rate  float64       // tokens a second; 0: unknown

	Tokens int // generated so far; 0: it waits, as Last says
	Limit  int // answers of its person at once, for which it waits; 0: it does not
}

// State is what an answer does.
type State string

const (
	Waiting State = "waiting" // in the queue, for the limit of its person, or for its model
	Reading State = "reading" // its prompt
	Writing State = "writing"
)

// State returns what the answer does.
func (a Answer) State() State {
	switch {
	case a.Tokens > 0:
		return Writing
	case a.Last.Prefill != nil, a.Last.Pictures != nil:
		return Reading
	}
	return Waiting
}

// Others counts the answers of other people.
type Others struct{ Running, Waiting int }

// List is what one person may see.
type List struct {
	Answers []Answer // oldest first
	Others  Others   // apart from Answers
}

// Service lists and stops answers. It is safe for concurrent use.
type Service struct {
	name func(ctx context.Context, person string) (string, error)
	now  func() time.Time

	mu      sync.Mutex
	last    int64
	answers map[int64]*answer
}

// answer is an answer that is being generated.
type answer struct {
	Answer
	stop context.CancelCauseFunc

	mu    sync.Mutex // guards what follows, and Last, Tokens and Limit
	first time.Time  // when the first token came
}

// New returns a Service that calls name for the names of people. nil: they have none.
func New(name func(ctx context.Context, person string) (string, error)) *Service {
	if name == nil {
		name = func(context.Context, string) (string, error) { return "", nil }
	}
	return &Service{name: name, now: time.Now, answers: map[int64]*answer{}}
}

// Observe returns a function like generate whose answers are listed until they end. A context
// without an Origin is the owner's.
func (s *Service) Observe(generate Generate) Generate {
	return func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			ctx, stop := context.WithCancelCause(ctx)
			a := s.begin(ctx, r, stop)
			defer s.end(a)
			for e, err := range generate(context.WithValue(ctx, answerKey{}, a), r) {
				if stopped := context.Cause(ctx); err != nil && (errors.Is(stopped, ErrStopped) || errors.Is(stopped, ErrStoppedByOwner)) {
					err = stopped
				}
				a.apply(e, s.now)
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

type answerKey struct{}

// AtLimit notes that the answer of a function of Observe waits because its person has limit others
// already; 0: it waits no more. In other contexts it does nothing.
func AtLimit(ctx context.Context, limit int) {
	if a, ok := ctx.Value(answerKey{}).(*answer); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.Limit = limit
	}
}

func (s *Service) begin(ctx context.Context, r infer.Request, stop context.CancelCauseFunc) *answer {
	o, _ := ctx.Value(contextKey{}).(Origin)
	o.Person = cmp.Or(o.Person, store.OwnerID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	a := &answer{Answer: Answer{Origin: o, ID: s.last, Model: r.Model, Since: s.now()}, stop: stop}
	s.answers[a.ID] = a
	return a
}

func (s *Service) end(a *answer) {
	a.stop(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.answers, a.ID)
}

// apply records one event. It runs for every token.
func (a *answer) apply(e infer.Event, now func() time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case e.Token != nil && !e.Token.Prompt:
		if a.Tokens++; a.Tokens == 1 {
			a.first = now()
		}
	case e.Pictures != nil, e.Queued != nil, e.Loading != nil, e.Prefill != nil:
		a.Last = e
	}
}

// snapshot returns a at the time now.
func (a *answer) snapshot(now time.Time) Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	shown := a.Answer
	shown.For = now.Sub(a.Since)
	if wrote := now.Sub(a.first); a.Tokens > 1 && wrote > 0 {
		shown.Rate = float64(a.Tokens-1) / wrote.Seconds()
	}
	return shown
}

// may authorizes what who does with an answer of a person.
func may(who access.Principal, action access.Action, person string) error {
	return access.Authorize(who, action, access.Object{Kind: access.KindAnswer, Owner: person})
}

// List returns the answers that who may see, and counts the others.
func (s *Service) List(ctx context.Context, who access.Principal) (list List, err error) {
	if err := may(who, access.ActionRead, who.Owner); err != nil {
		return list, err
	}
	names := map[string]string{}
	for _, a := range s.all() {
		switch {
		case may(who, access.ActionRead, a.Person) == nil:
			a.Own = a.Person == who.Owner
			if _, known := names[a.Person]; !known {
				if names[a.Person], err = s.name(ctx, a.Person); err != nil {
					return List{}, err
				}
			}
			a.Name = names[a.Person]
			list.Answers = append(list.Answers, a)
		case a.State() == Waiting:
			list.Others.Waiting++
		default:
			list.Others.Running++
		}
	}
	return list, nil
}

// all returns the answers of all people, oldest first.
func (s *Service) all() []Answer {
	now := s.now()
	s.mu.Lock()
	answers := slices.Collect(maps.Values(s.answers))
	s.mu.Unlock()
	list := make([]Answer, len(answers))
	for i, a := range answers {
		list[i] = a.snapshot(now)
	}
	slices.SortFunc(list, func(a, b Answer) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Stop ends an answer: it fails with ErrStopped, or with ErrStoppedByOwner if who is the owner of
// the server and the answer another person's. For an answer that who may not see, the error is the
// one for an answer that has ended. answer is its id as addresses have it.
func (s *Service) Stop(who access.Principal, answer string) error {
	id, err := strconv.ParseInt(answer, 10, 64)
	if err != nil {
		return ErrEnded
	}
	s.mu.Lock()
	a := s.answers[id]
	s.mu.Unlock()
	if a == nil || may(who, access.ActionChange, a.Person) != nil {
		return ErrEnded
	}
	if a.Person == who.Owner {
		a.stop(ErrStopped)
	} else {
		a.stop(ErrStoppedByOwner)
	}
	return nil
}
