package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/gate"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// answers are the answers to one request, generated at the same time.
type answers struct {
	events chan answerEvent
	cancel context.CancelFunc
}

// answerEvent is an event, or the failure, of answer number index.
type answerEvent struct {
	index int
	event infer.Event
	err   error
}

// asked are the requests to the engine that a body describes, how it calls their tools, and where it wants lines to end.
type asked struct {
	requests []infer.Request
	names    *toolNames
	lines    lineLimits
}

// generate starts all requests at once, on behalf of the client of c. All of them have the same
// grammar or schema. The caller must close the result.
func (api *API) generate(c echo.Context, q asked) (*answers, error) {
	requests := q.requests
	for i := range requests {
		if err := api.showPictures(c.Request().Context(), &requests[i]); err != nil {
			return nil, err
		}
	}
	if err := gate.Charge(c, gate.FormCost*int64(len(requests[0].Grammar)+len(requests[0].JSONSchema))); err != nil {
		return nil, err
	}
	if !api.gate.Trusted() { // a server sets the clients of the requests to its worker itself
		client := api.gate.Client(c)
		for i := range requests {
			requests[i].Client, requests[i].Sibling, requests[i].KVFile, requests[i].RowFile = client, i, nil, nil
			requests[i].CacheScope, requests[i].PublicSystem = cacheScope(access.PrincipalOf(c.Request().Context()).Owner, requests[i].CacheScope), false
			if mayManage(c) != nil {
				requests[i].KeepAliveS = nil
			}
		}
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	a := &answers{events: make(chan answerEvent), cancel: cancel}
	var running sync.WaitGroup
	for i, r := range requests {
		running.Go(func() { api.follow(ctx, a.events, i, r, q) })
	}
	go func() {
		running.Wait()
		close(a.events)
	}()
	return a, nil
}

// cacheScope returns the scope in which requests of a person share the KV cache: the person's, or a part of it if
// the client, such as another m40-llm, distinguishes its own people by given.
func cacheScope(person, given string) string {
	if given == "" {
		return person
	}
	part := sha256.Sum256([]byte(given))
	return person + " " + hex.EncodeToString(part[:16])
}

// follow forwards the events of one answer until it ends, fails or the answers are closed.
func (api *API) follow(ctx context.Context, events chan<- answerEvent, index int, r infer.Request, q asked) {
	send := func(event infer.Event, err error) bool {
		select {
		case events <- answerEvent{index, event, err}:
			return err == nil
		case <-ctx.Done():
			return false
		}
	}
	defer func() {
		if v := recover(); v != nil {
			send(infer.Event{}, failure.OfPanic(v))
		}
	}()
	for event, err := range q.lines.apply(ctx, r, api.engine.Generate) {
		q.names.restore(&event)
		if !send(event, err) || event.Type == infer.EventDone {
			return
		}
	}
	send(infer.Event{}, &fault.Error{Code: fault.CodeInternal, Message: "the answer ended without its last event"})
}

// close cancels the running answers and waits until they have ended.
func (a *answers) close() {
	a.cancel()
	for range a.events {
	}
}

// sink writes a stream in one of the formats.
type sink interface {
	event(index int, e infer.Event) error
	idle() error // nothing happened for PingInterval
	fail(err error) error
	end() error
}

// stream answers q in the format of begin, which sends the headers. A
// failure before the first event is still answered with its status.
func (api *API) stream(c echo.Context, q asked, begin func() (sink, error)) error {
	a, err := api.generate(c, q)
	if err != nil {
		return err
	}
	defer a.close()
	var notes []answerEvent // come first, and are headers too
	next, open := <-a.events
	for open && next.err == nil && next.event.IsNote() {
		setNoteHeaders(c, next.event)
		notes = append(notes, next)
		next, open = <-a.events
	}
	if !open {
		return context.Cause(c.Request().Context())
	}
	if next.err != nil {
		return next.err
	}
	s, err := begin()
	if err != nil {
		return err
	}
	for _, n := range notes {
		if err := s.event(n.index, n.event); err != nil {
			api.reportBroken(c, s, err)
			return nil
		}
	}
	silence := time.NewTicker(api.ping)
	defer silence.Stop()
	for remaining := len(q.requests); ; {
		if next.err != nil {
			api.reportBroken(c, s, next.err)
			return nil
		}
		if err := s.event(next.index, next.event); err != nil {
			api.reportBroken(c, s, err)
			return nil
		}
		if next.event.Type == infer.EventDone {
			if remaining--; remaining == 0 {
				return s.end()
			}
		}
		silence.Reset(api.ping)
		next = awaitEvent(c.Request().Context(), a.events, silence.C, s)
	}
}

// awaitEvent returns the next event, however long it takes.
func awaitEvent(ctx context.Context, events <-chan answerEvent, silence <-chan time.Time, s sink) answerEvent {
	for {
		select {
		case next, open := <-events:
			if !open {
				return answerEvent{err: context.Cause(ctx)}
			}
			return next
		case <-silence:
			if err := s.idle(); err != nil {
				return answerEvent{err: err}
			}
		}
	}
}

// reportBroken ends a stream that has started with the failure.
func (api *API) reportBroken(c echo.Context, s sink, err error) {
	api.gate.Failed(c, err)
	if errors.Is(err, gate.ErrClientLost) {
		return
	}
	if err := s.fail(err); err != nil {
		api.gate.LogUnsent(c, err)
	}
}

// answer is a whole answer.
type answer struct {
	text string // as far as it is released

	reasoning string // with ParseReply, as are calls
	calls     []toolCall

	prompt []infer.Token // if the request asked for them
	tokens []infer.Token
	done   infer.Done
}

// collect waits for the whole answers to q.
func (api *API) collect(c echo.Context, q asked) ([]answer, error) {
	a, err := api.generate(c, q)
	if err != nil {
		return nil, err
	}
	defer a.close()
	collected := make([]answer, len(q.requests))
	texts := make([]strings.Builder, len(q.requests))
	reasonings := make([]strings.Builder, len(q.requests))
	for remaining := len(q.requests); remaining > 0; {
		next, open := <-a.events
		if !open {
			return nil, context.Cause(c.Request().Context())
		}
		if next.err != nil {
			return nil, next.err
		}
		dst := &collected[next.index]
		switch e := next.event; e.Type {
		case infer.EventSchema, infer.EventPrompt:
			setNoteHeaders(c, e)
		case infer.EventToken:
			if e.Token.Prompt {
				dst.prompt = append(dst.prompt, *e.Token)
				continue
			}
			dst.tokens = append(dst.tokens, *e.Token)
			texts[next.index].WriteString(e.Token.Text)
			reasonings[next.index].WriteString(e.Token.Reasoning)
			dst.calls = joinToolCalls(dst.calls, e.Token.Calls)
		case infer.EventDone:
			dst.done = *e.Done
			texts[next.index].WriteString(e.Done.Text)
			dst.text = texts[next.index].String()
			reasonings[next.index].WriteString(e.Done.Reasoning)
			dst.reasoning = reasonings[next.index].String()
			dst.calls = joinToolCalls(dst.calls, e.Done.Calls)
			remaining--
		}
	}
	return collected, nil
}
