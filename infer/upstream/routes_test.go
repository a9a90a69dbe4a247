package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

// routeCase is a request to a route of the server about the model of another engine, and what its answer has.
type routeCase struct {
	api, name, path string
	body            string   // empty: the request is a GET
	filled          []string // fields of the answer, or of one event of a stream at least, that are neither empty nor 0
	pieces          string   // of a stream: the field of its text, which two events have at least
	ends            string   // how a stream ends
	form            bool     // the first of filled is a text of citySchema
	refused         string   // what an error of 4xx has in it
	orRefused       string   // the same, of engines that cannot do this
}

const (
	citySchema = `{"type":"object","properties":{"city":{"type":"string","enum":["Rome","Oslo"]}},"required":["city"],"additionalProperties":false}`
	asked      = `"model":"m","messages":[{"role":"user","content":"What is the capital of France?"}]`
	cityTool   = `{"type":"function","function":{"name":"visit","description":"Visits a city.","parameters":` + citySchema + `}}`
	noCounting = "does not show its tokens"
)

// routeCases has each API of the server. Answers that need the ids of tokens are refused by name: engines with OpenAI's routes
// do not show them.
var routeCases = []routeCase{
	{api: "OpenAI", name: "a chat", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":8}`, filled: []string{"choices.0.message.content", "choices.0.finish_reason", "usage.completion_tokens"}},
	{api: "OpenAI", name: "a chat as a stream", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":8,"stream":true,"stream_options":{"include_usage":true}}`, pieces: "choices.0.delta.content", filled: []string{"usage.completion_tokens"}, ends: "data: [DONE]"},
	{api: "OpenAI", name: "two answers", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":8,"n":2}`, filled: []string{"choices.0.message.content", "choices.1.message.content"}},
	{api: "OpenAI", name: "two answers by llama-server's name", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":8,"n_cmpl":2}`, filled: []string{"choices.0.message.content", "choices.1.message.content"}},
	{api: "OpenAI", name: "the penalty by vLLM's name", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":8,"repetition_penalty":1.3,"cache_salt":"a","cache_prompt":false}`, filled: []string{"choices.0.message.content"}},
	{api: "OpenAI", name: "a limit above the context", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":1000000,"stop":["e","a","o","i","u"]}`, filled: []string{"choices.0.finish_reason"}},
	{api: "OpenAI", name: "settings at their limits", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":8,"temperature":5,"top_p":0,"top_k":-1,"presence_penalty":-3,"repeat_penalty":1.1,"repeat_last_n":-1,"dry_multiplier":0.8,"dry_penalty_last_n":-1}`, filled: []string{"choices.0.finish_reason"}},
	{api: "OpenAI", name: "log-probabilities", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":4,"logprobs":true,"top_logprobs":3}`, filled: []string{"choices.0.message.content"}},
	{api: "OpenAI", name: "an answer of a schema", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":60,"response_format":{"type":"json_schema","json_schema":{"name":"city","strict":true,"schema":` + citySchema + `}}}`, filled: []string{"choices.0.message.content"}, form: true},
	{api: "OpenAI", name: "tools", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":40,"tools":[` + cityTool + `]}`, filled: []string{"choices.0.finish_reason"}},
	{api: "OpenAI", name: "a tool that must be called", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":60,"tools":[` + cityTool + `],"tool_choice":"required"}`, filled: []string{"choices.0.finish_reason"}, orRefused: "tool_choice"},
	{api: "OpenAI", name: "a result of a call", path: "/v1/chat/completions", body: `{"model":"m","max_tokens":8,"tools":[` + cityTool + `],"messages":[{"role":"user","content":"Visit Rome."},{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"visit","arguments":"{\"city\":\"Rome\"}"}}]},{"role":"tool","tool_call_id":"call00001","content":"sunny"}]}`, filled: []string{"choices.0.finish_reason"}},
	{api: "OpenAI", name: "a grammar", path: "/v1/chat/completions", body: `{` + asked + `,"max_tokens":8,"grammar":"root ::= \"yes\" | \"no\""}`, filled: []string{"choices.0.message.content"}, orRefused: "grammar"},
	{api: "OpenAI", name: "too long a prompt", path: "/v1/chat/completions", body: `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("The keeper lit the lamp. ", 900) + `"}]}`, refused: "context_length_exceeded"},
	{api: "OpenAI", name: "a text", path: "/v1/completions", body: `{"model":"m","prompt":"The capital of France is","max_tokens":6}`, filled: []string{"choices.0.text", "usage.completion_tokens"}},
	{api: "OpenAI", name: "a text as a stream", path: "/v1/completions", body: `{"model":"m","prompt":"The capital of France is","max_tokens":6,"stream":true}`, pieces: "choices.0.text", ends: "data: [DONE]"},
	{api: "OpenAI", name: "two texts", path: "/v1/completions", body: `{"model":"m","prompt":["The capital of France is","The sun rises in"],"max_tokens":6}`, filled: []string{"choices.0.text", "choices.1.text"}},
	{api: "OpenAI", name: "a prompt that is scored", path: "/v1/completions", body: `{"model":"m","prompt":"The capital","max_tokens":0,"echo":true,"logprobs":1}`, refused: "score a prompt"},
	{api: "OpenAI", name: "a prompt of tokens", path: "/v1/completions", body: `{"model":"m","prompt":[1,2,3],"max_tokens":1}`, refused: "prompt"},
	{api: "OpenAI", name: "a gap", path: "/v1/completions", body: `{"model":"m","prompt":"a","suffix":"b"}`, refused: noCounting},
	{api: "OpenAI", name: "a response", path: "/v1/responses", body: `{"model":"m","input":"What is the capital of France?","max_output_tokens":8}`, filled: []string{"output.0.content.0.text", "usage.output_tokens"}},
	{api: "OpenAI", name: "a response as a stream", path: "/v1/responses", body: `{"model":"m","input":"What is the capital of France?","max_output_tokens":8,"stream":true}`, pieces: "delta", filled: []string{"response.output.0.content.0.text"}},
	{api: "OpenAI", name: "the tokens of a response's input", path: "/v1/responses/input_tokens", body: `{"model":"m","input":"Hi"}`, refused: noCounting},
	{api: "OpenAI", name: "a conversation that is summarised", path: "/v1/responses/compact", body: `{"model":"m","input":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]}`, filled: []string{"output.0.encrypted_content"}},
	{api: "OpenAI", name: "embeddings of a chat model", path: "/v1/embeddings", body: `{"model":"m","input":"lamp"}`, refused: "error"},
	{api: "OpenAI", name: "documents to rank", path: "/v1/rerank", body: `{"model":"m","query":"lamp","documents":["a","b"]}`, refused: "error"},
	{api: "OpenAI", name: "the list of models", path: "/v1/models", filled: []string{"data.0.id", "data.1.id"}},
	{api: "OpenAI", name: "the model", path: "/v1/models/m", filled: []string{"id"}},
	{api: "OpenAI", name: "a model that nobody has", path: "/v1/chat/completions", body: `{"model":"nobody","messages":[{"role":"user","content":"Hi"}]}`, refused: "other engines have m"},

	{api: "Anthropic", name: "a message", path: "/v1/messages", body: `{` + asked + `,"max_tokens":8}`, filled: []string{"content.0.text", "stop_reason", "usage.output_tokens"}},
	{api: "Anthropic", name: "a message as a stream", path: "/v1/messages", body: `{` + asked + `,"max_tokens":8,"stream":true}`, pieces: "delta.text", ends: "event: message_stop"},
	{api: "Anthropic", name: "tools", path: "/v1/messages", body: `{` + asked + `,"max_tokens":40,"tools":[{"name":"visit","description":"Visits a city.","input_schema":` + citySchema + `}]}`, filled: []string{"stop_reason"}},
	{api: "Anthropic", name: "a tool that must be called", path: "/v1/messages", body: `{` + asked + `,"max_tokens":60,"tools":[{"name":"visit","input_schema":` + citySchema + `}],"tool_choice":{"type":"tool","name":"visit"}}`, filled: []string{"stop_reason"}, orRefused: "tool_choice"},
	{api: "Anthropic", name: "the tokens of a message", path: "/v1/messages/count_tokens", body: `{` + asked + `}`, refused: noCounting},

	{api: "Ollama", name: "a chat", path: "/api/chat", body: `{` + asked + `,"stream":false,"options":{"num_predict":8}}`, filled: []string{"message.content", "done_reason", "eval_count"}},
	{api: "Ollama", name: "a chat as a stream", path: "/api/chat", body: `{` + asked + `,"options":{"num_predict":8}}`, pieces: "message.content", filled: []string{"eval_count"}},
	{api: "Ollama", name: "an answer of a schema", path: "/api/chat", body: `{` + asked + `,"stream":false,"options":{"num_predict":60},"format":` + citySchema + `}`, filled: []string{"message.content"}, form: true},
	{api: "Ollama", name: "a text", path: "/api/generate", body: `{"model":"m","prompt":"The capital of France is","stream":false,"options":{"num_predict":8}}`, filled: []string{"response", "done_reason"}},
	{api: "Ollama", name: "a raw text as a stream", path: "/api/generate", body: `{"model":"m","prompt":"The capital of France is","raw":true,"options":{"num_predict":8}}`, pieces: "response"},
	{api: "Ollama", name: "the models", path: "/api/tags", filled: []string{"models.0.digest", "models.1.digest"}},
	{api: "Ollama", name: "the model", path: "/api/show", body: `{"model":"m"}`, filled: []string{"modelfile", "capabilities.0"}},
	{api: "Ollama", name: "embeddings of a chat model", path: "/api/embed", body: `{"model":"m","input":"lamp"}`, refused: "error"},

	{api: "llama.cpp", name: "a text", path: "/completion", body: `{"model":"m","prompt":"The capital of France is","n_predict":8}`, filled: []string{"content", "stop_type", "tokens_predicted"}},
	{api: "llama.cpp", name: "a text as a stream", path: "/completion", body: `{"model":"m","prompt":"The capital of France is","n_predict":8,"stream":true}`, pieces: "content", filled: []string{"stop_type"}},
	{api: "llama.cpp", name: "a prompt of tokens", path: "/completion", body: `{"model":"m","prompt":[1,2],"n_predict":1}`, refused: "prompt"},
	{api: "llama.cpp", name: "a gap", path: "/infill", body: `{"model":"m","input_prefix":"a","input_suffix":"b"}`, refused: noCounting},
	{api: "llama.cpp", name: "the tokens of a text", path: "/tokenize", body: `{"model":"m","content":"lamp"}`, refused: noCounting},
	{api: "llama.cpp", name: "the tokens of a text, in vLLM's form", path: "/tokenize", body: `{"model":"m","prompt":"lamp"}`, refused: noCounting},
	{api: "llama.cpp", name: "what tokens spell", path: "/detokenize", body: `{"model":"m","tokens":[1]}`, refused: noCounting},
	{api: "llama.cpp", name: "the prompt of a conversation", path: "/apply-template", body: `{` + asked + `}`, refused: noCounting},
	{api: "llama.cpp", name: "an embedding of a chat model", path: "/embedding", body: `{"model":"m","content":"lamp"}`, refused: "error"},
	{api: "llama.cpp", name: "what the server is", path: "/props", filled: []string{"default_generation_settings.n_ctx", "model_alias"}},
	{api: "llama.cpp", name: "its slots", path: "/slots"},

	{api: "this program", name: "a text", path: "/v1/generate", body: `{"model":"m","prompt":"The capital of France is","max_tokens":8}`, pieces: "token.text", filled: []string{"done.reason"}},
	{api: "this program", name: "the prompt of a conversation", path: "/v1/render", body: `{` + asked + `}`, refused: noCounting},
	{api: "this program", name: "its state", path: "/v1/status", filled: []string{"upstreams.0.engine", "remote.0.upstream"}},
}

// routesWork asks the server in front of an engine by the routes of one API. The answers of stand-ins keep to no schema.
func routesWork(t *testing.T, server *httptest.Server, api string, real bool) {
	for _, c := range routeCases {
		if c.api == api {
			t.Run(c.name, func(t *testing.T) { c.check(t, server, real) })
		}
	}
}

func (c *routeCase) check(t *testing.T, server *httptest.Server, real bool) {
	method := http.MethodPost
	if c.body == "" {
		method = http.MethodGet
	}
	got := handlerstest.Call(t, server, method, c.path, c.body)
	refused := got.Status >= 400 && got.Status < 500
	switch {
	case c.refused != "":
		if !refused || !strings.Contains(got.Body, c.refused) {
			t.Errorf("got %d: %.600s, want a refusal with %q", got.Status, got.Body, c.refused)
		}
		return
	case c.orRefused != "" && refused && strings.Contains(got.Body, c.orRefused):
		return
	case got.Status != http.StatusOK:
		t.Fatalf("got %d: %.600s", got.Status, got.Body)
	}
	values := answerValues(t, got.Body)
	for _, field := range c.filled {
		if !slices.ContainsFunc(values, func(v any) bool { return isFilled(fieldOf(v, field)) }) {
			t.Errorf("%s is empty: %.600s", field, got.Body)
		}
	}
	if c.pieces != "" {
		n := 0
		for _, v := range values {
			if isFilled(fieldOf(v, c.pieces)) {
				n++
			}
		}
		if n < 2 || !strings.Contains(got.Body, c.ends) {
			t.Errorf("%d events have text, want 2 and %q: %.600s", n, c.ends, got.Body)
		}
	}
	if c.form && real {
		var city struct{ City string }
		if text := fmt.Sprint(fieldOf(values[0], c.filled[0])); json.Unmarshal([]byte(text), &city) != nil || city.City != "Rome" && city.City != "Oslo" {
			t.Errorf("%q is not of the schema", text)
		}
	}
}

// answerValues returns the JSON of an answer: one value, or those of server-sent events or of lines.
func answerValues(t *testing.T, body string) (values []any) {
	t.Helper()
	var whole any
	if json.Unmarshal([]byte(body), &whole) == nil {
		return []any{whole}
	}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var value any
		if err := json.Unmarshal([]byte(line), &value); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		values = append(values, value)
	}
	return values
}

// fieldOf returns the value at a path of names and indices, nil if there is none.
func fieldOf(v any, path string) any {
	for part := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

func isFilled(v any) bool { return v != nil && v != "" && v != 0.0 && v != false }

// apis are those of routeCases.
func apis() (names []string) {
	for _, c := range routeCases {
		if !slices.Contains(names, c.api) {
			names = append(names, c.api)
		}
	}
	return names
}

// isAChatModel answers as a model does that only writes, and that has 2,048 tokens.
func (e *strict) isAChatModel(w http.ResponseWriter, r *http.Request, body map[string]any) {
	refuse := func(status int, why string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, e.shape(why))
	}
	switch {
	case r.URL.Path != "/v1/chat/completions" && r.URL.Path != "/v1/completions":
		refuse(http.StatusNotImplemented, "This server does not support that.")
	case len(must(json.Marshal(body))) > 8<<10:
		refuse(http.StatusBadRequest, "This model's maximum context length is 2048 tokens. However, your request has 5400 input tokens.")
	default:
		e.greets(w, r, body)
	}
}

func TestAllRoutesAreInFrontOfEnginesAsStrictAsTheRealOnes(t *testing.T) {
	for _, engine := range []*strict{llamaServer(true), llamaServer(false), vLLM(), openAI()} {
		t.Run(engine.name, func(t *testing.T) {
			s := engine.serve(t, engine.isAChatModel)
			server := handlerstest.Server(t, routerTo(t, s))
			for _, api := range apis() {
				t.Run(api, func(t *testing.T) { routesWork(t, server, api, false) })
			}
		})
	}
}
