package reply

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parsedCall is a complete call.
type parsedCall struct{ name, arguments string }

// block buffers text up to a marker and then parses the calls in it.
type block struct {
	close   string
	quote   string // the marker around strings, in which close is text; empty for none
	parse   func(p *Parser, text string) []parsedCall
	buffer  []byte
	inQuote bool
}

func readBlock(b block) func() callReader {
	return func() callReader { return &block{close: b.close, quote: b.quote, parse: b.parse} }
}

func (k *block) text(_ *Parser, b byte) verdict {
	k.buffer = append(k.buffer, b)
	return more
}

func (k *block) marker(p *Parser, m *marker) verdict {
	switch {
	case m.text == k.close && !k.inQuote:
		return k.finish(p)
	case m.text == k.quote && k.quote != "":
		k.inQuote = !k.inQuote
	}
	k.buffer = append(k.buffer, m.text...)
	return more
}

// end accepts a block without its closing marker if the model ended the reply.
func (k *block) end(p *Parser, complete bool) verdict {
	if !complete {
		return invalid
	}
	return k.finish(p)
}

func (k *block) finish(p *Parser) verdict {
	calls := k.parse(p, string(k.buffer))
	for _, c := range calls {
		if !p.offers(c.name) || !isObject(c.arguments) {
			return invalid
		}
	}
	if len(calls) == 0 {
		return invalid
	}
	if p.single {
		calls = calls[:1]
	}
	for _, c := range calls {
		p.addCall("", c.name, c.arguments)
	}
	return done
}

// object builds a JSON object.
type object struct{ strings.Builder }

func (o *object) member(key, value string) {
	if o.Len() == 0 {
		o.WriteByte('{')
	} else {
		o.WriteString(", ")
	}
	o.WriteString(quote(key))
	o.WriteString(": ")
	o.WriteString(value)
}

func (o *object) end() string {
	if o.Len() == 0 {
		return "{}"
	}
	return o.String() + "}"
}

// quote returns text as a JSON string, without escapes for < and &.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a string: cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// between cuts text at open and at the next close.
func between(text, open, close string) (before, inside, after string, found bool) {
	before, rest, found := strings.Cut(text, open)
	if !found {
		return text, "", "", false
	}
	inside, after, found = strings.Cut(rest, close)
	return before, inside, after, found
}

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// parseXML parses <function=NAME><parameter=KEY>VALUE</parameter>…</function>, once or
// more. The arguments may be JSON instead. It returns nil if text is anything else.
func parseXML(p *Parser, text string) (calls []parsedCall) {
	for !isBlank(text) {
		before, inside, after, found := between(text, "<function=", "</function>")
		if !found {
			// A call that lacks only its last tag is complete.
			before, inside, found = strings.Cut(text, "<function=")
			if !found || !strings.HasSuffix(strings.TrimSpace(inside), "</parameter>") {
				return nil
			}
		}
		name, rest, ok := strings.Cut(inside, ">")
		if !ok || !isBlank(before) {
			return nil
		}
		name = strings.TrimSpace(name)
		arguments := strings.TrimSpace(rest)
		if !strings.HasPrefix(arguments, "{") {
			if arguments, ok = xmlArguments(p.properties(name), rest); !ok {
				return nil
			}
		}
		calls = append(calls, parsedCall{name, arguments})
		text = after
	}
	return calls
}

func xmlArguments(types properties, text string) (string, bool) {
	var o object
	for !isBlank(text) {
		before, inside, after, found := between(text, "<parameter=", "</parameter>")
		key, value, ok := strings.Cut(inside, ">")
		if !found || !ok || !isBlank(before) {
			return "", false
		}
		o.member(key, types.value(key, trimLine(value)))
		text = after
	}
	return o.end(), true
}

// parseArgKeys parses GLM's NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>….
func parseArgKeys(p *Parser, text string) []parsedCall {
	name, rest := text, ""
	if i := strings.Index(text, "<arg_key>"); i >= 0 {
		name, rest = text[:i], text[i:]
	}
	name = strings.TrimSpace(name)
	types := p.properties(name)
	var o object
	for !isBlank(rest) {
		before, key, after, found := between(rest, "<arg_key>", "</arg_key>")
		gap, value, after, closed := between(after, "<arg_value>", "</arg_value>")
		if !found || !closed || !isBlank(before) || !isBlank(gap) {
			return nil
		}
		o.member(strings.TrimSpace(key), types.value(strings.TrimSpace(key), trimLine(value)))
		rest = after
	}
	return []parsedCall{{name, o.end()}}
}

// parseToolCall parses text between <tool_call> and </tool_call> that is not JSON.
func parseToolCall(p *Parser, text string) []parsedCall {
	if strings.HasPrefix(strings.TrimSpace(text), "<function=") {
		return parseXML(p, text)
	}
	return parseArgKeys(p, text)
}

const dsml = "｜DSML｜"

// parseDSML parses DeepSeek's <｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY"
// string="true">VALUE</｜DSML｜parameter>…</｜DSML｜invoke>.
func parseDSML(_ *Parser, text string) (calls []parsedCall) {
	for !isBlank(text) {
		before, inside, after, found := between(text, "<"+dsml+`invoke name="`, "</"+dsml+"invoke>")
		name, rest, ok := strings.Cut(inside, `">`)
		if !found || !ok || !isBlank(before) {
			return nil
		}
		var o object
		for !isBlank(rest) {
			before, inside, after, found := between(rest, "<"+dsml+`parameter name="`, "</"+dsml+"parameter>")
			key, value, ok := strings.Cut(inside, `" string="`)
			kind, value, closed := strings.Cut(value, `">`)
			if !found || !ok || !closed || !isBlank(before) {
				return nil
			}
			switch {
			case kind == "true":
				value = quote(value)
			case !json.Valid([]byte(value)):
				return nil
			}
			o.member(key, strings.TrimSpace(value))
			rest = after
		}
		calls = append(calls, parsedCall{name, o.end()})
		text = after
	}
	return calls
}

// trimLine removes the line breaks that some formats put around a value.
func trimLine(value string) string {
	return strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
}

// properties are the kinds of values of the arguments of a tool, by name.
type properties map[string]valueKinds

// valueKinds is whether a schema allows strings and whether it allows other values. A schema
// without types allows both.
type valueKinds struct{ strings, others bool }

var anyValue = valueKinds{true, true}

// schemasOf returns the schemas of the arguments of a tool.
func schemasOf(t Tool) map[string]json.RawMessage {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(t.Parameters, &schema) != nil {
		return nil
	}
	return schema.Properties
}

// properties returns the properties of a tool; nil if it is not offered. Each schema is
// parsed once, because schemas may be large and calls many.
func (p *Parser) properties(name string) properties {
	if known, ok := p.kinds[name]; ok || !p.offers(name) {
		return known
	}
	types := properties{}
	for key, schema := range schemasOf(p.tools[name]) {
		types[key] = kindsOf(schema, 0)
	}
	if p.kinds == nil {
		p.kinds = map[string]properties{}
	}
	p.kinds[name] = types
	return types
}

// value returns the value of an argument, which was written without quotes, as JSON: a
// string if the schema allows only strings, else the JSON or Python value that text is.
func (p properties) value(key, text string) string {
	wanted, known := p[key]
	if !known {
		wanted = anyValue
	}
	if wanted == (valueKinds{strings: true}) {
		return quote(text)
	}
	trimmed := strings.TrimSpace(text)
	if literal, ok := literals[trimmed]; ok && wanted.others {
		return literal
	}
	if json.Valid([]byte(trimmed)) {
		return trimmed
	}
	if !wanted.strings { // as Python prints it
		r := &literalReader{rest: trimmed}
		if value := r.value(); !r.failed && r.rest == "" {
			return value
		}
	}
	return quote(text)
}

// literals are the names of JSON literals in Python.
var literals = map[string]string{"True": "true", "False": "false", "None": "null"}

// kindsOf returns the kinds of values that a schema allows.
func kindsOf(schema json.RawMessage, depth int) (kinds valueKinds) {
	var s struct {
		Type  any               `json:"type"`
		Enum  []any             `json:"enum"`
		Const any               `json:"const"`
		AnyOf []json.RawMessage `json:"anyOf"`
		OneOf []json.RawMessage `json:"oneOf"`
	}
	if depth > 8 || json.Unmarshal(schema, &s) != nil {
		return anyValue
	}
	note := func(k valueKinds) {
		kinds.strings, kinds.others = kinds.strings || k.strings, kinds.others || k.others
	}
	one := func(isString bool) { note(valueKinds{isString, !isString}) }
	switch t := s.Type.(type) {
	case string:
		one(t == "string")
	case []any:
		for _, name := range t {
			one(name == "string")
		}
	default:
		for _, v := range append(s.Enum, s.Const) {
			if _, isString := v.(string); v != nil {
				one(isString)
			}
		}
		for _, alternative := range append(s.AnyOf, s.OneOf...) {
			note(kindsOf(alternative, depth+1))
		}
	}
	if kinds == (valueKinds{}) {
		return anyValue
	}
	return kinds
}

// number returns a number of Python or JavaScript as JSON; false if text is not a number.
func number(text string) (string, bool) {
	if json.Valid([]byte(text)) {
		return text, true
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", false
	}
	raw, err := json.Marshal(v)
	return string(raw), err == nil
}

// parseJSON parses a call or an array of calls in JSON; nil if text is not JSON.
func parseJSON(text string) (calls []parsedCall) {
	list := []struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}{{}}
	var err error
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		err = json.Unmarshal([]byte(text), &list)
	} else {
		err = json.Unmarshal([]byte(text), &list[0])
	}
	if err != nil {
		return nil
	}
	for _, c := range list {
		arguments := c.Arguments
		if arguments == nil {
			arguments = c.Parameters
		}
		calls = append(calls, parsedCall{c.Name, string(arguments)})
	}
	return calls
}
