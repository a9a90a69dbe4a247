package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
)

// kind is what a server said about itself.
type kind struct {
	asked        bool   // false: it could not be asked what it is
	native       bool   // it is another m40-llm
	engine       string // name and version; empty: it does not say
	unnamed      bool   // its version could not be asked for, and is asked for again
	context      int    // positions; 0: it does not say
	templateVars []string
	fields       map[string]bool  // of requests for chat completions that it knows
	bounds       map[string]bound // by field: the values that its description allows
	llama        bool             // it is llama-server
	noTools      bool             // it says that the model's chat template shows no tools
	strict       bool             // it refuses fields that it does not know
	how          string           // how that was found; empty: it could not be asked

	lacks map[string]string // as in infer.Upstream; read-only
}

func (k *kind) has(fields ...string) bool {
	return slices.ContainsFunc(fields, func(f string) bool { return k.fields[f] })
}

// basic are the fields that OpenAI's own servers know. They are assumed of a server that cannot be asked.
var basic = []string{
	"temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop", "max_tokens", "logprobs", "top_logprobs",
	"logit_bias", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stream_options", "reasoning_effort",
}

func known(fields ...string) map[string]bool {
	m := map[string]bool{}
	for _, f := range fields {
		m[f] = true
	}
	return m
}

// askKind asks the server what it is and what it can do; model is one of its models. After an error, nothing is
// known.
func (s *server) askKind(ctx context.Context, model offered) (kind, error) {
	for _, ask := range []func(context.Context) (kind, error){s.askStatus, s.askProps, s.askDescription} {
		k, err := ask(ctx)
		if errors.Is(err, errOther) {
			continue
		}
		if err == nil && k.engine == "" {
			k.engine, k.unnamed = s.askVersion(ctx, model)
		}
		k.asked, k.lacks = err == nil, k.missing()
		return k, err
	}
	k := s.askByRequests(ctx, model.id)
	k.engine, k.lacks = model.info.Upstream.Engine, k.missing()
	return k, ctx.Err()
}

// engines are the names of engines as they write them, by those that they give as the owner of their models.
var engines = map[string]string{"vllm": "vLLM", "sglang": "SGLang"}

// askVersion returns what the engine that model belongs to is called, as far as it says: FastAPI, by which several are
// built, has a title of its own. A version that cannot be asked for is left out; again reports that it may be there later.
func (s *server) askVersion(ctx context.Context, model offered) (name string, again bool) {
	var version struct {
		Version string `json:"version"`
	}
	err := s.probe(ctx, "/version", maxModelBody, &version)
	if err != nil {
		version.Version = ""
	}
	owner := model.info.Upstream.Engine
	return strings.TrimSpace(cmp.Or(engines[owner], owner) + " " + s.short(version.Version)), err != nil && !errors.Is(err, errOther)
}

// errOther is the error for a route that a server does not have, or that has something else there than the engine
// that is asked for.
var errOther = errors.New("it is another engine")

// probe gets what the route of a known engine answers. The error is errOther if the server says that it is not that
// engine; other errors say nothing about what it is.
func (s *server) probe(ctx context.Context, path string, limit int64, result any) error {
	err := s.get(ctx, path, limit, result)
	failed, ok := errors.AsType[*failure](err)
	switch {
	case !ok:
		return err
	case failed.breach || failed.status == http.StatusNotImplemented:
		return errOther
	case failed.status >= 300 && failed.status < 500 && failed.status != http.StatusRequestTimeout && failed.status != http.StatusTooManyRequests:
		return errOther
	}
	return err
}

// askStatus asks as another m40-llm is asked.
func (s *server) askStatus(ctx context.Context) (kind, error) {
	var status struct {
		Step  *json.RawMessage `json:"step"`
		Setup *json.RawMessage `json:"setup"`
	}
	if err := s.probe(ctx, "/v1/status", maxModelBody, &status); err != nil {
		return kind{}, err
	}
	if status.Step == nil || status.Setup == nil {
		return kind{}, errOther
	}
	var version struct { // /health has none while a model is loaded
		Server string `json:"server"`
	}
	if err := s.probe(ctx, "/api/version", maxModelBody, &version); err != nil && !errors.Is(err, errOther) {
		return kind{}, err
	}
	return kind{native: true, engine: strings.TrimSpace("m40-llm " + s.short(strings.TrimPrefix(version.Server, "m40-llm-"))), how: "/v1/status"}, nil
}

// llamaFields are those that llama-server knows and does not list.
var llamaFields = []string{
	"tools", "tool_choice", "parallel_tool_calls", "response_format", "stream_options", "max_tokens", "chat_template_kwargs",
	"stop", "seed", "grammar", "logit_bias", "ignore_eos", "samplers", "min_keep", "dry_sequence_breakers", "logprobs", "top_logprobs",
	"continues", // a conversation that ends with the assistant's message
}

// askProps asks as llama-server is asked: its default settings name nearly all that it knows.
func (s *server) askProps(ctx context.Context) (kind, error) {
	var props struct {
		Defaults map[string]json.RawMessage `json:"default_generation_settings"`
		Template string                     `json:"chat_template"`
		Build    string                     `json:"build_info"`
		Caps     struct {
			Tools *bool `json:"supports_tools"`
		} `json:"chat_template_caps"`
	}
	if err := s.probe(ctx, "/props", maxModelBody, &props); err != nil {
		return kind{}, err
	}
	if len(props.Defaults) == 0 {
		return kind{}, errOther
	}
	k := kind{llama: true, engine: strings.TrimSpace("llama-server " + s.short(props.Build)), how: "/props", fields: known(llamaFields...)}
	k.noTools = props.Caps.Tools != nil && !*props.Caps.Tools
	_ = json.Unmarshal(props.Defaults["n_ctx"], &k.context) // 0: unknown
	if k.context < 0 || k.context > math.MaxInt32 {
		k.context = 0
	}
	for field := range props.Defaults {
		k.fields[field] = true
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(props.Defaults["params"], &params) == nil {
		for field := range params {
			k.fields[field] = true
		}
	}
	k.templateVars = reasoningVars(func(name string) bool { return strings.Contains(props.Template, name) })
	return k, nil
}

// reasoningVars returns the variables of templates that control reasoning, those that a template has.
func reasoningVars(has func(name string) bool) (list []string) {
	for _, name := range []string{"enable_thinking", "thinking", "reasoning_effort"} {
		if has(name) {
			list = append(list, name)
		}
	}
	return list
}

// askDescription asks for the OpenAPI description, which has the fields of a request.
func (s *server) askDescription(ctx context.Context) (kind, error) {
	type schema struct {
		Ref        string                     `json:"$ref"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var described struct {
		Info struct {
			Title   string `json:"title"`
			Version string `json:"version"`
		} `json:"info"`
		Paths map[string]struct {
			Post struct {
				Body struct {
					Content map[string]struct {
						Schema schema `json:"schema"`
					} `json:"content"`
				} `json:"requestBody"`
			} `json:"post"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := s.probe(ctx, "/openapi.json", maxDescribed, &described); err != nil {
		return kind{}, err
	}
	body := described.Paths["/v1/chat/completions"].Post.Body.Content["application/json"].Schema
	if name, ok := strings.CutPrefix(body.Ref, "#/components/schemas/"); ok {
		body = described.Components.Schemas[name]
	}
	if len(body.Properties) == 0 {
		return kind{}, errOther
	}
	k := kind{how: "/openapi.json", fields: map[string]bool{}, bounds: map[string]bound{}}
	if described.Info.Title != "FastAPI" { // the title of all that were given none
		k.engine = strings.TrimSpace(s.short(described.Info.Title) + " " + s.short(described.Info.Version))
	}
	for field, property := range body.Properties {
		k.fields[field] = true
		if b, ok := boundOf(property); ok {
			k.bounds[field] = b
		}
	}
	return k, nil
}

// boundOf returns the numbers that a schema allows; false if it bounds none.
func boundOf(schema json.RawMessage) (bound, bool) {
	type limits struct {
		Min *float64 `json:"minimum"`
		Max *float64 `json:"maximum"`
	}
	var property struct {
		limits
		AnyOf []limits `json:"anyOf"` // a number, or null
	}
	if json.Unmarshal(schema, &property) != nil {
		return bound{}, false
	}
	b, found := bound{math.Inf(-1), math.Inf(1)}, false
	for _, l := range append(property.AnyOf, property.limits) {
		if l.Min != nil {
			b.min, found = max(b.min, *l.Min), true
		}
		if l.Max != nil {
			b.max, found = min(b.max, *l.Max), true
		}
	}
	return b, found && b.min <= b.max
}

// notAValue is a value of no setting.
var notAValue = []any{map[string]any{"not": "a value"}}

// askByRequests tries requests of one token. A server that refuses an invented field refuses all that it does
// not know; another one refuses a field that it knows if the value is of no possible type, or fails at that value and not
// at another one. One that cannot be asked now is taken for one with OpenAI's fields until it can.
func (s *server) askByRequests(ctx context.Context, model string) kind {
	k := kind{asked: true, how: "trying", fields: known(basic...)}
	switch status := s.try(ctx, model, "m40_llm_unknown_field", 1); {
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		k.strict = true
	case status != http.StatusOK:
		return kind{fields: k.fields}
	}
	for field, value := range map[string]any{
		"top_k": 5, "min_p": 0.1, "typical_p": 0.9, "repetition_penalty": 1.1, "repeat_penalty": 1.1, "seed": 1, "logprobs": true,
		"ignore_eos": false, "chat_template_kwargs": map[string]any{}, "continue_final_message": false,
	} {
		tried := value
		if !k.strict {
			tried = notAValue
		}
		switch status := s.try(ctx, model, field, tried); {
		case status == http.StatusOK:
			k.fields[field] = k.strict
		case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
			k.fields[field] = !k.strict
		case !k.strict && s.try(ctx, model, field, value) == http.StatusOK && s.try(ctx, model, field, notAValue) != http.StatusOK:
			k.fields[field] = true // what it fails at is the value: it reads the field
		default: // which says nothing about the field
			return kind{fields: known(basic...)}
		}
	}
	k.fields["top_logprobs"] = k.fields["logprobs"]
	return k
}

// try sends a request for one token with one field more, and returns the status of the response; 0: none came.
func (s *server) try(ctx context.Context, model, field string, value any) int {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"model": model, "max_tokens": 1, "messages": []any{map[string]string{"role": "user", "content": "Hi"}}, field: value,
	})
	if err != nil {
		return 0
	}
	response, err := s.send(ctx, http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// missing returns why settings have no effect, or another one than here, by their names: what the server does,
// as the rest of a sentence about it.
func (k *kind) missing() map[string]string {
	if k.native {
		return nil
	}
	where := map[string]string{
		"":       "could not be asked whether it knows this, and is asked again",
		"/props": "does not list this in /props", "/openapi.json": "does not list this in /openapi.json", "trying": "refused or ignored this when it was tried",
	}[k.how]
	lacks := map[string]string{}
	for _, p := range settings {
		if !k.has(p.fields...) {
			lacks[p.name] = where
		}
	}
	if !k.llama {
		lacks["range"] = "gets the nearest value that such engines accept: a temperature and a repetition penalty of at most 2, the two other penalties from -2 to 2"
	}
	for setting, field := range map[string]string{"json_schema": "response_format", "grammar": "grammar"} {
		if !k.has(field) {
			lacks[setting] = where
		}
	}
	lacks["banned_strings"] = "cannot ban strings"
	if !k.has("seed") {
		lacks["seed"] = "ignores the seed: the same request gives different answers"
	} else {
		lacks["seed"] = "gets the seed, but need not give the same answer for it"
	}
	lacks["tokens"] = "does not show the ids of tokens: there is no token view, and no candidates under the sliders"
	return lacks
}
