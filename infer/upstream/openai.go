package upstream

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/sample"
)

// setting is a setting of the samplers and how OpenAI-compatible engines call it.
type setting struct {
	name   string   // in sample.Params, in JSON
	fields []string // those that engines have for it, the first that an engine knows is used
	value  func(p *sample.Params) any
	off    func(p *sample.Params) // makes it have no effect
}

// settings are those that an engine may lack. What belongs to one of them (mirostat_tau, xtc_threshold) is
// known where it is.
var settings = []setting{
	{"temperature", []string{"temperature"}, func(p *sample.Params) any { return p.Temperature }, func(p *sample.Params) { p.Temperature = 1 }},
	{"dynatemp_range", []string{"dynatemp_range"}, func(p *sample.Params) any { return p.DynatempRange }, func(p *sample.Params) { p.DynatempRange = 0 }},
	{"dynatemp_exponent", []string{"dynatemp_exponent"}, func(p *sample.Params) any { return p.DynatempExponent }, func(p *sample.Params) { p.DynatempExponent = 1 }},
	{"top_k", []string{"top_k"}, func(p *sample.Params) any { return offIsMinusOne(p.TopK) }, func(p *sample.Params) { p.TopK = 0 }},
	{"top_p", []string{"top_p"}, func(p *sample.Params) any { return p.TopP }, func(p *sample.Params) { p.TopP = 1 }},
	{"min_p", []string{"min_p"}, func(p *sample.Params) any { return p.MinP }, func(p *sample.Params) { p.MinP = 0 }},
	{"typical_p", []string{"typical_p"}, func(p *sample.Params) any { return p.TypicalP }, func(p *sample.Params) { p.TypicalP = 1 }},
	{"top_n_sigma", []string{"top_n_sigma"}, func(p *sample.Params) any { return p.TopNSigma }, func(p *sample.Params) { p.TopNSigma = 0 }},
	{"min_keep", []string{"min_keep"}, func(p *sample.Params) any { return p.MinKeep }, func(p *sample.Params) { p.MinKeep = 0 }},
	{"mirostat", []string{"mirostat"}, func(p *sample.Params) any { return p.Mirostat }, func(p *sample.Params) { p.Mirostat = 0 }},
	{"mirostat_tau", []string{"mirostat_tau"}, func(p *sample.Params) any { return p.MirostatTau }, func(*sample.Params) {}},
	{"mirostat_eta", []string{"mirostat_eta"}, func(p *sample.Params) any { return p.MirostatEta }, func(*sample.Params) {}},
	{"xtc_probability", []string{"xtc_probability"}, func(p *sample.Params) any { return p.XTCProbability }, func(p *sample.Params) { p.XTCProbability = 0 }},
	{"xtc_threshold", []string{"xtc_threshold"}, func(p *sample.Params) any { return p.XTCThreshold }, func(*sample.Params) {}},
	{"repeat_penalty", []string{"repeat_penalty", "repetition_penalty"}, func(p *sample.Params) any { return p.RepeatPenalty }, func(p *sample.Params) { p.RepeatPenalty = 1 }},
	{"repeat_last_n", []string{"repeat_last_n"}, func(p *sample.Params) any { return p.RepeatLastN }, func(*sample.Params) {}},
	{"presence_penalty", []string{"presence_penalty"}, func(p *sample.Params) any { return p.PresencePenalty }, func(p *sample.Params) { p.PresencePenalty = 0 }},
	{"frequency_penalty", []string{"frequency_penalty"}, func(p *sample.Params) any { return p.FrequencyPenalty }, func(p *sample.Params) { p.FrequencyPenalty = 0 }},
	{"dry_multiplier", []string{"dry_multiplier"}, func(p *sample.Params) any { return p.DryMultiplier }, func(p *sample.Params) { p.DryMultiplier = 0 }},
	{"dry_base", []string{"dry_base"}, func(p *sample.Params) any { return p.DryBase }, func(*sample.Params) {}},
	{"dry_allowed_length", []string{"dry_allowed_length"}, func(p *sample.Params) any { return p.DryAllowedLength }, func(*sample.Params) {}},
	{"dry_penalty_last_n", []string{"dry_penalty_last_n"}, func(p *sample.Params) any { return p.DryPenaltyLastN }, func(*sample.Params) {}},
	{"dry_sequence_breakers", []string{"dry_sequence_breakers"}, func(p *sample.Params) any { return p.DryBreakers }, func(*sample.Params) {}},
	{"samplers", []string{"samplers"}, func(p *sample.Params) any { return stages(p.Samplers) }, func(p *sample.Params) { p.Samplers = nil }},
}

// offIsMinusOne returns k, or -1 for 0: engines agree only in that for a top_k that is off.
func offIsMinusOne(k int) int {
	if k == 0 {
		return -1
	}
	return k
}

// stages returns the stages of a chain with llama-server's names; nil for the default order.
func stages(names []string) any {
	if len(names) == 0 {
		return nil
	}
	list := slices.Clone(names)
	for i, name := range list {
		if name == "typical_p" {
			list[i] = "typ_p"
		}
	}
	return list
}

// maxTops is the most alternatives that OpenAI's route lists.
const maxTops = 20

// call is a request to an OpenAI-compatible server.
type call struct {
	path string
	body map[string]any
	used sample.Params // the settings that have an effect there
}

// callFor returns the request to the server for r, or an *infer.Error if it cannot do what r asks.
func (s *server) callFor(id string, r *infer.Request) (call, error) {
	k := s.currentKind()
	if err := s.cannot(&k, r); err != nil {
		return call{}, err
	}
	c := call{used: r.Params, body: map[string]any{"model": id, "stream": true}}
	if k.has("stream_options") || !k.strict {
		c.body["stream_options"] = map[string]any{"include_usage": true}
	}
	if c.used.Seed < 0 {
		c.used.Seed = rand.Int64N(math.MaxInt32)
	}
	if k.has("seed") {
		c.body["seed"] = c.used.Seed
	}
	c.addSettings(&k, r)
	if len(r.Stop) > 0 {
		c.body["stop"] = r.Stop
	}
	if r.IgnoreEOS {
		c.body["ignore_eos"] = true
	}
	c.addForm(r)
	if r.Prompt != "" {
		c.addPrompt(s.describe(id).Upstream.ContextLength, r)
	} else {
		c.addMessages(&k, r)
	}
	return c, nil
}

// cannot returns an error if r asks for what changes an answer and the server does not have. (Samplers that it
// lacks are left out instead.)
func (s *server) cannot(k *kind, r *infer.Request) error {
	refuse := func(param, what string) error {
		return infer.Invalid(param, "%s cannot %s: leave %s out, or choose another model", s.address, what, param)
	}
	switch {
	case len(r.Tokens) > 0:
		return refuse("tokens", "be given tokens")
	case r.PromptLogProb:
		return refuse("prompt_logprob", "score a prompt")
	case len(r.Follow) > 0:
		return refuse("follow", "follow tokens")
	case len(r.BannedEnds) > 0:
		return refuse("banned_ends", "go on behind the end of an answer")
	case len(r.BannedStrings) > 0:
		return refuse("banned_strings", "ban strings")
	case len(r.Params.LogitBias) > 0 && !k.has("logit_bias"):
		return refuse("logit_bias", "change the logits of tokens")
	case r.Grammar != "" && !k.has("grammar"):
		return refuse("grammar", "keep to a grammar")
	case len(r.JSONSchema) > 0 && !k.has("response_format"):
		return refuse("json_schema", "keep to a schema")
	case len(r.Tools) > 0 && !k.has("tools"):
		return refuse("tools", "call tools")
	case r.IgnoreEOS && !k.has("ignore_eos"):
		return refuse("ignore_eos", "go on behind the end of an answer")
	case r.Continue && !k.has("continues", "continue_final_message"):
		return refuse("continue", "continue an answer")
	case r.Alternatives > 0 && !k.has("top_logprobs"):
		return refuse("alternatives", "list alternatives of a token")
	case r.Alternatives > maxTops:
		return infer.Invalid("alternatives", "%s lists %d alternatives of a token at most", s.address, maxTops)
	}
	return nil
}

// addSettings adds the settings that the server knows, and makes those that it does not have no effect in used.
func (c *call) addSettings(k *kind, r *infer.Request) {
	for _, p := range settings {
		at := slices.IndexFunc(p.fields, func(f string) bool { return k.has(f) })
		switch {
		case at < 0:
			p.off(&c.used)
		case slices.Contains(r.Unset, p.name): // what the model's maker recommends is there
		default:
			if value := p.value(&r.Params); value != nil {
				c.body[p.fields[at]] = value
			}
		}
	}
	if len(r.Params.LogitBias) > 0 {
		c.body["logit_bias"] = r.Params.LogitBias
	}
}

// addForm adds what constrains the answer.
func (c *call) addForm(r *infer.Request) {
	if r.Grammar != "" {
		c.body["grammar"] = r.Grammar
	}
	if len(r.JSONSchema) > 0 {
		c.body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": r.JSONSchema, "strict": r.StrictSchema}}
	}
}

// addPrompt adds the prompt of a raw text. Where engines generate few tokens by default, the rest of the
// context is asked for: a prompt has no more tokens than bytes.
func (c *call) addPrompt(context int, r *infer.Request) {
	const fallback = 1024 // tokens, if the context is not known
	c.path = "/v1/completions"
	c.body["prompt"] = r.Prompt
	c.body["max_tokens"] = r.MaxTokens
	if r.MaxTokens < 0 {
		c.body["max_tokens"] = fallback
		if context > 0 {
			c.body["max_tokens"] = max(16, context-len(r.Prompt)-1)
		}
	}
	if r.Alternatives > 0 {
		c.body["logprobs"] = r.Alternatives
	}
}

// addMessages adds a conversation.
func (c *call) addMessages(k *kind, r *infer.Request) {
	c.path = "/v1/chat/completions"
	messages := make([]map[string]any, len(r.Messages))
	for i, m := range r.Messages {
		messages[i] = message(m, !k.strict)
	}
	c.body["messages"] = messages
	if r.MaxTokens >= 0 {
		field := "max_tokens"
		if !k.has(field) && k.has("max_completion_tokens") {
			field = "max_completion_tokens"
		}
		c.body[field] = r.MaxTokens
	}
	if (r.Rows || r.Alternatives > 0) && k.has("logprobs") {
		c.body["logprobs"] = true
		if r.Alternatives > 0 {
			c.body["top_logprobs"] = r.Alternatives
		}
	}
	if r.Continue && k.has("continue_final_message") {
		c.body["continue_final_message"], c.body["add_generation_prompt"] = true, false
	}
	c.addTools(k, r)
	c.addTemplateVars(k, r)
}

func (c *call) addTools(k *kind, r *infer.Request) {
	if len(r.Tools) == 0 {
		return
	}
	c.body["tools"] = r.Tools
	switch r.ToolChoice {
	case "":
	case infer.ToolChoiceAuto, infer.ToolChoiceNone, infer.ToolChoiceRequired:
		c.body["tool_choice"] = r.ToolChoice
	default:
		c.body["tool_choice"] = map[string]any{"type": "function", "function": map[string]any{"name": r.ToolChoice}}
	}
	if r.SingleCall && k.has("parallel_tool_calls") {
		c.body["parallel_tool_calls"] = false
	}
}

// addTemplateVars adds the variables of the chat template.
func (c *call) addTemplateVars(k *kind, r *infer.Request) {
	if len(r.TemplateVars) == 0 {
		return
	}
	if effort := r.TemplateVars["reasoning_effort"]; effort != nil && k.has("reasoning_effort") {
		c.body["reasoning_effort"] = effort
	}
	if k.has("chat_template_kwargs") {
		c.body["chat_template_kwargs"] = r.TemplateVars
	}
}

// message returns a message in OpenAI's form.
func message(m chat.Message, reasoning bool) map[string]any {
	out := map[string]any{"role": m.Role, "content": m.Content}
	if len(m.ToolCalls) > 0 {
		out["tool_calls"] = json.RawMessage(m.ToolCalls)
		if m.Content == "" {
			out["content"] = nil
		}
	}
	if m.ReasoningContent != "" && reasoning {
		out["reasoning_content"] = m.ReasoningContent
	}
	if m.Name != "" {
		out["name"] = m.Name
	}
	if m.ToolCallID != "" {
		out["tool_call_id"] = m.ToolCallID
	}
	return out
}
