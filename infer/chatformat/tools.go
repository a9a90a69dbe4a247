package chatformat

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/reply"
)

// Chat templates differ in the form of tools, calls and results.

// toolCall is a call in an assistant's message, in OpenAI's form. Arguments are an
// object, or a string that holds one.
type toolCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// callStyle is the form in which a template takes the calls of an assistant's message.
type callStyle struct {
	asText      bool // arguments are a string of JSON
	nullContent bool // missing content is null
	shortIDs    bool // ids are nine letters and digits
	unknown     bool // the template does not show calls
}

// Sentinels of the conversation that detects the style.
const (
	probeName  = "probe_tool"
	probeKey   = "probe_key"
	probeValue = "probe_value"
)

// probe detects what a template takes and shows by rendering sentinels.
type probe struct {
	template         *chat.Template
	source, bos, eos string
	noTools          json.RawMessage // the variable tools of a conversation without; nil: null
}

func newProbe(template *chat.Template, source, bos, eos string) probe {
	p := probe{template: template, source: source, bos: bos, eos: eos}
	question := chat.Input{Messages: []chat.Message{probeQuestion}, AddGenerationPrompt: true}
	if template == nil || !template.Uses("tools") {
		return p
	}
	if _, err := p.render(context.Background(), question); isRefusal(err) {
		p.noTools = json.RawMessage("[]")
		if _, err := p.render(context.Background(), question); err != nil {
			p.noTools = nil
		}
	}
	return p
}

// render renders a conversation, with the definition of the sentinel tool if it is called.
func (p probe) render(ctx context.Context, in chat.Input) (string, error) {
	if slices.ContainsFunc(in.Messages, func(m chat.Message) bool { return len(m.ToolCalls) > 0 }) {
		in.Tools = probeTools
	}
	prompt, _, err := p.renderShown(ctx, in)
	return prompt.String(), err
}

// renderShown renders a conversation with the variables that the template expects.
func (p probe) renderShown(ctx context.Context, in chat.Input) (chat.Prompt, []chat.Shown, error) {
	in.BOSToken, in.EOSToken = p.bos, p.eos
	in.Vars = p.variables(in)
	if len(in.Tools) == 0 {
		in.Tools = p.noTools
	}
	return p.template.RenderShown(ctx, in)
}

var probeTools = json.RawMessage(`[{"type": "function", "function": {"name": "` + probeName + `", "description": "", "parameters": {"type": "object", "properties": {}}}}]`)

// probeCall returns the sentinel call in a style.
func probeCall(style callStyle) (json.RawMessage, error) {
	call := toolCall{ID: "probe0001", Type: "function"}
	call.Function.Name = probeName
	call.Function.Arguments = json.RawMessage(`{"` + probeKey + `": "` + probeValue + `"}`)
	return style.calls([]toolCall{call})
}

var (
	probeQuestion = chat.Message{Role: "user", Content: "probe question"}
	probeResult   = chat.Message{Role: "tool", Name: probeName, ToolCallID: "probe0001", Content: "probe result"}
)

// calls detects the style of calls. It tries the most common forms first.
func (p probe) calls(ctx context.Context) callStyle {
	source := p.source
	style := callStyle{shortIDs: strings.Contains(source, "length 9") || strings.Contains(source, "!= 9")}
	if !strings.Contains(source, "tool_calls") {
		style.unknown = true
		return style
	}
	for _, form := range []callStyle{{}, {nullContent: true}, {asText: true}, {asText: true, nullContent: true}} {
		form.shortIDs = style.shortIDs
		call, err := probeCall(form)
		if err != nil {
			continue
		}
		prompt, err := p.render(ctx, chat.Input{
			Messages:            []chat.Message{probeQuestion, {Role: "assistant", ToolCalls: call}, probeResult},
			AddGenerationPrompt: true,
			NullContent:         form.nullContent,
		})
		if err == nil && showsProbe(prompt) {
			return form
		}
	}
	style.unknown = true
	return style
}

// showsProbe reports whether a prompt shows the arguments as JSON: not quoted again, not as
// Python prints them, and without a None.
func showsProbe(prompt string) bool {
	return strings.Contains(prompt, probeKey) && strings.Contains(prompt, probeValue) &&
		!strings.Contains(prompt, `\"`+probeKey) && !strings.Contains(prompt, `'`+probeKey) && !strings.Contains(prompt, "None")
}

// calls encodes calls in the style of the template.
func (s callStyle) calls(calls []toolCall) (json.RawMessage, error) {
	for i := range calls {
		arguments, err := callArguments(calls[i].Function.Arguments)
		if err != nil {
			return nil, fmt.Errorf("the arguments of call %d of %q %w", i+1, calls[i].Function.Name, err)
		}
		if s.asText {
			arguments, _ = json.Marshal(string(arguments)) // of a string: cannot fail
		}
		calls[i].Type = "function"
		calls[i].ID = s.callID(calls[i].ID)
		calls[i].Function.Arguments = arguments
	}
	return json.Marshal(calls)
}

// brokenArguments is the key under which a template gets arguments that are not a JSON object.
// They must not fail: a conversation in which a model wrote such a call keeps it.
const brokenArguments = "invalid_json"

// callArguments returns the arguments as an object. They are an object, a string that holds one,
// or missing; any other string becomes the value of brokenArguments.
func callArguments(raw json.RawMessage) (json.RawMessage, error) {
	text := strings.TrimSpace(string(raw))
	quoted := strings.HasPrefix(text, `"`)
	if quoted {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("are not valid JSON: %w", err)
		}
	}
	switch object := strings.TrimSpace(text); {
	case object == "" || object == "null":
		return json.RawMessage("{}"), nil
	case object[0] == '{' && json.Valid([]byte(object)):
		return json.RawMessage(object), nil
	case quoted:
		return json.Marshal(map[string]string{brokenArguments: text})
	}
	return nil, fmt.Errorf("must be a JSON object, or a string that holds one")
}

// callID returns an id in the form that the template takes. Equal ids stay equal.
func (s callStyle) callID(id string) string {
	if !s.shortIDs || id == "" || len(id) == 9 && !strings.ContainsFunc(id, func(r rune) bool { return !isAlphanumeric(r) }) {
		return id
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	short := strconv.FormatUint(h.Sum64(), 36)
	return strings.Repeat("0", max(0, 9-len(short))) + short[max(0, len(short)-9):]
}

func isAlphanumeric(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// toolMessages returns messages in the form that the template takes.
func (f *Format) toolMessages(messages []chat.Message) ([]chat.Message, callStyle, error) {
	messages = slices.Clone(messages)
	if !slices.ContainsFunc(messages, func(m chat.Message) bool { return len(m.ToolCalls) > 0 || m.Role == "tool" }) {
		return messages, callStyle{}, nil
	}
	style := f.callStyle()
	names := map[string]string{} // of tools, by the id of the call
	for i := range messages {
		m := &messages[i]
		if m.Role == "tool" {
			if m.Name == "" {
				m.Name = names[m.ToolCallID]
			}
			m.ToolCallID = style.callID(m.ToolCallID)
			continue
		}
		if len(m.ToolCalls) == 0 {
			continue
		}
		var calls []toolCall
		if err := json.Unmarshal(m.ToolCalls, &calls); err != nil {
			return nil, style, fmt.Errorf("tool_calls of message %d: %w", i+1, err)
		}
		for _, c := range calls {
			names[c.ID] = c.Function.Name
		}
		written, err := style.calls(calls)
		if err != nil {
			return nil, style, fmt.Errorf("message %d: %w", i+1, err)
		}
		m.ToolCalls = written
		if len(calls) == 0 {
			m.ToolCalls = nil
		}
	}
	if style.unknown {
		messages = resultsAsUser(withCallsAsText(messages))
	}
	return messages, style, nil
}

// AsText returns a conversation for a server whose template shows neither tools nor calls: the system message describes the
// tools, and calls and results are text of the assistant and the user. Replies have calls in the form of reply.Example.
func AsText(messages []chat.Message, tools json.RawMessage) []chat.Message {
	messages = resultsAsUser(withCallsAsText(messages))
	if len(tools) == 0 {
		return messages
	}
	return describeTools(chat.Input{Messages: messages, Tools: tools}).Messages
}

// withCallsAsText returns messages, with calls written at the end of the content of their message.
func withCallsAsText(messages []chat.Message) []chat.Message {
	messages = slices.Clone(messages)
	for i := range messages {
		m := &messages[i]
		for _, c := range decodeCalls(*m) {
			arguments, err := callArguments(c.Function.Arguments)
			if err != nil {
				arguments = c.Function.Arguments // toolMessages has checked them
			}
			m.Content = strings.TrimLeft(m.Content+"\n"+reply.Example(c.Function.Name, string(arguments)), "\n")
		}
		m.ToolCalls = nil
	}
	return messages
}

// resultsAsUser makes messages of the user of results, for templates that know no role
// for them. Results in a row become one message, since most of those templates want
// user and assistant to take turns.
func resultsAsUser(messages []chat.Message) (list []chat.Message) {
	inRow := false
	for _, m := range messages {
		if m.Role != "tool" {
			list, inRow = append(list, m), false
			continue
		}
		text := "<tool_response>\n" + m.Content + "\n</tool_response>"
		if inRow {
			list[len(list)-1].Content += "\n" + text
		} else {
			list = append(list, chat.Message{Role: "user", Content: text})
		}
		inRow = true
	}
	return list
}

// toolPrompt returns a description of tools for a model whose template has none.
func toolPrompt(tools json.RawMessage) string {
	return "You can call functions. These are the functions, as JSON:\n<tools>\n" + string(tools) + "\n</tools>\n" +
		"To call one, write nothing but this, with its name and a JSON object of its arguments:\n" +
		reply.Example("NAME", "{ARGUMENTS}") + "\n" +
		"The result is given to you then. Answer yourself where no function helps."
}

// describeTools describes the tools in the system message at the beginning, instead of giving them to
// the template.
func describeTools(in chat.Input) chat.Input {
	text := toolPrompt(in.Tools)
	in.Messages, in.Tools = slices.Clone(in.Messages), nil
	if len(in.Messages) == 0 || in.Messages[0].Role != "system" {
		in.Messages = slices.Insert(in.Messages, 0, chat.Message{Role: "system", Content: text})
		return in
	}
	in.Messages[0].Content += "\n\n" + text
	return in
}
