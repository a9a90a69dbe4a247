package api

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
)

// chatFields are the fields that say what a conversation is; /apply-template has
// them too.
type chatFields struct {
	Messages            []chatMessage              `json:"messages" schema:"required"`
	Tools               json.RawMessage            `json:"tools" schema:"[$tool]"`
	ToolChoice          json.RawMessage            `json:"tool_choice" schema:"string|$choice"`
	ParallelToolCalls   *bool                      `json:"parallel_tool_calls"`
	AddGenerationPrompt *bool                      `json:"add_generation_prompt"`
	ContinueFinal       bool                       `json:"continue_final_message"`
	Functions           []functionTool             `json:"functions"`                            // tools of clients from before tools
	FunctionCall        json.RawMessage            `json:"function_call" schema:"string|object"` // their tool_choice
	TemplateVars        map[string]json.RawMessage `json:"chat_template_kwargs"`
	ReasoningEffort     string                     `json:"reasoning_effort"`

	names *toolNames
}

type chatMessage struct {
	Role             string          `json:"role" schema:"required"`
	Content          json.RawMessage `json:"content" schema:"string|[$part]"` // null too
	Name             string          `json:"name"`
	ToolCallID       string          `json:"tool_call_id"`
	ToolCalls        json.RawMessage `json:"tool_calls" schema:"[$call]"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`                     // Ollama's name for it
	Refusal          string          `json:"refusal"`                       // what the assistant said instead of content
	FunctionCall     json.RawMessage `json:"function_call" schema:"object"` // the one call of clients from before tool_calls
}

type chatRequest struct {
	generationFields
	chatFields
	MaxCompletionTokens *int `json:"max_completion_tokens"`
	LogProbs            bool `json:"logprobs"`
	TopLogProbs         *int `json:"top_logprobs"`

	Modalities    []string `json:"modalities"`                    // text
	SpecialTokens bool     `json:"add_special_tokens" schema:"-"` // vLLM's: around what the template writes
}

// chatCompletions answers POST /v1/chat/completions.
func (api *API) chatCompletions(c echo.Context) (err error) {
	body := chatRequest{generationFields: newGenerationFields()}
	defer func() { err = promptIn("messages", body.about(err)) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	requests, err := body.requests()
	if err != nil {
		return err
	}
	head := responseHead{
		ID:          "chatcmpl-" + rand.Text(),
		Created:     time.Now().Unix(),
		Model:       api.modelName(body.Model),
		Fingerprint: api.fingerprint(),
	}
	if body.Stream {
		return api.stream(c, asked{requests: requests, names: body.names}, func() (sink, error) { return openChatStream(c, &body, head, len(requests)) })
	}
	answers, err := api.collect(c, asked{requests: requests, names: body.names})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, chatResponse(&body, head, answers))
}

// requests returns the requests to the engine that the body describes, one for each answer.
func (b *chatRequest) requests() ([]infer.Request, error) {
	r, err := b.generationFields.request()
	if err != nil {
		return nil, err
	}
	for _, kind := range b.Modalities {
		if kind != "text" {
			return nil, fault.Invalid("modalities", "modalities has %q: the model writes text only", httpio.Shorten(kind))
		}
	}
	if b.SpecialTokens {
		return nil, fault.Invalid("add_special_tokens", "add_special_tokens is not supported: the chat template writes the control tokens of a prompt")
	}
	if err := setCount(&r.MaxTokens, "max_completion_tokens", b.MaxCompletionTokens); err != nil {
		return nil, err
	}
	if err := setCount(&r.Alternatives, "top_logprobs", b.TopLogProbs); err != nil {
		return nil, err
	}
	if r.Alternatives > 0 && !b.LogProbs {
		return nil, fault.Invalid("top_logprobs", "top_logprobs needs logprobs to be true")
	}
	if err := b.chatFields.fill(&r); err != nil {
		return nil, err
	}
	// A stream sends the pieces of a call while it is generated.
	r.ParseReply, r.WholeCalls = true, r.WholeCalls || !b.Stream
	n, err := b.answersPerPrompt()
	if err != nil {
		return nil, err
	}
	return sideBySide(r, n), nil
}

// fill adds the conversation to r.
func (f *chatFields) fill(r *infer.Request) error {
	if len(f.Messages) == 0 {
		return fault.Invalid("messages", "messages must be an array with at least one message")
	}
	var ids callIDs
	for i := range f.Messages {
		m, err := f.Messages[i].parse(fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return err
		}
		if err := ids.complete(&m); err != nil {
			return err
		}
		r.Messages = append(r.Messages, m)
	}
	if err := f.fillTools(r); err != nil {
		return err
	}
	r.TemplateVars = f.TemplateVars
	if f.ReasoningEffort != "" {
		setTemplateVar(r, "reasoning_effort", f.ReasoningEffort)
	}
	r.Continue = f.ContinueFinal
	opens := f.AddGenerationPrompt == nil || *f.AddGenerationPrompt
	switch last := r.Messages[len(r.Messages)-1]; {
	case f.ContinueFinal && last.Role != "assistant":
		return fault.Invalid("continue_final_message", "continue_final_message needs the last message to be the assistant's, not of role %q", last.Role)
	case f.ContinueFinal && f.AddGenerationPrompt != nil && opens:
		return fault.Invalid("continue_final_message", "continue_final_message and add_generation_prompt exclude each other")
	case !opens && !f.ContinueFinal:
		setTemplateVar(r, "add_generation_prompt", false)
	}
	return nil
}

// fillTools adds the tools to r.
func (f *chatFields) fillTools(r *infer.Request) error {
	choice, err := parseToolChoice(f.ToolChoice, "tool_choice")
	if err != nil {
		return err
	}
	offers, err := parseTools(f.Tools)
	if err != nil {
		return err
	}
	parallel := f.ParallelToolCalls
	before := len(offers) == 0 && len(f.Functions) > 0
	if before {
		for i := range f.Functions {
			offers = append(offers, f.Functions[i].offer(fmt.Sprintf("functions[%d]", i)))
		}
		if choice, err = parseFunctionCall(f.FunctionCall); err != nil {
			return err
		}
		parallel = new(false)
	}
	if f.names, err = fillTools(r, offers, choice, parallel); err != nil {
		return err
	}
	f.names.single = before
	return nil
}

// parseFunctionCall parses function_call, which is none, auto or an object with a name.
func parseFunctionCall(raw json.RawMessage) (toolChoice, error) {
	if firstByte(raw) != '{' {
		return parseToolChoice(raw, "function_call")
	}
	var named functionTool
	err := httpio.DecodeJSON(raw, "function_call", &named)
	if err == nil && named.Name == "" {
		err = fault.Invalid("function_call", `function_call must be "auto", "none" or {"name":"…"}`)
	}
	return toolChoice{name: named.Name}, err
}

func setTemplateVar(r *infer.Request, name string, value any) {
	if r.TemplateVars == nil {
		r.TemplateVars = map[string]json.RawMessage{}
	}
	raw, _ := json.Marshal(value) // a string or a bool
	r.TemplateVars[name] = raw
}

// roles are those of OpenAI and what our templates call them.
var roles = map[string]string{
	"assistant": "assistant",
	"developer": "system",
	"function":  "tool",
	"system":    "system",
	"tool":      "tool",
	"user":      "user",
}

// parse returns the message that the field called param holds.
func (m *chatMessage) parse(param string) (chat.Message, error) {
	role, known := roles[m.Role]
	if !known {
		return chat.Message{}, fault.Invalid(param+".role", "%s.role must be system, developer, user, assistant, tool or function, not %q", param, httpio.Shorten(m.Role))
	}
	var parsed chat.Message
	var err error
	switch role {
	case "tool":
		parsed, err = parseSeenResult(m.Content, param+".content")
	case "user":
		parsed, err = parseSeen(m.Content, param+".content")
	default:
		parsed.Content, err = parseContent(m.Content, param+".content")
	}
	if err != nil {
		return chat.Message{}, err
	}
	if role == "system" {
		parsed.Content = withoutBilling(parsed.Content)
	}
	parsed.Role, parsed.Name, parsed.ToolCallID = role, m.Name, m.ToolCallID
	parsed.Content, parsed.ReasoningContent = cmp.Or(parsed.Content, m.Refusal), cmp.Or(m.ReasoningContent, m.Reasoning)
	if m.Role == "function" {
		parsed.ToolCallID = functionCallID(m.Name)
	}
	if parsed.ToolCalls, err = m.calls(param); err != nil {
		return chat.Message{}, err
	}
	return parsed, nil
}

// calls returns the calls that the message has, nil if none.
func (m *chatMessage) calls(param string) (json.RawMessage, error) {
	calls, err := parseToolCalls(m.ToolCalls, param+".tool_calls")
	if calls != nil || err != nil || !given(m.FunctionCall) {
		return calls, err
	}
	var call oneCall
	if err := httpio.DecodeJSON(m.FunctionCall, param+".function_call", &call.Function); err != nil {
		return nil, err
	}
	call.ID, call.Type = functionCallID(call.Function.Name), "function"
	return parseToolCalls(mustMarshal([]oneCall{call}), param+".tool_calls")
}

// oneCall is a function_call as one of tool_calls.
type oneCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty" schema:"string|object"`
	} `json:"function"`
}

// functionCallID replaces the id of a call that was stored before calls had any; its result is
// known by the name alone.
func functionCallID(name string) string { return "call_" + name }

// responseHead is what all parts of one response share.
type responseHead struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
}

// ChatResponse is the response to a chat completion that is not streamed.
type ChatResponse struct {
	responseHead
	Choices []chatChoice `json:"choices"`
	Usage   usageBody    `json:"usage"`
	Timings *timings     `json:"timings,omitempty"` // of the only answer
}

type chatChoice struct {
	Index        int                `json:"index"`
	Message      chatAnswer         `json:"message"`
	LogProbs     *chatLogProbs      `json:"logprobs"`
	FinishReason infer.FinishReason `json:"finish_reason"`
}

type chatAnswer struct {
	Role    string  `json:"role"`
	Content *string `json:"content"` // null if there are calls and nothing else
	reasoning
	chatCalls
}

// chatCalls are the calls of a message or delta.
type chatCalls struct {
	ToolCalls    []toolCall        `json:"tool_calls,omitempty"`
	FunctionCall *toolCallFunction `json:"function_call,omitempty"` // for requests with functions
}

// chatCalls returns calls as the client expects them.
func (n *toolNames) chatCalls(calls []toolCall) chatCalls {
	if n == nil || !n.single || len(calls) == 0 {
		return chatCalls{ToolCalls: n.shown(calls)}
	}
	return chatCalls{FunctionCall: firstCall(calls)}
}

// firstCall returns the first call of a message, or what a piece of a stream adds to it; nil if that is nothing.
// An engine elsewhere may make further ones, which a client with one function_call would take for the same.
func firstCall(calls []toolCall) *toolCallFunction {
	if calls[0].Index == nil {
		return calls[0].Function
	}
	var first *toolCallFunction
	for _, c := range calls {
		switch {
		case *c.Index > 0:
		case first == nil:
			first = c.Function
		default:
			first = &toolCallFunction{first.Name, first.Arguments + c.Function.Arguments}
		}
	}
	return first
}

// finish returns why an answer ended, as the client expects it.
func (n *toolNames) finish(reason infer.FinishReason) infer.FinishReason {
	if n != nil && n.single && reason == infer.FinishCalls {
		return "function_call"
	}
	return reason
}

// reasoning is the reasoning of an answer, under both names that clients read.
type reasoning struct {
	ReasoningContent string `json:"reasoning_content,omitempty"` // DeepSeek's and llama-server's
	Reasoning        string `json:"reasoning,omitempty"`         // Ollama's and vLLM's
}

type chatLogProbs struct {
	Content []tokenScore `json:"content"`
}

// tokenScore is a token with its log-probability and those of its alternatives.
type tokenScore struct {
	tokenLogProb
	Top []tokenLogProb `json:"top_logprobs"`
}

type tokenLogProb struct {
	Token   string  `json:"token"`
	LogProb float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func chatResponse(body *chatRequest, head responseHead, answers []answer) ChatResponse {
	head.Object = "chat.completion"
	response := ChatResponse{responseHead: head, Choices: make([]chatChoice, len(answers))}
	for i, a := range answers {
		message := chatAnswer{Role: "assistant", reasoning: reasoning{a.reasoning, a.reasoning}, chatCalls: body.names.chatCalls(a.calls)}
		if a.text != "" || len(a.calls) == 0 {
			message.Content = &a.text
		}
		response.Choices[i] = chatChoice{
			Index:        i,
			Message:      message,
			LogProbs:     body.logProbs(a.tokens),
			FinishReason: body.names.finish(a.done.Reason),
		}
		response.Usage.add(a.done.Usage, i == 0)
	}
	if len(answers) == 1 {
		response.Timings = allTimings(answers[0].done.Answer)
	}
	return response
}

// logProbs lists the tokens with their alternatives, if the request asks for it.
func (b *chatRequest) logProbs(tokens []infer.Token) *chatLogProbs {
	if !b.LogProbs {
		return nil
	}
	return &chatLogProbs{Content: tokenScores(tokens, b.ReturnTokensAsTokenID)}
}

// tokenScores lists tokens with their alternatives; byID: by their ids instead of their texts.
func tokenScores(tokens []infer.Token, byID bool) []tokenScore {
	score := func(id int32, spelled []byte, logProb float64) tokenLogProb {
		return tokenLogProb{Token: tokenName(id, spelled, byID), LogProb: finiteLogProb(logProb), Bytes: byteNumbers(spelled)}
	}
	list := make([]tokenScore, len(tokens))
	for i, t := range tokens {
		list[i] = tokenScore{tokenLogProb: score(t.ID, t.Bytes, t.LogProb), Top: make([]tokenLogProb, len(t.Top))}
		for j, candidate := range t.Top {
			list[i].Top[j] = score(candidate.ID, spelling(t, j), candidate.LogProb)
		}
	}
	return list
}

// spelling returns the text of alternative i to t.
func spelling(t infer.Token, i int) []byte {
	if i < len(t.Tops) {
		return t.Tops[i]
	}
	return nil
}

// chatStream writes the chunks of POST /v1/chat/completions.
type chatStream struct {
	sseStream
	body    *chatRequest
	head    responseHead
	usage   usageBody
	watches []stopwatch
}

// ChatChunk is one event of the stream of a chat completion.
type ChatChunk struct {
	responseHead
	Choices []chatDelta `json:"choices"`
	Usage   *usageBody  `json:"usage,omitempty"`
	extras
}

type chatDelta struct {
	Index        int                 `json:"index"`
	Delta        chatDeltaText       `json:"delta"`
	LogProbs     *chatLogProbs       `json:"logprobs"`
	FinishReason *infer.FinishReason `json:"finish_reason"`
}

type chatDeltaText struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	reasoning
	chatCalls
}

// deltaText returns what an event adds to the message, and whether that is anything.
func (n *toolNames) deltaText(text, reasoningText string, calls []reply.CallDelta) (d chatDeltaText, something bool) {
	d = chatDeltaText{reasoning: reasoning{reasoningText, reasoningText}, chatCalls: n.chatCalls(toolCallDeltas(calls))}
	if text != "" {
		d.Content = &text
	}
	return d, text != "" || reasoningText != "" || len(calls) > 0
}

func openChatStream(c echo.Context, body *chatRequest, head responseHead, n int) (sink, error) {
	head.Object = "chat.completion.chunk"
	w, err := httpio.OpenSSE(c)
	if err != nil {
		return nil, err
	}
	s := &chatStream{sseStream: sseStream{w, "messages"}, body: body, head: head, watches: make([]stopwatch, n)}
	for i := range n {
		if err := s.send(chatDelta{Index: i, Delta: chatDeltaText{Role: "assistant", Content: new("")}}, extras{}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *chatStream) send(d chatDelta, x extras) error {
	return s.sse.Send(ChatChunk{responseHead: s.head, Choices: []chatDelta{d}, extras: x})
}

func (s *chatStream) event(index int, e infer.Event) error {
	added, progress := s.watches[index].note(&s.body.generationFields, e, time.Now())
	switch {
	case progress:
		return s.send(chatDelta{Index: index}, added)
	case e.Type == infer.EventToken:
		delta, something := s.body.names.deltaText(e.Token.Text, e.Token.Reasoning, e.Token.Calls)
		if !something && !s.body.LogProbs {
			return nil
		}
		if !something {
			delta.Content = new("")
		}
		return s.send(chatDelta{Index: index, Delta: delta, LogProbs: s.body.logProbs([]infer.Token{*e.Token})}, added)
	case e.Type == infer.EventDone:
		if delta, something := s.body.names.deltaText(e.Done.Text, e.Done.Reasoning, e.Done.Calls); something {
			if err := s.send(chatDelta{Index: index, Delta: delta}, extras{}); err != nil {
				return err
			}
		}
		s.usage.add(e.Done.Usage, index == 0)
		return s.send(chatDelta{Index: index, FinishReason: new(s.body.names.finish(e.Done.Reason))}, added)
	default:
		return s.progress(e)
	}
}

func (s *chatStream) end() error {
	if s.body.StreamOptions.IncludeUsage {
		if err := s.sse.Send(ChatChunk{responseHead: s.head, Choices: []chatDelta{}, Usage: &s.usage}); err != nil {
			return err
		}
	}
	return s.sse.End()
}
