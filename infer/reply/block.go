package reply

import (
	"encoding/json"
	"strconv"
	"strings"
)

// written is a call that was read at once.
type written struct{ name, arguments string }

// block reads calls up to a marker, and then at once.
type block struct {
	close string
	quote string // a marker between which close is text; empty: none
	parse func(p *Parser, text string) []written
	held  []byte
	open  bool // a quote is
}

func readBlock(b block) func() body {
	return func() body { return &block{close: b.close, quote: b.quote, parse: b.parse} }
}

func (k *block) text(_ *Parser, b byte) verdict {
	k.held = append(k.held, b)
	return more
}

func (k *block) marker(p *Parser, m *marker) verdict {
	switch {
	case m.text == k.close && !k.open:
		return k.finish(p)
	case m.text == k.quote && k.quote != "":
		k.open = !k.open
	}
	k.held = append(k.held, m.text...)
	return more
}

// end accepts a block whose closing marker is missing, if the model ended it so.
func (k *block) end(p *Parser, whole bool) verdict {
	if !whole {
		return broken
	}
	return k.finish(p)
}

func (k *block) finish(p *Parser) verdict {
	calls := k.parse(p, string(k.held))
	for _, c := range calls {
		if !p.offers(c.name) || !isObject(c.arguments) {
			return broken
		}
	}
	if len(calls) == 0 {
		return broken
	}
	if p.single {
		calls = calls[:1]
	}
	for _, c := range calls {
		p.call("", c.name, c.arguments)
	}
	return done
}

// object writes arguments as JSON.
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

// quote writes text as a JSON string, < and & as they are.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a string: cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// between cuts text behind open and at the next close.
func between(text, open, close string) (before, inside, after string, found bool) {
	before, rest, found := strings.Cut(text, open)
	if !found {
		return text, "", "", false
	}
	inside, after, found = strings.Cut(rest, close)
	return before, inside, after, found
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// parseXML reads <function=NAME><parameter=KEY>VALUE</parameter>…</function>, once or
// more; the arguments may be JSON instead.
func parseXML(p *Parser, text string) (calls []written) {
	for !blank(text) {
		before, inside, after, found := between(text, "<function=", "</function>")
		if !found {
			// What is cut off behind the last parameter is complete.
			before, inside, found = strings.Cut(text, "<function=")
			if !found || !strings.HasSuffix(strings.TrimSpace(inside), "</parameter>") {
				return nil
			}
		}
		name, rest, ok := strings.Cut(inside, ">")
		if !ok || !blank(before) {
			return nil
		}
		name = strings.TrimSpace(name)
		arguments := strings.TrimSpace(rest)
		if !strings.HasPrefix(arguments, "{") {
			if arguments, ok = xmlArguments(p.properties(name), rest); !ok {
				return nil
			}
		}
		calls = append(calls, written{name, arguments})
		text = after
	}
	return calls
}

func xmlArguments(types properties, text string) (string, bool) {
	var o object
	for !blank(text) {
		before, inside, after, found := between(text, "<parameter=", "</parameter>")
		key, value, ok := strings.Cut(inside, ">")
		if !found || !ok || !blank(before) {
			return "", false
		}
		o.member(key, types.value(key, trimLine(value)))
		text = after
	}
	return o.end(), true
}

// parseArgKeys reads GLM's NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>….
func parseArgKeys(p *Parser, text string) []written {
	name, rest := text, ""
	if i := strings.Index(text, "<arg_key>"); i >= 0 {
		name, rest = text[:i], text[i:]
	}
	name = strings.TrimSpace(name)
	types := p.properties(name)
	var o object
	for !blank(rest) {
		before, key, after, found := between(rest, "<arg_key>", "</arg_key>")
		gap, value, after, closed := between(after, "<arg_value>", "</arg_value>")
		if !found || !closed || !blank(before) || !blank(gap) {
			return nil
		}
		o.member(strings.TrimSpace(key), types.value(strings.TrimSpace(key), trimLine(value)))
		rest = after
	}
	return []written{{name, o.end()}}
}

// parseToolCall reads what is between <tool_call> and its end, if it is no JSON.
func parseToolCall(p *Parser, text string) []written {
	if strings.HasPrefix(strings.TrimSpace(text), "<function=") {
		return parseXML(p, text)
	}
	return parseArgKeys(p, text)
}

const dsml = "｜DSML｜"

// parseDSML reads DeepSeek's <｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY"
// string="true">VALUE</｜DSML｜parameter>…</｜DSML｜invoke>.
func parseDSML(_ *Parser, text string) (calls []written) {
	for !blank(text) {
		before, inside, after, found := between(text, "<"+dsml+`invoke name="`, "</"+dsml+"invoke>")
		name, rest, ok := strings.Cut(inside, `">`)
		if !found || !ok || !blank(before) {
			return nil
		}
		var o object
		for !blank(rest) {
			before, inside, after, found := between(rest, "<"+dsml+`parameter name="`, "</"+dsml+"parameter>")
			key, value, ok := strings.Cut(inside, `" string="`)
			kind, value, closed := strings.Cut(value, `">`)
			if !found || !ok || !closed || !blank(before) {
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
		calls = append(calls, written{name, o.end()})
		text = after
	}
	return calls
}

// trimLine takes off the line breaks that some formats put around a value.
func trimLine(value string) string {
	return strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
}

// properties are the kinds of values that the arguments of a tool may have.
type properties map[string]valueKinds

// valueKinds says whether a schema wants strings, and whether it wants other values. One
// that does not say wants both.
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

// properties returns those of an offered tool. They are read once: schemas may be large,
// and calls many.
func (p *Parser) properties(name string) properties {
	if known, ok := p.known[name]; ok || !p.offers(name) {
		return known
	}
	types := properties{}
	for key, schema := range schemasOf(p.tools[name]) {
		types[key] = kindsOf(schema, 0)
	}
	if p.known == nil {
		p.known = map[string]properties{}
	}
	p.known[name] = types
	return types
}

// value returns text, the value of an argument that is written without quotes, as JSON:
// a string where the schema wants one, else what it reads as.
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
		if value := r.value(); !r.bad && r.rest == "" {
			return value
		}
	}
	return quote(text)
}

// literals are what Python calls true, false and null.
var literals = map[string]string{"True": "true", "False": "false", "None": "null"}

// kindsOf returns the kinds of values that a schema wants.
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

// number returns a number of Python or JavaScript as JSON.
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

// parseJSON reads calls in JSON at once.
func parseJSON(text string) (calls []written) {
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
		calls = append(calls, written{c.Name, string(arguments)})
	}
	return calls
}
