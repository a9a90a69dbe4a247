package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
)

// What a request asks for is done or refused, never left out without a word.
func TestRequests_WhatCannotBeDoneIsRefused(t *testing.T) {
	runScenarios(t, []scenario{
		{name: "audio", path: "/v1/chat/completions", body: chatBody(`"modalities":["text","audio"],"audio":{"voice":"alloy"}`), status: 400, want: []string{`"param":"modalities"`, "text only"}},
		{name: "a web search", path: "/v1/chat/completions", body: chatBody(`"web_search_options":{}`), status: 400, want: []string{`"param":"web_search_options"`, "searches nothing"}},
		{name: "a form in vLLM's way", path: "/v1/chat/completions", body: chatBody(`"structured_outputs":{"choice":["a","b"]}`), status: 400, want: []string{`"param":"structured_outputs"`, "response_format"}},
		{name: "a form in vLLM's older way", path: "/v1/completions", body: `{"prompt":"a","guided_regex":"[ab]"}`, status: 400, want: []string{`"param":"guided_regex"`}},
		{name: "tokens that end an answer", path: "/v1/completions", body: `{"prompt":"a","stop_token_ids":[2]}`, status: 400, want: []string{`"param":"stop_token_ids"`}},
		{name: "probabilities after the samplers", path: "/completion", body: `{"prompt":"a","n_probs":2,"post_sampling_probs":true}`, status: 400, want: []string{`"param":"post_sampling_probs"`}},
		{name: "some fields of a chat's response", path: "/v1/chat/completions", body: chatBody(`"response_fields":["content"]`), status: 400, want: []string{`"param":"response_fields"`}},
		{name: "sampling: adaptive-p", path: "/v1/chat/completions", body: chatBody(`"adaptive_target":0.5`), status: 400, want: []string{`"param":"adaptive_target"`, "mirostat"}},
		{name: "sampling: a watermark", path: "/v1/completions", body: `{"prompt":"a","watermarking":true}`, status: 400, want: []string{`"param":"watermarking"`}},
		{name: "sampling: repetition_penalty out of range", path: "/v1/chat/completions", body: chatBody(`"repetition_penalty":-1`), status: 400, want: []string{"repeat_penalty is -1"}},
		{name: "sampling: two penalties", path: "/v1/chat/completions", body: chatBody(`"repetition_penalty":1.1,"repeat_penalty":1.2`), status: 400, want: []string{`"param":"repetition_penalty"`, "two names"}},
		{name: "output: ids of tokens", path: "/v1/chat/completions", body: chatBody(`"return_token_ids":true`), status: 400, want: []string{`"param":"return_token_ids"`, "return_tokens_as_token_ids"}},
		{name: "output: control tokens", path: "/v1/completions", body: `{"prompt":"a","skip_special_tokens":false}`, status: 400, want: []string{`"param":"skip_special_tokens"`}},
		{name: "output: reasoning in the text", path: "/v1/chat/completions", body: chatBody(`"reasoning_format":"none"`), status: 400, want: []string{`"param":"reasoning_format"`, "reasoning_content"}},
		{name: "output: a limit of time", path: "/v1/completions", body: `{"prompt":"a","t_max_predict_ms":500}`, status: 400, want: []string{`"param":"t_max_predict_ms"`, "max_tokens"}},
		{name: "output: a chat with its prompt", path: "/v1/chat/completions", body: chatBody(`"echo":true`), status: 400, want: []string{`"param":"echo"`, "/v1/completions"}},
		{name: "routing: a priority", path: "/v1/chat/completions", body: chatBody(`"priority":-5`), status: 400, want: []string{`"param":"priority"`, "fairly"}},
		{name: "routing: another engine's cache", path: "/v1/completions", body: `{"prompt":"a","kv_transfer_params":{"do_remote_prefill":true}}`, status: 400, want: []string{`"param":"kv_transfer_params"`}},
		{name: "the prompt: control tokens around a chat", path: "/v1/chat/completions", body: chatBody(`"add_special_tokens":true`), status: 400, want: []string{`"param":"add_special_tokens"`, "chat template"}},
		{name: "the prompt: none around a text", path: "/v1/completions", body: `{"prompt":"a","add_special_tokens":false}`, status: 400, want: []string{`"param":"add_special_tokens"`, "/tokenize"}},
		{name: "several answers of /completion", path: "/completion", body: `{"prompt":"a","n_cmpl":2}`, status: 400, want: []string{`"param":"n_cmpl"`, "writes one answer"}},
		{name: "several answers of /infill", path: "/infill", body: `{"input_prefix":"a","n":2}`, status: 400, want: []string{`"param":"n"`, "writes one answer"}},
		{name: "several responses", path: "/v1/responses", body: responseHello + `,"n":2}`, status: 400, want: []string{`"param":"n"`, "writes one answer"}},
		{name: "two numbers of answers", path: "/v1/chat/completions", body: chatBody(`"n":2,"n_cmpl":3`), status: 400, want: []string{`"param":"n_cmpl"`, "two names"}},
		{name: "too many answers", path: "/v1/chat/completions", body: chatBody(`"n_cmpl":1000`), status: 400, want: []string{`"param":"n_cmpl"`, "n_cmpl must be"}},
		{name: "two budgets", path: "/v1/chat/completions", body: chatBody(`"thinking_token_budget":5,"reasoning_budget_tokens":6`), status: 400, want: []string{`"param":"reasoning_budget_tokens"`}},
		{name: "a budget below none", path: "/v1/chat/completions", body: chatBody(`"reasoning_budget_tokens":-2`), status: 400, want: []string{`"param":"reasoning_budget_tokens"`, "-1 for no limit"}},
		{name: "what clients send as off", path: "/v1/chat/completions", body: chatBody(`"adaptive_target":-0.01,"adaptive_decay":0.9,"t_max_predict_ms":-1,"skip_special_tokens":true,"include_reasoning":true,"reasoning_format":"auto","parse_tool_calls":true,"priority":0,"n_cmpl":1,"n":1,"echo":false,"add_special_tokens":false,"reasoning_budget_tokens":-1,"id_slot":-1,"cache_prompt":true`), status: 200},
		{name: "what is off is fine", path: "/v1/chat/completions", body: chatBody(`"web_search_options":null,"guided_json":null,"min_tokens":0,"stop_token_ids":[],"use_beam_search":false,"lora":[],"guided_regex":""`), status: 200},
		{name: "servers of tools", path: "/v1/messages", body: `{"max_tokens":4,"messages":[{"role":"user","content":"a"}],"mcp_servers":[{"type":"url","url":"http://localhost","name":"x"}]}`, status: 400, want: []string{"mcp_servers is not supported"}},
		{name: "no servers of tools", path: "/v1/messages", body: `{"max_tokens":4,"messages":[{"role":"user","content":"a"}],"mcp_servers":[]}`, status: 200},
		{name: "text alone is fine", path: "/v1/chat/completions", body: chatBody(`"modalities":["text"]`), status: 200},
		{name: "another truncation", path: "/v1/responses", body: responseHello + `,"truncation":"some"}`, status: 400, want: []string{`"param":"truncation"`}},
		{name: "a compaction of another server", path: "/v1/responses", body: `{"input":[{"type":"compaction","encrypted_content":"!"},{"role":"user","content":"a"}]}`, status: 400, want: []string{`"param":"input[0].encrypted_content"`}},
	})
}

// What has another name here does the same.
func TestRequests_FieldsOfOtherServersAreDone(t *testing.T) {
	const path = "/v1/chat/completions"
	want := func(change func(r *infer.Request)) infer.Request {
		r := infer.DefaultRequest()
		r.Prompt = "a"
		r.MaxTokens = 16
		change(&r)
		return r
	}
	for _, c := range []struct {
		path, fields string
		want         infer.Request
	}{
		{"/v1/completions", `"repetition_penalty":1.3`, want(func(r *infer.Request) { r.Params.RepeatPenalty, r.Params.RepeatLastN = 1.3, -1 })},
		{"/v1/completions", `"repetition_penalty":1.3,"repeat_last_n":32`, want(func(r *infer.Request) { r.Params.RepeatPenalty, r.Params.RepeatLastN = 1.3, 32 })},
		{"/v1/completions", `"reasoning_budget_tokens":7`, want(func(r *infer.Request) { r.ReasoningBudget = new(7) })},
		{"/v1/completions", `"thinking_budget_tokens":7,"thinking_token_budget":7`, want(func(r *infer.Request) { r.ReasoningBudget = new(7) })},
		{"/completion", `"max_completion_tokens":5,"logprobs":3`, want(func(r *infer.Request) { r.MaxTokens, r.Alternatives = 5, 3 })},
		{"/completion", `"max_completion_tokens":5,"n_predict":6,"logprobs":3,"n_probs":2`, want(func(r *infer.Request) { r.MaxTokens, r.Alternatives = 6, 2 })},
	} {
		engine, asked := captured()
		if got := handlerstest.Post(t, handlerstest.Server(t, engine), c.path, `{"prompt":"a",`+c.fields+`}`); got.Status != http.StatusOK {
			t.Errorf("%s: got %d: %s", c.fields, got.Status, got.Body)
		}
		sameRequest(t, *asked, c.want)
	}
	for _, stream := range []string{"false", "true"} {
		got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), path, chatBody(`"n_cmpl":3,"stream":`+stream))
		if got.Status != http.StatusOK || !strings.Contains(got.Body, `"index":2`) || strings.Contains(got.Body, `"index":3`) {
			t.Errorf("n_cmpl 3, stream %s: got %d: %s", stream, got.Status, got.Body)
		}
	}
	scopes := func(fields string) (list []string) {
		engine := &handlerstest.FakeEngine{}
		engine.OnGenerate = func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
			list = append(list, r.CacheScope)
			return handlerstest.Replay(handlerstest.WordEvent(1, "Hi"), handlerstest.DoneEvent(infer.FinishStop))
		}
		s := handlerstest.Server(t, engine)
		for range 2 {
			handlerstest.Post(t, s, path, chatBody(fields))
		}
		return list
	}
	for fields, want := range map[string]func(a, b, plain string) bool{
		`"cache_salt":"x"`:     func(a, b, plain string) bool { return a == b && a != plain },
		`"cache_salt":"y"`:     func(a, b, plain string) bool { return a == b && a != plain && a != scopes(`"cache_salt":"x"`)[0] },
		`"cache_prompt":false`: func(a, b, plain string) bool { return a != b && a != plain && b != plain },
		`"cache_prompt":true`:  func(a, b, plain string) bool { return a == plain && b == plain },
	} {
		if got, plain := scopes(fields), scopes(`"n":1`); len(got) != 2 || !want(got[0], got[1], plain[0]) {
			t.Errorf("%s: the scopes of two requests are %q; without it %q", fields, got, plain)
		}
	}
}

func TestOllama_ThinkIsRefusedForAModelThatCannot(t *testing.T) {
	folder := hub.New(hub.Options{Dir: t.TempDir(), Types: cpu.WeightTypes(), Builtin: map[string][]byte{
		"plain":    gguftest.TinyLlama(gguftest.Llama{Template: gguftest.ChatML}),
		"thinking": gguftest.TinyLlama(gguftest.Llama{Template: gguftest.ChatML + "{% if enable_thinking %}{% endif %}"}),
	}})
	engine := &handlerstest.FakeEngine{}
	list := models.New(models.Options{Engine: engine, Files: folder})
	t.Cleanup(list.Close)
	s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.Models = list })
	for _, c := range []struct {
		model, think string
		status       int
	}{{"plain", "true", 400}, {"plain", `"low"`, 400}, {"plain", "false", 200}, {"plain", "null", 200}, {"thinking", "true", 200}, {"elsewhere", "true", 200}} {
		for path, rest := range map[string]string{"/api/chat": `"messages":[{"role":"user","content":"a"}]`, "/api/generate": `"prompt":"a"`} {
			got := handlerstest.Post(t, s, path, `{"stream":false,"model":"`+c.model+`","think":`+c.think+`,`+rest+`}`)
			if got.Status != c.status || c.status == 400 && !strings.Contains(got.Body, `\"plain\" does not support thinking`) {
				t.Errorf("%s, think %s at %s: got %d: %s", c.model, c.think, path, got.Status, got.Body)
			}
		}
	}
}

// rendering is an engine of whose prompts each message takes 100 tokens of its context of 512.
func rendering() (*handlerstest.FakeEngine, *infer.Request) {
	engine, asked := captured()
	engine.OnRender = func(r infer.Request) (infer.Rendered, error) {
		return infer.Rendered{Tokens: make([]int32, 100*len(r.Messages))}, nil
	}
	return engine, asked
}

func TestResponses_TruncationLeavesOutTheOldestMessages(t *testing.T) {
	user := func(text string) string { return `{"role":"user","content":"` + text + `"},` }
	answer := func(text string) string { return `{"role":"assistant","content":"` + text + `"},` }
	long := user("a") + answer("b") + user("c") + answer("d") + user("e")
	for _, c := range []struct{ fields, input, want string }{
		{`"truncation":"disabled"`, long, "s a b c d e"},
		{`"truncation":"auto"`, long, "s c d e"},
		{`"truncation":"auto","max_output_tokens":300`, long, "s e"},
		{`"truncation":"auto"`, user("c") + answer("d") + user("e"), "s c d e"},
		{`"truncation":"auto"`, user("a") + answer("b") + answer("c") + answer("d") + answer("e") + answer("f"), "s a b c d e f"},
	} {
		engine, asked := rendering()
		got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/responses", `{"instructions":"s",`+c.fields+`,"input":[`+strings.TrimSuffix(c.input, ",")+`]}`)
		var texts []string
		for _, m := range asked.Messages {
			texts = append(texts, m.Content)
		}
		if is := strings.Join(texts, " "); is != c.want || strings.Contains(got.Body, `"truncation":"auto"`) != strings.Contains(c.fields, "auto") {
			t.Errorf("%s: the engine was asked %q, want %q: %s", c.fields, is, c.want, got.Body)
		}
	}
}

func TestResponses_InputTokensAreThoseOfThePrompt(t *testing.T) {
	engine, _ := rendering()
	for _, path := range []string{"/v1/responses/input_tokens", "/responses/input_tokens"} {
		if got := handlerstest.Post(t, handlerstest.Server(t, engine), path, responseHello+`,"instructions":"s"}`); strings.TrimSpace(got.Body) != `{"object":"response.input_tokens","input_tokens":200}` {
			t.Errorf("%s: got %d: %s", path, got.Status, got.Body)
		}
	}
}

func TestResponses_ACompactedConversationGoesOn(t *testing.T) {
	engine, asked := captured()
	s := handlerstest.Server(t, engine)
	got := handlerstest.Post(t, s, "/v1/responses/compact", `{"model":"guide","input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"tools":[{"type":"function","name":"f"}]}`)
	var compacted struct {
		Object string
		Output []json.RawMessage
		Usage  struct {
			Total int `json:"total_tokens"`
		}
	}
	mustDecode(t, got, &compacted)
	if n := len(asked.Messages); compacted.Object != "response.compaction" || len(compacted.Output) != 1 || compacted.Usage.Total != 9 || n != 3 || asked.Tools != nil {
		t.Fatalf("got %s; the engine was asked %+v", got.Body, asked)
	}
	if got := handlerstest.Post(t, s, "/v1/responses", `{"input":[`+string(compacted.Output[0])+`,{"role":"user","content":"c"}]}`); got.Status != http.StatusOK || !strings.HasSuffix(asked.Messages[0].Content, "\nHi") || asked.Messages[1].Content != "c" {
		t.Errorf("got %d: %s; the engine was asked %+v", got.Status, got.Body, asked.Messages)
	}
}

func TestResponses_TheFormatIsThatOfTheRequest(t *testing.T) {
	for _, format := range []string{
		`{"type":"json_schema","name":"city","schema":{"type":"object"}}`,
		`{"type":"json_schema","name":"n","description":"d","schema":{"type":"array"},"strict":true}`,
		`{"type":"json_object"}`,
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/responses", responseHello+`,"text":{"format":`+format+`}}`); !strings.Contains(got.Body, `"text":{"format":`+format+`}`) {
			t.Errorf("got %s, want %s", got.Body, format)
		}
	}
}

// A prompt without text begins where texts begin.
func TestCompletions_AnEmptyPromptIsTheBeginningOfAText(t *testing.T) {
	for name, c := range map[string]struct {
		tokens map[string][]int32
		want   []int32
	}{
		"the file puts a token before each text": {map[string][]int32{"": {1}}, []int32{1}},
		"a token ends the text before":           {map[string][]int32{"<|endoftext|>": {9, 9}, "</s>": {2}}, []int32{2}},
		"there is none":                          {nil, nil},
	} {
		for _, prompt := range []string{`""`, `[""]`, `[[]]`} {
			engine, asked := captured()
			engine.OnTokenize = func(_, text string, _, _ bool) ([]int32, error) { return c.tokens[text], nil }
			got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/completions", `{"prompt":`+prompt+`,"echo":true}`)
			if c.want == nil {
				if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "prompt is empty") {
					t.Errorf("%s: got %d: %s", name, got.Status, got.Body)
				}
				continue
			}
			if got.Status != http.StatusOK || !slices.Equal(asked.Tokens, c.want) || !strings.Contains(got.Body, `"text":"Hi"`) {
				t.Errorf("%s, %s: got %d: %s, the engine was asked %v", name, prompt, got.Status, got.Body, asked.Tokens)
			}
		}
	}
}

// lm-evaluation-harness asks these routes for the tokenizer of a server.
func TestTokenizer_VLLMsRoutes(t *testing.T) {
	engine := &handlerstest.FakeEngine{
		OnTokenize: func(_, text string, add, _ bool) ([]int32, error) {
			if add {
				return []int32{0, 1}, nil
			}
			return []int32{1}, nil
		},
		OnDetokenize: func(_ string, ids []int32) (string, error) { return map[int32]string{0: "<s>", 1: "a"}[ids[0]], nil },
		OnRender:     func(infer.Request) (infer.Rendered, error) { return infer.Rendered{Tokens: []int32{4, 5, 6}}, nil },
		OnGenerate:   func(context.Context, infer.Request) iter.Seq2[infer.Event, error] { return nil },
	}
	runScenarios(t, []scenario{
		{name: "a text with the tokens around it", path: "/tokenize", body: `{"prompt":"a"}`, engine: engine, status: 200, want: []string{`{"count":2,"max_model_len":512,"tokens":[0,1],"token_strs":null}`}},
		{name: "a text alone", path: "/tokenize", body: `{"prompt":"a","add_special_tokens":false,"return_token_strs":true}`, engine: engine, status: 200, want: []string{`{"count":1,"max_model_len":512,"tokens":[1],"token_strs":["a"]}`}},
		{name: "messages", path: "/tokenize", body: hello, engine: engine, status: 200, want: []string{`"count":3`, `"tokens":[4,5,6]`}},
		{name: "tokens", path: "/detokenize", body: `{"tokens":[1]}`, engine: engine, status: 200, want: []string{`"prompt":"a"`}},
		{name: "a server without files", method: "GET", path: "/tokenizer_info", engine: engine, status: 200, want: []string{`"model_max_length":512`}},
	})
	folder := hub.New(hub.Options{Dir: t.TempDir(), Types: cpu.WeightTypes(), Builtin: map[string][]byte{"guide": guide.Model}})
	engine.OnDetokenize = func(_ string, ids []int32) (string, error) { return fmt.Sprintf("<%d>", ids[0]), nil }
	list := models.New(models.Options{Engine: engine, Files: folder})
	t.Cleanup(list.Close)
	got := handlerstest.Call(t, handlerstest.Server(t, engine, func(c *handlers.Config) { c.Models = list }), http.MethodGet, "/tokenizer_info", "")
	for _, want := range []string{`"eos_token":"\u003c`, `"chat_template":"{`} {
		if got.Status != http.StatusOK || !strings.Contains(got.Body, want) {
			t.Errorf("got %d: %.400s, want %s", got.Status, got.Body, want)
		}
	}
}
