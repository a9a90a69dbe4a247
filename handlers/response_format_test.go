package handlers_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
)

// TestResponseFormat_ErrorsNameTheFieldOfTheRequest has the engine refuse a schema.
func TestResponseFormat_ErrorsNameTheFieldOfTheRequest(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			yield(infer.Event{}, &fault.Error{Code: fault.CodeInvalid, Param: "json_schema", Message: "json_schema cannot be used: #/not: …"})
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
			got := handlerstest.Post(t, handlerstest.Server(t, engine), tc.path, tc.body)
			if e := parseError(t, got); got.Status != http.StatusBadRequest || e.Param == nil || *e.Param != tc.param {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
}

// TestResponseFormat_SaysWhatIsLeftOutOfASchema has the engine leave something out.
func TestResponseFormat_SaysWhatIsLeftOutOfASchema(t *testing.T) {
	var mu sync.Mutex // two answers are asked for at once
	var asked infer.Request
	ignored := []string{"if at #/properties/ü,b", "uniqueItems at # of f"}
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		mu.Lock()
		asked = r
		mu.Unlock()
		return func(yield func(infer.Event, error) bool) {
			for _, e := range []infer.Event{
				{Type: infer.EventSchema, Schema: &infer.SchemaNotes{Ignored: ignored}},
				{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1}},
				{Type: infer.EventToken, Token: &infer.Token{Text: "{}"}},
				{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{End: record.End{Reason: infer.FinishStop}}}},
			} {
				if !yield(e, nil) {
					return
				}
			}
		}
	}}
	const format = `"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":%v,"schema":{"if":{}}}}`
	for _, tc := range []struct {
		name, path, body string
		strict           bool
	}{
		{"a chat", "/v1/chat/completions", chatBody(fmt.Sprintf(format, true)), true},
		{"a chat as a stream", "/v1/chat/completions", chatBody(`"stream":true,"n":2,` + fmt.Sprintf(format, false)), false},
		{"a chat without strict", "/v1/chat/completions", chatBody(`"response_format":{"type":"json_schema","json_schema":{"schema":{"if":{}}}}`), false},
		{"a completion", "/v1/completions", `{"prompt":"x",` + fmt.Sprintf(format, true) + `}`, true},
		{"a completion as a stream", "/v1/completions", `{"prompt":"x","stream":true,"json_schema":{"if":{}}}`, false},
		{"the engine's own face", "/v1/generate", `{"prompt":"x","json_schema":{"if":{}},"strict_schema":true}`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, engine), tc.path, tc.body)
			if header := got.Header.Get("X-M40-LLM-Schema-Ignored"); got.Status != http.StatusOK || header != "if at #/properties/%C3%BC%2Cb, uniqueItems at # of f" {
				t.Errorf("got %d, header %q: %s", got.Status, header, got.Body)
			}
			if asked.StrictSchema != tc.strict || string(asked.JSONSchema) != `{"if":{}}` {
				t.Errorf("asked the engine for %s, strict %v", asked.JSONSchema, asked.StrictSchema)
			}
		})
	}
	t.Run("a long list is cut", func(t *testing.T) {
		ignored = slices.Repeat([]string{"pattern at #/properties/something"}, 90)
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(`"json_schema":{}`))
		if header := got.Header.Get("X-M40-LLM-Schema-Ignored"); len(header) > 1100 || !strings.HasSuffix(header, "something, and 61 more") {
			t.Errorf("got %d bytes: %q", len(header), header)
		}
	})
}

func TestResponseFormat_ASchemaInTheWrongPlaceIsToldWhereItBelongs(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"}}}`
	for format, says := range map[string]string{
		schema:                                  "response_format is a schema itself: it belongs into {",
		`{"properties":{"a":{}}}`:               "response_format is a schema itself",
		`{"type":"array","items":{}}`:           "response_format is a schema itself",
		`{"$ref":"#/$defs/a","$defs":{"a":{}}}`: "response_format is a schema itself",
		`{"anyOf":[{"type":"string"}]}`:         "response_format is a schema itself",
		`{"enum":["a"]}`:                        "response_format is a schema itself",
		`{"const":1}`:                           "response_format is a schema itself",
		`{"json_schema":{"schema":{}}}`:         "response_format.type is missing",
		`{"schema":{}}`:                         "response_format.type is missing",
		`{"type":"json_schema","json_schema":{"oneOf":[{}]}}`: "the schema belongs there",
		`{"type":"json_schema","schema":{}}`:                  "the schema belongs there",
		`{"type":"json_schema","json_schema":` + schema + `}`: "the schema belongs there",
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/chat/completions", chatBody(`"response_format":`+format)); got.Status != 400 || !strings.Contains(got.Body, says) {
			t.Errorf("%s: got %d: %s", format, got.Status, got.Body)
		}
	}
	for format, says := range map[string]string{
		schema:                     "text.format is a schema itself",
		`{"allOf":[{}]}`:           "text.format is a schema itself",
		`{"name":"a","schema":{}}`: "text.format.type is missing",
		`{"type":"json_schema","json_schema":{"schema":{}}}`: "directly in text.format",
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/responses", responseHello+`,"text":{"format":`+format+`}}`); got.Status != 400 || !strings.Contains(got.Body, says) {
			t.Errorf("%s: got %d: %s", format, got.Status, got.Body)
		}
	}
}
