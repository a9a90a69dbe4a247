package handlers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// infiniteEvent is a token that cannot be written as JSON.
func infiniteEvent() infer.Event {
	e := handlerstest.WordEvent(1, "a")
	e.Token.LogProb = math.Inf(-1)
	return e
}

func failingEngine(err error, events ...infer.Event) *handlerstest.FakeEngine {
	return &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] { return failing(err, events...) }}
}

// hopeless are the failures that the same request has again: OpenAI's clients would ask
// twice more.
var hopeless = map[fault.Code]bool{
	fault.CodeMemory: true, fault.CodeModelFile: true, fault.CodeNotFinite: true, fault.CodeGrammar: true, fault.CodeCrashes: true, fault.CodeStopped: true,
}

// One engine error each, with the status, type and code that clients branch on.
func TestErrors_EngineFailures(t *testing.T) {
	for _, tc := range []struct {
		err        fault.Error
		status     int
		kind, code string
		retry      bool
		says       string
	}{
		{fault.Error{Code: fault.CodeInvalid, Message: "stop is too long", Param: "stop"}, 400, "invalid_request_error", `"invalid_request"`, false, "stop is too long"},
		{fault.Error{Code: fault.CodeContext, PromptTokens: 900, ContextLength: 512}, 400, "invalid_request_error", `"context_length_exceeded"`, false, "maximum context length is 512 tokens"},
		{fault.Error{Code: fault.CodeTemplate, Message: "roles must alternate"}, 400, "invalid_request_error", `"template"`, false, "roles must alternate"},
		{fault.Error{Code: fault.CodeNotFound, Message: "no model gpt-9", Param: "model"}, 404, "invalid_request_error", `"model_not_found"`, false, "gpt-9"},
		{fault.Error{Code: fault.CodeQueueFull, Message: "256 wait"}, 429, "rate_limit_error", `"queue_full"`, true, "256 wait"},
		{fault.Error{Code: fault.CodeLoading, Message: "x"}, 503, "unavailable_error", `503`, true, "Loading model"},
		{fault.Error{Code: fault.CodeMemory, Message: "needs 9 GB"}, 503, "unavailable_error", `"out_of_memory"`, false, "needs 9 GB"},
		{fault.Error{Code: fault.CodeClosed, Message: "stopping"}, 503, "unavailable_error", `"closed"`, true, "stopping"},
		{fault.Error{Code: fault.CodeModelFile, Message: "tensor 3 is cut off"}, 500, "server_error", `"model_file"`, false, "tensor 3"},
		{fault.Error{Code: fault.CodeDevice, Message: "secret"}, 500, "server_error", `"device"`, false, "log"},
		{fault.Error{Code: fault.CodeNotFinite, Message: "secret"}, 500, "server_error", `"not_finite"`, false, "log"},
		{fault.Error{Code: fault.CodeStopped, Message: "the owner stopped it"}, 403, "permission_error", `"stopped"`, false, "the owner stopped it"},
		{fault.Error{Code: fault.CodeLost, Message: "signal: killed"}, 503, "unavailable_error", `"engine_lost"`, true, "signal: killed"},
		{fault.Error{Code: fault.CodeCrashes, Message: "three times"}, 500, "server_error", `"crashes_engine"`, false, "three times"},
		{fault.Error{Code: fault.CodeGrammar, Message: "no token fits"}, 500, "server_error", `"grammar"`, false, "no token fits"},
		{fault.Error{Code: fault.CodeInternal, Message: "secret"}, 500, "server_error", `"internal"`, false, "log"},
		{fault.Error{Code: "new", Message: "secret"}, 500, "server_error", `"new"`, false, "log"},
	} {
		t.Run(fmt.Sprintf("the engine's %s is a %d", tc.err.Code, tc.status), func(t *testing.T) {
			for name, engine := range map[string]*handlerstest.FakeEngine{
				"before the stream":       failingEngine(&tc.err),
				"wrapped":                 failingEngine(fmt.Errorf("step 4: %w", &tc.err)),
				"in a stream's beginning": failingEngine(&tc.err),
			} {
				got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(fmt.Sprintf(`"stream":%t`, name == "in a stream's beginning")))
				e := parseError(t, got)
				if got.Status != tc.status || e.Type != tc.kind || !strings.Contains(got.Body, `"code":`+tc.code) || !strings.Contains(e.Message, tc.says) {
					t.Errorf("%s: got %d: %s", name, got.Status, got.Body)
				}
				if (got.Header.Get("Retry-After") != "") != tc.retry {
					t.Errorf("%s: Retry-After is %q", name, got.Header.Get("Retry-After"))
				}
				if final := got.Header.Get("X-Should-Retry") == "false"; final != hopeless[tc.err.Code] {
					t.Errorf("%s: X-Should-Retry is %q", name, got.Header.Get("X-Should-Retry"))
				}
				if strings.Contains(got.Body, "secret") {
					t.Errorf("%s: the body has what is for the log: %s", name, got.Body)
				}
				if e.PromptTokens != tc.err.PromptTokens || e.ContextLength != tc.err.ContextLength {
					t.Errorf("%s: the numbers are %d and %d", name, e.PromptTokens, e.ContextLength)
				}
			}
		})
	}
}

// A larger context is advised where there is one.
func TestErrors_TheContextCanBeLargerOnlyUpToTheModels(t *testing.T) {
	for train, advice := range map[int]string{
		0:    "; shorten it",
		512:  "; shorten it",
		8192: "; shorten it, or start the server with a larger --ctx, of which the model takes up to 8192",
	} {
		err := &fault.Error{Code: fault.CodeContext, PromptTokens: 900, ContextLength: 512, ContextTrain: train}
		e := parseError(t, handlerstest.Post(t, handlerstest.Server(t, failingEngine(err)), "/v1/chat/completions", hello))
		if want := "This model's maximum context length is 512 tokens, but the prompt is too long: it has 900 tokens" + advice; e.Message != want {
			t.Errorf("trained on %d: got %q, want %q", train, e.Message, want)
		}
		if page := failure.Describe(err); strings.Contains(page.Text, "raise the context on the page Models") != (train > 512) {
			t.Errorf("trained on %d: the page says %q", train, page.Text)
		}
	}
}

func TestErrors_InTheStream(t *testing.T) {
	failure := &fault.Error{Code: fault.CodeDevice, Message: "secret"}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		t.Run("a failure after the first event is an event of the stream of "+path, func(t *testing.T) {
			body := `{"stream":true,"prompt":"a","messages":[{"role":"user","content":"a"}]}`
			got := handlerstest.Post(t, handlerstest.Server(t, failingEngine(failure, handlerstest.WordEvent(1, "a"))), path, body)
			data, _ := sseData(t, got.Body)
			last := data[len(data)-1]
			sameJSON(t, last, `{"error":{"message":"the engine failed on this request; the server's log says more","type":"server_error","param":null,"code":"device"}}`)
		})
	}
}

func TestErrors_ByPath(t *testing.T) {
	runScenarios(t, []scenario{
		{name: "an unknown API route answers JSON", path: "/v1/nothing", status: 404, want: []string{`{"error":{"message":"the route POST /v1/nothing does not exist; the routes are `}},
		{name: "an unknown page answers a page", method: "GET", path: "/nothing", header: []string{"Accept", handlerstest.BrowserAccept}, status: 404, want: []string{"<h1>Not found</h1>"}, not: []string{"{"}},
		{name: "the wrong method answers JSON", method: "GET", path: "/v1/chat/completions", status: 405, want: []string{`"message":"/v1/chat/completions supports POST, not GET"`}},
		{name: "an empty body is refused", path: "/v1/chat/completions", status: 400, want: []string{"must be a JSON object"}},
		{name: "an array as body is refused", path: "/v1/chat/completions", body: "[]", status: 400, want: []string{"must be a JSON object"}},
		{name: "null as body is refused", path: "/tokenize", body: "null", status: 400, want: []string{"must be a JSON object"}},
		{name: "two bodies are refused", path: "/tokenize", body: `{"content":"a"}{"content":"b"}`, status: 400, want: []string{"not valid JSON at byte 16"}},
	})
}

// A panic of a handler, or of the engine under it, ends that request alone.
func TestErrors_Panic(t *testing.T) {
	for _, tc := range []struct {
		name, method, path, body, says string
		engine                         *handlerstest.FakeEngine
	}{
		{"of a handler", "GET", "/health", "", "status broke", &handlerstest.FakeEngine{OnStatus: func() infer.Status { panic("status broke") }}},
		{"of an answer", "POST", "/v1/chat/completions", hello, "generate broke", &handlerstest.FakeEngine{
			OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
				return func(func(infer.Event, error) bool) { panic("generate broke") }
			}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			s := handlerstest.Server(t, tc.engine, func(c *handlers.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			got := handlerstest.Call(t, s, tc.method, tc.path, tc.body)
			if got.Status != 500 || strings.Contains(got.Body, "broke") {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
			s.Close() // the log is written
			if !strings.Contains(log.String(), tc.says) || !strings.Contains(log.String(), got.Header.Get("X-Request-Id")) {
				t.Errorf("the log lacks %q or the request's number: %s", tc.says, log.String())
			}
		})
	}
}

// The log has neither prompts nor answers nor the paths of shared chats.
func TestErrors_LogHasNoContent(t *testing.T) {
	var log bytes.Buffer
	s := handlerstest.Server(t, failingEngine(errors.New("broken"), handlerstest.WordEvent(1, "ANSWER")), func(c *handlers.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		handlerstest.Lock(t, c, "KEY-1") // no request id contains a hyphen
	})
	handlerstest.Post(t, s, "/v1/completions", `{"prompt":"PROMPT"}`, "Authorization", "Bearer KEY-1")
	handlerstest.Post(t, s, "/v1/completions", `{"prompt":PROMPT}`, "Authorization", "Bearer KEY-1")
	handlerstest.Call(t, s, "GET", "/s/TOKEN?q=QUERY", "")
	s.Close() // the log is written
	if !strings.Contains(log.String(), "status=500") {
		t.Errorf("the log lacks the requests: %s", log.String())
	}
	for _, secret := range []string{"PROMPT", "ANSWER", "TOKEN", "QUERY", "KEY-1"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q: %s", secret, log.String())
		}
	}
}
