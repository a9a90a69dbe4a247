package reply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// callFormat is how a family writes calls. In call, «name» stands for the name, «"name"» for
// the name in quotes, «id» for an id, «arguments» for a JSON object and «parameters» for the
// parameters one by one.
type callFormat struct {
	before, call, between, after string
	single                       bool // the format has no form for several calls
	parameter                    parameterForm
}

// parameterForm is the text before and after the value of a parameter. In before, «key»
// stands for its name and «string» for whether it is a string.
type parameterForm struct{ before, after string }

var (
	jsonCall   = `{"name": «"name"», "arguments": «arguments»}`
	hermesCall = "<tool_call>\n" + jsonCall + "\n</tool_call>"
	xmlCall    = "<function=«name»>\n«parameters»</function>"
	withID     = `{"name": «"name"», "arguments": «arguments», "id": "«id»"}`
)

// callFormats are the call formats by family; some depend on the template.
var callFormats = map[string]func(template string) callFormat{
	"harmony": fixed(callFormat{call: "<|channel|>commentary to=functions.«name» <|constrain|>json<|message|>«arguments»", single: true}),
	"kimi": fixed(callFormat{
		before: "<|tool_calls_section_begin|>", after: "<|tool_calls_section_end|>", single: true,
		call: "<|tool_call_begin|>functions.«name»:0<|tool_call_argument_begin|>«arguments»<|tool_call_end|>",
	}),
	"deepseek": func(template string) callFormat {
		w := callFormat{before: "<｜tool▁calls▁begin｜>", after: "<｜tool▁calls▁end｜>"}
		w.call = "<｜tool▁call▁begin｜>«name»<｜tool▁sep｜>«arguments»<｜tool▁call▁end｜>"
		if strings.Contains(template, "```json") {
			w.call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>«name»\n```json\n«arguments»\n```<｜tool▁call▁end｜>"
			w.between = "\n"
		}
		return w
	},
	"dsml": func(template string) callFormat {
		block := dsml + "function_calls>"
		if strings.Contains(template, "tool_calls>") {
			block = dsml + "tool_calls>"
		}
		return callFormat{
			before: "<" + block + "\n", after: "</" + block,
			call:      "<" + dsml + "invoke name=\"«name»\">\n«parameters»</" + dsml + "invoke>\n",
			parameter: parameterForm{"<" + dsml + "parameter name=\"«key»\" string=\"«string»\">", "</" + dsml + "parameter>\n"},
		}
	},
	"mistral": func(template string) callFormat {
		if !strings.Contains(template, "[ARGS]") {
			return callFormat{before: "[TOOL_CALLS] [", call: withID, between: ", ", after: "]"}
		}
		if strings.Contains(template, "[CALL_ID]") {
			return callFormat{call: "[TOOL_CALLS]«name»[CALL_ID]«id»[ARGS]«arguments»"}
		}
		return callFormat{call: "[TOOL_CALLS]«name»[ARGS]«arguments»"}
	},
	"command-r7b": fixed(callFormat{
		before: "<|START_ACTION|>[\n    ", between: ",\n    ", after: "\n]<|END_ACTION|>",
		call: `{"tool_call_id": "0", "tool_name": «"name"», "parameters": «arguments»}`,
	}),
	"command-r": fixed(callFormat{
		before: "Action:\n```json\n[\n    ", between: ",\n    ", after: "\n]```",
		call: "{\n        \"tool_name\": «\"name\"»,\n        \"parameters\": «arguments»\n    }",
	}),
	"gemma":           fixed(callFormat{call: "<|tool_call>call:«name»«arguments»<tool_call|>"}),
	"functiongemma":   fixed(callFormat{call: "<start_function_call>call:«name»«arguments»<end_function_call>"}),
	"apertus":         fixed(callFormat{before: "<|tools_prefix|>[", call: `{«"name"»: «arguments»}`, between: ", ", after: "]<|tools_suffix|>"}),
	"lfm2":            fixed(callFormat{before: "<|tool_call_start|>[", call: jsonCall, between: ", ", after: "]<|tool_call_end|>"}),
	"granite":         fixed(callFormat{before: "<|tool_call|>[", call: jsonCall, between: ", ", after: "]"}),
	"gigachat":        fixed(callFormat{call: "<|function_call|>" + jsonCall, single: true}),
	"gigachat-3":      fixed(callFormat{call: "<|message_sep|>\n\nfunction call<|role_sep|>\n" + jsonCall, single: true}),
	"seed":            fixed(callFormat{call: "<seed:tool_call>\n" + xmlCall + "\n</seed:tool_call>", between: "\n", parameter: parameterForm{"<parameter=«key»>", "</parameter>\n"}}),
	"apriel":          fixed(callFormat{before: "<tool_calls>[", call: withID, between: ", ", after: "]</tool_calls>"}),
	"functools":       fixed(callFormat{before: " functools[", call: jsonCall, between: ", ", after: "]"}),
	"functionary":     fixed(callFormat{call: "<function=«name»>«arguments»</function>"}),
	"functionary-3.2": fixed(callFormat{call: "«name»\n«arguments»", between: ">>>"}),
	"llama":           fixed(callFormat{call: `{"name": «"name"», "parameters": «arguments»}`, single: true}),
	"hermes": func(template string) callFormat {
		switch {
		case strings.Contains(template, "<arg_key>"):
			return callFormat{
				call: "<tool_call>«name»\n«parameters»</tool_call>", between: "\n",
				parameter: parameterForm{"<arg_key>«key»</arg_key>\n<arg_value>", "</arg_value>\n"},
			}
		case strings.Contains(template, "<function="):
			return callFormat{call: "<tool_call>\n" + xmlCall + "\n</tool_call>", between: "\n", parameter: parameterForm{"<parameter=«key»>\n", "\n</parameter>\n"}}
		}
		return callFormat{call: hermesCall, between: "\n"}
	},
	"generic": fixed(callFormat{call: hermesCall, between: "\n"}),
}

func fixed(w callFormat) func(string) callFormat { return func(string) callFormat { return w } }

// maxCalls limits the calls that a grammar allows, so that a model that is forced to call
// ends its reply.
const maxCalls = 8

// GBNF are the functions with which Grammar writes grammars.
type GBNF struct {
	Literal func(text string) string // returns an expression of text, which may contain control tokens
	Rules   func(s Schema) (rules string, err error)
}

// Schema is a JSON Schema to be written as rules.
type Schema struct {
	Name   string // of the rule of the whole document
	Text   json.RawMessage
	Strict bool   // return an error if it cannot be enforced in full
	Of     string // TOOL or TOOL.PARAMETER whose arguments it constrains; empty for the content
}

// Form is the constraint of a reply: content that is valid by Schema, calls of Tools, or
// either of them if both are set.
type Form struct {
	Schema json.RawMessage
	Strict bool // of Schema
	Tools  []Tool
	Single bool   // allow one call only
	Prompt string // the end of the text that the reply continues
}

// Grammar returns a grammar in GBNF of the replies that form allows. If the prompt has opened
// reasoning, the reply begins with the rest of it. The arguments of calls are valid by their
// schemas; for strings that a format writes without quotes, only enum, const and the length
// are enforced. It returns the errors of g.Rules, those of a tool as a *ToolError.
func (f *Syntax) Grammar(g GBNF, form Form) (string, error) {
	content := ""
	if len(form.Schema) > 0 {
		var err error
		if content, err = g.Rules(Schema{Name: "json", Text: form.Schema, Strict: form.Strict}); err != nil {
			return "", err
		}
		if _, inside := openMessage(form.Prompt); len(form.Tools) == 0 || f.harmony && inside {
			return "root ::= " + f.BeforeContent(g, form.Prompt) + "json\n" + content, nil
		}
	}
	calls, rules, err := f.calls(g, form)
	if err != nil {
		return "", err
	}
	reasoning := f.reasoningRule(g, form.Prompt)
	if content == "" {
		return "root ::= " + reasoning + calls + "\n" + rules, nil
	}
	header := strings.TrimPrefix(f.BeforeContent(g, form.Prompt), reasoning)
	return "root ::= " + reasoning + "(" + header + "json | " + calls + ")\n" + content + rules, nil
}

// calls returns an expression of calls of the tools of a form, and its rules.
func (f *Syntax) calls(g GBNF, form Form) (expression, text string, err error) {
	var rules strings.Builder
	var names []string
	for i, t := range form.Tools {
		name := fmt.Sprintf("call-%d", i+1)
		body, err := f.callRule(g, &rules, name, t)
		if err != nil {
			return "", "", &ToolError{t.Name, err}
		}
		rules.WriteString(name + " ::= " + body + "\n")
		names = append(names, name)
	}
	w := f.callFormat
	expression = "call"
	if !form.Single && !w.single {
		expression += fmt.Sprintf(" (%s call){0,%d}", g.Literal(w.between), maxCalls-1)
	}
	return g.Literal(w.before) + " " + expression + " " + g.Literal(w.after), "call ::= " + strings.Join(names, " | ") + "\n" + rules.String(), nil
}

// ToolError is returned if the schema of a tool cannot be enforced.
type ToolError struct {
	Tool string
	Err  error
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("the parameters of the tool %q cannot be enforced: %s", e.Tool, e.Err)
}

func (e *ToolError) Unwrap() error { return e.Err }

// BeforeContent returns a GBNF expression of the text before the content of a reply to prompt:
// the rest of reasoning that the prompt has opened, and in harmony the header of the final
// message. It is empty or ends with a blank.
func (f *Syntax) BeforeContent(g GBNF, prompt string) string {
	if !f.harmony {
		return f.reasoningRule(g, prompt)
	}
	if _, inside := openMessage(prompt); inside {
		return ""
	}
	return f.reasoningRule(g, prompt) + g.Literal("<|channel|>final<|message|>") + " "
}

// reasoningRule returns an expression of the rest of reasoning that the prompt has opened; in
// harmony, of optional reasoning.
func (f *Syntax) reasoningRule(g GBNF, prompt string) string {
	if f.harmony {
		return `(` + g.Literal("<|channel|>analysis<|message|>") + ` [^<]* ` + g.Literal("<|end|><|start|>assistant") + `)? `
	}
	close := f.OpenedBy(prompt)
	if close == "" {
		return ""
	}
	return textBefore(close) + " " + g.Literal(close) + ` [ \n]{0,4} `
}

// textBefore returns an expression of text without mark. It also excludes some text that only
// begins like mark.
func textBefore(mark string) string {
	first := []rune(mark)[0]
	if strings.HasPrefix(mark, "</") || strings.HasPrefix(mark, "\n</") {
		return `([^<] | "<"+ [^</])*`
	}
	return "[^" + escapeClass(first) + "]*"
}

func escapeClass(r rune) string {
	if strings.ContainsRune(`]^-\[`, r) {
		return `\x` + fmt.Sprintf("%02x", r)
	}
	return string(r)
}

// callRule returns an expression of a call, and writes its rules.
func (f *Syntax) callRule(g GBNF, rules *strings.Builder, name string, t Tool) (string, error) {
	var parts []string
	rest := f.callFormat.call
	for rest != "" {
		text, after, found := strings.Cut(rest, "«")
		if text != "" {
			parts = append(parts, g.Literal(text))
		}
		if !found {
			break
		}
		slot, after, _ := strings.Cut(after, "»")
		rest = after
		var expression string
		var err error
		switch slot {
		case "name":
			expression = g.Literal(t.Name)
		case `"name"`:
			expression = g.Literal(quote(t.Name))
		case "id":
			expression = fmt.Sprintf("[a-zA-Z0-9]{%d}", idLength)
		case "arguments":
			expression, err = schemaRule(g, rules, Schema{name + "-arguments", argumentsSchema(t), t.Strict, t.Name})
		case "parameters":
			expression, err = f.parameterRules(g, rules, name, t)
		}
		if err != nil {
			return "", err
		}
		if expression != "" {
			parts = append(parts, expression)
		}
	}
	return strings.Join(parts, " "), nil
}

// schemaRule writes the rules of a schema and returns the name of their root.
func schemaRule(g GBNF, rules *strings.Builder, s Schema) (string, error) {
	text, err := g.Rules(s)
	rules.WriteString(text)
	return s.Name, err
}

// argumentsSchema returns the schema of the arguments of a tool, with the type object.
func argumentsSchema(t Tool) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(t.Parameters, &members) != nil || len(members) == 0 {
		return []byte(`{"type": "object"}`)
	}
	if _, typed := members["type"]; typed {
		return t.Parameters
	}
	// Inserted as text, because the order of the other members counts.
	return append([]byte(`{"type": "object", `), bytes.TrimLeft(bytes.TrimSpace(t.Parameters), "{ \t\r\n")...)
}

// parameterRules returns an expression of parameters that are written one by one, in the
// order of the schema's properties.
func (f *Syntax) parameterRules(g GBNF, rules *strings.Builder, name string, t Tool) (string, error) {
	var schema struct {
		Required   []string        `json:"required"`
		Properties json.RawMessage `json:"properties"`
		Defs       json.RawMessage `json:"$defs"`
	}
	if len(t.Parameters) > 0 {
		if err := json.Unmarshal(t.Parameters, &schema); err != nil {
			return "", err
		}
	}
	required := map[string]bool{}
	for _, key := range schema.Required {
		required[key] = true
	}
	keys, err := objectKeys(schema.Properties)
	if err != nil {
		return "", err
	}
	schemas := schemasOf(t)
	var parts []string
	for i, key := range keys {
		isText := kindsOf(schemas[key], 0) == valueKinds{strings: true}
		before := strings.NewReplacer("«key»", key, "«string»", fmt.Sprint(isText)).Replace(f.callFormat.parameter.before)
		value, err := f.valueRule(g, rules, Schema{fmt.Sprintf("%s-%d", name, i+1), schemas[key], t.Strict, t.Name + "." + key}, schema.Defs, isText)
		if err != nil {
			return "", err
		}
		part := g.Literal(before) + " " + value + " " + g.Literal(f.callFormat.parameter.after)
		if !required[key] {
			part = "(" + part + ")?"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " "), nil
}

// valueRule returns an expression of a parameter's value: text without quotes, or JSON.
func (f *Syntax) valueRule(g GBNF, rules *strings.Builder, value Schema, defs json.RawMessage, isText bool) (string, error) {
	schema := value.Text
	if isText {
		var s struct {
			Enum  []string `json:"enum"`
			Const *string  `json:"const"`
			Least int      `json:"minLength"`
			Most  *int     `json:"maxLength"`
		}
		if json.Unmarshal(schema, &s) == nil && s.Const != nil {
			s.Enum = []string{*s.Const}
		}
		if len(s.Enum) == 0 && s.Most == nil {
			return textBefore(f.callFormat.parameter.after), nil
		}
		if len(s.Enum) == 0 {
			least := min(max(0, s.Least), maxText)
			return fmt.Sprintf("[^<]{%d,%d}", least, min(max(least, *s.Most), maxText)), nil
		}
		var values []string
		for _, v := range s.Enum {
			values = append(values, g.Literal(v))
		}
		return "(" + strings.Join(values, " | ") + ")", nil
	}
	if len(defs) > 0 && bytes.HasPrefix(bytes.TrimSpace(schema), []byte("{")) {
		rest := bytes.TrimLeft(bytes.TrimSpace(schema)[1:], " \t\r\n")
		joined := append([]byte(`{"$defs": `), defs...)
		if !bytes.HasPrefix(rest, []byte("}")) {
			joined = append(joined, ", "...)
		}
		schema = append(joined, rest...)
	}
	if len(schema) == 0 {
		schema = json.RawMessage(`{}`)
	}
	value.Text = schema
	return schemaRule(g, rules, value)
}

// maxText limits the characters of a parameter without quotes whose schema has maxLength.
const maxText = 1 << 14

// objectKeys returns the keys of a JSON object in their order.
func objectKeys(raw json.RawMessage) (keys []string, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		text, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("properties must be an object")
		}
		keys = append(keys, text)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
	}
	return keys, nil
}
