package handlers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/handlers/failure"
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
		strings.Repeat(`{"a":[`, 40),
		"{\"a\\u0000\xff\":\"\\ud800\"}",
		"", "null", "[]", `"`, `{"`, `{"a":"\`,
	} {
		f.Add(seed)
	}
	engine := &fakeEngine{}
	handler := New(testConfig(engine))
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/generate", "/tokenize", "/detokenize", "/apply-template"}
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range paths {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Host = "localhost"
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			switch {
			case w.Code == http.StatusOK:
			case w.Code >= http.StatusInternalServerError:
				t.Errorf("%s: got %d: %s", path, w.Code, w.Body)
			default:
				var e failure.Body
				if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error.Message == "" {
					t.Errorf("%s: got %d with no reason: %s", path, w.Code, w.Body)
				}
			}
		}
	})
}
