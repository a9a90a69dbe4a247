package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

func TestAnAnswerOfAnotherEngineIsLikeOneOfThisMachine(t *testing.T) {
	s := newStandIn(t, greets)
	r := routerTo(t, s)
	asked := question("Hi")
	asked.Params.Seed = 5
	got := write(t, r, asked)
	if got.err != nil || got.text != "Hello there" || got.done == nil {
		t.Fatalf("got %+v", got)
	}
	d := got.done
	if d.Reason != infer.FinishStop || d.Usage.PromptTokens != 9 || d.Usage.CachedTokens != 4 || d.Usage.CompletionTokens != 2 {
		t.Errorf("the record is %+v", d.Answer)
	}
	if d.Receipt.Model != "m" || d.Receipt.Params.Seed != 5 || d.Receipt.Device != r.servers[0].address || d.Receipt.Engine != "Test 1" {
		t.Errorf("the receipt is %+v", d.Receipt)
	}
	if got.tokens[0].ID != -1 {
		t.Errorf("a token has the id %d", got.tokens[0].ID)
	}
	local := question("Hi")
	local.Model = "guide"
	if code, text := write(t, r, local).code(); code != fault.CodeNotFound || text != "the local engine was asked; other engines have m" {
		t.Errorf("a request for a model of this machine got %v %s", code, text)
	}
}

func TestARequestIsWrittenAsTheServerKnowsIt(t *testing.T) {
	s := newStandIn(t, greets)
	r := routerTo(t, s)
	full := question("Hi")
	full.Params = sample.Params{Temperature: 0.5, TopK: 0, TopP: 0.9, MinP: 0.1, TypicalP: 0.8, RepeatPenalty: 1.2, MirostatTau: 5, XTCProbability: 0.4, DryMultiplier: 1, Seed: 7}
	full.Params = withDefaults(full.Params)
	full.MaxTokens, full.Stop = 12, []string{"END"}
	full.Tools, full.ToolChoice, full.SingleCall = json.RawMessage(`[{"type":"function","function":{"name":"f"}}]`), "f", true
	full.JSONSchema = json.RawMessage(`{"type":"object"}`)
	full.TemplateVars = map[string]json.RawMessage{"enable_thinking": json.RawMessage("false")}
	full.Messages = []chat.Message{{Role: "system", Content: "S"}, {Role: "user", Content: "Hi"}, {Role: "assistant", ReasoningContent: "hm", ToolCalls: json.RawMessage(`[{"id":"1"}]`)}, {Role: "tool", ToolCallID: "1", Content: "r"}, {Role: "assistant", Content: "And"}}
	full.ToolChoice, full.Continue = "auto", true
	full.Alternatives, full.Rows = 2, true
	got := write(t, r, full)
	if got.err != nil {
		t.Fatal(got.err)
	}
	want := map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true}, "temperature": 0.5, "top_k": -1.0, "top_p": 0.9, "min_p": 0.1,
		"repetition_penalty": 1.2, "seed": 7.0, "max_tokens": 12.0, "stop": []any{"END"}, "tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "f"}}},
		"tool_choice": "auto", "parallel_tool_calls": false, "chat_template_kwargs": map[string]any{"enable_thinking": false}, "logprobs": true, "top_logprobs": 2.0,
		"continue_final_message": true, "add_generation_prompt": false,
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": map[string]any{"type": "object"}, "strict": false}},
		"messages": []any{
			map[string]any{"role": "system", "content": "S"}, map[string]any{"role": "user", "content": "Hi"},
			map[string]any{"role": "assistant", "content": nil, "reasoning_content": "hm", "tool_calls": []any{map[string]any{"id": "1"}}},
			map[string]any{"role": "tool", "content": "r", "tool_call_id": "1"}, map[string]any{"role": "assistant", "content": "And"},
		},
	}
	if last := s.last(); !reflect.DeepEqual(last, want) {
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if !reflect.DeepEqual(last[key], want[key]) {
				t.Errorf("%s is %v, want %v", key, last[key], want[key])
			}
			delete(last, key)
		}
		t.Errorf("besides there is %v", last)
	}
	if p := got.done.Receipt.Params; p.TypicalP != 1 || p.XTCProbability != 0 || p.DryMultiplier != 0 || p.MinP != 0.1 {
		t.Errorf("the receipt has settings without effect: %+v", p)
	}

	raw := infer.DefaultRequest()
	raw.Model, raw.Prompt = "m", "Once upon"
	raw.Unset = []string{"temperature"}
	s.answer = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		if r.URL.Path != "/v1/completions" {
			t.Errorf("a text was sent to %s", r.URL.Path)
		}
		stream(w, `{"choices":[{"index":0,"text":" a time","finish_reason":null}]}`, `{"choices":[{"index":0,"text":"","finish_reason":"length","stop_reason":"x"}]}`, "[DONE]")
	}
	if got := write(t, r, raw); got.text != " a time" || got.done == nil || got.done.Reason != infer.FinishLength || got.done.StopString != "x" {
		t.Errorf("the text became %+v", got)
	}
	raw.Alternatives = 2
	s.answer = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		stream(w, `{"choices":[{"index":0,"text":" a time","finish_reason":"stop","logprobs":{"tokens":[" a"," time"],"token_logprobs":[-0.5,-0.1],"top_logprobs":[{" the":-0.4," a":-0.5}]}}]}`, "[DONE]")
	}
	if got := write(t, r, raw); len(got.tokens) != 2 || got.tokens[0].Rank != 1 || string(got.tokens[0].Tops[0]) != " the" || got.tokens[1].LogProb != -0.1 || got.text != " a time" {
		t.Errorf("the probabilities of a text are %+v", got.tokens)
	}
	if last := s.last(); last["logprobs"] != 2.0 || last["prompt"] != "Once upon" || last["max_tokens"] != 4086.0 || last["temperature"] != nil {
		t.Errorf("the text was sent as %v", last)
	}
}

// withDefaults returns settings whose zero values are not off as the defaults have them.
func withDefaults(p sample.Params) sample.Params {
	d := sample.DefaultParams()
	p.DynatempExponent, p.MirostatEta, p.XTCThreshold, p.DryBase, p.DryAllowedLength, p.DryBreakers = d.DynatempExponent, d.MirostatEta, d.XTCThreshold, d.DryBase, d.DryAllowedLength, d.DryBreakers
	return p
}

func TestWhatAServerCannotDoIsRefusedByName(t *testing.T) {
	s := newStandIn(t, greets)
	s.extra = nil // it cannot be asked but by trying
	r := routerTo(t, s)
	tried := s.count()
	for param, change := range map[string]func(*infer.Request){
		"tokens":           func(r *infer.Request) { r.Messages, r.Tokens = nil, []int32{1} },
		"prompt_logprob":   func(r *infer.Request) { r.PromptLogProb = true },
		"follow":           func(r *infer.Request) { r.Follow = []int32{1} },
		"banned_strings":   func(r *infer.Request) { r.BannedStrings = []string{"x"} },
		"reasoning_budget": func(r *infer.Request) { r.ReasoningBudget = new(int) },
		"banned_ends":      func(r *infer.Request) { r.BannedEnds = []int{1} },
		"grammar":          func(r *infer.Request) { r.Grammar = "root ::= \"a\"" },
		"ignore_eos":       func(r *infer.Request) { r.IgnoreEOS = true },
		"continue":         func(r *infer.Request) { r.Messages[0].Role, r.Continue = "assistant", true },
		"alternatives":     func(r *infer.Request) { r.Alternatives = 21 },
		"against":          func(r *infer.Request) { r.PromptLogProb, r.MaxTokens, r.Against = true, 0, "o" },
		"max_tokens":       func(r *infer.Request) { r.MaxTokens = -2 },
		"top_p":            func(r *infer.Request) { r.Params.TopP = 3 },
		"an empty answer":  func(r *infer.Request) { r.MaxTokens = 0 },
	} {
		asked := question("Hi")
		change(&asked)
		got := write(t, r, asked)
		if known, ok := errors.AsType[*fault.Error](got.err); param != "an empty answer" && (!ok || known.Code != fault.CodeInvalid || known.Param != param) {
			t.Errorf("%s: got %v", param, got.err)
		} else if param == "an empty answer" && (got.err != nil || got.done == nil || got.done.Reason != infer.FinishLength) {
			t.Errorf("%s: got %+v", param, got)
		}
	}
	if s.count() != tried {
		t.Error("a request that cannot be answered was sent")
	}
	for name, err := range map[string]error{
		"Tokenize":   second(r.Tokenize(t.Context(), "m", "x", false, false)),
		"Detokenize": second(r.Detokenize(t.Context(), "m", []int32{1})),
		"Pieces":     second(r.Pieces(t.Context(), "m", []int32{1})),
		"Render":     second(r.Render(t.Context(), question("x"))),
	} {
		if known, ok := errors.AsType[*fault.Error](err); !ok || known.Code != fault.CodeInvalid || known.Param != "model" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if text, err := r.Detokenize(t.Context(), "guide", nil); err != nil || text != "local" {
		t.Errorf("the engine of this machine says %q, %v", text, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestWhatAServerKnowsIsFoundByAskingIt(t *testing.T) {
	always := func(status int) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(status) }
	}
	for _, c := range []struct {
		name                string
		extra               map[string]string
		answer              func(http.ResponseWriter, *http.Request, map[string]any)
		engine, has, hasNot string
		requests            bool
	}{
		{"by its OpenAPI description", map[string]string{"/openapi.json": allKnown}, nil, "Test 1", "top_k min_p repeat_penalty", "typical_p mirostat xtc_probability", false},
		{"by llama-server's /props", map[string]string{"/props": `{"default_generation_settings":{"n_ctx":8192,"params":{"seed":1,"temperature":1,"top_k":1,"typical_p":1,"xtc_probability":0,"repeat_penalty":1,"n_probs":0}},"chat_template":"{{ enable_thinking }}","build_info":"b6000"}`}, nil, "llama-server b6000", "temperature top_k typical_p xtc_probability repeat_penalty", "mirostat dry_multiplier", false},
		{"by requests that a strict server refuses", nil, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			for field := range body {
				if !slices.Contains([]string{"model", "messages", "max_tokens", "top_k", "seed"}, field) {
					w.WriteHeader(400)
				}
			}
		}, "test engine", "temperature top_k", "min_p typical_p", true},
		{"by values that a lenient server refuses", nil, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			if _, wrong := body["min_p"].([]any); wrong {
				w.WriteHeader(422)
			}
		}, "test engine", "temperature min_p", "top_k typical_p", true},
		{"not at all", nil, always(503), "test engine", "temperature top_p", "top_k min_p", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t, c.answer)
			s.extra = c.extra
			r := routerTo(t, s)
			up := r.Status().Remote[0].Upstream
			if up.Engine != c.engine || up.Exact || (s.count() > 0) != c.requests {
				t.Errorf("it is %+v, after %d requests", up, s.count())
			}
			for _, setting := range strings.Fields(c.has) {
				if reason := up.Lacks[setting]; reason != "" {
					t.Errorf("%s: %s", setting, reason)
				}
			}
			for _, setting := range append(strings.Fields(c.hasNot), "tokens", "seed", "banned_strings") {
				if reason := up.Lacks[setting]; reason == "" || strings.Contains(c.hasNot, setting) && strings.Contains(reason, "could not be asked") != (c.name == "not at all") {
					t.Errorf("%s: %q", setting, reason)
				}
			}
		})
	}
}

func TestAServerIsTakenForAnotherEngineOnlyIfItSaysSo(t *testing.T) {
	const status = `{"state":"ready","step":{},"setup":{},"model":{"name":"m"},"context_length":512}`
	broken := map[string]func(http.ResponseWriter){
		"500":      func(w http.ResponseWriter) { w.WriteHeader(500) },
		"503":      func(w http.ResponseWriter) { w.WriteHeader(503) },
		"429":      func(w http.ResponseWriter) { w.WriteHeader(429) },
		"cut":      func(w http.ResponseWriter) { raw(w, "") },
		"half":     func(w http.ResponseWriter) { raw(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") },
		"404":      nil,
		"405":      func(w http.ResponseWriter) { w.WriteHeader(405) },
		"501":      func(w http.ResponseWriter) { w.WriteHeader(501) },
		"a page":   func(w http.ResponseWriter) { io.WriteString(w, "<html>") },
		"no state": func(w http.ResponseWriter) { io.WriteString(w, "{}") },
	}
	for name, answer := range broken {
		t.Run(name, func(t *testing.T) {
			var mended atomic.Bool
			s := newStandIn(t, greets)
			serve := s.Config.Handler
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path != "/v1/status" || answer == nil:
					serve.ServeHTTP(w, r)
				case mended.Load():
					io.WriteString(w, status)
				default:
					answer(w)
				}
			})
			a, _ := ParseAddress(s.URL)
			r := New(Options{Local: &localEngine{}, Servers: []Address{a}, CheckEvery: time.Millisecond})
			defer r.Close()
			eventually(t, "it is asked", func() bool { return !strings.Contains(r.Status().Upstreams[0].Problem, "not asked yet") })
			up := r.Status().Upstreams[0]
			if other := slices.Contains([]string{"404", "405", "501", "a page", "no state"}, name); other != (up.Problem == "") || other != (up.Engine == "Test 1") {
				t.Fatalf("it is %+v", up)
			}
			if up.Problem == "" {
				return
			}
			mended.Store(true)
			eventually(t, "it is asked again", func() bool { return r.Status().Upstreams[0].Engine == "m40-llm" })
			eventually(t, "its model is listed", func() bool { return len(r.Status().Remote) == 1 })
			if m := r.Status().Remote[0].Upstream; !m.Exact || m.ContextLength != 512 || len(m.Lacks) != 0 {
				t.Errorf("its model is %+v", m)
			}
		})
	}
}

func TestAServerThatCouldNotBeAskedWhatItKnowsIsAskedAgain(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		if _, wrong := body["min_p"].([]any); wrong {
			w.WriteHeader(422)
		} else if busy.Load() {
			w.WriteHeader(503)
		}
	})
	s.extra = nil
	r := routerTo(t, s)
	busy.Store(false)
	eventually(t, "it is asked", func() bool {
		lacks := r.Status().Remote[0].Upstream.Lacks
		return lacks["min_p"] == "" && strings.Contains(lacks["top_k"], "when it was tried")
	})
}

func TestARequestThatAnotherM40CannotAnswerSaysNothingAboutThatServer(t *testing.T) {
	s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		switch body["prompt"] {
		case "write":
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":{"code":"not_supported","message":"the model computes embeddings"}}`)
		case "limit":
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"error":{"code":"too_large_for_now","message":"too large"}}`)
		default:
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, `{"error":{"code":"device","message":"the device failed"}}`)
		}
	})
	s.extra = map[string]string{"/v1/status": `{"state":"ready","step":{},"setup":{}}`}
	s.models = `{"data":[{"id":"m","meta":{"embedding":64}},{"id":"n","meta":{"ranks":true,"demo":true}}]}`
	r := routerTo(t, s)
	if m := r.Status().Remote[0]; m.Embedding != 64 || !m.Upstream.Exact {
		t.Errorf("the model is %+v", m)
	}
	if m := r.Status().Remote[1]; !m.Ranks || !m.Demo || m.Writes() {
		t.Errorf("the model that ranks is %+v", m)
	}
	for _, c := range []struct {
		prompt   string
		code     fault.Code
		tries    int // 0: the breaker opens meanwhile, for a time
		failures int // that the breaker has counted then: one of a request, however often it was sent
	}{{"write", fault.CodeNotSupported, 1, 0}, {"limit", fault.CodeUpstream, 1, 0}, {"break", fault.CodeUpstream, 4, 1}, {"break", fault.CodeUpstream, 4, 2}, {"break", fault.CodeUpstream, 0, 3}} {
		before := s.count()
		asked := infer.DefaultRequest()
		asked.Model, asked.Prompt = "m", c.prompt
		if code, text := write(t, r, asked).code(); code != c.code || c.tries != 0 && s.count()-before != c.tries || !strings.Contains(text, s.Listener.Addr().String()) {
			t.Errorf("%s: got %v %s after %d requests", c.prompt, code, text, s.count()-before)
		}
		if n := r.servers[0].breaker.failures; n != c.failures {
			t.Errorf("%s: the breaker has counted %d failures, want %d", c.prompt, n, c.failures)
		}
		if problem := r.Status().Upstreams[0].Problem; (problem != "") != (c.failures == maxFailures) {
			t.Errorf("%s: the server is taken for broken: %q", c.prompt, problem)
		}
	}
}

func TestReasoningCallsAndProbabilitiesArePassedOn(t *testing.T) {
	s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		stream(w, roleChunk,
			`{"choices":[{"index":0,"delta":{"reasoning_content":"Let me "}}]}`, `{"choices":[{"index":0,"delta":{"reasoning":"see."}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"Hé!"},"logprobs":{"content":[{"token":"H","logprob":-0.5,"bytes":[72],"top_logprobs":[{"token":"J","logprob":-0.4,"bytes":[74]},{"token":"H","logprob":-0.5,"bytes":[72]},{"token":"K","logprob":-3}]},{"token":"é","logprob":0.3,"bytes":[195,169],"top_logprobs":[]},{"token":"!","logprob":-99999}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\""}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":7,"function":{"name":"far"}},{"index":-1}]}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]")
	})
	r := routerTo(t, s)
	asked := question("Hi")
	asked.Alternatives = 2
	got := write(t, r, asked)
	if got.err != nil || got.reasoning != "Let me see." || got.text != "Hé!" || !slices.Equal(got.calls, []string{`f{"a"`, ":1}"}) || got.done.Reason != infer.FinishCalls {
		t.Fatalf("got %+v", got)
	}
	h := got.tokens[2]
	if string(h.Bytes) != "H" || h.LogProb != -0.5 || h.Rank != 1 || len(h.Top) != 2 || string(h.Tops[0]) != "J" || h.Text != "" {
		t.Errorf("the first token is %+v", h)
	}
	if e, last := got.tokens[3], got.tokens[4]; string(e.Bytes) != "é" || e.LogProb != 0 || last.LogProb != -9999 || last.Text != "Hé!" {
		t.Errorf("the others are %+v, %+v", e, last)
	}
	asked.WholeCalls = true
	if got := write(t, r, asked); !slices.Equal(got.calls, []string{`f{"a":1}`}) || len(got.done.Calls) != 1 || got.done.Calls[0].ID != "c1" {
		t.Errorf("whole calls are %v", got.calls)
	}
}

func TestAThoughtBetweenTagsIsReasoning(t *testing.T) {
	s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		stream(w, word("<thi"), word("nk>\nhm"), word("m</th"), word("ink>\n\nHello <think>"), stopChunk, "[DONE]")
	})
	r := routerTo(t, s)
	if got := write(t, r, question("Hi")); got.text != "Hello <think>" || strings.TrimSpace(got.reasoning) != "hmm" {
		t.Errorf("got %q after thinking %q", got.text, got.reasoning)
	}
	plain := question("Hi")
	plain.ParseReply = false
	if got := write(t, r, plain); got.text != "<think>\nhmm</think>\n\nHello <think>" {
		t.Errorf("unparsed it is %q", got.text)
	}
}

func TestAClientThatGoesEndsTheRequestThere(t *testing.T) {
	gone := make(chan struct{})
	s := newStandIn(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		stream(w, word("Hello"))
		<-r.Context().Done()
		close(gone)
	})
	r := routerTo(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range r.Generate(ctx, question("Hi")) {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if e.Token != nil {
			cancel()
		}
	}
	select {
	case <-gone:
	case <-time.After(hang):
		t.Fatal("the server goes on")
	}
	if s := r.Status().Upstreams[0]; s.Running != 0 || s.Failed != 0 {
		t.Errorf("the status is %+v", s)
	}
}

func TestARequestIsSentAgainUntilItsFirstTokenOnly(t *testing.T) {
	var n atomic.Int32
	s := newStandIn(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		switch n.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0.01")
			w.WriteHeader(429)
		case 2:
			stream(w, roleChunk) // cut
		case 3:
			greets(w, r, body)
		default:
			stream(w, word("Hello"))
		}
	})
	r := routerTo(t, s)
	if got := write(t, r, question("Hi")); got.err != nil || got.text != "Hello there" || n.Load() != 3 {
		t.Errorf("got %+v after %d requests", got, n.Load())
	}
	if got := write(t, r, question("Hi")); got.err == nil || got.text != "Hello" || n.Load() != 4 {
		t.Errorf("after its first token, it got %+v after %d requests", got, n.Load())
	}
}

func TestAConversationStaysWithItsServerAndOthersGoToTheIdlest(t *testing.T) {
	a, b := newStandIn(t, greets), newStandIn(t, greets)
	r := routerTo(t, a, b)
	for range 5 {
		write(t, r, question("one conversation"))
	}
	if a.count() != 5 && b.count() != 5 {
		t.Errorf("a conversation was answered by both: %d and %d times", a.count(), b.count())
	}
	before := [2]int{a.count(), b.count()}
	for i := range 10 {
		write(t, r, question(fmt.Sprint("another one, ", i)))
	}
	if a.count() == before[0] || b.count() == before[1] {
		t.Errorf("ten conversations went to one server: %d and %d", a.count(), b.count())
	}
	// The server of a conversation writes many others: it moves.
	mine := r.recent.servers[conversation(ptr(question("one conversation")))]
	for range slack + 1 {
		mine.begin()
	}
	write(t, r, question("one conversation"))
	if now := r.recent.servers[conversation(ptr(question("one conversation")))]; now == mine {
		t.Error("a conversation waits for a busy server")
	}
}

func ptr[T any](v T) *T { return &v }

func TestOfTwoServersOneCanDieUnderLoadWithoutALostRequest(t *testing.T) {
	var inFlight atomic.Int32
	slow := func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		inFlight.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		time.Sleep(20 * time.Millisecond)
		stream(w, word("Hello"), stopChunk, "[DONE]")
	}
	a, b := newStandIn(t, slow), newStandIn(t, slow)
	r := routerTo(t, a, b)
	const load = 40
	results := make(chan written, load)
	for i := range load {
		go func() { results <- write(t, r, question(fmt.Sprint("question ", i))) }()
	}
	eventually(t, "both servers write", func() bool { return inFlight.Load() > 10 })
	a.CloseClientConnections()
	a.Close()
	for range load {
		got := <-results
		if got.text == "" && got.err != nil {
			t.Errorf("a request was lost before its first token: %v", got.err)
		}
	}
	if b.count() < load/2 {
		t.Errorf("the other server wrote %d answers", b.count())
	}
	eventually(t, "the dead server is noticed", func() bool { return r.Status().Upstreams[0].Problem != "" })
	if up := r.Status().Remote[0].Upstream; up.Problem != "" {
		t.Errorf("a model of which one server lives has the problem %q", up.Problem)
	}
}

func TestAServerThatComesLateOrComesBackIsUsed(t *testing.T) {
	var down atomic.Bool
	s := newStandIn(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		if down.Load() {
			w.WriteHeader(500)
			return
		}
		greets(w, r, body)
	})
	serve := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() && r.URL.Path == "/v1/models" {
			w.WriteHeader(503)
			return
		}
		serve.ServeHTTP(w, r)
	})
	r := routerTo(t, s)
	down.Store(true)
	eventually(t, "it is noticed", func() bool { return r.Status().Remote[0].Upstream.Problem != "" })
	if code, text := write(t, r, question("Hi")).code(); code != fault.CodeUpstream || !strings.Contains(text, "500") || !strings.Contains(text, "choose another model") {
		t.Errorf("got %v %s", code, text)
	}
	down.Store(false)
	eventually(t, "it is back", func() bool { return r.Status().Remote[0].Upstream.Problem == "" })
	if got := write(t, r, question("Hi")); got.text != "Hello there" {
		t.Errorf("got %+v", got)
	}
}

func TestBreaker(t *testing.T) {
	now := time.Unix(1000, 0)
	var b breaker
	for range maxFailures {
		if b.open(now) {
			t.Fatal("it is open before as many failures")
		}
		b.fail(b.begin(), now)
	}
	for pause := firstPause; pause < 4*maxPause; pause *= 2 {
		wait := min(pause, maxPause)
		if !b.open(now.Add(wait - 1)) {
			t.Errorf("it is closed before %v", wait)
		}
		now = now.Add(wait)
		if b.open(now) {
			t.Errorf("it is open after %v", wait)
		}
		number := b.begin()
		if !b.open(now) {
			t.Error("two requests try a server that failed")
		}
		b.giveUp(number - 1)
		if !b.open(now) {
			t.Error("the end of an earlier request is that of the trial")
		}
		b.fail(number, now)
	}
	now = now.Add(maxPause)
	number := b.begin()
	b.accept()
	if b.open(now) {
		t.Error("it is open after a request was accepted")
	}
	if b.fail(number, now); !b.open(now.Add(maxPause - 1)) {
		t.Error("the next failure is the first one again, though no answer is complete")
	}
	b.succeed()
	if b.open(now) || b.failures != 0 {
		t.Error("it is open after an answer")
	}
}

func TestFailuresOfRequestsThatWereThereTogetherCountOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	var b breaker
	for failures := 1; failures <= maxFailures; failures++ {
		var numbers []int64
		for range 9 {
			numbers = append(numbers, b.begin())
		}
		for _, n := range numbers {
			b.fail(n, now)
		}
		if b.failures != failures {
			t.Errorf("%d times nine answers that were cut at once count as %d failures", failures, b.failures)
		}
	}
	if !b.open(now) || b.open(now.Add(firstPause)) {
		t.Error("the first pause is not that of three failures")
	}
}

// tiredOf makes the next request to a server the one that tries it after failures.
func tiredOf(s *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.failures = maxFailures
}

func TestAServerThatAcceptsItsTrialIsOpenToOthersAtOnce(t *testing.T) {
	accepts := func(w http.ResponseWriter, r *http.Request, first string) {
		io.WriteString(w, first)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for name, native := range map[string]bool{"another engine": false, "another m40-llm": true} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
				switch asked := fmt.Sprint(body["messages"]); {
				case !strings.Contains(asked, "trial"):
					greets(w, r, body)
				case native:
					accepts(w, r, `{"type":"queued","queued":{"position":3}}`)
				default:
					w.Header().Set("Content-Type", "text/event-stream")
					accepts(w, r, ": wait\n\n")
				}
			})
			if native {
				s.extra = map[string]string{"/v1/status": `{"state":"ready","step":{},"setup":{}}`}
			}
			r := routerTo(t, s)
			tiredOf(r.servers[0])
			begun := false
			for e, err := range r.Generate(t.Context(), question("trial")) {
				begun = true
				if err != nil || e.Token != nil {
					t.Errorf("the trial got %+v, %v", e, err)
				}
				if problem := r.Status().Upstreams[0].Problem; problem != "" || !r.servers[0].usable() {
					t.Errorf("the trial was accepted, and the server is closed to others: %q", problem)
				}
				if !native {
					if got := write(t, r, question("other")); got.text != "Hello there" {
						t.Errorf("another request got %+v", got)
					}
				}
				break
			}
			if !begun {
				t.Error("the trial got nothing")
			}
		})
	}
}

func TestARequestWhoseReaderPanicsIsCountedNoLonger(t *testing.T) {
	s := newStandIn(t, greets)
	r := routerTo(t, s)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		for range r.Generate(t.Context(), question("Hi")) {
			panic("the reader fails")
		}
	}()
	if running := r.servers[0].load(); running != 0 {
		t.Errorf("%d requests run", running)
	}
}

func TestAnotherServerAnswersWhenOneAsksForALongPause(t *testing.T) {
	busy := func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
	}
	var failing atomic.Bool
	a, b := newStandIn(t, busy), newStandIn(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		if failing.Load() {
			w.WriteHeader(500)
			return
		}
		greets(w, r, body)
	})
	r := routerTo(t, a, b)
	r.recent.set(conversation(ptr(question("Hi"))), r.servers[0])
	for range 2 {
		if got := write(t, r, question("Hi")); got.text != "Hello there" || a.count() != 1 {
			t.Errorf("got %+v after %d requests to the busy server", got, a.count())
		}
	}
	failing.Store(true)
	asked, before := question("another"), b.count()
	r.recent.set(conversation(&asked), r.servers[0])
	if code, _ := write(t, r, asked).code(); code != fault.CodeUpstream || a.count() != 2 || b.count()-before != 3 {
		t.Errorf("got %v after %d requests to the server that asked for an hour, and %d to the other", code, a.count()-1, b.count()-before)
	}
}

func TestASilentServerDoesNotHoldTokenizing(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	server := func(serve http.HandlerFunc) Address {
		s := newStandIn(t, nil)
		s.extra = map[string]string{"/v1/status": `{"state":"ready","step":{},"setup":{}}`}
		rest := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tokenize" {
				serve(w, r)
				return
			}
			rest.ServeHTTP(w, r)
		})
		a, _ := ParseAddress(s.URL)
		return a
	}
	silent := server(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		io.Copy(io.Discard, r.Body) // so that the end of the request is seen
		<-r.Context().Done()
	})
	other := server(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"tokens":[4,2]}`) })
	r := New(Options{Local: &localEngine{}, Servers: []Address{silent, other}, CheckEvery: time.Hour, Patience: 5 * time.Second})
	defer r.Close()
	eventually(t, "the models are listed", func() bool {
		list := r.Status().Remote
		return len(list) == 1 && len(list[0].Upstream.Servers) == 2
	})
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if got, err := r.Tokenize(ctx, "m", "x", false, false); err != nil || !slices.Equal(got, []int32{4, 2}) || reached.Load() != 1 {
		t.Errorf("got %v, %v; the silent server was asked %d times", got, err, reached.Load())
	}
}

func TestANoticeIsGivenWithoutHoldingUpTheServer(t *testing.T) {
	a, _ := ParseAddress("http://gpu-box:8000")
	var s *server
	notices := 0
	s = newServer(a, &Options{Notice: func(string) {
		notices++
		if !s.mu.TryLock() {
			t.Error("a server waits until the notice is written")
			return
		}
		s.mu.Unlock()
	}})
	s.problem = ""
	s.failedCheck(&failure{why: "it is gone", gone: true})
	s.failedCheck(&failure{why: "it is gone", gone: true})
	if notices != 1 || s.problem != "it is gone" {
		t.Errorf("%d notices were given, and the problem is %q", notices, s.problem)
	}
}

func TestANameWithTheSuffixMayBeThatOfAnotherModel(t *testing.T) {
	a, b := newStandIn(t, greets), newStandIn(t, greets)
	a.models, b.models = `{"data":[{"id":"guide@upstream"},{"id":"x"}]}`, `{"data":[{"id":"guide"}]}`
	var list []Address
	for _, s := range []*standIn{a, b} {
		address, _ := ParseAddress(s.URL)
		list = append(list, address)
	}
	local := &localEngine{models: func() ([]infer.ModelInfo, error) {
		return []infer.ModelInfo{{Name: "guide"}, {Name: "x@upstream"}}, nil
	}}
	r := New(Options{Local: local, Servers: list, CheckEvery: 20 * time.Millisecond})
	defer r.Close()
	eventually(t, "the models are listed", func() bool { return len(r.Status().Remote) == 3 })
	for name, want := range map[string]string{"guide@upstream": "guide@upstream", "guide@upstream@upstream": "guide", "x": "x", "x@upstream": ""} {
		asked := question("Hi")
		asked.Model = name
		got, server := write(t, r, asked), a
		if want == "guide" {
			server = b
		}
		_, message := got.code()
		if local := strings.HasPrefix(message, "the local engine was asked"); local != (want == "") || want != "" && (got.err != nil || server.last()["model"] != want) {
			t.Errorf("%s: got %+v, %s", name, got, message)
		}
	}
	if name := r.Name("guide", list[1].Host); name != "guide@upstream@upstream" {
		t.Errorf("the guide of the second server is called %q", name)
	}
}

func TestNamesOfModelsDoNotHideThoseOfThisMachine(t *testing.T) {
	s := newStandIn(t, greets)
	s.models = `{"data":[{"id":"guide"},{"id":"m"}]}`
	r := routerTo(t, s)
	var names []string
	for _, m := range r.Status().Remote {
		names = append(names, m.Name)
	}
	if !slices.Equal(names, []string{"guide@upstream", "m"}) {
		t.Errorf("the models are %v", names)
	}
	for model, want := range map[string]string{"guide@upstream": "guide", "m@upstream": "m", "m": "m"} {
		asked := question("Hi")
		asked.Model = model
		if got := write(t, r, asked); got.err != nil || s.last()["model"] != want {
			t.Errorf("%s asked for %v: %v", model, s.last()["model"], got.err)
		}
	}
}

func TestAPromptForAModelOfThisMachineNeverGoesToAServerWithOneOfTheSameName(t *testing.T) {
	s := newStandIn(t, greets)
	s.models = `{"data":[{"id":"guide"},{"id":"m"}]}`
	var fails atomic.Bool
	var pulled atomic.Bool
	local := &localEngine{models: func() ([]infer.ModelInfo, error) {
		if fails.Load() {
			return nil, errors.New("the worker is not ready")
		}
		list := []infer.ModelInfo{{Name: "guide"}}
		if pulled.Load() {
			list = append(list, infer.ModelInfo{Name: "m"})
		}
		return list, nil
	}}
	fails.Store(true)
	a, _ := ParseAddress(s.URL)
	r := New(Options{Local: local, Servers: []Address{a}, CheckEvery: time.Hour})
	defer r.Close()
	eventually(t, "the server is asked", func() bool { return r.Status().Upstreams[0].Problem == "" })
	names := func() (list []string) {
		for _, m := range r.Status().Remote {
			list = append(list, m.Name)
		}
		return list
	}
	asked := question("Hi")
	for _, asked.Model = range []string{"guide", "m"} {
		if got := write(t, r, asked); s.count() != 0 || len(names()) != 0 {
			t.Errorf("before the models of this machine are known, %s went to the server: %v, names %v", asked.Model, got.err, names())
		}
	}
	fails.Store(false)
	r.Refresh(t.Context())
	if got := names(); !slices.Equal(got, []string{"guide@upstream", "m"}) {
		t.Errorf("the models are %v", got)
	}
	for _, host := range []string{a.Host, "upstream"} {
		if guide, m, none := r.Name("guide", host), r.Name("m", host), r.Name("x", host); guide != "guide@upstream" || m != "m" || none != "" {
			t.Errorf("at %s, the names are %q, %q, %q", host, guide, m, none)
		}
	}
	if name := r.Name("m", "elsewhere"); name != "" {
		t.Errorf("a server that there is not has %q", name)
	}
	version := r.ModelsVersion()
	pulled.Store(true)
	if _, err := r.Models(t.Context()); err != nil { // as the page lists them after a download
		t.Error(err)
	}
	if got := names(); !slices.Equal(got, []string{"guide@upstream", "m@upstream"}) || r.ModelsVersion() <= version {
		t.Errorf("after a download, the models are %v", got)
	}
	fails.Store(true)
	r.Refresh(t.Context())
	if got := names(); !slices.Equal(got, []string{"guide@upstream", "m@upstream"}) {
		t.Errorf("when they cannot be listed, the models are %v", got)
	}
}

func TestAKeyGoesToItsServerAlone(t *testing.T) {
	var keys []string
	handler := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, name+r.Header.Get("Authorization"))
			io.WriteString(w, oneModel)
		})
	}
	a, b := newStandIn(t, greets), newStandIn(t, greets)
	a.Config.Handler, b.Config.Handler = handler("a"), handler("b")
	list, err := ParseKeys("# of the cluster\n\n" + a.URL + "/v1  sk-secret\n")
	if err != nil {
		t.Fatal(err)
	}
	with, _ := ParseAddress(a.URL + "/v1/")
	without, _ := ParseAddress(b.URL)
	with.Key = list[with.Base]
	for _, address := range []Address{with, without} {
		s := newServer(address, &Options{Patience: 5 * time.Second})
		if _, err := s.list(t.Context()); err != nil {
			t.Error(err)
		}
		s.close()
	}
	if !slices.Equal(keys, []string{"aBearer sk-secret", "b"}) {
		t.Errorf("got %q", keys)
	}
}

func TestAddressesAndKeysThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"gpu-box:8000":             "such as http://gpu-box:8000",
		"ftp://gpu-box":            "such as http://gpu-box:8000",
		"http://":                  "such as http://gpu-box:8000",
		"http://me:secret@gpu-box": "gpu-box has a user name",
		"http://gpu-box/?key=1":    "must end with its path",
	} {
		if _, err := ParseAddress(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if a, err := ParseAddress("https://gpu-box/llm/v1/"); err != nil || a.Base != "https://gpu-box/llm" || a.Host != "gpu-box" || !a.Private() {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, _ := ParseAddress("http://192.168.1.5:8000"); a.Private() {
		t.Error("the network is taken for private")
	}
	for _, text := range []string{"sk-alone", "http://a b c", "sk-alone key"} {
		if _, err := ParseKeys(text); err == nil || !strings.Contains(err.Error(), "line 1") || strings.Contains(err.Error(), "sk-alone") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
