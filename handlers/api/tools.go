package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
)

// This file holds the tools that a request offers, and calls as chat completions have them.

const maxTools = 128

// offer is a tool of a request.
type offer struct {
	where       string // the field that has it, such as tools[1].function
	schema      string // the field in that which has the schema of the parameters; empty: parameters
	name        string
	description string
	parameters  json.RawMessage
	strict      *bool
	takesText   bool            // the model gives it a text instead of arguments
	raw         json.RawMessage // the definition as chat completions have it; nil: it is made of the fields above
}

// check returns an error if the tool is invalid.
func (o *offer) check() error {
	name, schema := o.where+".name", o.where+".parameters"
	if o.schema != "" {
		schema = o.where + "." + o.schema
	}
	parameters := bytes.TrimSpace(o.parameters)
	switch {
	case !isToolName(o.name):
		return fault.Invalid(name, "%s must be 1 to %d letters, digits or characters of _-./:, not %.40q", name, maxToolName, o.name)
	case len(parameters) > 0 && parameters[0] != '{' && string(parameters) != "null":
		return fault.Invalid(schema, "%s must be a JSON schema, an object", schema)
	}
	return nil
}

// toolDefinition is a tool as the engine takes it.
type toolDefinition struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
		Strict      *bool           `json:"strict,omitempty"`
	} `json:"function"`
}

// definition returns the tool as the engine takes it, which knows it as name.
func (o *offer) definition(name string) json.RawMessage {
	if o.raw != nil && o.name == name {
		return o.raw
	}
	d := toolDefinition{Type: "function"}
	d.Function.Name, d.Function.Description, d.Function.Strict = name, o.description, o.strict
	if given(o.parameters) {
		d.Function.Parameters = o.parameters
	}
	return mustMarshal(d)
}

// fillTools adds offers and the choice among them to r, whose conversation must be there, and returns how their
// names are to be translated.
func fillTools(r *infer.Request, offers []offer, choice toolChoice, parallel *bool) (*toolNames, error) {
	names, err := newToolNames(offers)
	if err != nil {
		return nil, err
	}
	names.translate(r.Messages)
	if offers, err = choice.allowed(offers); err != nil {
		return nil, err
	}
	switch {
	case choice.forces() && len(offers) == 0:
		return nil, fault.Invalid("tool_choice", "tool_choice asks for a call, but tools is empty")
	case choice.name != "" && !names.offers(choice.name):
		return nil, fault.Invalid("tool_choice", "tool_choice names the function %q, which is not among the tools", httpio.Shorten(choice.name))
	case len(offers) == 0 || choice.mode == infer.ToolChoiceNone:
		return names, nil
	}
	definitions := make([][]byte, len(offers))
	for i := range offers {
		definitions[i] = offers[i].definition(names.engineName(offers[i].name))
	}
	r.Tools = slices.Concat([]byte("["), bytes.Join(definitions, []byte(",")), []byte("]"))
	if choice.forces() {
		if r.ToolChoice = infer.ToolChoiceRequired; choice.name != "" {
			r.ToolChoice = names.engineName(choice.name)
		}
	}
	r.SingleCall = parallel != nil && !*parallel
	r.WholeCalls = r.WholeCalls || len(names.text) > 0 // the text is known when its call is complete
	return names, nil
}

// parseTools returns the tools of a chat completion, or of Ollama's chat.
func parseTools(raw json.RawMessage) ([]offer, error) {
	switch firstByte(raw) {
	case 0, 'n':
		return nil, nil
	case '[':
	default:
		return nil, fault.Invalid("tools", "tools must be an array")
	}
	var list []json.RawMessage
	if err := httpio.DecodeJSON(raw, "tools", &list); err != nil {
		return nil, err
	}
	if len(list) > maxTools {
		return nil, tooManyTools(len(list))
	}
	var offers []offer
	for i, definition := range list {
		o, err := parseTool(definition, fmt.Sprintf("tools[%d]", i))
		if err != nil {
			return nil, err
		}
		offers = append(offers, o)
	}
	return offers, nil
}

func tooManyTools(n int) error {
	return fault.Invalid("tools", "there are %d tools: give at most %d", n, maxTools)
}

func parseTool(raw json.RawMessage, where string) (o offer, err error) {
	var t struct {
		Type     string        `json:"type"`
		Function *functionTool `json:"function"`
		Custom   *customTool   `json:"custom"`
	}
	if err := httpio.DecodeJSON(raw, where, &t); err != nil {
		return o, err
	}
	switch {
	case t.Type == "function" && t.Function == nil:
		return o, fault.Invalid(where+".function", "%s.function is missing", where)
	case t.Type == "function":
		o = t.Function.offer(where + ".function")
		o.raw = raw
		return o, nil
	case t.Type == "custom" && t.Custom == nil:
		return o, fault.Invalid(where+".custom", "%s.custom is missing", where)
	case t.Type == "custom":
		return t.Custom.offer(where + ".custom"), nil
	}
	return o, fault.Invalid(where+".type", "%s.type must be function or custom, not %q", where, httpio.Shorten(t.Type))
}

// functionTool is a function, as the Responses API and functions of chat completions have it.
type functionTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

func (t *functionTool) offer(where string) offer {
	return offer{where: where, name: t.Name, description: t.Description, parameters: t.Parameters, strict: t.Strict}
}

// toolChoice says whether the model must call, and what.
type toolChoice struct {
	mode string          // auto, none, required or, if the choice has a name, empty
	name string          // of the tool to call
	only map[string]bool // the tools that may be called; nil: all
}

func (c toolChoice) forces() bool { return c.name != "" || c.mode == infer.ToolChoiceRequired }

// allowed returns the tools that may be called.
func (c toolChoice) allowed(offers []offer) (list []offer, err error) {
	if c.only == nil {
		return offers, nil
	}
	for _, o := range offers {
		if c.only[o.name] {
			list = append(list, o)
		}
	}
	if len(list) < len(c.only) {
		return nil, fault.Invalid("tool_choice", "tool_choice allows tools that are not among the tools")
	}
	return list, nil
}

// choiceFields are the forms of an object as tool_choice, in chat completions and the Responses API.
type choiceFields struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	Custom struct {
		Name string `json:"name"`
	} `json:"custom"`
	Mode    string         `json:"mode"`
	Tools   []choiceFields `json:"tools"`
	Allowed *choiceFields  `json:"allowed_tools"`
}

// tool returns the name of the one tool that f names, empty if it names none.
func (f *choiceFields) tool() string {
	switch {
	case f.Type != "function" && f.Type != "custom":
		return ""
	case f.Name != "":
		return f.Name
	case f.Type == "custom":
		return f.Custom.Name
	}
	return f.Function.Name
}

// parseToolChoice parses the field called param.
func parseToolChoice(raw json.RawMessage, param string) (toolChoice, error) {
	wrong := fault.Invalid(param, `%s must be "auto", "none", "required", {"type":"function","function":{"name":"…"}} or {"type":"allowed_tools","allowed_tools":{"mode":"…","tools":[…]}}`, param)
	switch firstByte(raw) {
	case 0, 'n':
		return toolChoice{mode: infer.ToolChoiceAuto}, nil
	case '"':
		var mode string
		if err := httpio.DecodeJSON(raw, param, &mode); err != nil {
			return toolChoice{}, err
		}
		switch mode {
		case infer.ToolChoiceAuto, infer.ToolChoiceNone, infer.ToolChoiceRequired:
			return toolChoice{mode: mode}, nil
		}
	case '{':
		var f choiceFields
		if err := httpio.DecodeJSON(raw, param, &f); err != nil {
			return toolChoice{}, err
		}
		if f.Type == "allowed_tools" {
			return f.allowedTools(wrong)
		}
		if name := f.tool(); name != "" {
			return toolChoice{name: name}, nil
		}
	}
	return toolChoice{}, wrong
}

// allowedTools returns a choice among some of the tools, or the error wrong.
func (f *choiceFields) allowedTools(wrong error) (toolChoice, error) {
	if f.Allowed != nil {
		f = f.Allowed
	}
	if f.Mode != infer.ToolChoiceAuto && f.Mode != infer.ToolChoiceRequired || len(f.Tools) == 0 {
		return toolChoice{}, wrong
	}
	choice := toolChoice{mode: f.Mode, only: map[string]bool{}}
	for i := range f.Tools {
		name := f.Tools[i].tool()
		if name == "" {
			return toolChoice{}, wrong
		}
		choice.only[name] = true
	}
	return choice, nil
}

// parseToolCalls returns the calls in a message of the conversation. Their arguments are a string that holds an
// object, as OpenAI's clients send them, or the object itself. Calls of tools that take text become calls of
// functions.
func parseToolCalls(raw json.RawMessage, param string) (json.RawMessage, error) {
	switch firstByte(raw) {
	case 0, 'n':
		return nil, nil
	case '[':
	default:
		return nil, fault.Invalid(param, "%s must be an array", param)
	}
	var calls []struct {
		oneCall
		Custom *customCall `json:"custom"`
	}
	if err := httpio.DecodeJSON(raw, param, &calls); err != nil {
		return nil, err
	}
	custom := false
	list := make([]oneCall, len(calls))
	for i, c := range calls {
		list[i] = c.oneCall
		where := fmt.Sprintf("%s[%d].function", param, i)
		if c.Type == "custom" && c.Custom != nil {
			where, custom = fmt.Sprintf("%s[%d].custom", param, i), true
			list[i] = c.Custom.call(c.ID)
		}
		if list[i].Function.Name == "" {
			return nil, fault.Invalid(where+".name", "%s.name is missing", where)
		}
		if err := checkArguments(list[i].Function.Arguments, where+".arguments"); err != nil {
			return nil, err
		}
	}
	if custom {
		return mustMarshal(list), nil
	}
	return raw, nil
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
		return fault.Invalid(param, "%s must be a string that holds a JSON object", param)
	}
	if httpio.CheckDepth([]byte(text)) != nil {
		return fault.Invalid(param, "%s nests too deep", param)
	}
	return nil
}

// toolCall is a call in an answer, or what a piece of a stream adds to one.
type toolCall struct {
	Index    *int              `json:"index,omitempty"` // in streams
	ID       string            `json:"id,omitempty"`
	Type     string            `json:"type,omitempty"`
	Function *toolCallFunction `json:"function,omitempty"`
	Custom   *customCall       `json:"custom,omitempty"` // of a tool that takes text
}

type toolCallFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// toolCallDeltas is calls as a stream sends them: each begins with its id, type and name.
func toolCallDeltas(calls []reply.CallDelta) (list []toolCall) {
	for _, c := range calls {
		call := toolCall{Index: new(c.Index), ID: c.ID, Function: &toolCallFunction{c.Name, c.Arguments}}
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
			whole = append(whole, toolCall{ID: c.ID, Type: "function", Function: &toolCallFunction{Name: c.Name}})
		}
		if c.Index < len(whole) {
			whole[c.Index].Function.Arguments += c.Arguments
		}
	}
	return whole
}

// callIDs gives ids to calls without one, as clients of Ollama send them, and to their results in the order of the calls.
// Some templates need them.
type callIDs struct {
	n    int
	open []namedCall // calls without a result
}

type namedCall struct{ id, name string }

// complete sets the ids that m lacks.
func (c *callIDs) complete(m *chat.Message) error {
	if m.Role == "tool" && m.ToolCallID == "" {
		m.ToolCallID = c.resultOf(m.Name)
	}
	if len(m.ToolCalls) == 0 {
		return nil
	}
	var calls []map[string]json.RawMessage
	if err := httpio.DecodeJSON(m.ToolCalls, "tool_calls", &calls); err != nil {
		return err
	}
	c.open = nil
	completed := false
	for _, call := range calls {
		var id string
		if json.Unmarshal(call["id"], &id) != nil || id == "" {
			completed = true
			c.n++
			id = fmt.Sprintf("call%05d", c.n) // nine characters, which Mistral's templates require
		}
		var function struct{ Name string }
		_ = json.Unmarshal(call["function"], &function) // it was checked
		c.open = append(c.open, namedCall{id, function.Name})
		call["id"], _ = json.Marshal(id)
		call["type"] = json.RawMessage(`"function"`)
	}
	if completed {
		m.ToolCalls = mustMarshal(calls)
	}
	return nil
}

// resultOf returns the id of the first call that has no result, of those of the function name if
// there is one; empty: all have one.
func (c *callIDs) resultOf(name string) string {
	i := slices.IndexFunc(c.open, func(call namedCall) bool { return call.name == name })
	if i < 0 {
		i = 0
	}
	if i >= len(c.open) {
		return ""
	}
	id := c.open[i].id
	c.open = slices.Delete(c.open, i, i+1)
	return id
}
