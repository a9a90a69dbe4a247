package handlers

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"

	"m40-llm/handlers/gate"
	"m40-llm/infer"
)

// waiting is an engine whose answers begin and then wait until end is closed.
func waiting() (engine *fakeEngine, begun chan struct{}, end chan struct{}) {
	begun, end = make(chan struct{}, 100), make(chan struct{})
	return &fakeEngine{generate: func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			begun <- struct{}{}
			select {
			case <-end:
				yield(doneEvent(infer.FinishStop), nil)
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
			}
		}
	}}, begun, end
}

func TestBudget_RequestsThatWaitTakeNoMoreMemoryThanThereIs(t *testing.T) {
	grammar := `root ::= "` + strings.Repeat("x", 10_000) + `"`
	body := fmt.Sprintf(`{"prompt":"a","grammar":%q}`, grammar)
	cost := int64(len(body)*gate.BodyCost + len(grammar)*gate.FormCost)
	engine, begun, end := waiting()
	s := server(t, engine, func(c *Config) { c.MemoryBudget = 3*cost + cost/2 })
	var asking sync.WaitGroup
	statuses := make([]int, 3)
	for i := range statuses {
		asking.Go(func() { statuses[i] = post(t, s, "/v1/completions", body).status })
		waitFor(t, begun, "an answer to begin")
	}
	for name, refused := range map[string]response{
		"one more":              post(t, s, "/v1/completions", body),
		"a chat":                post(t, s, "/v1/chat/completions", strings.Replace(body, `"prompt":"a"`, `"messages":[{"role":"user","content":"a"}]`, 1)),
		"a large body alone":    post(t, s, "/v1/chat/completions", `{"messages":"`+strings.Repeat("x", int(cost)/gate.BodyCost)+`"}`),
		"a text to split":       post(t, s, "/tokenize", `{"content":"`+strings.Repeat("x", int(cost)/gate.TextCost)+`"}`),
		"the engine's own face": post(t, s, "/v1/generate", body),
	} {
		seconds := refused.header.Get("Retry-After")
		if refused.status != http.StatusTooManyRequests || seconds == "" || !strings.Contains(refused.body, "try again in "+seconds+" seconds") || !strings.Contains(refused.body, "too_large_for_now") {
			t.Errorf("%s: got %d, Retry-After %q: %s", name, refused.status, seconds, refused.body)
		}
	}
	if got := post(t, s, "/tokenize", `{"content":"small"}`); got.status != http.StatusOK {
		t.Errorf("a small request beside them got %d: %s", got.status, got.body)
	}
	close(end)
	asking.Wait()
	if fmt.Sprint(statuses) != "[200 200 200]" {
		t.Errorf("those that were let in got %v", statuses)
	}
	if got := post(t, s, "/v1/completions", body); got.status != http.StatusOK {
		t.Errorf("when they have ended, the next one got %d: %s", got.status, got.body)
	}
}

func TestTokenize_PiecesAreWrittenAsTheyAreLookedUp(t *testing.T) {
	const n = 20_000
	engine := &fakeEngine{
		tokenize:   func(string, string, bool, bool) ([]int32, error) { return make([]int32, n), nil },
		detokenize: func(string, []int32) (string, error) { return "<&\">", nil },
	}
	var body struct{ Tokens []struct{ Piece string } }
	mustDecode(t, post(t, server(t, engine), "/tokenize", `{"content":"a","with_pieces":true}`), &body)
	if len(body.Tokens) != n || body.Tokens[n-1].Piece != "<&\">" {
		t.Errorf("got %d tokens", len(body.Tokens))
	}
	for _, tokens := range []int{0, 1, n} {
		failing := &fakeEngine{
			tokenize: func(string, string, bool, bool) ([]int32, error) { return make([]int32, tokens), nil },
			detokenize: func(string, []int32) (string, error) {
				return "", &infer.Error{Code: infer.CodeNotFound, Message: "gone"}
			},
		}
		want := http.StatusNotFound
		if tokens == 0 {
			want = http.StatusOK
		}
		if got := post(t, server(t, failing), "/tokenize", `{"content":"a","with_pieces":true}`); got.status != want {
			t.Errorf("with %d tokens: got %d: %s", tokens, got.status, got.body)
		}
	}
}
