package handlers_test

import (
	"context"
	"encoding/json"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// ollamaLines parses a stream, without the fields that no two responses share.
func ollamaLines(t *testing.T, body string) (lines []string) {
	t.Helper()
	if !strings.HasSuffix(body, "}\n") || strings.Contains(body, "\n\n") {
		t.Fatalf("the stream has a blank line, or no end: %q", body)
	}
	for line := range strings.Lines(body) {
		lines = append(lines, withoutTimes(t, line))
	}
	return lines
}

// withoutTimes returns a response without its times, which must be there.
func withoutTimes(t *testing.T, line string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatalf("%q is not JSON: %v", line, err)
	}
	if _, err := time.Parse(time.RFC3339, fields["created_at"].(string)); err != nil {
		t.Errorf("created_at: %v", err)
	}
	delete(fields, "created_at")
	if fields["done_reason"] != nil && fields["done_reason"] != "load" && fields["done_reason"] != "unload" {
		for _, name := range []string{"total_duration", "load_duration", "prompt_eval_duration", "eval_duration", "queue_duration"} {
			if _, ok := fields[name].(float64); !ok {
				t.Errorf("%s is missing in %s", name, line)
			}
			delete(fields, name)
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

const ollamaHello = `{"model":"guide","messages":[{"role":"user","content":"Hello"}]`

func TestOllama_Answers(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		engine           *handlerstest.FakeEngine
		want             []string
	}{
		{"a chat is a stream unless the request says otherwise", "/api/chat", ollamaHello + "}", nil, []string{
			`{"done":false,"message":{"content":"Hi","role":"assistant"},"model":"guide"}`,
			`{"done":true,"done_reason":"stop","eval_count":2,"message":{"content":"","role":"assistant"},"model":"guide","prompt_cached_count":3,"prompt_eval_count":7}`,
		}},
		{"a whole chat", "/api/chat", ollamaHello + `,"stream":false}`, nil, []string{
			`{"done":true,"done_reason":"stop","eval_count":2,"message":{"content":"Hi","role":"assistant"},"model":"guide","prompt_cached_count":3,"prompt_eval_count":7}`,
		}},
		{"thinking and calls, whose arguments are objects", "/api/chat", ollamaHello + `,"stream":false}`, calling("Let me look."), []string{
			`{"done":true,"done_reason":"stop","eval_count":2,"message":{"content":"Let me look.","role":"assistant","thinking":"Hm.","tool_calls":[` +
				`{"function":{"arguments":{"x":1},"index":0,"name":"f"},"id":"a"},{"function":{"arguments":{},"index":1,"name":"g"},"id":"b"}]},"model":"guide","prompt_cached_count":3,"prompt_eval_count":7}`,
		}},
		{"a completion", "/api/generate", `{"name":"guide:latest","prompt":"Hello"}`, nil, []string{
			`{"done":false,"model":"guide","response":"Hi"}`,
			`{"done":true,"done_reason":"stop","eval_count":2,"model":"guide","prompt_cached_count":3,"prompt_eval_count":7,"response":""}`,
		}},
		{"a whole completion that thinks", "/api/generate", `{"prompt":"Hello","stream":false}`, thinking(), []string{
			`{"done":true,"done_reason":"length","eval_count":2,"model":"guide","prompt_cached_count":3,"prompt_eval_count":7,"response":"Yes.","thinking":"Hm."}`,
		}},
		{"a chat without messages loads its model", "/api/chat", `{"model":"guide"}`, nil, []string{
			`{"done":true,"done_reason":"load","message":{"content":"","role":"assistant"},"model":"guide"}`,
		}},
		{"a completion without a prompt loads its model", "/api/generate", `{"model":"guide","keep_alive":"10m"}`, nil, []string{
			`{"done":true,"done_reason":"load","model":"guide","response":""}`,
		}},
		{"a completion without a prompt unloads its model", "/api/generate", `{"model":"guide","keep_alive":0}`, nil, []string{
			`{"done":true,"done_reason":"unload","model":"guide","response":""}`,
		}},
		{"log-probabilities", "/api/chat", ollamaHello + `,"logprobs":true,"stream":false}`, nil, []string{
			`{"done":true,"done_reason":"stop","eval_count":2,"logprobs":[{"bytes":[72,105],"logprob":-0.5,"token":"Hi","top_logprobs":[]}],"message":{"content":"Hi","role":"assistant"},"model":"guide","prompt_cached_count":3,"prompt_eval_count":7}`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine := c.engine
			if engine == nil {
				engine = &handlerstest.FakeEngine{}
			}
			got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, c.body, "Content-Type", "text/plain")
			if got.Status != http.StatusOK {
				t.Fatalf("got %d: %s", got.Status, got.Body)
			}
			if lines := ollamaLines(t, got.Body); !slices.Equal(lines, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// thinking is an engine that thinks before it says something, and is cut off.
func thinking() *handlerstest.FakeEngine {
	return &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		thought := handlerstest.WordEvent(1, "")
		thought.Token.Reasoning = "Hm."
		return handlerstest.Replay(thought, handlerstest.WordEvent(2, "Yes."), handlerstest.DoneEvent(infer.FinishLength))
	}}
}

func TestOllama_TheRequestIsTheEngines(t *testing.T) {
	message := func(role, content string) chat.Message { return chat.Message{Role: role, Content: content} }
	plain := infer.DefaultRequest()
	plain.Model, plain.ParseReply, plain.WholeCalls = "guide", true, true
	with := func(change func(r *infer.Request)) infer.Request {
		r := plain
		change(&r)
		return r
	}
	hi := []chat.Message{message("user", "Hello")}
	variables := func(pairs ...string) map[string]json.RawMessage {
		vars := map[string]json.RawMessage{}
		for i := 0; i < len(pairs); i += 2 {
			vars[pairs[i]] = json.RawMessage(pairs[i+1])
		}
		return vars
	}
	for _, c := range []struct {
		name, path, body string
		want             infer.Request
	}{
		{"options have the names of the sampler settings, and others are ignored", "/api/chat",
			ollamaHello + `,"options":{"temperature":0.3,"top_k":5,"top_p":0.5,"min_p":0.1,"typical_p":0.9,"repeat_last_n":10,"repeat_penalty":1.1,"presence_penalty":0.2,"frequency_penalty":0.3,"seed":4.0,"stop":["a","b"],"num_predict":9,"num_ctx":131072,"num_gpu":1,"use_mmap":true}}`,
			with(func(r *infer.Request) {
				p := &r.Params
				p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP, p.RepeatLastN, p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty, p.Seed = 0.3, 5, 0.5, 0.1, 0.9, 10, 1.1, 0.2, 0.3, 4
				r.Messages, r.Stop, r.MaxTokens = hi, []string{"a", "b"}, 9
			})},
		{"num_predict -2 fills the context", "/api/chat", ollamaHello + `,"options":{"num_predict":-2}}`, with(func(r *infer.Request) { r.Messages = hi })},
		{"format json is any object", "/api/chat", ollamaHello + `,"format":"json"}`, with(func(r *infer.Request) {
			r.Messages, r.JSONSchema = hi, json.RawMessage(`{"type":"object"}`)
		})},
		{"format is a schema", "/api/chat", ollamaHello + `,"format":{"type":"array"}}`, with(func(r *infer.Request) {
			r.Messages, r.JSONSchema = hi, json.RawMessage(`{"type":"array"}`)
		})},
		{"think false", "/api/chat", ollamaHello + `,"think":false}`, with(func(r *infer.Request) {
			r.Messages, r.TemplateVars = hi, variables("enable_thinking", "false", "thinking", "false")
		})},
		{"think has levels", "/api/chat", ollamaHello + `,"think":"max"}`, with(func(r *infer.Request) {
			r.Messages, r.TemplateVars = hi, variables("enable_thinking", "true", "thinking", "true", "reasoning_effort", `"high"`)
		})},
		{"tools, and calls without ids", "/api/chat", `{"model":"guide","tools":[{"type":"function","function":{"name":"f"}}],"messages":[
			{"role":"user","content":"Hello"},
			{"role":"assistant","content":"","thinking":"Hm.","tool_calls":[{"function":{"name":"f","arguments":{"x":1}}},{"function":{"name":"g","arguments":{}}}]},
			{"role":"tool","content":"2","tool_name":"g"},{"role":"tool","content":"1","tool_name":"f"}]}`,
			with(func(r *infer.Request) {
				r.Tools = json.RawMessage(`[{"type":"function","function":{"name":"f"}}]`)
				r.Messages = []chat.Message{hi[0],
					{Role: "assistant", ReasoningContent: "Hm.", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":{"x":1}},"id":"call00001","type":"function"},{"function":{"name":"g","arguments":{}},"id":"call00002","type":"function"}]`)},
					{Role: "tool", Content: "2", Name: "g", ToolCallID: "call00002"}, {Role: "tool", Content: "1", Name: "f", ToolCallID: "call00001"}}
			})},
		{"a completion is a chat of one message", "/api/generate", `{"model":"guide","prompt":"Hello","system":"Be brief."}`,
			with(func(r *infer.Request) { r.Messages = []chat.Message{message("system", "Be brief."), hi[0]} })},
		{"a raw completion is its prompt", "/api/generate", `{"model":"guide","prompt":"Hello","raw":true}`,
			with(func(r *infer.Request) { r.Prompt, r.ParseReply, r.WholeCalls = "Hello", false, false })},
		{"a request that loads computes no more than it must", "/api/chat", `{"model":"guide","messages":[]}`,
			with(func(r *infer.Request) { r.Prompt, r.MaxTokens, r.ParseReply, r.WholeCalls = ".", 1, false, false })},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine, asked := captured()
			if got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, c.body); got.Status != http.StatusOK {
				t.Fatalf("got %d: %s", got.Status, got.Body)
			}
			sameRequest(t, *asked, c.want)
		})
	}
}

func TestOllama_WhatIsWrongIsAString(t *testing.T) {
	unknown := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return failing(&fault.Error{Code: fault.CodeNotFound, Param: "model", Message: "there is no such model"})
	}}
	broken := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return failing(&fault.Error{Code: fault.CodeDevice, Message: "secret"}, handlerstest.WordEvent(1, "Hi"))
	}}
	for _, c := range []struct {
		name, method, path, body string
		engine                   *handlerstest.FakeEngine
		status                   int
		want                     string
	}{
		{"an unknown model", "POST", "/api/chat", `{"model":"none","messages":[{"role":"user","content":"x"}]}`, unknown, 404, "model 'none' not found: "},
		{"an unknown model is shown", "POST", "/api/show", `{"name":"none"}`, nil, 404, "model 'none' not found: "},
		{"no model is shown", "POST", "/api/show", `{}`, nil, 400, "model is missing"},
		{"a body that is not JSON", "POST", "/api/chat", `{`, nil, 400, "not valid JSON"},
		{"a role", "POST", "/api/chat", `{"messages":[{"role":"king"}]}`, nil, 400, "messages[0].role must be"},
		{"an image", "POST", "/api/chat", `{"messages":[{"role":"user","content":"x","images":["aGk="]}]}`, nil, 400, "cannot see pictures"},
		{"an image of a completion", "POST", "/api/generate", `{"prompt":"x","images":["aGk="]}`, nil, 400, "cannot see pictures"},
		{"a temperature", "POST", "/api/chat", ollamaHello + `,"options":{"temperature":-1}}`, nil, 400, "temperature"},
		{"an option of the wrong type", "POST", "/api/chat", ollamaHello + `,"options":{"top_k":"many"}}`, nil, 400, "options.top_k must be a whole number"},
		{"num_predict", "POST", "/api/chat", ollamaHello + `,"options":{"num_predict":-9}}`, nil, 400, "num_predict must be"},
		{"a format", "POST", "/api/chat", ollamaHello + `,"format":"yaml"}`, nil, 400, "format must be"},
		{"think", "POST", "/api/chat", ollamaHello + `,"think":"hard"}`, nil, 400, "think must be true, false, low"},
		{"keep_alive", "POST", "/api/chat", ollamaHello + `,"keep_alive":"long"}`, nil, 400, "keep_alive must be"},
		{"a tool", "POST", "/api/chat", ollamaHello + `,"tools":[{"type":"function"}]}`, nil, 400, "tools[0].function is missing"},
		{"a template", "POST", "/api/generate", `{"prompt":"x","template":"{{ .Prompt }}"}`, nil, 400, "template is not supported"},
		{"a context", "POST", "/api/generate", `{"prompt":"x","context":[1]}`, nil, 400, "context is not supported"},
		{"a gap, where the vocabulary has no tokens for it", "POST", "/api/generate", `{"prompt":"x","suffix":"y"}`, nil, 400, "cannot fill in the middle"},
		{"embeddings", "POST", "/api/embed", `{"model":"guide","input":"x"}`, noEmbedder, 400, "names no pooling"},
		{"embeddings of an unknown model", "POST", "/api/embeddings", `{"model":"none","prompt":"x"}`, unknownEmbedder, 404, "model 'none' not found"},
		{"embeddings kept for a time that is none", "POST", "/api/embed", `{"input":"x","keep_alive":"long"}`, nil, 400, "keep_alive must be"},
		{"a route that does not exist", "POST", "/api/push", `{}`, nil, 404, "the routes below are supported"},
		{"a method", "GET", "/api/chat", "", nil, 405, "supports POST, not GET"},
		{"an answer that fails before it begins", "POST", "/api/chat", ollamaHello + "}", unknown, 404, "not found"},
		{"an answer that fails later", "POST", "/api/chat", ollamaHello + "}", broken, 200, "the engine failed on this request"},
		{"a name to pull", "POST", "/api/pull", `{}`, nil, 400, "model is missing"},
		{"a server without a models folder pulls nothing", "POST", "/api/pull", `{"model":"a/b","stream":false}`, nil, 409, "without a models folder"},
		{"nor in a stream", "POST", "/api/pull", `{"model":"a/b"}`, nil, 200, "without a models folder"},
		{"nor does it delete", "DELETE", "/api/delete", `{"model":"guide"}`, nil, 409, "without a models folder"},
		{"nor copy", "POST", "/api/copy", `{"source":"guide","destination":"x"}`, nil, 409, "without a models folder"},
		{"a copy without a name", "POST", "/api/copy", `{"source":"guide"}`, nil, 400, "source and destination"},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine := c.engine
			if engine == nil {
				engine = &handlerstest.FakeEngine{}
			}
			got := handlerstest.Call(t, handlerstest.Server(t, engine), c.method, c.path, c.body)
			lines := slices.Collect(strings.Lines(strings.TrimSuffix(got.Body, "\n")))
			var e struct{ Error string }
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || got.Status != c.status || !strings.Contains(e.Error, c.want) || strings.Contains(got.Body, "secret") {
				t.Errorf("got %d (%v): %s", got.Status, err, got.Body)
			}
		})
	}
	locked := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { handlerstest.Lock(t, c, "k") })
	if got := handlerstest.Call(t, locked, http.MethodGet, "/api/tags", ""); got.Status != http.StatusUnauthorized || !strings.HasPrefix(got.Body, `{"error":"`) {
		t.Errorf("without the key: got %d: %s", got.Status, got.Body)
	}
	if got := handlerstest.Call(t, locked, http.MethodGet, "/api/tags", "", "Authorization", "Bearer k"); got.Status != http.StatusOK {
		t.Errorf("with the key: got %d: %s", got.Status, got.Body)
	}
}

func TestOllama_Models(t *testing.T) {
	engine := &handlerstest.FakeEngine{
		OnModels: func(context.Context) ([]infer.ModelInfo, error) {
			return []infer.ModelInfo{
				{Name: "small", Path: "/secret", Size: 10, ModifiedUnix: 1700000000, Architecture: "qwen2", Quant: "Q8_0", Parameters: 494_030_000, ContextTrain: 32768, Sampling: &sample.Suggestion{}},
				{Name: "broken", Error: "corrupt"},
			}, nil
		},
	}
	s := handlerstest.Server(t, engine)
	const details = `{"parent_model":"","format":"gguf","family":"qwen2","families":["qwen2"],"parameter_size":"494.03M","quantization_level":"Q8_0","context_length":32768}`
	tags := handlerstest.Call(t, s, http.MethodGet, "/api/tags", "")
	var list struct{ Models []struct{ Digest string } }
	if err := json.Unmarshal([]byte(tags.Body), &list); err != nil || len(list.Models) != 1 || len(list.Models[0].Digest) != 64 {
		t.Fatalf("got %v: %s", err, tags.Body)
	}
	digest := list.Models[0].Digest
	sameJSON(t, tags.Body, `{"models":[{"name":"small","model":"small","modified_at":"2023-11-14T22:13:20Z","size":10,"digest":"`+digest+`","details":`+details+`,"capabilities":["completion","tools"]}]}`)
	shown := handlerstest.Call(t, s, http.MethodPost, "/api/show", `{"model":"small:latest","verbose":true}`)
	sameJSON(t, shown.Body, `{"modelfile":"# This model is the file small.gguf\nFROM small","parameters":"num_ctx                        32768","template":"","details":`+details+
		`,"model_info":{"general.architecture":"qwen2","general.parameter_count":494030000,"qwen2.context_length":32768},"capabilities":["completion","tools"],"modified_at":"2023-11-14T22:13:20Z"}`)
	sameJSON(t, handlerstest.Call(t, handlerstest.Server(t, &handlerstest.FakeEngine{OnModels: func(context.Context) ([]infer.ModelInfo, error) { return nil, nil }}), http.MethodGet, "/api/tags", "").Body, `{"models":[]}`)
	running := handlerstest.Call(t, s, http.MethodGet, "/api/ps", "")
	for _, want := range []string{`"name":"guide"`, `"expires_at":"2318-01-01T00:00:00+00:00"`, `"size_vram":0`, `"context_length":512`} {
		if !strings.Contains(running.Body, want) {
			t.Errorf("ps lacks %s: %s", want, running.Body)
		}
	}
	for _, path := range []string{"/api", "/api/version", "/api/tags", "/api/ps"} {
		if got := handlerstest.Call(t, s, http.MethodHead, path, ""); got.Status != http.StatusOK || got.Body != "" {
			t.Errorf("HEAD %s: got %d: %s", path, got.Status, got.Body)
		}
	}
	if got := handlerstest.Call(t, s, http.MethodGet, "/api/version", ""); !strings.HasPrefix(got.Body, `{"version":"0.`) {
		t.Errorf("version: %s", got.Body)
	}
}

func TestOllama_ModelsOfAServerWithFiles(t *testing.T) {
	s := handlerstest.Server(t, handlerstest.OpenGuide(t))
	got := handlerstest.Post(t, s, "/api/show", `{"model":"guide"}`)
	if got.Status != http.StatusOK || !strings.Contains(got.Body, `"general.architecture"`) {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
	answer := handlerstest.Post(t, s, "/api/chat", `{"model":"guide","messages":[{"role":"user","content":"Hi"}],"options":{"temperature":0,"num_predict":3},"stream":false}`)
	var body struct {
		Total   time.Duration `json:"total_duration"`
		Prompt  time.Duration `json:"prompt_eval_duration"`
		Answer  time.Duration `json:"eval_duration"`
		Count   int           `json:"eval_count"`
		Message struct{ Content string }
	}
	if err := json.Unmarshal([]byte(answer.Body), &body); err != nil || body.Count != 3 || body.Message.Content == "" || body.Prompt <= 0 || body.Answer <= 0 || body.Total < body.Prompt+body.Answer {
		t.Errorf("got %v: %s", err, answer.Body)
	}
}

func TestOllama_TheRootOfItsOwnPortSaysThatItRuns(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	cfg := handlerstest.TestConfig(t, &handlerstest.FakeEngine{})
	cfg.OllamaPort = s.Listener.Addr().(*net.TCPAddr).Port
	s.Config = handlers.NewServer(handlers.New(cfg), cfg.Logger)
	s.Start()
	t.Cleanup(s.Close)
	for method, want := range map[string]string{http.MethodGet: "Ollama is running", http.MethodHead: ""} {
		if got := handlerstest.Call(t, s, method, "/", "", "Accept", handlerstest.BrowserAccept); got.Status != http.StatusOK || got.Body != want {
			t.Errorf("%s: got %d: %.100s", method, got.Status, got.Body)
		}
	}
	if got := handlerstest.Call(t, s, http.MethodGet, "/", "", "Host", "evil.example"); got.Status != http.StatusMisdirectedRequest {
		t.Errorf("a foreign host gets %d: %s", got.Status, got.Body)
	}
}

func TestOllama_ASilentStreamHasEmptyChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			return func(yield func(infer.Event, error) bool) {
				if !yield(infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1}}, nil) {
					return
				}
				time.Sleep(25 * time.Second)
				yield(handlerstest.DoneEvent(infer.FinishStop), nil)
			}
		}}
		body := serveInMemoryAt(t, handlers.New(handlerstest.TestConfig(t, engine)), "/api/chat", ollamaHello+"}")
		lines := ollamaLines(t, body)
		const empty = `{"done":false,"message":{"content":"","role":"assistant"},"model":"guide"}`
		if len(lines) != 3 || lines[0] != empty || lines[1] != empty {
			t.Errorf("got %s", body)
		}
	})
}
