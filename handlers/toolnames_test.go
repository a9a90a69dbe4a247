package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// echoing calls each tool that it is offered, by the name that it was given, with arguments.
func echoing(t *testing.T, arguments string) (*handlerstest.FakeEngine, *infer.Request) {
	var last infer.Request
	return &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		last = r
		tools, err := reply.ParseTools(r.Tools)
		if err != nil {
			t.Error(err)
		}
		done := handlerstest.DoneEvent(infer.FinishCalls)
		for i, tool := range tools {
			done.Done.Calls = append(done.Done.Calls, reply.CallDelta{Index: i, ID: fmt.Sprint("id", i), Name: tool.Name, Arguments: arguments})
		}
		return handlerstest.Replay(done)
	}}, &last
}

// Each API has names that formats of calls cannot hold: the model gets others, the client sees its own.
func TestTools_NamesOfEachAPIComeBackAsTheyWere(t *testing.T) {
	long := "mcp__" + strings.Repeat("x", 100)
	for _, names := range [][2]string{{"files.read", "files/read"}, {long + "1", long + "2"}, {"a_b", "a.b"}} {
		for _, c := range []struct{ path, body, tool, history string }{
			{"/v1/chat/completions", hello, `{"type":"function","function":{"name":"NAME","parameters":{}}}`,
				`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"NAME","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}`},
			{"/v1/responses", `{"input":[{"role":"user","content":"Hello"}]}`, `{"type":"function","name":"NAME"}`,
				`{"type":"function_call","call_id":"c","name":"NAME","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}`},
			{"/v1/messages", claudeHello + `}`, `{"name":"NAME","input_schema":{"type":"object"}}`,
				`{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"NAME","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}`},
			{"/api/chat", hello, `{"type":"function","function":{"name":"NAME"}}`,
				`{"role":"assistant","tool_calls":[{"function":{"name":"NAME","arguments":{}}}]},{"role":"tool","tool_name":"NAME","content":"x"}`},
		} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %.12s… stream %t", c.path, names[1], stream), func(t *testing.T) {
					engine, asked := echoing(t, "{}")
					offered := strings.ReplaceAll(c.tool, "NAME", names[0]) + "," + strings.ReplaceAll(c.tool, "NAME", names[1])
					body := strings.Replace(c.body, "}]", "},"+strings.ReplaceAll(c.history, "NAME", names[1])+"]", 1)
					body = strings.TrimSuffix(body, "}") + fmt.Sprintf(`,"stream":%t,"tools":[%s]}`, stream, offered)
					got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, body)
					if got.Status != http.StatusOK || !strings.Contains(got.Body, fmt.Sprintf(`"name":%q`, names[0])) || !strings.Contains(got.Body, fmt.Sprintf(`"name":%q`, names[1])) {
						t.Fatalf("got %d: %s", got.Status, got.Body)
					}
					tools, err := reply.ParseTools(asked.Tools)
					if err != nil || tools[0].Name == tools[1].Name {
						t.Errorf("the engine was offered %+v (%v)", tools, err)
					}
					for _, tool := range tools {
						if strings.ContainsAny(tool.Name, "./") || len(tool.Name) > 64 {
							t.Errorf("the engine was offered %q", tool.Name)
						}
					}
					whole, err := json.Marshal(asked.Messages)
					if err != nil || strings.Contains(string(whole), names[1]) || !strings.Contains(string(whole), tools[1].Name) {
						t.Errorf("the conversation has other names than the tools: %s (%v)", whole, err)
					}
				})
			}
		}
	}
}

func TestTools_ErrorsNameTheFieldsOfTheRequest(t *testing.T) {
	for _, c := range []struct{ path, body, param string }{
		{"/v1/chat/completions", chatBody(`"tools":[{"type":"function","function":{"name":"a b"}}]`), "tools[0].function.name"},
		{"/v1/chat/completions", chatBody(`"tools":[{"type":"custom","custom":{"name":""}}]`), "tools[0].custom.name"},
		{"/v1/chat/completions", chatBody(`"functions":[{"name":"f"},{"name":"f"}]`), "functions[1].name"},
		{"/v1/chat/completions", chatBody(`"functions":[{"name":"f"}],"function_call":"always"`), "function_call"},
		{"/v1/responses", responseHello + `,"tools":[{"type":"web_search"},{"type":"function","name":"f","parameters":[]}]}`, "tools[1].parameters"},
		{"/v1/messages", claudeHello + `,"tools":[{"type":"bash_20250124","name":"bash"},{"name":"a b","input_schema":{}}]}`, "tools[1].name"},
		{"/v1/messages", claudeHello + `,"tools":[{"name":"f","input_schema":[]}]}`, "tools[0].input_schema"},
		{"/v1/messages", claudeHello + `,"tools":[{"name":"f"}],"tool_choice":{"type":"tool"}}`, "tool_choice.name"},
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), c.path, c.body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, c.param) || strings.Contains(got.Body, "function.name") && !strings.Contains(c.param, "function.name") {
			t.Errorf("%s %s: got %d: %s", c.path, c.body, got.Status, got.Body)
		}
	}
}

// Clients from before there were tools send functions and read function_call.
func TestTools_FunctionsAreToolsOfWhichOneIsCalled(t *testing.T) {
	const functions = `"functions":[{"name":"f","description":"d","parameters":{"type":"object"}},{"name":"g.h"}]`
	engine, asked := echoing(t, `{"x":1}`)
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(functions+`,"function_call":{"name":"g.h"}`))
	for _, want := range []string{`"function_call":{"name":"f","arguments":"{\"x\":1}"}`, `"finish_reason":"function_call"`} {
		if !strings.Contains(got.Body, want) || strings.Contains(got.Body, "tool_calls") {
			t.Errorf("got %s, want %s", got.Body, want)
		}
	}
	if !asked.SingleCall || asked.ToolChoice != "g_h" || !strings.Contains(string(asked.Tools), `{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}`) {
		t.Errorf("the engine was asked %+v", asked)
	}
	got = handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(functions+`,"stream":true`))
	for _, want := range []string{`"delta":{"function_call":{"name":"f","arguments":"{\"x\":1}"}}`, `"finish_reason":"function_call"`} {
		if !strings.Contains(got.Body, want) {
			t.Errorf("got %s, want %s", got.Body, want)
		}
	}
	for choice, want := range map[string]string{`"none"`: "", `"auto"`: "f"} {
		if handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", chatBody(functions+`,"function_call":`+choice)); strings.Contains(string(asked.Tools), `"f"`) != (want != "") || asked.ToolChoice != "" {
			t.Errorf("function_call %s: the engine was asked %+v", choice, asked)
		}
	}
}

func TestTools_AChoiceMayAllowSome(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
	const flat = `"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]`
	for _, c := range []struct{ path, body, choice, forced, param string }{
		{"/v1/chat/completions", chatBody(tools + `,"tool_choice":CHOICE`), `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}`, "", ""},
		{"/v1/chat/completions", chatBody(tools + `,"tool_choice":CHOICE`), `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}`, "required", ""},
		{"/v1/responses", responseHello + "," + flat + `,"tool_choice":CHOICE}`, `{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}`, "required", ""},
		{"/v1/responses", responseHello + "," + flat + `,"tool_choice":CHOICE}`, `{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"h"}]}`, "", "not among the tools"},
		{"/v1/responses", responseHello + "," + flat + `,"tool_choice":CHOICE}`, `{"type":"allowed_tools","mode":"some","tools":[{"type":"function","name":"f"}]}`, "", "must be"},
		{"/v1/chat/completions", chatBody(tools + `,"tool_choice":CHOICE`), `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`, "", "must be"},
	} {
		engine, asked := echoing(t, "{}")
		got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, strings.Replace(c.body, "CHOICE", c.choice, 1))
		if c.param != "" {
			if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, c.param) {
				t.Errorf("%s: got %d: %s", c.choice, got.Status, got.Body)
			}
			continue
		}
		if got.Status != http.StatusOK || asked.ToolChoice != c.forced || strings.Contains(string(asked.Tools), `"f"`) || !strings.Contains(string(asked.Tools), `"g"`) {
			t.Errorf("%s: got %d, the engine was asked %s %q", c.choice, got.Status, asked.Tools, asked.ToolChoice)
		}
	}
}

// Tools of type custom take a text, which has to come back as the one text of a call.
func TestTools_CustomToolsTakeText(t *testing.T) {
	engine, asked := echoing(t, `{"input":"*** Begin\n\"x\""}`)
	s := handlerstest.Server(t, engine)
	const history = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"patch","input":"old"}}]},{"role":"tool","tool_call_id":"c","content":"done"}],`
	const tools = `"tools":[{"type":"custom","custom":{"name":"patch","description":"Edits.","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"start: /x/"}}}}]`
	const shown = `{"index":0,"id":"id0","type":"custom","custom":{"name":"patch","input":"*** Begin\n\"x\""}}`
	if got := handlerstest.Post(t, s, "/v1/chat/completions", history+tools+`}`); !strings.Contains(got.Body, `"tool_calls":[`+strings.Replace(shown, `"index":0,`, "", 1)+`]`) {
		t.Errorf("got %s", got.Body)
	}
	if got := handlerstest.Post(t, s, "/v1/chat/completions", history+tools+`,"stream":true}`); !strings.Contains(got.Body, `"tool_calls":[`+shown+`]`) || !asked.WholeCalls {
		t.Errorf("got %s", got.Body)
	}
	if call := string(asked.Messages[1].ToolCalls); call != `[{"id":"c","type":"function","function":{"name":"patch","arguments":"{\"input\":\"old\"}"}}]` || !strings.Contains(string(asked.Tools), "start: /x/") {
		t.Errorf("the engine was asked %s with %s", call, asked.Tools)
	}
	const items = `{"input":[{"role":"user","content":"a"},{"type":"custom_tool_call","call_id":"c","name":"patch","input":"old"},{"type":"custom_tool_call_output","call_id":"c","output":"done"}],"tools":[{"type":"custom","name":"patch","format":{"type":"grammar","syntax":"lark","definition":"start: /x/"}}]`
	whole := replaceIDs(handlerstest.Post(t, s, "/v1/responses", items+`}`).Body, "ctc_")
	if !strings.Contains(whole, `{"id":"ctc_","type":"custom_tool_call","status":"completed","call_id":"id0","name":"patch","input":"*** Begin\n\"x\""}`) {
		t.Errorf("got %s", whole)
	}
	if call := string(asked.Messages[1].ToolCalls); !strings.Contains(call, `{\"input\":\"old\"}`) || !strings.Contains(string(asked.Tools), "start: /x/") {
		t.Errorf("the engine was asked %s with %s", call, asked.Tools)
	}
	stream := strings.Join(namedEvents(t, handlerstest.Post(t, s, "/v1/responses", items+`,"stream":true}`).Body, "ctc_"), "\n")
	for _, want := range []string{`"delta":"*** Begin\n\"x\"","item_id":"ctc_"`, `"input":"*** Begin\n\"x\"","item_id":"ctc_"`, "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"} {
		if !strings.Contains(stream, want) {
			t.Errorf("the stream lacks %s: %s", want, stream)
		}
	}
}
