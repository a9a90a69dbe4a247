package handlers

import (
	"context"
	"iter"
	"net/http"
	"testing"

	"m40-llm/infer"
)

// TestResponseFormat_ErrorsNameTheFieldOfTheRequest has the engine refuse a schema.
func TestResponseFormat_ErrorsNameTheFieldOfTheRequest(t *testing.T) {
	engine := &fakeEngine{generate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			yield(infer.Event{}, &infer.Error{Code: infer.CodeInvalid, Param: "json_schema", Message: "json_schema cannot be used: #/not: …"})
		}
	}}
	for _, tc := range []struct{ name, path, body, param string }{
		{"a chat with response_format", "/v1/chat/completions", chatBody(`"response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}}`), "response_format"},
		{"the same as a stream", "/v1/chat/completions", chatBody(`"stream":true,"response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}}`), "response_format"},
		{"a chat with json_schema", "/v1/chat/completions", chatBody(`"json_schema":{"not":{}}`), "json_schema"},
		{"a completion", "/v1/completions", `{"prompt":"x","response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}}}`, "response_format"},
		{"the engine's own face", "/v1/generate", `{"prompt":"x","json_schema":{"not":{}}}`, "json_schema"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := post(t, server(t, engine), tc.path, tc.body)
			if e := parseError(t, got); got.status != http.StatusBadRequest || e.Param == nil || *e.Param != tc.param {
				t.Errorf("got %d: %s", got.status, got.body)
			}
		})
	}
}
