package handlers_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"nhooyr.io/websocket"

	"m40-llm/handlers"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/page"
)

// Whatever a client sends, the answer is a response or a refusal that says what
// is wrong, and never a panic.
func FuzzChatRequest(f *testing.F) {
	for _, seed := range []string{
		hello,
		`{"prompt":"a","echo":true,"logprobs":2,"n":2}`,
		`{"prompt":[[1,2],[3]],"stream":true}`,
		`{"prompt":[1,2],"logit_bias":{"1":2},"stop":["a"]}`,
		`{"content":"a","tokens":[1],"with_pieces":true,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`,
		chatBody(`"temperature":NaN`),
		chatBody(`"temperature":1e999,"top_k":-1`),
		chatBody(`"tools":[{}],"tool_choice":"auto","stream":true,"stream_options":{"include_usage":true}`),
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{}]}],"continue_final_message":true}`,
		`{"params":{"top_p":2},"messages":[]}`,
		`{"prompt":[1.0,2e0],"best_of":2.0,"n":1,"logprobs":1e0,"echo":true,"content":"a","tokens":[1.0]}`,
		`{"messages":[{"role":"assistant","function_call":{"name":"f","arguments":"{"}},{"role":"function","name":"f","content":[{"type":"refusal","refusal":"n"}]}],"stream":true,"timings_per_token":true,"return_progress":true,"seed":-9}`,
		`{"prompt":"a","n_predict":-2,"n_probs":2,"logit_bias":[[1,false],[2,1.5]],"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"f","text":"t"}]}`,
		strings.Repeat(`{"a":[`, 40),
		"{\"a\\u0000\xff\":\"\\ud800\"}",
		"", "null", "[]", `"`, `{"`, `{"a":"\`,
	} {
		f.Add(seed)
	}
	fuzzBodies(f, func(body []byte) string {
		var e failure.Body
		_ = json.Unmarshal(body, &e) // then there is no message
		return e.Error.Message
	}, "/v1/chat/completions", "/v1/completions", "/v1/generate", "/tokenize", "/detokenize", "/apply-template", "/completion", "/infill", "/v1/embeddings", "/v1/embed", "/embedding", "/v1/rank", "/v1/rerank")
}

// fuzzBodies sends bodies to paths. reason returns the text of an error.
func fuzzBodies(f *testing.F, reason func(body []byte) string, paths ...string) {
	handler := handlers.New(handlerstest.TestConfig(f, &handlerstest.FakeEngine{}))
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range paths {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Host = "localhost"
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if err := handlerstest.CheckDescribed(r, handlerstest.Response{Status: w.Code, Header: w.Header(), Body: w.Body.String()}); err != nil {
				t.Error(err)
			}
			switch {
			case w.Code == http.StatusOK:
			case w.Code >= http.StatusInternalServerError:
				t.Errorf("%s: got %d: %s", path, w.Code, w.Body)
			case reason(w.Body.Bytes()) == "":
				t.Errorf("%s: got %d with no reason: %s", path, w.Code, w.Body)
			}
		}
	})
}

func FuzzOllamaRequest(f *testing.F) {
	for _, seed := range []string{
		ollamaHello + `,"options":{"temperature":0.3,"top_k":5.0,"seed":-1,"stop":["a"],"num_predict":-2,"mirostat":1},"format":"json","think":"low","keep_alive":"5m"}`,
		`{"model":"guide","stream":false,"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}},{}]},{"role":"tool","tool_name":"f","content":"1","images":[]}],"tools":[{}]}`,
		`{"name":"guide:latest","prompt":"x","suffix":"y","raw":true,"system":"s","context":[1],"images":["x"],"keep_alive":-1}`,
		`{"prompt":"x","format":{"type":"object"},"think":true,"logprobs":true,"top_logprobs":2,"options":null}`,
		`{"source":"a","destination":"b"}`, `{"options":[]}`, `{"keep_alive":0}`, "{", "null",
	} {
		f.Add(seed)
	}
	fuzzBodies(f, func(body []byte) string {
		var e failure.OllamaBody
		_ = json.Unmarshal(body, &e) // then there is no message
		return e.Error
	}, "/api/chat", "/api/generate", "/api/show", "/api/embed", "/api/embeddings", "/api/pull", "/api/copy")
}

func FuzzMessagesRequest(f *testing.F) {
	for _, seed := range []string{
		claudeHello + `,"system":[{"type":"text","text":"x"}],"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124"}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":9},"stop_sequences":["a"],"stream":true}`,
		`{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"y"},{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"1"},{"type":"image"}]}]}]}`,
		`{"max_tokens":1,"messages":[{"role":"assistant","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":{}},"effort":"low"}}`,
		`{"max_tokens":-1,"messages":[{"content":[null]}]}`, "{", "null",
	} {
		f.Add(seed)
	}
	fuzzBodies(f, func(body []byte) string {
		var e failure.AnthropicBody
		_ = json.Unmarshal(body, &e) // then there is no message
		return e.Error.Message
	}, "/v1/messages", "/v1/messages/count_tokens")
}

func FuzzResponsesRequest(f *testing.F) {
	for _, seed := range []string{
		responseHello + `,"instructions":"x","tools":[{"type":"function","name":"f","parameters":{}},{"type":"web_search"},null],"tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema","schema":{}}},"reasoning":{"effort":"none"},"stream":true}`,
		`{"input":[{"role":"developer","content":"x"},{"type":"reasoning","summary":[{"text":"x"}]},{"type":"function_call","call_id":"a","name":"f","arguments":"{"},{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"1"}]},{"type":"item_reference"}]}`,
		`{"input":[null,{}],"metadata":[],"include":["message.output_text.logprobs"],"top_logprobs":2}`, "{", "null",
	} {
		f.Add(seed)
	}
	fuzzBodies(f, func(body []byte) string {
		var e failure.Body
		_ = json.Unmarshal(body, &e) // then there is no message
		return e.Error.Message
	}, "/v1/responses")
}

// Whatever the head of a request says, only those get through that are addressed to this
// machine or an allowed name and come from no foreign page.
func FuzzRequestHead(f *testing.F) {
	for _, seed := range [][5]string{
		{"GET", "/", "localhost:8080", "", ""},
		{"POST", "/v1/completions", "127.0.0.1:8080", "", ""},
		{"POST", "/c/1/delete", "llm.example", "https://llm.example", "same-origin"},
		{"GET", "/v1/models", "evil.example", "", ""},
		{"OPTIONS", "/v1/models", "localhost:8080", "null", "cross-site"},
		{"POST", "/login", "[::1]:8080", "http://[::1]:8080", "none"},
		{"GET", "/%2e%2e/ws", "a.localhost.:8080", "http://a@localhost:8080", "same-site"},
		{"GET", "//v1//models/", "host.docker.internal:8080", "app://obsidian.md", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4])
	}
	handler := handlers.New(func() handlers.Config {
		c := handlerstest.TestConfig(f, &handlerstest.FakeEngine{})
		c.AllowHosts = []string{"llm.example:443"}
		return c
	}())
	local := context.WithValue(f.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}))
	f.Fuzz(func(t *testing.T, method, path, host, origin, site string) {
		r, err := http.NewRequestWithContext(local, method, "/", http.NoBody)
		if err != nil {
			t.Skip()
		}
		r.URL.Path, r.Host, r.RequestURI, r.RemoteAddr = "/"+path, host, "/", "127.0.0.1:5000"
		for name, value := range map[string]string{"Origin": origin, "Sec-Fetch-Site": site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		refused := w.Code == http.StatusMisdirectedRequest || w.Code == http.StatusForbidden
		switch {
		case w.Code >= http.StatusInternalServerError:
			t.Errorf("got %d: %s", w.Code, w.Body)
		case !refused && !isOurs(host):
			t.Errorf("the host %q got %d", host, w.Code)
		case !refused && origin != "" && !isOriginOf(host, origin):
			t.Errorf("the origin %q got %d at the host %q", origin, w.Code, host)
		case w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("X-Frame-Options") == "":
			t.Errorf("got the headers %v", w.Header())
		}
	})
}

// isOriginOf reports whether a page of origin came from host.
func isOriginOf(host, origin string) bool {
	host, origin = strings.ToLower(host), strings.ToLower(origin)
	for scheme, port := range map[string]string{"http://": ":80", "https://": ":443"} {
		if bare, ok := strings.CutPrefix(origin, scheme); ok && strings.TrimSuffix(bare, port) == strings.TrimSuffix(host, port) {
			return true
		}
	}
	return false
}

// isOurs reports whether host is one that FuzzRequestHead's server answers to.
func isOurs(host string) bool {
	host = strings.ToLower(host)
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && addr.IsLoopback() || host == "llm.example" || host == "llm.example:443"
}

// Whatever a page sends, the session logs no failure and answers the next command, or ends
// with a code that says what was wrong.
func FuzzSocket(f *testing.F) {
	for _, seed := range []string{
		`{"type":"send","ref":1,"text":"hi","settings":{"max_tokens":2}}` + "\n" + `{"type":"stop","ref":2,"answer":2}` + "\n" + `{"type":"fork","ref":3,"message":1}`,
		`{"type":"open","ref":1,"chat":"x","since":-1,"at":9}`,
		`{"type":"send","text":"hi","raw":true,"temporary":true,"system":"s","model":"guide"}` + "\n" + `{"type":"regenerate","answer":2,"settings":{"temperature":0}}` + "\n" + `{"type":"older","before":2}` + "\n" + `{"type":"newer","after":0}`,
		`{"type":"send","text":"hi"}` + "\n" + `{"type":"edit","message":1,"text":"ho"}` + "\n" + `{"type":"rewrite","answer":2,"text":"x","reasoning":"y"}` + "\n" + `{"type":"continue","answer":2}` + "\n" + `{"type":"select","message":1,"version":1}`,
		`{"type":"panel","settings":{"seed":1},"preset":"none"}` + "\n" + `{"type":"replay","answer":2}`,
		"{", "null", "[]", "\x00", "{\"type\":\"send\",\"text\":\"\xff\"}",
	} {
		f.Add(seed, false)
	}
	f.Add("{}", true)
	failed := make(chan slog.Record, 1)
	s := handlerstest.Server(f, &handlerstest.FakeEngine{}, func(c *handlers.Config) { c.Logger = slog.New(failureLog{slog.DiscardHandler, failed}) })
	f.Fuzz(func(t *testing.T, frames string, binary bool) {
		conn, _, err := websocket.Dial(t.Context(), s.URL+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {s.URL}}, HTTPClient: s.Client()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		kind := websocket.MessageText
		if binary {
			kind = websocket.MessageBinary
		}
		for i, data := range strings.Split(frames, "\n") {
			if i == 20 || conn.Write(t.Context(), kind, []byte(data)) != nil {
				break
			}
		}
		_ = conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ping","ref":4611686018427387904}`)) // the session may have ended
		for {
			_, data, err := conn.Read(t.Context())
			if code := websocket.CloseStatus(err); code == websocket.StatusUnsupportedData || code == websocket.StatusPolicyViolation || code == websocket.StatusNormalClosure {
				break
			}
			var got handlerstest.Frame
			if err != nil || json.Unmarshal(data, &got) != nil {
				t.Fatalf("the session ended with %v after %q", err, data)
			}
			if got.Ref == 1<<62 {
				break
			}
		}
		select {
		case record := <-failed:
			t.Fatalf("it logged: %s", record.Message)
		default:
		}
	})
}

// failureLog passes on the records of errors.
type failureLog struct {
	slog.Handler
	failed chan<- slog.Record
}

func (l failureLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (l failureLog) Handle(_ context.Context, r slog.Record) error {
	select {
	case l.failed <- r:
	default:
	}
	return nil
}

func (l failureLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// Whatever file is imported, it is refused with a reason, or becomes a chat whose export can
// be imported again.
func FuzzImport(f *testing.F) {
	for _, messages := range []string{
		`{"id":1,"role":"user","state":"done","text":"x"}`,
		`{"id":1,"role":"user","state":"done","text":"x"},{"id":2,"parent":1,"role":"assistant","state":"stopped","text":"y","answer":{}}`,
		`{"id":2,"role":"user","state":"done","text":"x","created":"9999-12-31T23:59:59Z"},{"id":3,"parent":2,"role":"assistant","state":"done","text":"\u0000"}`,
		`{"id":1,"role":"king"}`, `{"id":1,"parent":1,"role":"user","state":"done"}`, "",
	} {
		f.Add(`{"format":"` + page.ExportFormat + `","title":"t","messages":[` + messages + `]}`)
	}
	f.Add("[]")
	f.Fuzz(func(t *testing.T, file string) {
		handler := handlers.New(handlerstest.TestConfig(t, &handlerstest.FakeEngine{}))
		do := func(method, path, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Host = "localhost"
			r.Header.Set("Origin", "http://localhost")
			r.Header.Set("Accept", "application/json")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError || w.Code >= http.StatusBadRequest && !strings.Contains(w.Body.String(), `"message":"`) {
				t.Fatalf("%s %s: got %d: %s", method, path, w.Code, w.Body)
			}
			return w
		}
		first := do(http.MethodPost, "/import", file)
		if first.Code >= http.StatusBadRequest {
			return
		}
		var added struct{ Chat string }
		if err := json.Unmarshal(first.Body.Bytes(), &added); err != nil || added.Chat == "" {
			t.Fatalf("got %d: %s", first.Code, first.Body)
		}
		exported := do(http.MethodGet, "/c/"+added.Chat+"/export.json", "")
		if again := do(http.MethodPost, "/import", exported.Body.String()); exported.Code != http.StatusOK || again.Code >= http.StatusBadRequest {
			t.Errorf("the export %s\ncannot be imported: %s", exported.Body, again.Body)
		}
	})
}
