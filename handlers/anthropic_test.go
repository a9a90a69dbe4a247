package handlers_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
)

// namedEvents returns the events of a stream, "name: data", with ids replaced by ID, without comments.
func namedEvents(t *testing.T, stream string, ids ...string) (events []string) {
	t.Helper()
	for _, frame := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		if strings.HasPrefix(frame, ": ") {
			continue
		}
		name, data, ok := strings.Cut(frame, "\ndata: ")
		name, named := strings.CutPrefix(name, "event: ")
		var typed struct{ Type string }
		if err := json.Unmarshal([]byte(data), &typed); err != nil || !ok || !named || typed.Type != name {
			t.Fatalf("the stream has the frame %q (%v)", frame, err)
		}
		for _, prefix := range ids {
			data = replaceIDs(data, prefix)
		}
		events = append(events, data)
	}
	return events
}

// replaceIDs replaces random ids that begin with prefix by the prefix.
func replaceIDs(text, prefix string) string {
	const random = 26
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, `"`+prefix)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(`"` + prefix)
		text = after[min(random, len(after)):]
	}
}

const claudeHello = `{"model":"guide","max_tokens":9,"messages":[{"role":"user","content":"Hello"}]`

func TestMessages_AWholeAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine *handlerstest.FakeEngine
		want   string
	}{
		{"text", &handlerstest.FakeEngine{}, `{"type":"message","role":"assistant","model":"guide","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,
			"usage":{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":3,"output_tokens":2}}`},
		{"thinking, text and calls", calling("Let me look."), `{"type":"message","role":"assistant","model":"guide","content":[{"type":"thinking","thinking":"Hm.","signature":""},{"type":"text","text":"Let me look."},
			{"type":"tool_use","id":"a","name":"f","input":{"x":1}},{"type":"tool_use","id":"b","name":"g","input":{}}],"stop_reason":"tool_use","stop_sequence":null,
			"usage":{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":3,"output_tokens":2}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, c.engine), "/v1/messages", claudeHello+"}", "X-Api-Key", "any", "Anthropic-Version", "2023-06-01")
			sameJSON(t, got.Body, c.want)
		})
	}
}

func TestMessages_AStreamHasItsEventsInOrder(t *testing.T) {
	got := handlerstest.Post(t, handlerstest.Server(t, calling("Let me look.")), "/v1/messages", claudeHello+`,"stream":true}`)
	want := []string{
		`{"message":{"id":"msg_","type":"message","role":"assistant","model":"guide","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}},"type":"message_start"}`,
		`{"content_block":{"type":"thinking","thinking":"","signature":""},"index":0,"type":"content_block_start"}`,
		`{"delta":{"thinking":"Hm.","type":"thinking_delta"},"index":0,"type":"content_block_delta"}`,
		`{"index":0,"type":"content_block_stop"}`,
		`{"content_block":{"type":"text","text":""},"index":1,"type":"content_block_start"}`,
		`{"delta":{"text":"Let me look.","type":"text_delta"},"index":1,"type":"content_block_delta"}`,
		`{"index":1,"type":"content_block_stop"}`,
		`{"content_block":{"type":"tool_use","id":"a","name":"f","input":{}},"index":2,"type":"content_block_start"}`,
		`{"delta":{"partial_json":"{\"x\"","type":"input_json_delta"},"index":2,"type":"content_block_delta"}`,
		`{"delta":{"partial_json":":1}","type":"input_json_delta"},"index":2,"type":"content_block_delta"}`,
		`{"index":2,"type":"content_block_stop"}`,
		`{"content_block":{"type":"tool_use","id":"b","name":"g","input":{}},"index":3,"type":"content_block_start"}`,
		`{"delta":{"partial_json":"{","type":"input_json_delta"},"index":3,"type":"content_block_delta"}`,
		`{"delta":{"partial_json":"}","type":"input_json_delta"},"index":3,"type":"content_block_delta"}`,
		`{"index":3,"type":"content_block_stop"}`,
		`{"delta":{"stop_reason":"tool_use","stop_sequence":null},"type":"message_delta","usage":{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":3,"output_tokens":2}}`,
		`{"type":"message_stop"}`,
	}
	if events := namedEvents(t, got.Body, "msg_"); !slices.Equal(events, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
	}
	counted := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return handlerstest.Replay(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 3, Total: 7, Cached: 3}}, handlerstest.WordEvent(1, "Hi"), handlerstest.DoneEvent(infer.FinishStop))
	}}
	if got := handlerstest.Post(t, handlerstest.Server(t, counted), "/v1/messages", claudeHello+`,"stream":true}`); !strings.Contains(got.Body, `"usage":{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":3,"output_tokens":0}`) {
		t.Errorf("the first event lacks the tokens of the prompt: %s", got.Body)
	}
}

func TestMessages_WhyAnAnswerEnded(t *testing.T) {
	for want, end := range map[string]record.End{
		`"stop_reason":"end_turn","stop_sequence":null`:                      {Reason: infer.FinishStop},
		`"stop_reason":"stop_sequence","stop_sequence":"x"`:                  {Reason: infer.FinishStop, StopString: "x"},
		`"stop_reason":"max_tokens","stop_sequence":null`:                    {Reason: infer.FinishLength},
		`"stop_reason":"model_context_window_exceeded","stop_sequence":null`: {Reason: infer.FinishLength, ContextFull: true},
		`"stop_reason":"refusal","stop_sequence":null`:                       {Reason: infer.FinishBanned},
		`"stop_reason":"tool_use","stop_sequence":null`:                      {Reason: infer.FinishCalls},
	} {
		engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			done := handlerstest.DoneEvent(end.Reason)
			done.Done.End = end
			return handlerstest.Replay(handlerstest.WordEvent(1, "Hi"), done)
		}}
		if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/messages", claudeHello+"}"); !strings.Contains(got.Body, want) {
			t.Errorf("got %s, want %s", got.Body, want)
		}
	}
}

func TestMessages_TheRequestIsTheEngines(t *testing.T) {
	plain := infer.DefaultRequest()
	plain.Model, plain.ParseReply, plain.WholeCalls, plain.MaxTokens = "guide", true, true, 9
	hi := chat.Message{Role: "user", Content: "Hello"}
	for _, c := range []struct {
		name, body string
		want       func(r *infer.Request)
	}{
		{"settings", claudeHello + `,"system":"Be brief.","temperature":0.5,"top_k":3,"top_p":0.4,"stop_sequences":["a"],"metadata":{"user_id":"x"},"thinking":{"type":"disabled"}}`, func(r *infer.Request) {
			r.Params.Temperature, r.Params.TopK, r.Params.TopP, r.Stop = 0.5, 3, 0.4, []string{"a"}
			r.Messages = []chat.Message{{Role: "system", Content: "Be brief."}, hi}
			r.TemplateVars = map[string]json.RawMessage{"enable_thinking": json.RawMessage("false"), "thinking": json.RawMessage("false")}
		}},
		{"a conversation with calls and results", `{"model":"guide","max_tokens":9,"system":[{"type":"text","text":"Be","cache_control":{"type":"ephemeral"}},{"type":"text","text":"brief."}],"messages":[
			{"role":"user","content":[{"type":"text","text":"Hello"}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"Let me look."},{"type":"tool_use","id":"a","name":"f","input":{"x":1}},{"type":"tool_use","id":"b","name":"g","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"},{"type":"tool_result","tool_use_id":"b","is_error":true,"content":[{"type":"text","text":"2"}]},{"type":"text","text":"Now?"}]}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{{Role: "system", Content: "Be\nbrief."}, hi,
				{Role: "assistant", ReasoningContent: "Hm.", Content: "Let me look.", ToolCalls: json.RawMessage(`[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`)},
				{Role: "tool", Content: "1", ToolCallID: "a"}, {Role: "tool", Content: "2", ToolCallID: "b"}, {Role: "user", Content: "Now?"}}
		}},
		{"tools, of which those of Anthropic are ignored", claudeHello + `,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`, func(r *infer.Request) {
			r.Messages, r.Tools, r.ToolChoice, r.SingleCall = []chat.Message{hi}, json.RawMessage(`[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]`), "required", true
		}},
		{"one tool", claudeHello + `,"tools":[{"type":"custom","name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"}}`, func(r *infer.Request) {
			r.Messages, r.Tools, r.ToolChoice = []chat.Message{hi}, json.RawMessage(`[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`), "f"
		}},
		{"a schema", claudeHello + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"array"}}}}`, func(r *infer.Request) {
			r.Messages, r.JSONSchema = []chat.Message{hi}, json.RawMessage(`{"type":"array"}`)
		}},
		{"a line of Claude Code that differs in each request", claudeHello + `,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"},{"type":"text","text":"Be brief."}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{{Role: "system", Content: "Be brief."}, hi}
		}},
		{"an answer that is begun", `{"model":"guide","max_tokens":9,"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"{"}]}`, func(r *infer.Request) {
			r.Messages, r.Continue = []chat.Message{hi, {Role: "assistant", Content: "{"}}, true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine, asked := captured()
			if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/messages", c.body); got.Status != http.StatusOK {
				t.Fatalf("got %d: %s", got.Status, got.Body)
			}
			want := plain
			c.want(&want)
			sameRequest(t, *asked, want)
		})
	}
}

// sameRequest compares two requests to the engine.
func sameRequest(t *testing.T, got, want infer.Request) {
	t.Helper()
	g, gErr := json.Marshal(got)
	w, wErr := json.Marshal(want)
	if gErr != nil || wErr != nil {
		t.Fatal(gErr, wErr)
	}
	sameJSON(t, string(g), string(w))
}

func TestMessages_TokensAreCounted(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnRender: func(r infer.Request) (infer.Rendered, error) {
		return infer.Rendered{Tokens: make([]int32, 10*len(r.Messages))}, nil
	}}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/messages/count_tokens", `{"model":"guide","system":"x","messages":[{"role":"user","content":"Hello"}]}`)
	sameJSON(t, got.Body, `{"input_tokens":20}`)
}

func TestMessages_ErrorsHaveAnthropicsShape(t *testing.T) {
	broken := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return failing(&fault.Error{Code: fault.CodeQueueFull, Message: "the queue is full"}, handlerstest.WordEvent(1, "Hi"))
	}}
	for _, c := range []struct {
		name, body string
		engine     *handlerstest.FakeEngine
		status     int
		kind, want string
	}{
		{"no max_tokens", `{"messages":[{"role":"user","content":"x"}]}`, nil, 400, "invalid_request_error", "max_tokens is missing"},
		{"no messages", `{"max_tokens":1}`, nil, 400, "invalid_request_error", "at least one message"},
		{"a message without content", `{"max_tokens":1,"messages":[{"role":"user","content":[]}]}`, nil, 400, "invalid_request_error", "at least one message of the user"},
		{"a system prompt only", `{"max_tokens":1,"system":"x","messages":[{"role":"user","content":[]}]}`, nil, 400, "invalid_request_error", "at least one message of the user"},
		{"a role", `{"max_tokens":1,"messages":[{"role":"tool","content":"x"}]}`, nil, 400, "invalid_request_error", "messages[0].role must be user or assistant"},
		{"an image", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`, nil, 400, "invalid_request_error", "messages[0].content[0].source.type must be base64 or url"},
		{"a document", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64"}}]}]}`, nil, 400, "invalid_request_error", "cannot read files"},
		{"a call by the user", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_use","name":"f","input":{}}]}]}`, nil, 400, "invalid_request_error", "cannot be \"tool_use\" in a message of role user"},
		{"a choice of tools", claudeHello + `,"tool_choice":{"type":"some"}}`, nil, 400, "invalid_request_error", "tool_choice.type must be"},
		{"a name of a tool", claudeHello + `,"tools":[{"name":"a b"}]}`, nil, 400, "invalid_request_error", "tools[0].name must be 1 to 128"},
		{"a result by the assistant", `{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`, nil, 400, "invalid_request_error", "messages[0].content[0].type cannot be \"tool_result\" in a message of role assistant: it belongs into one of role user"},
		{"a block without a type", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"text":"x"}]}]}`, nil, 400, "invalid_request_error", "messages[0].content[1].type is missing"},
		{"a text that is none", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":5}]}]}`, nil, 400, "invalid_request_error", "messages[0].content[0].text must be a string"},
		{"a budget above the limit", `{"max_tokens":1000,"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"user","content":"x"}]}`, nil, 400, "invalid_request_error", "max_tokens must be greater than thinking.budget_tokens"},
		{"thinking", claudeHello + `,"thinking":{"type":"hard"}}`, nil, 400, "invalid_request_error", "thinking.type must be"},
		{"a format", claudeHello + `,"output_format":{"type":"xml"}}`, nil, 400, "invalid_request_error", "output_format must be"},
		{"a full queue in a stream", claudeHello + `,"stream":true}`, broken, 200, "rate_limit_error", "the queue is full"},
		{"a full queue", claudeHello + `}`, broken, 429, "rate_limit_error", "the queue is full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine := c.engine
			if engine == nil {
				engine = &handlerstest.FakeEngine{}
			}
			got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/messages", c.body)
			data := got.Body
			if i := strings.LastIndex(data, "event: error\ndata: "); i >= 0 {
				data = data[i+len("event: error\ndata: "):]
			}
			var e struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil || got.Status != c.status || e.Type != "error" || e.Error.Type != c.kind || !strings.Contains(e.Error.Message, c.want) {
				t.Errorf("got %d (%v): %s", got.Status, err, got.Body)
			}
		})
	}
	locked := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { handlerstest.Lock(t, c, "k") })
	if got := handlerstest.Post(t, locked, "/v1/messages", claudeHello+"}"); got.Status != http.StatusUnauthorized || !strings.HasPrefix(got.Body, `{"type":"error","error":{"type":"authentication_error"`) {
		t.Errorf("without the key: got %d: %s", got.Status, got.Body)
	}
	if got := handlerstest.Post(t, locked, "/v1/messages", claudeHello+"}", "X-Api-Key", "k"); got.Status != http.StatusOK {
		t.Errorf("with the key: got %d: %s", got.Status, got.Body)
	}
}

// What a program made, and what a newer client sends, reaches the model as text; the conversation goes on.
func TestMessages_WhatIsNoTextSaysSo(t *testing.T) {
	for name, c := range map[string]struct{ path, body, want string }{
		"an image in a result":           {"/v1/messages", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"seen:"},{"type":"image","source":{"type":"base64","data":"xx"}}]}]}`, "seen:\n[image: left out, the model cannot see images]"},
		"an image in a result of a chat": {"/v1/chat/completions", `{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"seen:"},{"type":"image_url","image_url":{"url":"data:"}}]}`, "seen:\n[image_url: left out, the model cannot see images]"},
		"a search result":                {"/v1/messages", `{"role":"user","content":[{"type":"search_result","source":"https://a.example","title":"A","content":[{"type":"text","text":"x"}],"citations":{"enabled":true}}]}`, "A\nhttps://a.example\nx"},
		"a search result in a result":    {"/v1/messages", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"search_result","source":"s","title":"A","content":[{"type":"text","text":"x"}]}]}]}`, "A\ns\nx"},
		"a document of parts":            {"/v1/messages", `{"role":"user","content":[{"type":"document","title":"T","source":{"type":"content","content":[{"type":"text","text":"x"}]}}]}`, "T\nx"},
		"a block of an unknown type":     {"/v1/messages", `{"role":"user","content":[{"type":"mood","feels":"fine"},{"type":"text","text":"x"}]}`, "[mood: this server does not know this type, so this is its JSON: {\"type\":\"mood\",\"feels\":\"fine\"}]\nx"},
		"a long one":                     {"/v1/messages", `{"role":"user","content":[{"type":"mood","feels":"` + strings.Repeat("x", 5000) + `"}]}`, "[mood: left out, this server does not know this type, and it has 5026 bytes]"},
	} {
		t.Run(name, func(t *testing.T) {
			engine, asked := captured()
			got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, `{"max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},`+c.body+`]}`)
			if got.Status != http.StatusOK || len(asked.Messages) != 3 || asked.Messages[2].Content != c.want {
				t.Errorf("got %d: %s; the engine was asked %+v, want %q", got.Status, got.Body, asked.Messages, c.want)
			}
		})
	}
}

// Anthropic's API and OpenAI's have a list of models at the same path.
func TestMessages_ModelsHaveAnthropicsShapeForItsClients(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	for path, want := range map[string]string{
		"/v1/models":       `{"data":[{"type":"model","id":"guide","display_name":"guide","created_at":"2023-11-14T22:13:20Z"}],"has_more":false,"first_id":"guide","last_id":"guide"}`,
		"/v1/models/guide": `{"type":"model","id":"guide","display_name":"guide","created_at":"2023-11-14T22:13:20Z"}`,
		"/v1/models/none":  `{"type":"error","error":{"type":"not_found_error","message":"there is no model called \"none\"; GET /v1/models lists those there are"}}`,
	} {
		got := handlerstest.Call(t, s, http.MethodGet, path, "", "anthropic-version", "2023-06-01")
		if strings.TrimSpace(got.Body) != want || got.Header.Get("request-id") == "" {
			t.Errorf("%s: got %s, want %s", path, got.Body, want)
		}
		if plain := handlerstest.Call(t, s, http.MethodGet, path, ""); strings.Contains(plain.Body, `"type":"model"`) || plain.Header.Get("request-id") != "" {
			t.Errorf("%s: another client got %s", path, plain.Body)
		}
	}
	if got := handlerstest.Post(t, s, "/v1/messages", claudeHello+"}"); got.Header.Get("request-id") == "" || got.Header.Get("request-id") != got.Header.Get("X-Request-Id") {
		t.Errorf("a message has the request-id %q", got.Header.Get("request-id"))
	}
}
