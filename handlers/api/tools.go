package api

import (
	"encoding/json"
	"fmt"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// This file holds the tools of chats: their definitions, calls that a
// conversation comes with, and calls in the answer.

// fillTools adds the tools and the tool choice to r.
func (f *chatFields) fillTools(r *infer.Request) error {
	names, err := checkTools(f.Tools)
	if err != nil {
		return err
	}
	choice, err := parseToolChoice(f.ToolChoice)
	if err != nil {
		return err
	}
	forced := choice != infer.ToolChoiceAuto && choice != infer.ToolChoiceNone
	switch {
	case forced && len(names) == 0:
		return failure.Invalid("tool_choice", "tool_choice asks for a call, but tools is empty")
	case forced && choice != infer.ToolChoiceRequired && !names[choice]:
		return failure.Invalid("tool_choice", "tool_choice names the function %q, which is not among the tools", httpio.Shorten(choice))
	case len(names) == 0 || choice == infer.ToolChoiceNone:
		return nil
	}
	r.Tools = f.Tools
	if forced {
		r.ToolChoice = choice
	}
	r.SingleCall = f.ParallelToolCalls != nil && !*f.ParallelToolCalls
	return nil
}

// checkTools returns the names of the tools, or an error for the first invalid one.
func checkTools(raw json.RawMessage) (names map[string]bool, err error) {
	switch firstByte(raw) {
	case 0, 'n':
		return nil, nil
	case '[':
	default:
		return nil, failure.Invalid("tools", "tools must be an array")
	}
	var tools []infer.ToolDefinition
	if err := httpio.DecodeJSON(raw, "tools", &tools); err != nil {
		return nil, err
	}
	return infer.CheckTools(tools)
}

// parseToolChoice returns auto, none, required or the name of a tool.
func parseToolChoice(raw json.RawMessage) (string, error) {
	const usage = `tool_choice must be "auto", "none", "required" or {"type":"function","function":{"name":"…"}}`
	switch firstByte(raw) {
	case 0, 'n':
		return infer.ToolChoiceAuto, nil
	case '"':
		var choice string
		if err := httpio.DecodeJSON(raw, "tool_choice", &choice); err != nil {
			return "", err
		}
		switch choice {
		case infer.ToolChoiceAuto, infer.ToolChoiceNone, infer.ToolChoiceRequired:
			return choice, nil
		}
		return "", failure.Invalid("tool_choice", "%s, not %q", usage, httpio.Shorten(choice))
	case '{':
		var named infer.ToolDefinition
		if err := httpio.DecodeJSON(raw, "tool_choice", &named); err != nil {
			return "", err
		}
		if named.Type == "function" && named.Function != nil && named.Function.Name != "" {
			return named.Function.Name, nil
		}
	}
	return "", failure.Invalid("tool_choice", "%s", usage)
}

// checkToolCalls checks the tool calls in a message of the conversation. Their arguments are a
// string that holds an object, as OpenAI's clients send them, or the object itself.
func checkToolCalls(raw json.RawMessage, param string) error {
	switch firstByte(raw) {
	case 0, 'n':
		return nil
	case '[':
	default:
		return failure.Invalid(param, "%s must be an array", param)
	}
	var calls []struct {
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if err := httpio.DecodeJSON(raw, param, &calls); err != nil {
		return err
	}
	for i, c := range calls {
		where := fmt.Sprintf("%s[%d].function", param, i)
		if c.Function.Name == "" {
			return failure.Invalid(where+".name", "%s.name is missing", where)
		}
		if err := checkArguments(c.Function.Arguments, where+".arguments"); err != nil {
			return err
		}
	}
	return nil
}

// checkArguments checks the arguments of a call. It accepts a string that does not hold an
// object: a model wrote it, and refusing it would end the conversation.
func checkArguments(arguments json.RawMessage, param string) error {
	var text string
	switch firstByte(arguments) {
	case 0, 'n', '{':
		return nil
	case '"':
		if err := httpio.DecodeJSON(arguments, param, &text); err != nil {
			return err
		}
	default:
		return failure.Invalid(param, "%s must be a string that holds a JSON object", param)
	}
	if httpio.CheckDepth([]byte(text)) != nil {
		return failure.Invalid(param, "%s nests too deep", param)
	}
	return nil
}

// toolCall is a call in an answer, or what a piece of a stream adds to one.
type toolCall struct {
	Index    *int             `json:"index,omitempty"` // in streams
	ID       string           `json:"id,omitempty"`
	Type     string           `json:"type,omitempty"`
	Function toolCallFunction `json:"function"`
}

type toolCallFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// toolCallDeltas is calls as a stream sends them: each begins with its id, type and name.
func toolCallDeltas(calls []reply.CallDelta) (list []toolCall) {
	for _, c := range calls {
		call := toolCall{Index: new(c.Index), ID: c.ID, Function: toolCallFunction{c.Name, c.Arguments}}
		if c.ID != "" {
			call.Type = "function"
		}
		list = append(list, call)
	}
	return list
}

// joinToolCalls appends the pieces in an event to the calls.
func joinToolCalls(whole []toolCall, calls []reply.CallDelta) []toolCall {
	for _, c := range calls {
		if c.Index == len(whole) {
			whole = append(whole, toolCall{ID: c.ID, Type: "function", Function: toolCallFunction{Name: c.Name}})
		}
		if c.Index < len(whole) {
			whole[c.Index].Function.Arguments += c.Arguments
		}
	}
	return whole
}
