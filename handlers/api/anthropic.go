package api

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// AnthropicConversation are the fields that POST /v1/messages and /v1/messages/count_tokens share.
type AnthropicConversation struct {
	Model      string            `json:"model"`
	System     json.RawMessage   `json:"system" schema:"string|[object]"` // a string, or an array of text blocks
	Messages   []anthropicInput  `json:"messages" schema:"required"`
	Tools      []json.RawMessage `json:"tools" schema:"[object]"`
	ToolChoice *struct {
		Type           string `json:"type"` // auto, any, tool, none
		Name           string `json:"name"`
		DisableSeveral bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	names    *toolNames
	Thinking struct {
		Type   string `json:"type"`          // enabled, disabled, adaptive; absent: as the model does by default
		Budget *int   `json:"budget_tokens"` // below max_tokens
	} `json:"thinking"`
}

// AnthropicRequest is the body of POST /v1/messages.
type AnthropicRequest struct {
	AnthropicConversation
	sample.Params
	MaxTokens     *int     `json:"max_tokens" schema:"required"`
	StopSequences []string `json:"stop_sequences"`
	Stream        bool     `json:"stream"`
	OutputConfig  struct {
		Format anthropicFormat `json:"format"`
		Effort string          `json:"effort"`
	} `json:"output_config"`
	OutputFormat anthropicFormat `json:"output_format"` // another name of output_config.format, which comes first
	Connectors   []any           `json:"mcp_servers" schema:"-"`
}

// anthropicFormat constrains the answer.
type anthropicFormat struct {
	Type   string          `json:"type"` // json_schema
	Schema json.RawMessage `json:"schema" schema:"object|boolean"`
}

type anthropicInput struct {
	Role    string          `json:"role" schema:"required"`
	Content json.RawMessage `json:"content" schema:"required,string|[object]"` // a string, or an array of blocks
}

// anthropicBlock is a block of a message.
type anthropicBlock struct {
	raw       json.RawMessage
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	Title     string          `json:"title"`
	Context   string          `json:"context"` // of a document
	Source    json.RawMessage `json:"source"`
}

// messages answers POST /v1/messages.
func (api *API) messages(c echo.Context) (err error) {
	body := AnthropicRequest{Params: sample.Unset()}
	defer func() { err = renamed(err, "json_schema", "output_config.format.schema") }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	model := api.modelName(body.Model)
	if body.Stream {
		return api.stream(c, asked{requests: []infer.Request{r}, names: body.names}, func() (sink, error) { return openMessageStream(c, model) })
	}
	answers, err := api.collect(c, asked{requests: []infer.Request{r}, names: body.names})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, wholeMessage(model, answers[0]))
}

// countTokens answers POST /v1/messages/count_tokens.
func (api *API) countTokens(c echo.Context) error {
	var body AnthropicConversation
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r := infer.DefaultRequest()
	if err := body.fill(&r); err != nil {
		return err
	}
	if err := api.showPictures(c.Request().Context(), &r); err != nil {
		return err
	}
	rendered, err := api.engine.Render(c.Request().Context(), r)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, AnthropicCount{len(rendered.Tokens)})
}

// AnthropicCount is the response to POST /v1/messages/count_tokens.
type AnthropicCount struct {
	InputTokens int `json:"input_tokens"`
}

// request returns the engine's request.
func (b *AnthropicRequest) request() (infer.Request, error) {
	if len(b.Connectors) > 0 {
		return infer.Request{}, fault.Invalid("mcp_servers", "mcp_servers is not supported: this server calls no others; connect to them in the client, and send their tools in tools")
	}
	stop, err := json.Marshal(b.StopSequences)
	if err != nil {
		return infer.Request{}, err
	}
	f := generationFields{Model: b.Model, Params: b.Params, MaxTokens: b.MaxTokens, Stop: stop}
	r, err := f.request()
	if err != nil {
		return r, renamed(err, "stop", "stop_sequences")
	}
	if b.MaxTokens == nil {
		return r, fault.Invalid("max_tokens", "max_tokens is missing: it is the most tokens that the answer may have")
	}
	if budget := b.Thinking.Budget; budget != nil && b.Thinking.Type == "enabled" && *budget >= r.MaxTokens {
		return r, fault.Invalid("thinking.budget_tokens", "max_tokens must be greater than thinking.budget_tokens, but they are %d and %d", r.MaxTokens, *budget)
	}
	if b.Thinking.Type == "enabled" {
		r.ReasoningBudget = b.Thinking.Budget
	}
	if effort := b.OutputConfig.Effort; effort != "" {
		setTemplateVar(&r, "reasoning_effort", effort)
	}
	if err := b.fill(&r); err != nil {
		return r, err
	}
	format, param := b.OutputConfig.Format, "output_config.format"
	if format.Type == "" {
		format, param = b.OutputFormat, "output_format"
	}
	switch {
	case format.Type == "":
	case format.Type != "json_schema" || !given(format.Schema):
		return r, fault.Invalid(param, `%s must be {"type":"json_schema","schema":{…}}`, param)
	default:
		r.JSONSchema = format.Schema
	}
	r.ParseReply, r.WholeCalls = true, r.WholeCalls || !b.Stream
	return r, nil
}

// fill adds the conversation to r.
func (b *AnthropicConversation) fill(r *infer.Request) error {
	r.Model = b.Model
	system, err := parseContent(b.System, "system")
	if err != nil {
		return err
	}
	var list conversation
	if system = withoutBilling(system); system != "" {
		list.add(chat.Message{Role: "system", Content: system})
	}
	for i := range b.Messages {
		if err := b.Messages[i].addTo(&list, fmt.Sprintf("messages[%d]", i)); err != nil {
			return err
		}
	}
	if r.Messages = list.end(); !asksSomething(r.Messages) {
		return fault.Invalid("messages", "messages must be an array with at least one message of the user or the assistant")
	}
	if last := r.Messages[len(r.Messages)-1]; last.Role == "assistant" && len(last.ToolCalls) == 0 {
		r.Continue = true // Anthropic's way to begin the answer
	}
	switch b.Thinking.Type {
	case "":
	case "enabled", "adaptive", "disabled":
		setThinking(r, b.Thinking.Type != "disabled")
	default:
		return fault.Invalid("thinking.type", "thinking.type must be enabled, adaptive or disabled, not %q", httpio.Shorten(b.Thinking.Type))
	}
	return b.fillTools(r)
}

// anthropicTool is a tool of a request. Those with a type other than custom are defined by Anthropic.
type anthropicTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	Strict      *bool           `json:"strict"`
}

// fillTools adds the tools to r. Tools that Anthropic defines are ignored: the model does not know them.
func (b *AnthropicConversation) fillTools(r *infer.Request) (err error) {
	var offers []offer
	for i, raw := range b.Tools {
		where := fmt.Sprintf("tools[%d]", i)
		var t anthropicTool
		if err := httpio.DecodeJSON(raw, where, &t); err != nil {
			return err
		}
		if t.Type == "" || t.Type == "custom" {
			offers = append(offers, offer{where: where, schema: "input_schema", name: t.Name, description: t.Description, parameters: t.Schema, strict: t.Strict})
		}
	}
	choice := toolChoice{mode: infer.ToolChoiceAuto}
	var parallel *bool
	if c := b.ToolChoice; c != nil {
		parallel = new(!c.DisableSeveral)
		switch c.Type {
		case "auto", "none":
			choice.mode = c.Type
		case "any":
			choice.mode = infer.ToolChoiceRequired
		case "tool":
			if choice = (toolChoice{name: c.Name}); c.Name == "" {
				return fault.Invalid("tool_choice.name", "tool_choice.name is missing: it is the name of the tool to call")
			}
		default:
			return fault.Invalid("tool_choice.type", "tool_choice.type must be auto, any, tool or none, not %q", httpio.Shorten(c.Type))
		}
	}
	b.names, err = fillTools(r, offers, choice, parallel)
	return err
}

// addTo adds a message, which the field called param holds, to a conversation.
func (m *anthropicInput) addTo(list *conversation, param string) error {
	if m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
		return fault.Invalid(param+".role", "%s.role must be user or assistant, not %q", param, httpio.Shorten(m.Role))
	}
	if firstByte(m.Content) != '[' {
		text, err := parseContent(m.Content, param+".content")
		if err != nil {
			return err
		}
		list.add(chat.Message{Role: m.Role, Content: text})
		return nil
	}
	var blocks []json.RawMessage
	if err := httpio.DecodeJSON(m.Content, param+".content", &blocks); err != nil {
		return err
	}
	var seen seenContent
	for i, raw := range blocks {
		where := fmt.Sprintf("%s.content[%d]", param, i)
		var block anthropicBlock
		if err := httpio.DecodeJSON(raw, where, &block); err != nil {
			return err
		}
		block.raw = raw
		if shown, is, err := pictureOf(raw, where); is && m.Role == "user" {
			if err != nil {
				return err
			}
			seen.addPicture(shown)
			continue
		}
		said, err := block.addTo(list, m.Role, where)
		if err != nil {
			return err
		}
		for _, text := range said {
			seen.addText(text)
		}
	}
	said := seen.message()
	if m.Role == "assistant" {
		list.addText(said.Content)
	} else if len(seen.texts)+len(said.Pictures) > 0 {
		said.Role = m.Role
		list.add(said)
	}
	return nil
}

// blockRoles are the roles of messages that blocks belong into, of those that do not belong into all.
var blockRoles = map[string]string{"thinking": "assistant", "redacted_thinking": "assistant", "tool_use": "assistant", "tool_result": "user"}

// addTo adds the block to the conversation, or returns its text. A block of an unknown type becomes text that
// says so.
func (b *anthropicBlock) addTo(list *conversation, role, param string) (text []string, err error) {
	if need := blockRoles[b.Type]; need != "" && need != role {
		return nil, fault.Invalid(param+".type", "%s.type cannot be %q in a message of role %s: it belongs into one of role %s", param, b.Type, role, need)
	}
	if text, ok, err := b.document(param); ok || err != nil {
		return []string{text}, err
	}
	switch b.Type {
	case "":
		return nil, fault.Invalid(param+".type", "%s.type is missing: it is text, image, thinking, tool_use, tool_result, document or search_result", param)
	case "text":
		return []string{b.Text}, nil
	case "redacted_thinking":
		return nil, nil
	case "thinking":
		list.addThought(b.Thinking)
		return nil, nil
	case "tool_use":
		if b.Name == "" || firstByte(b.Input) != '{' {
			return nil, fault.Invalid(param, "%s must have a name and an input, an object", param)
		}
		list.addCall(b.ID, b.Name, string(b.Input))
		return nil, nil
	case "tool_result":
		result, err := parseSeenResult(b.Content, param+".content")
		if err == nil {
			result.Role, result.ToolCallID = "tool", b.ToolUseID
			list.add(result)
		}
		return nil, err
	}
	if what, ok := unsupportedParts[b.Type]; ok {
		return nil, fault.Invalid(param, "the model cannot %s: remove %s, or send its text", what, param)
	}
	return []string{unknownPart(b.Type, b.raw)}, nil
}

// document returns the text of a document or a search result with its title and where it is from; ok is false
// if the block is neither, or not text.
func (b *anthropicBlock) document(param string) (text string, ok bool, err error) {
	var source struct {
		Type    string          `json:"type"`
		Data    string          `json:"data"`
		Content json.RawMessage `json:"content"`
	}
	var place string
	switch b.Type {
	case "document":
		if json.Unmarshal(b.Source, &source) != nil || source.Type != "text" && source.Type != "content" {
			return "", false, nil
		}
		if text = source.Data; source.Type == "content" {
			text, err = parseDocument(source.Content, param+".source.content")
		}
	case "search_result":
		_ = json.Unmarshal(b.Source, &place) // without a place, or another form of it, the text suffices
		text, err = parseDocument(b.Content, param+".content")
	default:
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	var lines []string
	for _, line := range []string{b.Title, place, b.Context, text} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n"), true, nil
}

// AnthropicMessage is the response to POST /v1/messages.
type AnthropicMessage struct {
	ID           string            `json:"id"`
	Type         string            `json:"type"` // message
	Role         string            `json:"role"`
	Model        string            `json:"model"`
	Content      []AnthropicOutput `json:"content"`
	StopReason   *string           `json:"stop_reason"`
	StopSequence *string           `json:"stop_sequence"`
	Usage        AnthropicUsage    `json:"usage"`
}

// AnthropicOutput is a block of an answer.
type AnthropicOutput struct {
	Type      string          `json:"type"`                            // thinking, text, tool_use
	Text      *string         `json:"text,omitempty"`                  // of text
	Thinking  *string         `json:"thinking,omitempty"`              // of thinking
	Signature *string         `json:"signature,omitempty"`             // of thinking: empty, nothing has to be verified
	ID        string          `json:"id,omitempty"`                    // of tool_use
	Name      string          `json:"name,omitempty"`                  // of tool_use
	Input     json.RawMessage `json:"input,omitempty" schema:"object"` // of tool_use
}

// AnthropicUsage counts the tokens of a message.
type AnthropicUsage struct {
	InputTokens   int `json:"input_tokens"` // those that were not found in the KV cache
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	OutputTokens  int `json:"output_tokens"`
}

func newMessage(model string) AnthropicMessage {
	return AnthropicMessage{ID: "msg_" + rand.Text(), Type: "message", Role: "assistant", Model: model, Content: []AnthropicOutput{}}
}

// blockOf returns a part of an answer as a block.
func blockOf(p growingPart) AnthropicOutput {
	switch p.kind {
	case thoughtPart:
		return AnthropicOutput{Type: "thinking", Thinking: &p.text, Signature: new("")}
	case callPart:
		input := json.RawMessage("{}")
		if raw := json.RawMessage(p.text); json.Valid(raw) {
			input = raw
		}
		return AnthropicOutput{Type: "tool_use", ID: p.id, Name: p.name, Input: input}
	}
	return AnthropicOutput{Type: "text", Text: &p.text}
}

// stopOf returns why an answer ended, in Anthropic's words, and the stop string that ended it.
func stopOf(done infer.Done) (reason string, sequence *string) {
	switch {
	case done.Reason == infer.FinishCalls:
		return "tool_use", nil
	case done.Reason == infer.FinishLength && done.ContextFull:
		return "model_context_window_exceeded", nil
	case done.Reason == infer.FinishLength:
		return "max_tokens", nil
	case done.Reason == infer.FinishBanned:
		return "refusal", nil
	case done.StopString != "":
		return "stop_sequence", &done.StopString
	}
	return "end_turn", nil
}

func usageOf(done infer.Done) AnthropicUsage {
	u := done.Usage
	return AnthropicUsage{InputTokens: u.PromptTokens - u.CachedTokens, CacheRead: u.CachedTokens, OutputTokens: u.CompletionTokens}
}

// wholeMessage returns the response of an answer that is not streamed.
func wholeMessage(model string, a answer) AnthropicMessage {
	m := newMessage(model)
	for _, p := range a.parts() {
		m.Content = append(m.Content, blockOf(p))
	}
	reason, sequence := stopOf(a.done)
	m.StopReason, m.StopSequence, m.Usage = &reason, sequence, usageOf(a.done)
	return m
}
