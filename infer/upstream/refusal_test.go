package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

func TestAPromptThatIsTooLongIsToldWithTheFiguresOfTheEngine(t *testing.T) {
	for name, c := range map[string]struct {
		status          int
		body            string
		prompt, context int
	}{
		"llama-server":         {400, `{"error":{"code":400,"message":"request (2600 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2600,"n_ctx":2048}}`, 2600, 2048},
		"an older one":         {400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2600,"n_ctx":2048}}`, 2600, 2048},
		"vLLM":                 {400, `{"error":{"message":"This model's maximum context length is 2048 tokens. However, your request has 2600 input tokens. Please reduce the length of the input messages.","type":"BadRequestError","code":400}}`, 2600, 2048},
		"an older vLLM":        {400, `{"object":"error","message":"This model's maximum context length is 2048 tokens. However, you requested 3112 tokens (2600 in the messages, 512 in the completion). Please reduce the length of the messages or completion.","code":400}`, 2600, 2048},
		"SGLang":               {400, `{"object":"error","message":"The input (2600 tokens) is longer than the model's context length (2048 tokens).","code":400}`, 2600, 2048},
		"SGLang with a limit":  {400, `{"object":"error","message":"Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a total of 3112 tokens: 2600 tokens from the input messages and 512 tokens for the completion.","code":400}`, 2600, 2048},
		"m40-llm":              {400, `{"error":{"message":"This model's maximum context length is 2048 tokens, but the prompt is too long: it has 2600 tokens; shorten it","code":"context_length_exceeded","n_prompt_tokens":2600,"n_ctx":2048}}`, 2600, 2048},
		"one that says little": {400, `{"error":{"message":"too much","code":"context_length_exceeded"}}`, 0, 0},
		"one with nonsense":    {400, `{"error":{"message":"This model's maximum context length is 99999999999999999999 tokens","n_prompt_tokens":-4}}`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			got := write(t, routerTo(t, s), question("long"))
			e, ok := errors.AsType[*fault.Error](got.err)
			if !ok || e.Code != fault.CodeContext || e.PromptTokens != c.prompt || e.ContextLength != c.context || s.count() != 1 {
				t.Errorf("got %+v after %d requests", got.err, s.count())
			}
		})
	}
}

func TestAPromptThatIsTooLongForAnotherM40HasItsFigures(t *testing.T) {
	for _, body := range []string{
		`{"error":{"message":"This model's maximum context length is 2048 tokens, but the prompt is too long: it has 2600 tokens; shorten it","code":"context_length_exceeded","n_prompt_tokens":2600,"n_ctx":2048}}`,
		`{"error":{"message":"too long","code":"context_length_exceeded","prompt_tokens":2600,"context_length":2048}}`,
	} {
		s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.WriteHeader(400)
			io.WriteString(w, body)
		})
		s.extra = map[string]string{"/v1/status": `{"state":"ready","step":{},"setup":{}}`}
		got := write(t, routerTo(t, s), question("long"))
		if e, ok := errors.AsType[*fault.Error](got.err); !ok || e.Code != fault.CodeContext || e.PromptTokens != 2600 || e.ContextLength != 2048 {
			t.Errorf("got %+v", got.err)
		}
	}
}

func TestALimitAboveWhatTheContextHasRoomForIsLowered(t *testing.T) {
	engine := vLLM()
	s := engine.serve(t, greets)
	r := routerTo(t, s)
	for _, c := range []struct {
		limit, requests int
		sent            any
	}{{100, 1, 100.0}, {2018, 1, 2018.0}, {2019, 2, 2018.0}, {2047, 2, 2018.0}, {2048, 1, nil}, {8192, 1, nil}, {-1, 1, nil}} {
		asked, before := question("Hi"), s.count()
		asked.MaxTokens = c.limit
		got := write(t, r, asked)
		if n := s.count() - before; got.err != nil || n != c.requests || s.last()["max_tokens"] != c.sent {
			t.Errorf("a limit of %d was sent %d times, last as %v: %v", c.limit, n, s.last()["max_tokens"], got.err)
		}
	}
	engine.words = 2050
	before := s.count()
	if code, text := write(t, r, question("long")).code(); code != fault.CodeContext || s.count() != before+1 {
		t.Errorf("a prompt that is too long got %v %s after %d requests", code, text, s.count()-before)
	}
}

func TestARouteThatAServerDoesNotHaveIsNoUnknownModel(t *testing.T) {
	for body, want := range map[string]fault.Code{
		`{"detail":"Not Found"}`: fault.CodeNotSupported,
		`{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`: fault.CodeNotSupported,
		"404 page not found\n":        fault.CodeNotSupported,
		"":                            fault.CodeNotSupported,
		"Cannot POST /v1/completions": fault.CodeNotSupported,
		`{"error":{"message":"The model ` + "`m`" + ` does not exist.","type":"NotFoundError","code":404}}`: fault.CodeNotFound,
		`{"error":{"message":"model \"m\" not found, try pulling it first","type":"api_error"}}`:            fault.CodeNotFound,
		`{"error":{"message":"gone","code":"model_not_found"}}`:                                             fault.CodeNotFound,
	} {
		s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.WriteHeader(404)
			io.WriteString(w, body)
		})
		if code, text := write(t, routerTo(t, s), question("Hi")).code(); code != want {
			t.Errorf("%s: got %v %s", body, code, text)
		}
	}
}

func TestLlamaServerHasWhatItDoesNotList(t *testing.T) {
	s := llamaServer(true).serve(t, greets)
	r := routerTo(t, s)
	lacks := r.Status().Remote[0].Upstream.Lacks
	for _, name := range []string{"dry_sequence_breakers", "samplers", "min_keep", "temperature", "dry_multiplier"} {
		if lacks[name] != "" {
			t.Errorf("%s: the engine %s", name, lacks[name])
		}
	}
	for field, change := range map[string]func(r *infer.Request){
		"grammar":         func(r *infer.Request) { r.Grammar = `root ::= "a"` },
		"logit_bias":      func(r *infer.Request) { r.Params.LogitBias = map[int32]float64{5: -1000} },
		"response_format": func(r *infer.Request) { r.JSONSchema = []byte(`{"type":"object"}`) },
		"stop":            func(r *infer.Request) { r.Stop = []string{"x"} },
		"ignore_eos":      func(r *infer.Request) { r.IgnoreEOS = true },
		"top_logprobs":    func(r *infer.Request) { r.Alternatives = 3 },
	} {
		asked := question("Hi")
		change(&asked)
		if got := write(t, r, asked); got.err != nil || s.last()[field] == nil {
			t.Errorf("%s: got %v, sent was %v", field, got.err, s.last())
		}
	}
	tools := question("Hi")
	tools.Tools, tools.ToolChoice, tools.Rows = []byte(`[{"type":"function","function":{"name":"a"}},`+oneTool[1:]), "weather", true
	if got := write(t, r, tools); got.err != nil || len(s.last()["tools"].([]any)) != 1 || s.last()["tool_choice"] != "required" {
		t.Errorf("a tool chosen by name: %v, sent was %v", got.err, s.last())
	}
	begun := question("Hi")
	begun.Continue, begun.Messages = true, append(begun.Messages, begun.Messages[0])
	begun.Messages[1].Role, begun.Messages[1].Content = "assistant", "It"
	if got := write(t, r, begun); got.err != nil {
		t.Errorf("an answer cannot be continued: %v", got.err)
	}
	tools.Grammar, tools.ToolChoice = `root ::= "a"`, ""
	if _, text := write(t, r, tools).code(); !strings.Contains(text, "cannot keep to a grammar where there are tools") {
		t.Errorf("a grammar with tools got %s", text)
	}
}

func TestAnErrorWhileAServerIsTriedSaysNothingAboutASetting(t *testing.T) {
	for _, status := range []int{500, 502, 404, 401, 429} {
		failing := true
		s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			switch {
			case body["top_k"] != nil && failing:
				w.WriteHeader(status)
			case body["min_p"] != nil || body["top_k"] != nil:
				w.WriteHeader(422)
			}
		})
		s.extra = nil
		k := newServer(mustParse(s.URL), &Options{Patience: 30e9}).askByRequests(t.Context(), "m")
		if k.asked || k.has("min_p") {
			t.Errorf("after %d, the server is taken for asked: %v", status, k.fields)
		}
		failing = false
		if k := newServer(mustParse(s.URL), &Options{Patience: 30e9}).askByRequests(t.Context(), "m"); !k.asked || !k.has("top_k") || k.has("typical_p") {
			t.Errorf("afterwards it has %v", k.fields)
		}
	}
}

func TestAServerThatFailsAtWrongValuesIsKnownToReadThem(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter){
		"as a 500": func(w http.ResponseWriter) {
			http.Error(w, "TypeError: float() argument must be a string or a real number", 500)
		},
		"as a cut": func(w http.ResponseWriter) { raw(w, "") },
	} {
		s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			for _, field := range []string{"top_k", "min_p"} {
				if v, there := body[field]; there {
					if _, ok := v.(float64); !ok {
						fail(w)
					}
				}
			}
		})
		s.extra = nil
		if k := newServer(mustParse(s.URL), &Options{Patience: 30e9}).askByRequests(t.Context(), "m"); !k.asked || !k.has("top_k") || !k.has("min_p") || k.has("typical_p") {
			t.Errorf("of a server that fails %s, is known: %v, %v", name, k.asked, k.fields)
		}
	}
}

func mustParse(url string) Address {
	a, err := ParseAddress(url)
	if err != nil {
		panic(err)
	}
	return a
}
