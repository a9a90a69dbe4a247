package upstream

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

func TestToolsForATemplateThatShowsNoneStandInThePromptAndCallsInTheText(t *testing.T) {
	s := llamaServer(false).serve(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		stream(w, roleChunk, word("I ask. <tool_"), word("call>\n{\"name\": \"weather\", \"arguments\": {\"pla"), word("ce\": \"Rome\"}}\n</tool_call>"), stopChunk, "[DONE]")
	})
	r := routerTo(t, s)
	asked := question("Is it warm in Rome?")
	asked.Tools = []byte(oneTool)
	got := write(t, r, asked)
	if got.err != nil || strings.TrimSpace(got.text) != "I ask." || strings.Join(got.calls, "") != `weather{"place": "Rome"}` || got.done.Reason != infer.FinishCalls {
		t.Fatalf("got %+v", got)
	}
	messages := s.last()["messages"].([]any)
	system := messages[0].(map[string]any)
	if s.last()["tools"] != nil || system["role"] != "system" || !strings.Contains(system["content"].(string), `"name":"weather"`) {
		t.Errorf("sent was %v", s.last())
	}
	asked.WholeCalls, asked.SingleCall = true, true
	if got := write(t, r, asked); got.err != nil || strings.Join(got.calls, "|") != `weather{"place": "Rome"}` {
		t.Errorf("as a whole, the calls are %v: %v", got.calls, got.err)
	}
	asked.Messages = append(asked.Messages, chat.Message{Role: "assistant", ToolCalls: []byte(`[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"place\":\"Rome\"}"}}]`)}, chat.Message{Role: "tool", ToolCallID: "c1", Content: "Sunny"})
	write(t, r, asked)
	messages = s.last()["messages"].([]any)
	call, result := messages[2].(map[string]any), messages[3].(map[string]any)
	if !strings.Contains(call["content"].(string), `{"name": "weather"`) || call["tool_calls"] != nil || result["role"] != "user" || !strings.Contains(result["content"].(string), "Sunny") {
		t.Errorf("the call became %v, its result %v", call, result)
	}
	asked.ToolChoice = infer.ToolChoiceNone
	if got := write(t, r, asked); got.calls != nil || !strings.Contains(got.text, "<tool_call>") || strings.Contains(s.last()["messages"].([]any)[0].(map[string]any)["content"].(string), "weather") {
		t.Errorf("without a choice of tools, got %+v", got)
	}
	before := s.count()
	asked.ToolChoice = infer.ToolChoiceRequired
	if code, text := write(t, r, asked).code(); code != fault.CodeInvalid || !strings.Contains(text, "cannot force a call, because the chat template of its model shows no tools") || s.count() != before {
		t.Errorf("a call that is required got %v %s", code, text)
	}
}

func TestToolsForATemplateThatShowsThemAreSent(t *testing.T) {
	for _, engine := range []*strict{llamaServer(true), vLLM()} {
		s := engine.serve(t, greets)
		asked := question("Hi")
		asked.Tools = []byte(oneTool)
		if got := write(t, routerTo(t, s), asked); got.err != nil || s.last()["tools"] == nil || len(s.last()["messages"].([]any)) != 1 {
			t.Errorf("%s got %v: %v", engine.name, s.last(), got.err)
		}
	}
}

func TestAModelKeepsTheTimeAtWhichItWasSeenFirst(t *testing.T) {
	s := llamaServer(true).serve(t, greets)
	r := routerTo(t, s)
	first := r.Status().Remote[0].ModifiedUnix
	s.mu.Lock()
	s.models = strings.ReplaceAll(s.models, "1795881601", "1795889999")
	s.mu.Unlock()
	if _, err := r.servers[0].check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := r.Status().Remote[0].ModifiedUnix; now != first || first != 1795881601 {
		t.Errorf("the time was %d, and is %d", first, now)
	}
	if up := r.Status().Remote[0].Upstream; !up.Tools || up.ContextLength != 2048 || up.Engine != "llama-server b9000-0c1e570" {
		t.Errorf("the model is %+v", up)
	}
}

func TestAnEngineBuiltByFastAPIIsCalledByItsOwnName(t *testing.T) {
	for version, want := range map[string]string{`{"version":"0.32.0"}`: "vLLM 0.32.0", `{"version":7}`: "vLLM", "": "vLLM", "<html>": "vLLM"} {
		s := vLLM()
		s.routes["/version"] = version
		if up := routerTo(t, s.serve(t, greets)).Status().Remote[0].Upstream; up.Engine != want || up.ContextLength != 2048 {
			t.Errorf("with the version %s, the model is %+v", version, up)
		}
	}
}

func TestAServerWhoseVersionCannotBeAskedForIsUsedAndAskedAgain(t *testing.T) {
	s := vLLM().serve(t, greets)
	serve := s.Config.Handler
	var knows atomic.Bool
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" && !knows.Load() {
			http.Error(w, "the version is not known", http.StatusInternalServerError)
			return
		}
		serve.ServeHTTP(w, r)
	})
	r := routerTo(t, s)
	if up := r.Status().Remote[0].Upstream; up.Engine != "vLLM" || up.ContextLength != 2048 || up.Problem != "" {
		t.Errorf("the model is %+v", up)
	}
	knows.Store(true)
	eventually(t, "the engine is called by its version", func() bool { return r.Status().Remote[0].Upstream.Engine == "vLLM 0.32.0" })
	if up := r.Status().Remote[0].Upstream; up.ContextLength != 2048 || !up.Tools {
		t.Errorf("the model is %+v", up)
	}
}
