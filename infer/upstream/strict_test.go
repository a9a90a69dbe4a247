package upstream

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
)

// Stand-ins that refuse what the engines refuse: llama-server as of October 2026, vLLM 0.32, and a server that knows the
// fields of OpenAI's description alone.

// strict is an engine that checks a body. refusal returns why it refuses it; empty: it does not.
type strict struct {
	name    string
	models  string
	routes  map[string]string // bodies of GET requests
	context int               // tokens
	words   int               // tokens of each prompt
	refusal func(path string, body map[string]any) string
	shape   func(message string) string // of an error
	greets  func(w http.ResponseWriter, r *http.Request, body map[string]any)

	forcesNothing  bool // a call cannot be required of it
	takesNoGrammar bool
}

// greetsAnywhere answers conversations and raw texts with two words.
func greetsAnywhere(w http.ResponseWriter, r *http.Request, body map[string]any) {
	if r.URL.Path == "/v1/completions" {
		stream(w, `{"choices":[{"index":0,"text":"Hello"}]}`, `{"choices":[{"index":0,"text":" there","finish_reason":"stop"}]}`, useChunk, "[DONE]")
		return
	}
	greets(w, r, body)
}

// serve starts the engine. Errors of it that should not be are collected in the stand-in's wrong.
func (e *strict) serve(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, body map[string]any)) *standIn {
	s := newStandIn(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		if why := cmp.Or(e.refusal(r.URL.Path, body), refusedParts(body)); why != "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, e.shape(why))
			return
		}
		answer(w, r, body)
	})
	s.models, s.extra = e.models, e.routes
	return s
}

// number returns a number of a body; false if the field is absent. Integers have no fraction.
func number(body map[string]any, field string, whole bool) (v float64, there bool, wrong string) {
	raw, there := body[field]
	if !there || raw == nil {
		return 0, false, ""
	}
	v, ok := raw.(float64)
	if !ok || whole && v != math.Trunc(v) {
		return 0, true, fmt.Sprintf("%s: Input should be a valid number, got %v", field, raw)
	}
	return v, true, ""
}

// firstOutside returns a refusal for the first field that is outside of its limits.
func firstOutside(body map[string]any, whole bool, limits map[string][2]float64, say func(field string, v float64, l [2]float64) string) string {
	for _, field := range slices.Sorted(keys(limits)) {
		v, there, wrong := number(body, field, whole)
		if wrong != "" {
			return wrong
		}
		if l := limits[field]; there && (v < l[0] || v > l[1]) {
			return say(field, v, l)
		}
	}
	return ""
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

const llamaProps = `{"default_generation_settings":{"id":0,"n_ctx":2048,"params":{"seed":4294967295,"temperature":0.8,"dynatemp_range":0,"dynatemp_exponent":1,"top_k":40,"top_p":0.95,"min_p":0.05,"top_n_sigma":-1,"xtc_probability":0,"xtc_threshold":0.1,"typical_p":1,"repeat_last_n":64,"repeat_penalty":1,"presence_penalty":0,"frequency_penalty":0,"dry_multiplier":0,"dry_base":1.75,"dry_allowed_length":2,"dry_penalty_last_n":2048,"mirostat":0,"mirostat_tau":5,"mirostat_eta":0.1,"max_tokens":-1,"n_predict":-1,"n_keep":0,"n_discard":0,"ignore_eos":false,"stream":true,"n_probs":0,"min_keep":0,"chat_format":"Content-only","reasoning_format":"deepseek","samplers":["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc","temperature"],"timings_per_token":false,"post_sampling_probs":false}},"total_slots":4,"model_alias":"SmolLM2","model_path":"/models/SmolLM2.gguf","modalities":{"vision":false,"audio":false},"chat_template":"{%% if enable_thinking %%}%s","chat_template_caps":{"supports_tools":%t,"supports_tool_calls":%[2]t,"supports_system_role":true},"build_info":"b9000-0c1e570"}`

// llamaServer is llama-server with one model, whose template shows tools or not.
func llamaServer(tools bool) *strict {
	return &strict{
		name: fmt.Sprintf("llama-server with tools in the template %v", tools), context: 2048, greets: greetsAnywhere, forcesNothing: !tools,
		models: `{"models":[{"name":"m"}],"object":"list","data":[{"id":"m","object":"model","created":1795881601,"owned_by":"llamacpp","meta":{"vocab_type":2,"n_vocab":49152,"n_ctx_train":8192,"n_embd":576,"n_params":134515584,"size":91727616}}]}`,
		routes: map[string]string{"/props": fmt.Sprintf(llamaProps, "{{ messages }}", tools)},
		refusal: func(_ string, body map[string]any) string {
			return refusedByLlama(body)
		},
		shape: func(message string) string {
			return fmt.Sprintf(`{"error":{"code":400,"message":%s,"type":"invalid_request_error"}}`, must(json.Marshal(message)))
		},
	}
}

// llamaSamplers are the names that llama-server has for the stages of its chain.
var llamaSamplers = []string{"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", "infill", "adaptive_p"}

func refusedByLlama(body map[string]any) string {
	const most = math.MaxInt32
	whole := map[string][2]float64{
		"repeat_last_n": {0, most}, "dry_penalty_last_n": {0, most}, "dry_allowed_length": {0, most}, "min_keep": {0, most},
		"max_tokens": {-1, most}, "max_completion_tokens": {-1, most}, "n_predict": {-1, most}, "top_k": {-most, most}, "mirostat": {-most, most}, "seed": {-most, math.MaxUint32},
	}
	if why := firstOutside(body, true, whole, func(field string, v float64, l [2]float64) string {
		return fmt.Sprintf("Field '%s': Value must be between %.0f <= value <= %.0f, but got %.0f", field, l[0], l[1], v)
	}); why != "" {
		return why
	}
	for _, field := range []string{"temperature", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "mirostat_tau", "mirostat_eta"} {
		if _, _, wrong := number(body, field, false); wrong != "" {
			return wrong
		}
	}
	if v, there, _ := number(body, "repeat_penalty", false); there && v <= 0 {
		return "Failed to initialize samplers: penalty_repeat must be finite and greater than 0"
	}
	list, there := body["dry_sequence_breakers"]
	if texts, ok := list.([]any); there && (!ok || len(texts) == 0) {
		return "Field 'dry_sequence_breakers': Error: dry_sequence_breakers must be a non-empty array of strings"
	}
	for _, name := range asList(body["samplers"]) {
		if !slices.Contains(llamaSamplers, name) {
			return "unable to match sampler by name '" + name + "'" // it only logs that, and the stage is lost
		}
	}
	tools, _ := body["tools"].([]any)
	_, grammar := body["grammar"]
	scored, _ := body["logprobs"].(bool)
	_, tops := body["top_logprobs"]
	if choice, there := body["tool_choice"]; there {
		if text, ok := choice.(string); !ok || !slices.Contains([]string{"auto", "none", "required"}, text) {
			return "tool_choice is ignored unless it is auto, none or required"
		}
	}
	vars, _ := body["chat_template_kwargs"].(map[string]any)
	messages, _ := body["messages"].([]any)
	last, _ := append(messages, map[string]any{})[max(0, len(messages)-1)].(map[string]any)
	switch {
	case len(tools) > 0 && grammar && body["tool_choice"] != "none":
		return "Cannot use custom grammar constraints with tools."
	case len(tools) > 0 && scored:
		return "logprobs is not supported with tools + stream"
	case tops && !scored:
		return "top_logprobs requires logprobs to be set to true"
	case last["role"] == "assistant" && // versions of 2025
		vars["enable_thinking"] != false:
		return "Assistant response prefill is incompatible with enable_thinking."
	}
	if on, there := vars["enable_thinking"]; there {
		if _, ok := on.(bool); !ok {
			return "invalid type for \"enable_thinking\" (expected boolean, got string)"
		}
	}
	return allocatedByLlama(body)
}

// allocatedByLlama returns what llama-server would allocate for a window that is larger than the context.
func allocatedByLlama(body map[string]any) string {
	for _, field := range []string{"repeat_last_n", "dry_penalty_last_n"} {
		if v, _, _ := number(body, field, true); v > 2048 {
			return fmt.Sprintf("std::bad_alloc: %s has %.0f places", field, v)
		}
	}
	return ""
}

// partFields are the fields of the parts of a message, by type, and those of image_url, as OpenAI's description has them.
var partFields = map[string][]string{"text": {"type", "text"}, "image_url": {"type", "image_url"}, "": {"url", "detail"}}

// refusedParts returns why an engine with OpenAI's parts refuses those of the messages of a body. It takes no field that it does not
// know, and pictures of users alone.
func refusedParts(body map[string]any) string {
	messages, _ := body["messages"].([]any)
	for i, one := range messages {
		m, _ := one.(map[string]any)
		parts, _ := m["content"].([]any)
		for k, part := range parts {
			p, _ := part.(map[string]any)
			if why := refusedPart(p, m["role"]); why != "" {
				return fmt.Sprintf("messages[%d].content[%d]: %s", i, k, why)
			}
		}
	}
	return ""
}

func refusedPart(p map[string]any, role any) string {
	kind, _ := p["type"].(string)
	image, _ := p["image_url"].(map[string]any)
	for fields, object := range map[string]map[string]any{kind: p, "": image} {
		for name := range object {
			if !slices.Contains(partFields[fields], name) {
				return "unknown field " + name
			}
		}
	}
	if kind == "text" {
		if text, _ := p["text"].(string); text == "" {
			return "text is missing"
		}
		return ""
	}
	url, _ := image["url"].(string)
	head, encoded, _ := strings.Cut(url, ",")
	_, err := base64.StdEncoding.DecodeString(encoded)
	detail, hasDetail := image["detail"]
	switch {
	case role != "user":
		return fmt.Sprintf("a picture in a message of the role %v", role)
	case !slices.Contains([]string{"data:image/png;base64", "data:image/jpeg;base64", "data:image/gif;base64", "data:image/webp;base64"}, head) || encoded == "" || err != nil:
		return fmt.Sprintf("url is no data: URL of a picture: %.40q", url)
	case hasDetail && !slices.Contains([]any{"low", "high", "auto"}, detail):
		return fmt.Sprintf("detail must be low, high or auto, not %v", detail)
	}
	return ""
}

func asList(v any) (list []string) {
	values, _ := v.([]any)
	for _, one := range values {
		text, _ := one.(string)
		list = append(list, text)
	}
	return list
}

// vllmFields are those of vLLM's chat completions that its description lists, as far as this package could send them.
const vllmFields = "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n presence_penalty response_format seed stop stream stream_options temperature top_p tools tool_choice " +
	"reasoning_effort parallel_tool_calls user use_beam_search top_k min_p repetition_penalty length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens prompt_logprobs allowed_token_ids " +
	"bad_words echo add_generation_prompt continue_final_message add_special_tokens documents chat_template chat_template_kwargs structured_outputs priority request_id return_token_ids cache_salt"

// vLLM is vLLM with one model of 2,048 positions, whose prompts have 30 tokens.
func vLLM() *strict {
	properties := map[string]any{}
	for field := range strings.FieldsSeq(vllmFields) {
		properties[field] = map[string]any{}
	}
	properties["seed"] = map[string]any{"anyOf": []any{map[string]any{"type": "integer", "minimum": math.MinInt64, "maximum": math.MaxInt64}, map[string]any{"type": "null"}}}
	description := map[string]any{
		"info": map[string]any{"title": "FastAPI", "version": "0.1.0"},
		"paths": map[string]any{"/v1/chat/completions": map[string]any{"post": map[string]any{"requestBody": map[string]any{"content": map[string]any{"application/json": map[string]any{
			"schema": map[string]any{"$ref": "#/components/schemas/ChatCompletionRequest"}}}}}}},
		"components": map[string]any{"schemas": map[string]any{"ChatCompletionRequest": map[string]any{"properties": properties}}},
	}
	e := &strict{
		name: "vLLM", takesNoGrammar: true, context: 2048, words: 30, greets: greetsAnywhere,
		models: `{"object":"list","data":[{"id":"m","object":"model","created":1795881601,"owned_by":"vllm","root":"/models/smol","parent":null,"max_model_len":2048,"permission":[]}]}`,
		routes: map[string]string{"/openapi.json": string(must(json.Marshal(description))), "/version": `{"version":"0.32.0"}`},
		shape: func(message string) string {
			return fmt.Sprintf(`{"error":{"message":%s,"type":"BadRequestError","param":null,"code":400}}`, must(json.Marshal(message)))
		},
	}
	e.refusal = func(path string, body map[string]any) string { return refusedByVLLM(e, path, body) }
	return e
}

func refusedByVLLM(e *strict, path string, body map[string]any) string {
	between := func(field string, v float64, l [2]float64) string {
		return fmt.Sprintf("%s must be in [%v, %v], got %v.", field, l[0], l[1], v)
	}
	real := map[string][2]float64{
		"presence_penalty": {-2, 2}, "frequency_penalty": {-2, 2}, "temperature": {0, 2}, "top_p": {math.SmallestNonzeroFloat64, 1}, "min_p": {0, 1}, "repetition_penalty": {math.SmallestNonzeroFloat64, math.MaxFloat64},
	}
	whole := map[string][2]float64{
		"top_k": {-1, math.MaxInt32}, "max_tokens": {1, math.MaxInt32}, "max_completion_tokens": {1, math.MaxInt32}, "top_logprobs": {0, 20}, "seed": {math.MinInt64, math.MaxInt64},
	}
	for _, why := range []string{firstOutside(body, false, real, between), firstOutside(body, true, whole, between)} {
		if why != "" {
			return why
		}
	}
	if slices.Contains(asList(body["stop"]), "") {
		return "stop cannot contain an empty string."
	}
	if n := len(asList(body["stop"])); n > 4 {
		return fmt.Sprintf("{'type': 'too_long', 'loc': 'body.stop', 'msg': 'List should have at most 4 items after validation, not %d'}", n)
	}
	if _, tops := body["top_logprobs"]; tops && body["logprobs"] != true && path == "/v1/chat/completions" {
		return "when using `top_logprobs`, `logprobs` must be set to true."
	}
	if body["continue_final_message"] == true && body["add_generation_prompt"] != false {
		return "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
	}
	_, tools := body["tools"]
	if _, choice := body["tool_choice"]; choice && !tools {
		return "When using `tool_choice`, `tools` must be set."
	}
	if e.words >= e.context {
		return fmt.Sprintf("This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", e.context, e.words)
	}
	if n, _, _ := number(body, "max_tokens", true); int(n)+e.words > e.context {
		return fmt.Sprintf("'max_tokens' or 'max_completion_tokens' is too large: %.0f. This model's maximum context length is %d tokens and your request has %d input tokens (%.0f > %d - %d).", n, e.context, e.words, n, e.context, e.words)
	}
	return ""
}

// openAI is a server with OpenAI's fields and limits, which refuses all others and describes nothing.
func openAI() *strict {
	fields := append(slices.Clone(basic), "messages", "prompt", "model", "stream", "n", "max_completion_tokens")
	return &strict{
		name: "a server with OpenAI's fields", takesNoGrammar: true, context: 0, greets: greetsAnywhere, models: `{"data":[{"id":"m","owned_by":"somebody"}]}`,
		shape: func(message string) string {
			return fmt.Sprintf(`{"error":{"message":%s,"type":"invalid_request_error","param":null,"code":null}}`, must(json.Marshal(message)))
		},
		refusal: func(_ string, body map[string]any) string {
			for field := range body {
				if !slices.Contains(fields, field) {
					return "Unknown parameter: '" + field + "'."
				}
			}
			if n := len(asList(body["stop"])); n > 4 {
				return fmt.Sprintf("Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length %d instead.", n)
			}
			return firstOutside(body, false, map[string][2]float64{"temperature": {0, 2}, "top_p": {0, 1}, "presence_penalty": {-2, 2}, "frequency_penalty": {-2, 2}, "top_logprobs": {0, 20}, "max_tokens": {1, math.MaxInt32}},
				func(field string, v float64, l [2]float64) string {
					return fmt.Sprintf("Invalid '%s': %v is not from %v to %v.", field, v, l[0], l[1])
				})
		},
	}
}

// m40 is another m40-llm, which takes what Request.Validate takes.
func m40() *strict {
	return &strict{
		name: "another m40-llm", models: `{"data":[{"id":"m"}]}`,
		routes: map[string]string{"/v1/status": `{"state":"ready","step":{},"setup":{},"model":{"name":"m"},"context_length":2048}`},
		refusal: func(_ string, body map[string]any) string {
			r := infer.DefaultRequest()
			if err := json.Unmarshal(must(json.Marshal(body)), &r); err != nil {
				return err.Error()
			}
			if err := r.Validate(); err != nil {
				return err.Error()
			}
			return ""
		},
		shape: func(message string) string {
			return fmt.Sprintf(`{"error":{"code":"invalid_request","message":%s}}`, must(json.Marshal(message)))
		},
		greets: func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			var done infer.Done
			done.Reason, done.Receipt.Params = infer.FinishStop, infer.DefaultRequest().Params
			for i, text := range []string{"Hello", " there"} {
				t := infer.Token{Text: text}
				t.ID = int32(i)
				json.NewEncoder(w).Encode(infer.Event{Type: infer.EventToken, Token: &t})
			}
			json.NewEncoder(w).Encode(infer.Event{Type: infer.EventDone, Done: &done})
		},
	}
}
