package handlers

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// script is an engine whose answers a test writes word by word.
type script struct {
	Engine  // the rest of the interface is not called by the page
	answers chan *scriptedAnswer

	mu     sync.Mutex
	status infer.Status
	listed []infer.ModelInfo
}

// suggest gives the loaded model's file settings of its own.
func (s *script) suggest(values map[string]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Model.Sampling = &sample.Suggestion{Values: values}
}

func newScript() *script {
	return &script{
		answers: make(chan *scriptedAnswer, 64),
		status: infer.Status{
			State:         infer.StateReady,
			Model:         infer.ModelInfo{Name: "guide", Quant: "Q8_0", Parameters: 14_200_000, Demo: true},
			Device:        device.Info{Kind: "cpu", Name: "AMD EPYC 9B14, 2 threads", Path: "avx512vnni"},
			ContextLength: 2048,
			LoadMS:        212,
		},
	}
}

func (s *script) Status() infer.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Detokenize names the tokens.
func (s *script) Detokenize(_ context.Context, _ string, ids []int32) (string, error) {
	return fmt.Sprint(ids), nil
}

// Pieces names each token.
func (s *script) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	for i := range ids {
		piece, _ := s.Detokenize(ctx, name, ids[i:i+1])
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

// Tokenize counts words.
func (s *script) Tokenize(_ context.Context, _, text string, _, _ bool) ([]int32, error) {
	return make([]int32, len(strings.Fields(text))), nil
}

// Render counts the words of messages, and three tokens around each.
func (s *script) Render(_ context.Context, r infer.Request) (infer.Rendered, error) {
	var view infer.Rendered
	for _, m := range r.Messages {
		view.Tokens = append(view.Tokens, make([]int32, 3+len(strings.Fields(m.Content)))...)
	}
	return view, nil
}

// Models lists those that list was given, or else the one that answers.
func (s *script) Models(context.Context) ([]infer.ModelInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed != nil {
		return s.listed, nil
	}
	return []infer.ModelInfo{s.status.Model}, nil
}

// list makes models those that can be asked for.
func (s *script) list(models ...infer.ModelInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = models
}

func (s *script) set(change func(*infer.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// scriptedAnswer is a request and the answer to it.
type scriptedAnswer struct {
	request infer.Request
	events  chan infer.Event
	failure chan error
	ended   chan struct{} // closed when nobody waits for events any more
	count   int
}

func (s *script) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	a := &scriptedAnswer{request: r, events: make(chan infer.Event), failure: make(chan error, 1), ended: make(chan struct{})}
	return func(yield func(infer.Event, error) bool) {
		defer close(a.ended)
		s.answers <- a
		for {
			select {
			case e := <-a.events:
				if !yield(e, nil) || e.Done != nil {
					return
				}
			case err := <-a.failure:
				yield(infer.Event{}, err)
				return
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
				return
			}
		}
	}
}

// next returns the answer that the page asked for.
func (s *script) next(t testing.TB) *scriptedAnswer {
	t.Helper()
	select {
	case a := <-s.answers:
		return a
	case <-time.After(hang):
		t.Fatal("the engine was not asked")
		return nil
	}
}

func (a *scriptedAnswer) send(e infer.Event) { a.events <- e }

func (a *scriptedAnswer) write(tokens ...string) {
	for _, text := range tokens {
		a.count++
		a.send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: text}})
	}
}

// think writes words that the model only thinks.
func (a *scriptedAnswer) think(tokens ...string) {
	for _, text := range tokens {
		a.count++
		a.send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Reasoning: text}})
	}
}

func (a *scriptedAnswer) finish() {
	a.send(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:     record.End{Reason: infer.FinishStop, EndProb: 0.97},
		Usage:   record.Usage{PromptTokens: 31, CompletionTokens: a.count},
		Timings: record.Timings{Queue: time.Millisecond, Prefill: 62 * time.Millisecond, Decode: time.Duration(a.count) * 9 * time.Millisecond},
		Receipt: record.Receipt{Params: a.request.Params},
	}}})
}

func (a *scriptedAnswer) fail(err error) { a.failure <- err }

// serve starts a server whose page talks to engine.
func serve(t testing.TB, engine Engine) *httptest.Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	chats := live.New(engine, live.Options{Log: log})
	server := httptest.NewServer(New(Config{Engine: engine, Live: chats, Logger: log}))
	t.Cleanup(server.Close)
	t.Cleanup(chats.Close)
	return server
}

// importList imports a chat as a file would be.
func importList(s *live.Service, n store.Metadata, list []store.Message, leaf int64) (id string, err error) {
	c, err := s.Import(context.Background(), access.Local, func(yield func(store.Message, error) bool) {
		for _, m := range list {
			if !yield(m, nil) {
				return
			}
		}
	}, func() (store.Metadata, int64, error) { return n, leaf, nil })
	return c.ID, err
}
