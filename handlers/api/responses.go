package api

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
)

// ResponsesRequest is the body of POST /v1/responses. Fields that do not affect the answer are
// ignored, and nothing is stored.
type ResponsesRequest struct {
	generationFields
	Input             json.RawMessage   `json:"input" schema:"required,string|[object]"` // items
	Instructions      string            `json:"instructions"`
	MaxOutputTokens   *int              `json:"max_output_tokens"`
	Tools             []json.RawMessage `json:"tools" schema:"[object]"`
	ToolChoice        json.RawMessage   `json:"tool_choice" schema:"string|$choice"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls"`
	Reasoning         struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
	Text struct {
		Format responseFormat `json:"format"`
	} `json:"text"`
	Include            []string        `json:"include"`
	TopLogProbs        *int            `json:"top_logprobs"`
	Metadata           json.RawMessage `json:"metadata" schema:"object"`
	PreviousResponseID string          `json:"previous_response_id" schema:"-"`
	Conversation       json.RawMessage `json:"conversation" schema:"-"`
	Prompt             json.RawMessage `json:"prompt" schema:"-"`
	Background         bool            `json:"background" schema:"-"`
	Truncation         string          `json:"truncation"` // auto or disabled

	names *toolNames
}

// responseFormat constrains the answer.
type responseFormat struct {
	Type        string          `json:"type"` // text, json_object, json_schema
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty" schema:"object|boolean"`
	Strict      *bool           `json:"strict,omitempty"`
	keywords    `schema:"-"`
	JSONSchema  json.RawMessage `json:"json_schema,omitempty" schema:"-"` // chat completions have the schema there
}

// responses answers POST /v1/responses.
func (api *API) responses(c echo.Context) (err error) {
	body := ResponsesRequest{generationFields: newGenerationFields()}
	defer func() { err = promptIn("input", aboutFormat(err)) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	if body.Truncation == "auto" {
		api.truncate(c.Request().Context(), &r)
	}
	head := body.head(&r, api.modelName(body.Model))
	if body.Stream {
		return api.stream(c, asked{requests: []infer.Request{r}, names: body.names}, func() (sink, error) { return openResponseStream(c, head) })
	}
	answers, err := api.collect(c, asked{requests: []infer.Request{r}, names: body.names})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, head.whole(answers[0]))
}

// aboutFormat replaces the engine's name of the schema in an error by the field it came from.
func aboutFormat(err error) error { return renamed(err, "json_schema", "text.format.schema") }

// request returns the engine's request.
func (b *ResponsesRequest) request() (infer.Request, error) {
	r, err := b.generationFields.request()
	if err != nil {
		return r, err
	}
	if err := b.unsupported(); err != nil {
		return r, err
	}
	if err := b.oneAnswer(); err != nil {
		return r, err
	}
	if err := setCount(&r.MaxTokens, "max_output_tokens", b.MaxOutputTokens); err != nil {
		return r, err
	}
	if err := setCount(&r.Alternatives, "top_logprobs", b.TopLogProbs); err != nil {
		return r, err
	}
	if r.Messages, err = b.messages(); err != nil {
		return r, err
	}
	if err := b.fillTools(&r); err != nil {
		return r, err
	}
	if effort := b.Reasoning.Effort; effort != "" {
		setTemplateVar(&r, "reasoning_effort", effort)
		setThinking(&r, effort != "none")
	}
	r.ParseReply, r.WholeCalls = true, r.WholeCalls || !b.Stream
	return r, b.fillFormat(&r)
}

// unsupported returns an error for the first field that would change the answer but is not supported.
func (b *ResponsesRequest) unsupported() error {
	const stored = "this server stores no responses: send the whole conversation in input"
	switch {
	case b.PreviousResponseID != "":
		return fault.Invalid("previous_response_id", "previous_response_id is not supported: %s", stored)
	case given(b.Conversation):
		return fault.Invalid("conversation", "conversation is not supported: %s", stored)
	case given(b.Prompt):
		return fault.Invalid("prompt", "prompt is not supported: this server stores no prompts, send instructions and input")
	case b.Truncation != "" && b.Truncation != "auto" && b.Truncation != "disabled":
		return fault.Invalid("truncation", "truncation must be auto or disabled, not %q", httpio.Shorten(b.Truncation))
	case b.Background:
		return fault.Invalid("background", "background is not supported: %s, and keep the connection open", stored)
	}
	return nil
}

// fillFormat adds text.format to r.
func (b *ResponsesRequest) fillFormat(r *infer.Request) error {
	format := &b.Text.Format
	if err := misplacedSchema("text.format", format.Type, &format.keywords); err != nil {
		return err
	}
	switch format.Type {
	case "":
		if given(format.Schema) || given(format.JSONSchema) {
			return fault.Invalid("text.format.type", "text.format.type is missing: it must be json_schema")
		}
		return nil
	case "text":
		return nil
	case "json_object":
		r.JSONSchema = anyObject
	case "json_schema":
		if !given(format.Schema) {
			return fault.Invalid("text.format.schema", "text.format.schema is missing: it is the schema of the answer, directly in text.format")
		}
		r.JSONSchema, r.StrictSchema = format.Schema, format.Strict != nil && *format.Strict
	default:
		return fault.Invalid("text.format.type", "text.format.type is %q: must be text, json_object or json_schema", httpio.Shorten(format.Type))
	}
	return nil
}

// fillTools adds the functions among the tools to r. Tools of other types, which OpenAI runs itself,
// are ignored: clients offer them to every server.
func (b *ResponsesRequest) fillTools(r *infer.Request) error {
	var offers []offer
	for i, raw := range b.Tools {
		where := fmt.Sprintf("tools[%d]", i)
		var t functionTool
		if err := httpio.DecodeJSON(raw, where, &t); err != nil {
			return err
		}
		switch t.Type {
		case "function":
			offers = append(offers, t.offer(where))
		case "custom":
			var custom customTool
			if err := httpio.DecodeJSON(raw, where, &custom); err != nil {
				return err
			}
			offers = append(offers, custom.offer(where))
		}
	}
	choice, err := parseToolChoice(b.ToolChoice, "tool_choice")
	if err == nil {
		b.names, err = fillTools(r, offers, choice, b.ParallelToolCalls)
	}
	return err
}

// responseItem is an item of the input.
type responseItem struct {
	Type      string          `json:"type"` // absent: message
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
	Summary   []contentPart   `json:"summary"`
	Encrypted string          `json:"encrypted_content"` // of compaction
}

// messages returns the conversation that instructions and input describe.
func (b *ResponsesRequest) messages() ([]chat.Message, error) {
	var items []responseItem
	switch firstByte(b.Input) {
	case '"':
		items = []responseItem{{Role: "user", Content: b.Input}}
	case '[':
		if err := httpio.DecodeJSON(b.Input, "input", &items); err != nil {
			return nil, err
		}
	default:
		return nil, fault.Invalid("input", "input must be a string or an array of items")
	}
	var list conversation
	if b.Instructions != "" {
		list.add(chat.Message{Role: "system", Content: b.Instructions})
	}
	for i := range items {
		if err := items[i].addTo(&list, fmt.Sprintf("input[%d]", i)); err != nil {
			return nil, err
		}
	}
	messages := list.end()
	if !asksSomething(messages) {
		return nil, fault.Invalid("input", "input must have at least one message")
	}
	return messages, nil
}

// addTo adds the item, which the field called param holds, to a conversation.
func (item *responseItem) addTo(list *conversation, param string) error {
	switch item.Type {
	case "", "message":
		m, err := (&chatMessage{Role: item.Role, Content: item.Content}).parse(param)
		if err != nil {
			return err
		}
		list.add(m)
	case "reasoning":
		thought, err := item.reasoning(param)
		if err != nil {
			return err
		}
		list.addThought(thought)
	case "function_call":
		if item.Name == "" || item.CallID == "" {
			return fault.Invalid(param, "%s must have a call_id and a name", param)
		}
		if err := checkArguments(mustMarshal(item.Arguments), param+".arguments"); err != nil {
			return err
		}
		list.addCall(item.CallID, item.Name, item.Arguments)
	case "custom_tool_call":
		if item.Name == "" || item.CallID == "" {
			return fault.Invalid(param, "%s must have a call_id and a name", param)
		}
		list.addCall(item.CallID, item.Name, customInput(item.Input))
	case "function_call_output", "custom_tool_call_output":
		result, err := parseSeenResult(item.Output, param+".output")
		if err != nil {
			return err
		}
		result.Role, result.ToolCallID = "tool", item.CallID
		list.add(result)
	case "compaction":
		summary, err := item.summaryText(param)
		if err != nil {
			return err
		}
		list.add(chat.Message{Role: "system", Content: summary})
	case "item_reference":
		return fault.Invalid(param+".type", "%s is an item_reference, but this server stores no responses: send the item itself, as clients do with store: false", param)
	default:
		return fault.Invalid(param+".type", "%s.type must be message, function_call, function_call_output, custom_tool_call, custom_tool_call_output, compaction or reasoning, not %q", param, httpio.Shorten(item.Type))
	}
	return nil
}

// reasoning returns the text of a reasoning item, or its summary.
func (item *responseItem) reasoning(param string) (string, error) {
	parts := item.Summary
	if given(item.Content) {
		if err := httpio.DecodeJSON(item.Content, param+".content", &parts); err != nil {
			return "", err
		}
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return strings.Join(texts, "\n"), nil
}

// mustMarshal returns v as JSON. It is for strings and values that were JSON.
func mustMarshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// responsesHead is what all parts of one response of this API share, and repeat of its request.
type responsesHead struct {
	ID        string
	created   int64
	model     string
	body      *ResponsesRequest
	asked     infer.Request
	withScore bool
}

func (b *ResponsesRequest) head(r *infer.Request, model string) responsesHead {
	return responsesHead{
		ID: "resp_" + rand.Text(), created: time.Now().Unix(), model: model, body: b, asked: *r,
		withScore: slices.Contains(b.Include, "message.output_text.logprobs") || r.Alternatives > 0,
	}
}

// Response is the response to POST /v1/responses, and part of the events of its stream.
type Response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	CreatedAt         int64              `json:"created_at"`
	CompletedAt       *int64             `json:"completed_at"`
	Status            string             `json:"status"` // in_progress, completed, incomplete, failed
	Error             *ResponseError     `json:"error"`
	Incomplete        *ResponseShortfall `json:"incomplete_details"`
	Instructions      *string            `json:"instructions"`
	MaxOutputTokens   *int               `json:"max_output_tokens"`
	Metadata          json.RawMessage    `json:"metadata" schema:"object"`
	Model             string             `json:"model"`
	Output            []ResponseOutput   `json:"output"`
	ParallelToolCalls bool               `json:"parallel_tool_calls"`
	PreviousID        *string            `json:"previous_response_id"`
	Reasoning         ResponseReasoning  `json:"reasoning"`
	Store             bool               `json:"store"`
	Temperature       float64            `json:"temperature"`
	Text              json.RawMessage    `json:"text" schema:"object"`
	ToolChoice        json.RawMessage    `json:"tool_choice" schema:"string|object"`
	Tools             []json.RawMessage  `json:"tools" schema:"[object]"`
	TopP              float64            `json:"top_p"`
	Truncation        string             `json:"truncation"`
	Usage             *ResponseUsage     `json:"usage"`
}

// ResponseReasoning repeats the effort of the request.
type ResponseReasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

// ResponseError says why a response failed.
type ResponseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ResponseShortfall says why a response is incomplete.
type ResponseShortfall struct {
	Reason string `json:"reason"` // max_output_tokens or content_filter
}

// ResponseUsage counts the tokens of a response.
type ResponseUsage struct {
	InputTokens  int `json:"input_tokens"`
	InputDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens  int `json:"output_tokens"`
	OutputDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int `json:"total_tokens"`
}

// ResponseOutput is an item of the output: reasoning, a message, or a call.
type ResponseOutput struct {
	ID        string                 `json:"id"`
	Type      string                 `json:"type"` // reasoning, message, function_call, custom_tool_call
	Status    string                 `json:"status"`
	Role      string                 `json:"role,omitempty"`      // of a message
	Summary   *[]contentPart         `json:"summary,omitempty"`   // of reasoning: empty
	Content   *[]ResponseContentPart `json:"content,omitempty"`   // of a message or reasoning
	CallID    string                 `json:"call_id,omitempty"`   // of a call
	Name      string                 `json:"name,omitempty"`      // of a call
	Arguments *string                `json:"arguments,omitempty"` // of a function_call
	Input     *string                `json:"input,omitempty"`     // of a custom_tool_call
}

// ResponseContentPart is the text of a message or of reasoning.
type ResponseContentPart struct {
	Type        string        `json:"type"` // output_text, reasoning_text
	Text        string        `json:"text"`
	Annotations *[]any        `json:"annotations,omitempty"` // of output_text: empty
	LogProbs    *[]tokenScore `json:"logprobs,omitempty"`    // of output_text
}

// response returns the response without its output.
func (h responsesHead) response(status string) Response {
	b := h.body
	r := Response{
		ID: h.ID, Object: "response", CreatedAt: h.created, Status: status, MaxOutputTokens: b.MaxOutputTokens,
		Metadata: json.RawMessage("{}"), Model: h.model, Output: []ResponseOutput{},
		ParallelToolCalls: b.ParallelToolCalls == nil || *b.ParallelToolCalls,
		Temperature:       h.asked.Params.Temperature, TopP: h.asked.Params.TopP,
		Text: json.RawMessage(`{"format":{"type":"text"}}`), ToolChoice: json.RawMessage(`"auto"`), Tools: []json.RawMessage{}, Truncation: "disabled",
	}
	if b.Instructions != "" {
		r.Instructions = &b.Instructions
	}
	if b.Reasoning.Effort != "" {
		r.Reasoning.Effort = &b.Reasoning.Effort
	}
	if firstByte(b.Metadata) == '{' {
		r.Metadata = b.Metadata
	}
	if f := b.Text.Format; f.Type != "" {
		r.Text = mustMarshal(map[string]any{"format": f})
	}
	if b.Truncation != "" {
		r.Truncation = b.Truncation
	}
	if given(b.ToolChoice) {
		r.ToolChoice = b.ToolChoice
	}
	if len(b.Tools) > 0 {
		r.Tools = b.Tools
	}
	return r
}

// finish sets what the end of an answer determines.
func (r *Response) finish(done infer.Done) {
	now := time.Now().Unix()
	r.Status, r.CompletedAt = "completed", &now
	switch done.Reason {
	case infer.FinishLength:
		r.Status, r.Incomplete = "incomplete", &ResponseShortfall{"max_output_tokens"}
	case infer.FinishBanned:
		r.Status, r.Incomplete = "incomplete", &ResponseShortfall{"content_filter"}
	}
	r.Usage = responseUsage(done.Usage)
}

func responseUsage(usage record.Usage) *ResponseUsage {
	u := &ResponseUsage{InputTokens: usage.PromptTokens, OutputTokens: usage.CompletionTokens}
	u.InputDetails.CachedTokens, u.OutputDetails.ReasoningTokens = usage.CachedTokens, usage.ReasoningTokens
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}

// whole returns the response of an answer that is not streamed.
func (h responsesHead) whole(a answer) Response {
	r := h.response("completed")
	for _, p := range a.parts() {
		p.takesText = h.body.names.takesText(p.name)
		if p.kind == textPart && h.withScore {
			p.score = tokenScores(a.tokens, h.body.ReturnTokensAsTokenID)
		}
		r.Output = append(r.Output, outputOf(newItemID(p), p, "completed"))
	}
	r.finish(a.done)
	if r.Status == "incomplete" && len(r.Output) > 0 {
		r.Output[len(r.Output)-1].Status = "incomplete"
	}
	return r
}

// newItemID returns an id as OpenAI's are.
func newItemID(p growingPart) string {
	prefix := map[partKind]string{thoughtPart: "rs_", textPart: "msg_", callPart: "fc_"}[p.kind]
	if p.takesText {
		prefix = "ctc_"
	}
	return prefix + rand.Text()
}

// outputOf returns a part of an answer as an item.
func outputOf(id string, p growingPart, status string) ResponseOutput {
	item := ResponseOutput{ID: id, Status: status}
	switch p.kind {
	case thoughtPart:
		item.Type, item.Summary, item.Content = "reasoning", &[]contentPart{}, &[]ResponseContentPart{contentOf(p)}
	case callPart:
		item.Type, item.CallID, item.Name, item.Arguments = "function_call", p.id, p.name, &p.text
		if p.takesText {
			item.Type, item.Arguments, item.Input = "custom_tool_call", nil, new(textOf(p.text))
		}
	default:
		item.Type, item.Role, item.Content = "message", "assistant", &[]ResponseContentPart{contentOf(p)}
	}
	return item
}

// contentOf returns the text of a part.
func contentOf(p growingPart) ResponseContentPart {
	if p.kind == thoughtPart {
		return ResponseContentPart{Type: "reasoning_text", Text: p.text}
	}
	score := p.score
	if score == nil {
		score = []tokenScore{}
	}
	return ResponseContentPart{Type: "output_text", Text: p.text, Annotations: &[]any{}, LogProbs: &score}
}
