package reply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// writing says how a format writes calls. In call, «name» stands for the name, «"name"»
// for the name in quotes, «id» for an id, «arguments» for a JSON object and «parameters»
// for parameters, each written by itself.
type writing struct {
	before, call, between, after string
	single                       bool // there is no form for several calls
	parameter                    parameterForm
}

// parameterForm is how a parameter is written by itself: text in front of its value, in
// which «key» and «string» stand for its name and for whether it is a string, and behind.
type parameterForm struct{ before, after string }

var (
	jsonCall   = `{"name": «"name"», "arguments": «arguments»}`
	hermesCall = "<tool_call>\n" + jsonCall + "\n</tool_call>"
	xmlCall    = "<function=«name»>\n«parameters»</function>"
	withID     = `{"name": «"name"», "arguments": «arguments», "id": "«id»"}`
)

// writings are those of the families, which may depend on the template.
var writings = map[string]func(template string) writing{
	"harmony": fixed(writing{call: "<|channel|>commentary to=functions.«name» <|constrain|>json<|message|>«arguments»", single: true}),
	"kimi": fixed(writing{
		before: "<|tool_calls_section_begin|>", after: "<|tool_calls_section_end|>", single: true,
		call: "<|tool_call_begin|>functions.«name»:0<|tool_call_argument_begin|>«arguments»<|tool_call_end|>",
	}),
	"deepseek": func(template string) writing {
		w := writing{before: "<｜tool▁calls▁begin｜>", after: "<｜tool▁calls▁end｜>"}
		w.call = "<｜tool▁call▁begin｜>«name»<｜tool▁sep｜>«arguments»<｜tool▁call▁end｜>"
		if strings.Contains(template, "```json") {
			w.call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>«name»\n```json\n«arguments»\n```<｜tool▁call▁end｜>"
			w.between = "\n"
		}
		return w
	},
	"dsml": func(template string) writing {
		block := dsml + "function_calls>"
		if strings.Contains(template, "tool_calls>") {
			block = dsml + "tool_calls>"
		}
		return writing{
			before: "<" + block + "\n", after: "</" + block,
			call:      "<" + dsml + "invoke name=\"«name»\">\n«parameters»</" + dsml + "invoke>\n",
			parameter: parameterForm{"<" + dsml + "parameter name=\"«key»\" string=\"«string»\">", "</" + dsml + "parameter>\n"},
		}
	},
	"mistral": func(template string) writing {
		if !strings.Contains(template, "[ARGS]") {
			return writing{before: "[TOOL_CALLS] [", call: withID, between: ", ", after: "]"}
		}
		if strings.Contains(template, "[CALL_ID]") {
			return writing{call: "[TOOL_CALLS]«name»[CALL_ID]«id»[ARGS]«arguments»"}
		}
		return writing{call: "[TOOL_CALLS]«name»[ARGS]«arguments»"}
	},
	"command-r7b": fixed(writing{
		before: "<|START_ACTION|>[\n    ", between: ",\n    ", after: "\n]<|END_ACTION|>",
		call: `{"tool_call_id": "0", "tool_name": «"name"», "parameters": «arguments»}`,
	}),
	"command-r": fixed(writing{
		before: "Action:\n```json\n[\n    ", between: ",\n    ", after: "\n]```",
		call: "{\n        \"tool_name\": «\"name\"»,\n        \"parameters\": «arguments»\n    }",
	}),
	"gemma":           fixed(writing{call: "<|tool_call>call:«name»«arguments»<tool_call|>"}),
	"functiongemma":   fixed(writing{call: "<start_function_call>call:«name»«arguments»<end_function_call>"}),
	"apertus":         fixed(writing{before: "<|tools_prefix|>[", call: `{«"name"»: «arguments»}`, between: ", ", after: "]<|tools_suffix|>"}),
	"lfm2":            fixed(writing{before: "<|tool_call_start|>[", call: jsonCall, between: ", ", after: "]<|tool_call_end|>"}),
	"granite":         fixed(writing{before: "<|tool_call|>[", call: jsonCall, between: ", ", after: "]"}),
	"gigachat":        fixed(writing{call: "<|function_call|>" + jsonCall, single: true}),
	"gigachat-3":      fixed(writing{call: "<|message_sep|>\n\nfunction call<|role_sep|>\n" + jsonCall, single: true}),
	"seed":            fixed(writing{call: "<seed:tool_call>\n" + xmlCall + "\n</seed:tool_call>", between: "\n", parameter: parameterForm{"<parameter=«key»>", "</parameter>\n"}}),
	"apriel":          fixed(writing{before: "<tool_calls>[", call: withID, between: ", ", after: "]</tool_calls>"}),
	"functools":       fixed(writing{before: " functools[", call: jsonCall, between: ", ", after: "]"}),
	"functionary":     fixed(writing{call: "<function=«name»>«arguments»</function>"}),
	"functionary-3.2": fixed(writing{call: "«name»\n«arguments»", between: ">>>"}),
	"llama":           fixed(writing{call: `{"name": «"name"», "parameters": «arguments»}`, single: true}),
	"hermes": func(template string) writing {
		switch {
		case strings.Contains(template, "<arg_key>"):
			return writing{
				call: "<tool_call>«name»\n«parameters»</tool_call>", between: "\n",
				parameter: parameterForm{"<arg_key>«key»</arg_key>\n<arg_value>", "</arg_value>\n"},
			}
		case strings.Contains(template, "<function="):
			return writing{call: "<tool_call>\n" + xmlCall + "\n</tool_call>", between: "\n", parameter: parameterForm{"<parameter=«key»>\n", "\n</parameter>\n"}}
		}
		return writing{call: hermesCall, between: "\n"}
	},
	"generic": fixed(writing{call: hermesCall, between: "\n"}),
}

func fixed(w writing) func(string) writing { return func(string) writing { return w } }

// maxForced is how many calls a grammar leaves room for, so that a model which is made
// to call comes to an end.
const maxForced = 8

// GBNF is what writes grammars for Grammar.
type GBNF struct {
	Literal func(text string) string // an expression for text, control tokens in it included
	Rules   func(s Schema) (rules string, err error)
}

// Schema is a JSON Schema of which rules are wanted.
type Schema struct {
	Name   string // of the rule of the whole document
	Text   json.RawMessage
	Strict bool   // that it cannot be held to in full is an error
	Of     string // the tool, or the tool and the parameter, whose arguments it is of; empty: of the content
}

// Form is what a reply is held to: to content that is valid by a schema, to calls of
// tools, or to either if both are given.
type Form struct {
	Schema json.RawMessage
	Strict bool // of Schema
	Tools  []Tool
	Single bool   // one call at most
	Prompt string // what the reply goes on from; its end alone counts
}

// Grammar returns a grammar in GBNF of replies of a form. Calls come one after the other,
// with arguments that are valid by their schemas. A thought that the prompt has opened comes
// first. Where a format writes strings without quotes, they are held to enum, const and
// their length alone.
func (f *Syntax) Grammar(g GBNF, form Form) (string, error) {
	content := ""
	if len(form.Schema) > 0 {
		var err error
		if content, err = g.Rules(Schema{Name: "json", Text: form.Schema, Strict: form.Strict}); err != nil {
			return "", err
		}
		if _, inside := openMessage(form.Prompt); len(form.Tools) == 0 || f.harmony && inside {
			return "root ::= " + f.Lead(g, form.Prompt) + "json\n" + content, nil
		}
	}
	calls, rules, err := f.calls(g, form)
	if err != nil {
		return "", err
	}
	thought := f.thoughtRule(g, form.Prompt)
	if content == "" {
		return "root ::= " + thought + calls + "\n" + rules, nil
	}
	header := strings.TrimPrefix(f.Lead(g, form.Prompt), thought)
	return "root ::= " + thought + "(" + header + "json | " + calls + ")\n" + content + rules, nil
}

// calls returns an expression of calls of the tools of a form, and the rules that it needs.
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
	w := f.writing
	expression = "call"
	if !form.Single && !w.single {
		expression += fmt.Sprintf(" (%s call){0,%d}", g.Literal(w.between), maxForced-1)
	}
	return g.Literal(w.before) + " " + expression + " " + g.Literal(w.after), "call ::= " + strings.Join(names, " | ") + "\n" + rules.String(), nil
}

// ToolError says why calls of a tool cannot be held to its schema.
type ToolError struct {
	Tool string
	Err  error
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("the parameters of the tool %q cannot be held to: %s", e.Tool, e.Err)
}

func (e *ToolError) Unwrap() error { return e.Err }

// Lead returns an expression, in GBNF, of what stands in front of the content of a reply
// to prompt: the thought that the prompt has opened, and in harmony the header of the
// final message. It is empty or ends with a blank.
func (f *Syntax) Lead(g GBNF, prompt string) string {
	if !f.harmony {
		return f.thoughtRule(g, prompt)
	}
	if _, inside := openMessage(prompt); inside {
		return ""
	}
	return f.thoughtRule(g, prompt) + g.Literal("<|channel|>final<|message|>") + " "
}

// thoughtRule is the rest of a thought that the prompt has opened, or the one with which
// a reply in harmony may begin.
func (f *Syntax) thoughtRule(g GBNF, prompt string) string {
	if f.harmony {
		return `(` + g.Literal("<|channel|>analysis<|message|>") + ` [^<]* ` + g.Literal("<|end|><|start|>assistant") + `)? `
	}
	close := f.OpenedBy(prompt)
	if close == "" {
		return ""
	}
	return textBefore(close) + " " + g.Literal(close) + ` [ \n]{0,4} `
}

// textBefore is an expression for text that does not hold mark: nothing with which it
// begins, but for what can be told from it by the next character.
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

// callRule returns the expression of a call, and writes the rules that it needs.
func (f *Syntax) callRule(g GBNF, rules *strings.Builder, name string, t Tool) (string, error) {
	var parts []string
	rest := f.writing.call
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

// argumentsSchema is the schema of a tool, of an object in any case.
func argumentsSchema(t Tool) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(t.Parameters, &members) != nil || len(members) == 0 {
		return []byte(`{"type": "object"}`)
	}
	if _, typed := members["type"]; typed {
		return t.Parameters
	}
	// In front of the others, whose order counts.
	return append([]byte(`{"type": "object", `), bytes.TrimLeft(bytes.TrimSpace(t.Parameters), "{ \t\r\n")...)
}

// parameterRules returns the expression of parameters that are written one by one: the
// properties of the schema in their order.
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
		before := strings.NewReplacer("«key»", key, "«string»", fmt.Sprint(isText)).Replace(f.writing.parameter.before)
		value, err := f.valueRule(g, rules, Schema{fmt.Sprintf("%s-%d", name, i+1), schemas[key], t.Strict, t.Name + "." + key}, schema.Defs, isText)
		if err != nil {
			return "", err
		}
		part := g.Literal(before) + " " + value + " " + g.Literal(f.writing.parameter.after)
		if !required[key] {
			part = "(" + part + ")?"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " "), nil
}

// valueRule is the expression of a parameter's value: text as it is, or JSON.
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
			return textBefore(f.writing.parameter.after), nil
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

// maxText bounds what a parameter without quotes may have of characters, where its schema
// says how many.
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
