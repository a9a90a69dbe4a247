package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// localEngine is the engine of this machine: it has the model guide, and answers nothing.
type localEngine struct {
	closed bool
	models func() ([]infer.ModelInfo, error) // nil: the guide alone
}

func (*localEngine) Generate(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		yield(infer.Event{}, fault.Errorf(fault.CodeNotFound, "the local engine was asked"))
	}
}

func (e *localEngine) Models(context.Context) ([]infer.ModelInfo, error) {
	if e.models != nil {
		return e.models()
	}
	return []infer.ModelInfo{{Name: "guide"}}, nil
}
func (*localEngine) Status() infer.Status {
	return infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Name: "guide"}, ContextLength: 7}
}
func (*localEngine) Tokenize(context.Context, string, string, bool, bool) ([]int32, error) {
	return []int32{1}, nil
}
func (*localEngine) Detokenize(context.Context, string, []int32) (string, error) { return "local", nil }
func (*localEngine) Pieces(context.Context, string, []int32) ([]string, error)   { return nil, nil }
func (*localEngine) Render(context.Context, infer.Request) (infer.Rendered, error) {
	return infer.Rendered{Prompt: "local"}, nil
}
func (*localEngine) Rank(context.Context, infer.RankRequest) (infer.Ranking, error) {
	return infer.Ranking{Model: "guide"}, nil
}

func (*localEngine) Embed(context.Context, infer.EmbedRequest) (infer.Embeddings, error) {
	return infer.Embeddings{Model: "guide"}, nil
}
func (*localEngine) Reload(context.Context, infer.Setup) error { return nil }
func (e *localEngine) Close() error                            { e.closed = true; return nil }

// standIn is an OpenAI-compatible server that a test scripts.
type standIn struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []map[string]any // bodies of chat completions
	models string           // the body of /v1/models
	extra  map[string]string
	answer func(w http.ResponseWriter, r *http.Request, body map[string]any)
}

const (
	oneModel = `{"data":[{"id":"m","owned_by":"test engine","max_model_len":4096}]}`
	allKnown = `{"info":{"title":"Test","version":"1"},"paths":{"/v1/chat/completions":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/C"}}}}}}},` +
		`"components":{"schemas":{"C":{"properties":{"temperature":{},"top_p":{},"top_k":{},"min_p":{},"repetition_penalty":{},"seed":{},"stop":{},"max_tokens":{},"logprobs":{},"top_logprobs":{},"tools":{},"response_format":{},"stream_options":{},"chat_template_kwargs":{},"continue_final_message":{},"parallel_tool_calls":{}}}}}}`
)

func newStandIn(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, body map[string]any)) *standIn {
	t.Helper()
	s := &standIn{models: oneModel, extra: map[string]string{"/openapi.json": allKnown}, answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *standIn) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	models, extra := s.models, s.extra[r.URL.Path]
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/v1/models":
		io.WriteString(w, models)
	case extra != "":
		io.WriteString(w, extra)
	case r.Method == http.MethodPost && slices.Contains([]string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/generate", "/v1/embed", "/v1/rerank", "/v1/rank"}, r.URL.Path):
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		s.mu.Lock()
		s.asked = append(s.asked, body)
		s.mu.Unlock()
		s.answer(w, r, body)
	default:
		http.NotFound(w, r)
	}
}

func (s *standIn) last() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return nil
	}
	return s.asked[len(s.asked)-1]
}

func (s *standIn) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// stream sends events as OpenAI's streams have them.
func stream(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range events {
		fmt.Fprintf(w, "data: %s\n\n", e)
		w.(http.Flusher).Flush()
	}
}

func word(text string) string {
	data, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": text}}}})
	return string(data)
}

const (
	roleChunk = `{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	stopChunk = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	useChunk  = `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`
)

// greets answers with two words.
func greets(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
	stream(w, roleChunk, word("Hello"), word(" there"), stopChunk, useChunk, "[DONE]")
}

// routerTo returns a router to servers, when each of them has been asked.
func routerTo(t testing.TB, servers ...*standIn) *Router {
	t.Helper()
	return patientRouterTo(t, time.Minute, servers...)
}

// patientRouterTo is routerTo with another wait for the parts of an answer.
func patientRouterTo(t testing.TB, patience time.Duration, servers ...*standIn) *Router {
	t.Helper()
	var list []Address
	for _, s := range servers {
		a, err := ParseAddress(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	r := New(Options{Local: &localEngine{}, Servers: list, CheckEvery: 20 * time.Millisecond, Silence: patience, Stall: patience, Patience: 30 * time.Second,
		Pauses: []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}})
	t.Cleanup(func() { r.Close() })
	for _, s := range r.servers {
		eventually(t, "the server "+s.address+" is asked", s.usable)
	}
	eventually(t, "the models are listed", func() bool {
		list := r.Status().Remote
		return len(list) > 0 && len(list[0].Upstream.Servers) == len(servers)
	})
	return r
}

// hang is a wait after which nothing comes any more, however busy the machine is.
const hang = 5 * time.Minute

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func question(text string) infer.Request {
	r := infer.DefaultRequest()
	r.Model, r.ParseReply = "m", true
	r.Messages = append(r.Messages, infer.DefaultRequest().Messages...)
	_ = json.Unmarshal([]byte(`[{"role":"user","content":`+string(must(json.Marshal(text)))+`}]`), &r.Messages)
	return r
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// written is an answer as a client sees it.
type written struct {
	text, reasoning string
	calls           []string
	tokens          []infer.Token
	done            *infer.Done
	err             error
}

func write(t *testing.T, r *Router, request infer.Request) (w written) {
	t.Helper()
	for e, err := range r.Generate(t.Context(), request) {
		if err != nil {
			w.err = err
			break
		}
		if e.Token != nil {
			w.tokens = append(w.tokens, *e.Token)
			w.text += e.Token.Text
			w.reasoning += e.Token.Reasoning
			for _, c := range e.Token.Calls {
				w.calls = append(w.calls, c.Name+c.Arguments)
			}
		}
		if e.Done != nil {
			w.done = e.Done
			w.text += e.Done.Text
			for _, c := range e.Done.Calls {
				w.calls = append(w.calls, c.Name+c.Arguments)
			}
		}
	}
	return w
}

// code returns the code and text of the error that ended an answer.
func (w written) code() (fault.Code, string) {
	if known, ok := w.err.(*fault.Error); ok {
		return known.Code, known.Message
	}
	return "", fmt.Sprint(w.err)
}
