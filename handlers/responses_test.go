package handlers_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

const responseHello = `{"model":"guide","input":"Hello"`

// responseOf parses a response, with its ids shortened and without its times.
func responseOf(t *testing.T, body string) map[string]json.RawMessage {
	t.Helper()
	for _, prefix := range []string{"resp_", "msg_", "rs_", "fc_"} {
		body = replaceIDs(body, prefix)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return fields
}

func TestResponses_AWholeAnswer(t *testing.T) {
	const message = `{"id":"msg_","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"TEXT","annotations":[],"logprobs":[]}]}`
	for _, c := range []struct {
		name, body string
		engine     *handlerstest.FakeEngine
		want       map[string]string
	}{
		{"text", responseHello + "}", &handlerstest.FakeEngine{}, map[string]string{
			"id": `"resp_"`, "object": `"response"`, "status": `"completed"`, "output": "[" + strings.Replace(message, "TEXT", "Hi", 1) + "]", "store": "false", "error": "null", "incomplete_details": "null",
			"usage": `{"input_tokens":7,"input_tokens_details":{"cached_tokens":3},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":9}`,
		}},
		{"reasoning, text and calls", responseHello + "}", calling("Let me look."), map[string]string{
			"output": `[{"id":"rs_","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},` + strings.Replace(message, "TEXT", "Let me look.", 1) +
				`,{"id":"fc_","type":"function_call","status":"completed","call_id":"a","name":"f","arguments":"{\"x\":1}"},{"id":"fc_","type":"function_call","status":"completed","call_id":"b","name":"g","arguments":"{}"}]`,
		}},
		{"an answer that is cut off", responseHello + `,"max_output_tokens":16}`, thinking(), map[string]string{
			"status": `"incomplete"`, "incomplete_details": `{"reason":"max_output_tokens"}`, "max_output_tokens": "16",
		}},
		{"what the request has", responseHello + `,"instructions":"Be brief.","metadata":{"a":"b"},"temperature":0.5,"tools":[{"type":"web_search"}],"text":{"format":{"type":"json_object"}}}`, &handlerstest.FakeEngine{}, map[string]string{
			"instructions": `"Be brief."`, "metadata": `{"a":"b"}`, "temperature": "0.5", "tools": `[{"type":"web_search"}]`, "text": `{"format":{"type":"json_object"}}`,
		}},
		{"log-probabilities", responseHello + `,"include":["message.output_text.logprobs"]}`, &handlerstest.FakeEngine{}, map[string]string{
			"output": "[" + strings.Replace(strings.Replace(message, "TEXT", "Hi", 1), `"logprobs":[]`, `"logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[]}]`, 1) + "]",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, c.engine), "/v1/responses", c.body)
			if got.Status != http.StatusOK {
				t.Fatalf("got %d: %s", got.Status, got.Body)
			}
			fields := responseOf(t, got.Body)
			for name, want := range c.want {
				if string(fields[name]) != want {
					t.Errorf("%s is %s, want %s", name, fields[name], want)
				}
			}
		})
	}
}

func TestResponses_AStreamHasItsEventsInOrder(t *testing.T) {
	got := handlerstest.Post(t, handlerstest.Server(t, calling("Let me look.")), "/responses", responseHello+`,"stream":true}`)
	type event struct {
		Type         string
		Sequence     int `json:"sequence_number"`
		OutputIndex  *int
		ContentIndex *int
		Delta        string
		Response     struct {
			Status string
			Output []struct{ Type string }
		}
	}
	want := []string{
		"response.created", "response.in_progress",
		"response.output_item.added", "response.content_part.added", "response.reasoning_text.delta Hm.", "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
		"response.output_item.added", "response.content_part.added", "response.output_text.delta Let me look.", "response.output_text.done", "response.content_part.done", "response.output_item.done",
		"response.output_item.added", `response.function_call_arguments.delta {"x"`, "response.function_call_arguments.delta :1}", "response.function_call_arguments.done", "response.output_item.done",
		"response.output_item.added", "response.function_call_arguments.delta {", "response.function_call_arguments.delta }", "response.function_call_arguments.done", "response.output_item.done",
		"response.completed",
	}
	var is []string
	var last event
	for i, data := range namedEvents(t, got.Body) {
		last = event{}
		if err := json.Unmarshal([]byte(data), &last); err != nil || last.Sequence != i {
			t.Errorf("event %d: %v: %s", i, err, data)
		}
		is = append(is, strings.TrimSpace(last.Type+" "+last.Delta))
	}
	if !slices.Equal(is, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(is, "\n"), strings.Join(want, "\n"))
	}
	if last.Response.Status != "completed" || len(last.Response.Output) != 4 {
		t.Errorf("the last event has %+v", last.Response)
	}
	const done = `data: {"item":{"id":"fc_","type":"function_call","status":"completed","call_id":"a","name":"f","arguments":"{\"x\":1}"},"output_index":2,`
	if !strings.Contains(replaceIDs(got.Body, "fc_"), done) {
		t.Errorf("the stream lacks %s: %s", done, got.Body)
	}
}

func TestResponses_AnEmptyAnswerIsAnEmptyMessage(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return handlerstest.Replay(handlerstest.DoneEvent(infer.FinishStop))
	}}
	for _, fields := range []string{"}", `,"stream":true}`} {
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/responses", responseHello+fields)
		if !strings.Contains(got.Body, `"content":[{"type":"output_text","text":"","annotations":[],"logprobs":[]}]`) {
			t.Errorf("got %s", got.Body)
		}
	}
}

func TestResponses_AFailureInAStreamIsAnEventOfBothForms(t *testing.T) {
	broken := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return failing(&fault.Error{Code: fault.CodeDevice, Message: "secret"}, handlerstest.WordEvent(1, "Hi"))
	}}
	events := namedEvents(t, handlerstest.Post(t, handlerstest.Server(t, broken), "/v1/responses", responseHello+`,"stream":true}`).Body)
	if n := len(events); n < 2 || !strings.Contains(events[n-2], `"code":"device","message":"the engine failed`) || !strings.Contains(events[n-1], `"error":{"code":"device","message":"the engine failed`) ||
		!strings.Contains(events[n-1], `"status":"failed"`) || strings.Contains(strings.Join(events, ""), "secret") {
		t.Errorf("got %s", strings.Join(events, "\n"))
	}
}

func TestResponses_TheRequestIsTheEngines(t *testing.T) {
	plain := infer.DefaultRequest()
	plain.Model, plain.ParseReply, plain.WholeCalls = "guide", true, true
	hi := chat.Message{Role: "user", Content: "Hello"}
	for _, c := range []struct {
		name, body string
		want       func(r *infer.Request)
	}{
		{"settings", responseHello + `,"instructions":"Be brief.","max_output_tokens":20,"temperature":0.5,"top_p":0.4,"seed":3,"reasoning":{"effort":"low","summary":"auto"},"store":true,"truncation":"auto","service_tier":"flex"}`, func(r *infer.Request) {
			r.MaxTokens, r.Params.Temperature, r.Params.TopP, r.Params.Seed = 20, 0.5, 0.4, 3
			r.Messages = []chat.Message{{Role: "system", Content: "Be brief."}, hi}
			r.TemplateVars = map[string]json.RawMessage{"reasoning_effort": json.RawMessage(`"low"`), "enable_thinking": json.RawMessage("true"), "thinking": json.RawMessage("true")}
		}},
		{"items, of which system prompts at the beginning become one and those of an answer one message", `{"model":"guide","instructions":"A","input":[
			{"type":"message","role":"developer","content":[{"type":"input_text","text":"B"}]},{"role":"user","content":"Hello"},
			{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}],"encrypted_content":null},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me look.","annotations":[]}],"status":"completed"},
			{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"x\":1}"},{"type":"function_call","call_id":"b","name":"g","arguments":"{}"},
			{"type":"function_call_output","call_id":"a","output":"1"},{"type":"function_call_output","call_id":"b","output":[{"type":"input_text","text":"2"}]},
			{"type":"reasoning","summary":[{"type":"summary_text","text":"So."}]},{"role":"assistant","content":"Done."},{"role":"assistant","content":"Really."}]}`, func(r *infer.Request) {
			r.Messages = []chat.Message{{Role: "system", Content: "A\n\nB"}, hi,
				{Role: "assistant", ReasoningContent: "Hm.", Content: "Let me look.", ToolCalls: json.RawMessage(`[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`)},
				{Role: "tool", Content: "1", ToolCallID: "a"}, {Role: "tool", Content: "2", ToolCallID: "b"},
				{Role: "assistant", ReasoningContent: "So.", Content: "Done."}, {Role: "assistant", Content: "Really."}}
		}},
		{"functions, beside which other tools are ignored", responseHello + `,"tools":[{"type":"local_shell"},{"type":"web_search"},
			{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}],"tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false}`, func(r *infer.Request) {
			r.Messages, r.ToolChoice, r.SingleCall = []chat.Message{hi}, "f", true
			r.Tools = json.RawMessage(`[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}]`)
		}},
		{"no tools but those of OpenAI", responseHello + `,"tools":[{"type":"web_search"}],"tool_choice":"auto"}`, func(r *infer.Request) { r.Messages = []chat.Message{hi} }},
		{"a schema", responseHello + `,"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"array"},"strict":true},"verbosity":"low"}}`, func(r *infer.Request) {
			r.Messages, r.JSONSchema, r.StrictSchema = []chat.Message{hi}, json.RawMessage(`{"type":"array"}`), true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine, asked := captured()
			if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/responses", c.body); got.Status != http.StatusOK {
				t.Fatalf("got %d: %s", got.Status, got.Body)
			}
			want := plain
			c.want(&want)
			sameRequest(t, *asked, want)
		})
	}
}

func TestResponses_WhatIsNotSupportedIsRefused(t *testing.T) {
	for body, want := range map[string][2]string{
		`{"input":"x","previous_response_id":"resp_1"}`: {"previous_response_id", "stores no responses"},
		`{"input":"x","conversation":"conv_1"}`:         {"conversation", "stores no responses"},
		`{"input":"x","background":true}`:               {"background", "not supported"},
		`{"input":"x","prompt":{"id":"p"}}`:             {"prompt", "stores no prompts"},
		`{}`:                                            {"input", "must be a string or an array"},
		`{"input":[]}`:                                  {"input", "at least one message"},
		`{"instructions":"x","input":[{"role":"system","content":"x"}]}`:                 {"input", "at least one message"},
		`{"input":[{"type":"item_reference","id":"x"}]}`:                                 {"input[0].type", "item_reference"},
		`{"input":[{"type":"computer_call"}]}`:                                           {"input[0].type", "must be message, function_call"},
		`{"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`: {"input[0].content[0].image_url", "must be a data: URL"},
		`{"input":[{"type":"function_call","name":"f"}]}`:                                {"input[0]", "must have a call_id and a name"},
		`{"input":"x","text":{"format":{"type":"xml"}}}`:                                 {"text.format.type", "must be text, json_object or json_schema"},
		`{"input":"x","text":{"format":{"type":"json_schema"}}}`:                         {"text.format.schema", "is missing"},
		`{"input":"x","tool_choice":{"type":"web_search"}}`:                              {"tool_choice", "must be"},
		`{"input":"x","tool_choice":"required","tools":[{"type":"web_search"}]}`:         {"tool_choice", "tools is empty"},
		`{"input":"x","tools":[{"type":"function","name":"a b"}]}`:                       {"tools[0].name", "1 to 128"},
		`{"input":"x","max_output_tokens":0}`:                                            {"max_output_tokens", "from 1 to"},
		`{"input":"x","temperature":-1}`:                                                 {"temperature", "temperature"},
	} {
		got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/responses", body)
		if e := parseError(t, got); got.Status != http.StatusBadRequest || e.Param == nil || *e.Param != want[0] || !strings.Contains(e.Message, want[1]) {
			t.Errorf("%s: got %d: %s", body, got.Status, got.Body)
		}
	}
}
