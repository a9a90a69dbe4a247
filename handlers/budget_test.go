package handlers_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// waiting is an engine whose answers begin and then wait until end is closed.
func waiting() (engine *handlerstest.FakeEngine, started chan struct{}, end chan struct{}) {
	started, end = make(chan struct{}, 100), make(chan struct{})
	return &handlerstest.FakeEngine{OnGenerate: func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			started <- struct{}{}
			select {
			case <-end:
				yield(handlerstest.DoneEvent(infer.FinishStop), nil)
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
			}
		}
	}}, started, end
}

func TestBudget_RequestsThatWaitTakeNoMoreMemoryThanThereIs(t *testing.T) {
	grammar := `root ::= "` + strings.Repeat("x", 10_000) + `"`
	body := fmt.Sprintf(`{"prompt":"a","grammar":%q}`, grammar)
	cost := int64(len(body)*gate.BodyCost + len(grammar)*gate.FormCost)
	engine, started, end := waiting()
	s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.MemoryBudget = 3*cost + cost/2 })
	var asking sync.WaitGroup
	statuses := make([]int, 3)
	for i := range statuses {
		asking.Go(func() { statuses[i] = handlerstest.Post(t, s, "/v1/completions", body).Status })
		waitFor(t, started, "an answer to begin")
	}
	for name, refused := range map[string]handlerstest.Response{
		"one more":              handlerstest.Post(t, s, "/v1/completions", body),
		"a chat":                handlerstest.Post(t, s, "/v1/chat/completions", strings.Replace(body, `"prompt":"a"`, `"messages":[{"role":"user","content":"a"}]`, 1)),
		"a large body alone":    handlerstest.Post(t, s, "/v1/chat/completions", `{"messages":"`+strings.Repeat("x", int(cost)/gate.BodyCost)+`"}`),
		"a text to split":       handlerstest.Post(t, s, "/tokenize", `{"content":"`+strings.Repeat("x", int(cost)/gate.TextCost)+`"}`),
		"the engine's own face": handlerstest.Post(t, s, "/v1/generate", body),
	} {
		seconds := refused.Header.Get("Retry-After")
		if refused.Status != http.StatusTooManyRequests || seconds == "" || !strings.Contains(refused.Body, "try again in "+seconds+" seconds") || !strings.Contains(refused.Body, "too_large_for_now") {
			t.Errorf("%s: got %d, Retry-After %q: %s", name, refused.Status, seconds, refused.Body)
		}
	}
	if got := handlerstest.Post(t, s, "/tokenize", `{"content":"small"}`); got.Status != http.StatusOK {
		t.Errorf("a small request beside them got %d: %s", got.Status, got.Body)
	}
	close(end)
	asking.Wait()
	if fmt.Sprint(statuses) != "[200 200 200]" {
		t.Errorf("those that were let in got %v", statuses)
	}
	if got := handlerstest.Post(t, s, "/v1/completions", body); got.Status != http.StatusOK {
		t.Errorf("when they have ended, the next one got %d: %s", got.Status, got.Body)
	}
}

func TestTokenize_PiecesAreWrittenAsTheyAreLookedUp(t *testing.T) {
	const n = 20_000
	engine := &handlerstest.FakeEngine{
		OnTokenize:   func(string, string, bool, bool) ([]int32, error) { return make([]int32, n), nil },
		OnDetokenize: func(string, []int32) (string, error) { return "<&\">", nil },
	}
	var body struct{ Tokens []struct{ Piece string } }
	mustDecode(t, handlerstest.Post(t, handlerstest.Server(t, engine), "/tokenize", `{"content":"a","with_pieces":true}`), &body)
	if len(body.Tokens) != n || body.Tokens[n-1].Piece != "<&\">" {
		t.Errorf("got %d tokens", len(body.Tokens))
	}
	for _, tokens := range []int{0, 1, n} {
		failing := &handlerstest.FakeEngine{
			OnTokenize: func(string, string, bool, bool) ([]int32, error) { return make([]int32, tokens), nil },
			OnDetokenize: func(string, []int32) (string, error) {
				return "", &fault.Error{Code: fault.CodeNotFound, Message: "gone"}
			},
		}
		want := http.StatusNotFound
		if tokens == 0 {
			want = http.StatusOK
		}
		if got := handlerstest.Post(t, handlerstest.Server(t, failing), "/tokenize", `{"content":"a","with_pieces":true}`); got.Status != want {
			t.Errorf("with %d tokens: got %d: %s", tokens, got.Status, got.Body)
		}
	}
}
