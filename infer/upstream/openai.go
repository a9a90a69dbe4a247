package upstream

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// maxTops is the most alternatives that OpenAI's route lists.
const maxTops = 20

// call is a request to an OpenAI-compatible server.
type call struct {
	path   string
	limit  string // field of the body with the limit of tokens
	body   map[string]any
	scored bool          // the probabilities of tokens are asked for
	tools  []reply.Tool  // that the prompt describes, so that the text has the calls
	stop   []string      // stop strings that are not sent
	used   sample.Params // the settings that have an effect there
}

// callFor returns the request to the server for r, or a *fault.Error if it cannot do what r asks.
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
		c.body["seed"] = k.seed(c.used.Seed)
	}
	context := s.describe(id).Upstream.ContextLength
	c.addSettings(&k, context, r)
	sent := len(r.Stop)
	if !k.llama {
		sent = min(sent, sentStops)
	}
	if c.stop = r.Stop[sent:]; sent > 0 {
		c.body["stop"] = r.Stop[:sent]
	}
	if r.IgnoreEOS {
		c.body["ignore_eos"] = true
	}
	c.addForm(r)
	if k.noTools {
		tools, err := reply.ParseTools(callable(r))
		if err != nil {
			return call{}, fault.Invalid("tools", "%s", err)
		}
		c.tools = tools
	}
	if r.Prompt != "" {
		c.addPrompt(&k, context, r)
	} else {
		c.addMessages(&k, context, r)
	}
	return c, nil
}

// cannot returns an error if r asks for what changes an answer and the server does not have. (Samplers that it
// lacks are left out instead.)
func (s *server) cannot(k *kind, r *infer.Request) error {
	refuse := func(param, what string) error {
		return fault.Invalid(param, "%s cannot %s: leave %s out, or choose another model", s.address, what, param)
	}
	switch {
	case len(r.Tokens) > 0:
		return refuse("tokens", "be given tokens")
	case len(r.Pictures) > 0:
		return fault.Invalid("prompt", "%s reads pictures in conversations alone: send messages, or choose another model", s.address)
	case r.PromptLogProb:
		return refuse("prompt_logprob", "score a prompt")
	case len(r.Follow) > 0:
		return refuse("follow", "follow tokens")
	case len(r.BannedEnds) > 0:
		return refuse("banned_ends", "go on after the end of an answer")
	case len(r.BannedStrings) > 0:
		return refuse("banned_strings", "ban strings")
	case r.ReasoningBudget != nil:
		return refuse("reasoning_budget", "bound the tokens of reasoning")
	case len(r.Params.LogitBias) > 0 && !k.has("logit_bias"):
		return refuse("logit_bias", "change the logits of tokens")
	case r.Grammar != "" && !k.has("grammar"):
		return refuse("grammar", "keep to a grammar")
	case len(r.JSONSchema) > 0 && !k.has("response_format"):
		return refuse("json_schema", "keep to a schema")
	case r.Continue && r.ContinueForm && (r.Grammar != "" || len(r.JSONSchema) > 0):
		return refuse("continue_form", "continue an answer in its output format")
	case len(r.Tools) > 0 && !k.has("tools"):
		return refuse("tools", "call tools")
	case r.IgnoreEOS && !k.has("ignore_eos"):
		return refuse("ignore_eos", "go on after the end of an answer")
	case r.Continue && !k.has("continues", "continue_final_message"):
		return refuse("continue", "continue an answer")
	case r.Alternatives > 0 && !k.has("top_logprobs"):
		return refuse("alternatives", "list alternatives of a token")
	case r.Alternatives > maxTops:
		return fault.Invalid("alternatives", "%s lists %d alternatives of a token at most", s.address, maxTops)
	case k.noTools && r.ForcesCall():
		return refuse("tool_choice", "force a call, because the chat template of its model shows no tools")
	case k.llama && !k.noTools && len(r.Tools) > 0 && r.Grammar != "":
		return refuse("grammar", "keep to a grammar where there are tools")
	case k.llama && !k.noTools && len(r.Tools) > 0 && r.Alternatives > 0:
		return refuse("alternatives", "list alternatives of a token where there are tools")
	}
	return nil
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
func (c *call) addPrompt(k *kind, context int, r *infer.Request) {
	const fallback = 1024 // tokens, if the context is not known
	c.path, c.limit = "/v1/completions", "max_tokens"
	c.body["prompt"] = r.Prompt
	switch {
	case r.MaxTokens >= 0:
		c.body[c.limit] = atMost(r.MaxTokens, context)
	case k.llama: // it fills the context by default
	case context > 0:
		c.body[c.limit] = max(16, context-len(r.Prompt)-1)
	default:
		c.body[c.limit] = fallback
	}
	if r.Alternatives > 0 {
		c.scored, c.body["logprobs"] = true, r.Alternatives
	}
}

// atMost returns a limit of tokens that is no larger than the context, if that is known.
func atMost(n, context int) int {
	if context > 0 {
		n = min(n, context)
	}
	return min(n, math.MaxInt32)
}

// lower lowers the limit of tokens to what the prompt leaves of the context, according to the refusal of a server. It reports
// whether the request can be sent again.
func (c *call) lower(f *failure) bool {
	room := f.err.ContextLength - f.err.PromptTokens
	limit, limited := c.body[c.limit].(int)
	if !limited || f.err.Code != fault.CodeContext || f.err.PromptTokens == 0 || room <= 0 || room >= limit {
		return false
	}
	c.body[c.limit] = room
	return true
}

// addMessages adds a conversation.
func (c *call) addMessages(k *kind, context int, r *infer.Request) {
	c.path, c.limit = "/v1/chat/completions", "max_tokens"
	conversation := r.Messages
	if k.noTools {
		conversation = chatformat.AsText(r.Messages, callable(r))
	}
	messages := make([]map[string]any, len(conversation))
	for i, m := range conversation {
		messages[i] = message(m, !k.strict)
	}
	c.body["messages"] = messages
	if !k.has(c.limit) && k.has("max_completion_tokens") {
		c.limit = "max_completion_tokens"
	}
	if n := atMost(r.MaxTokens, context); n >= 0 && (n < context || context == 0) { // by default answers fill the context
		c.body[c.limit] = n
	}
	c.addScores(k, r)
	if r.Continue && k.has("continue_final_message") {
		c.body["continue_final_message"], c.body["add_generation_prompt"] = true, false
	}
	c.addTools(k, r)
	c.addTemplateVars(k, r)
}

// addScores asks for the probabilities of tokens. llama-server refuses that in streams of conversations with tools, and
// lists 20 alternatives unless it is told how many.
func (c *call) addScores(k *kind, r *infer.Request) {
	if !r.Rows && r.Alternatives == 0 || !k.has("logprobs") || k.llama && !k.noTools && len(r.Tools) > 0 {
		return
	}
	c.scored, c.body["logprobs"] = true, true
	if r.Alternatives > 0 || k.llama {
		c.body["top_logprobs"] = max(1, r.Alternatives)
	}
}

// addTools adds the tools. llama-server ignores a choice by name: it gets that tool alone.
func (c *call) addTools(k *kind, r *infer.Request) {
	if len(r.Tools) == 0 || k.noTools {
		return
	}
	c.body["tools"] = r.Tools
	switch r.ToolChoice {
	case "":
	case infer.ToolChoiceAuto, infer.ToolChoiceNone, infer.ToolChoiceRequired:
		c.body["tool_choice"] = r.ToolChoice
	default:
		if one := toolNamed(r.Tools, r.ToolChoice); k.llama && one != nil {
			c.body["tools"], c.body["tool_choice"] = []json.RawMessage{one}, infer.ToolChoiceRequired
			break
		}
		c.body["tool_choice"] = map[string]any{"type": "function", "function": map[string]any{"name": r.ToolChoice}}
	}
	if r.SingleCall && k.has("parallel_tool_calls") {
		c.body["parallel_tool_calls"] = false
	}
}

// callable returns the tools that the model may call.
func callable(r *infer.Request) json.RawMessage {
	if r.ToolChoice == infer.ToolChoiceNone {
		return nil
	}
	return r.Tools
}

// toolNamed returns the definition of the tool called name; nil if there is none.
func toolNamed(tools json.RawMessage, name string) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(tools, &list) != nil {
		return nil
	}
	for _, one := range list {
		var tool struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		if json.Unmarshal(one, &tool) == nil && tool.Function.Name == name {
			return one
		}
	}
	return nil
}

// addTemplateVars adds the variables of the chat template. llama-server refuses to continue an answer of a model that
// may think.
func (c *call) addTemplateVars(k *kind, r *infer.Request) {
	vars := maps.Clone(r.TemplateVars)
	if r.Continue && k.llama && slices.Contains(k.templateVars, "enable_thinking") {
		if vars == nil {
			vars = map[string]json.RawMessage{}
		}
		vars["enable_thinking"] = json.RawMessage("false")
	}
	if len(vars) == 0 {
		return
	}
	if effort := vars["reasoning_effort"]; effort != nil && k.has("reasoning_effort") {
		c.body["reasoning_effort"] = effort
	}
	if k.has("chat_template_kwargs") {
		c.body["chat_template_kwargs"] = vars
	}
}

// contentParts returns the texts and pictures of a message as parts.
func contentParts(m chat.Message) (parts []map[string]any) {
	for i, text := range strings.Split(m.Content, chat.PictureMark) {
		if i > 0 && i <= len(m.Pictures) {
			data := m.Pictures[i-1]
			url := "data:" + http.DetectContentType(data) + ";base64," + base64.StdEncoding.EncodeToString(data)
			image := map[string]string{"url": url}
			if m.DetailOf(i-1) == chat.Low { // OpenAI's API has no word for what is between low and high
				image["detail"] = "low"
			}
			parts = append(parts, map[string]any{"type": "image_url", "image_url": image})
		}
		if text != "" {
			parts = append(parts, map[string]any{"type": "text", "text": text})
		}
	}
	return parts
}

// message returns a message in OpenAI's form.
func message(m chat.Message, reasoning bool) map[string]any {
	out := map[string]any{"role": m.Role, "content": m.Content}
	if len(m.Pictures) > 0 {
		out["content"] = contentParts(m)
	}
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
