package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
)

// What goes in is what the engine is asked, and what the engine says comes out:
// two processes speak this to each other.
func TestGenerate_LosesNothing(t *testing.T) {
	asks := infer.DefaultRequest()
	asks.Model = "m"
	asks.Messages = []chat.Message{{Role: "user", Content: "Hello", ToolCalls: json.RawMessage(`[1]`)}}
	asks.Tools = json.RawMessage(`[{"b":1,"a":2}]`)
	asks.TemplateVars = map[string]json.RawMessage{"x": json.RawMessage("1")}
	asks.Params.LogitBias = map[int32]float64{3: -1}
	asks.Params.Seed = 1<<63 - 1
	asks.MaxTokens, asks.Stop, asks.Alternatives, asks.PromptLogProb = 3, []string{"x"}, 2, true

	end := int32(2)
	done := handlerstest.DoneEvent(infer.FinishStop)
	done.Done.EndToken, done.Done.Receipt = &end, record.Receipt{Model: "m", Params: asks.Params}
	half := handlerstest.WordEvent(4, "")
	half.Token.Bytes = []byte{0xc3}
	says := []infer.Event{
		{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1}},
		{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1, Total: 2, Cached: 1}},
		half, done,
	}
	var asked infer.Request
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		asked = r
		return handlerstest.Replay(says...)
	}}
	body, err := json.Marshal(asks)
	if err != nil {
		t.Fatal(err)
	}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/generate", string(body))
	if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("got %d, %s: %s", got.Status, got.Header.Get("Content-Type"), got.Body)
	}
	asks.Client, asks.CacheScope = asked.Client, asked.CacheScope // that is not for the client to say
	if !reflect.DeepEqual(asked, asks) {
		t.Errorf("the engine was asked\n%+v\nwant\n%+v", asked, asks)
	}
	lines := strings.Split(strings.TrimSuffix(got.Body, "\n"), "\n")
	if len(lines) != len(says) {
		t.Fatalf("got %d lines, want %d: %s", len(lines), len(says), got.Body)
	}
	for i, line := range lines {
		var heard infer.Event
		if err := json.Unmarshal([]byte(line), &heard); err != nil || !reflect.DeepEqual(heard, says[i]) {
			t.Errorf("line %d is %s (%v)", i, line, err)
		}
	}
}

func TestGenerate_Failures(t *testing.T) {
	tooLong := &fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 900, ContextLength: 512}
	runScenarios(t, []scenario{
		{name: "before the first event a failure has its status", path: "/v1/generate", body: `{"prompt":"a"}`, engine: failingEngine(tooLong),
			status: 400, want: []string{`{"error":{"code":"context_length_exceeded","message":"too long","prompt_tokens":900,"context_length":512}}`}},
		{name: "after it a failure is the last line", path: "/v1/generate", body: `{"prompt":"a"}`, engine: failingEngine(tooLong, handlerstest.WordEvent(1, "a")),
			status: 200, want: []string{"\n" + `{"error":{"code":"context_length_exceeded","message":"too long","prompt_tokens":900,"context_length":512}}` + "\n"}},
		{name: "what is for the log stays there", path: "/v1/generate", body: `{"prompt":"a"}`, engine: failingEngine(errors.New("secret"), handlerstest.WordEvent(1, "a")),
			status: 200, want: []string{`"code":"internal"`}, not: []string{"secret"}},
		{name: "the engine's own words for the log too", path: "/v1/generate", body: `{"prompt":"a"}`, engine: failingEngine(&fault.Error{Code: fault.CodeDevice, Message: "secret"}),
			status: 500, want: []string{`{"error":{"code":"device","message":"the engine failed`}, not: []string{"secret"}},
		{name: "an unknown field is refused", path: "/v1/generate", body: `{"prompt":"a","temprature":1}`,
			status: 400, want: []string{`"code":"invalid_request"`, "temprature"}},
		{name: "a field of the wrong type is named by its path", path: "/v1/generate", body: `{"prompt":"a","params":{"top_p":"x"}}`,
			status: 400, want: []string{`"param":"params.top_p"`, "must be a number"}},
		{name: "an answer that ends without its last event is a failure", path: "/v1/generate", body: `{"prompt":"a"}`,
			engine: &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
				return handlerstest.Replay(handlerstest.WordEvent(1, "a"))
			}},
			status: 200, want: []string{`"code":"internal"`}},
		{name: "a number that JSON cannot say is a failure, not half a line", path: "/v1/generate", body: `{"prompt":"a"}`,
			engine: failingEngine(nil, infiniteEvent()), status: 200, want: []string{`{"error":{"code":"internal"`}},
	})
}
