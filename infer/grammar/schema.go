package grammar

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// SchemaRules writes the rules, in GBNF, of the JSON documents that are valid by a
// JSON Schema (2020-12, or what earlier drafts have in common with it). name is that
// of the rule of the whole document; the others begin with it and a hyphen.
//
// Whatever the rules allow is valid by the schema. They do not allow all that is
// valid: a schema leaves open what a model had better not be free to do.
//   - Properties come in the order in which the schema lists them, then others, if
//     additionalProperties allows them expressly or the schema lists none.
//   - An array has no items behind its prefixItems, if items does not allow them
//     expressly.
//   - A schema without type is one of the types that its keywords are about.
//   - White space is at most a blank behind a colon, and a blank or a line break with
//     up to 32 blanks or 16 tabs behind commas and inside brackets.
//   - Characters are escaped only where JSON wants it, or as \/ or \uXXXX outside of
//     surrogate pairs; integers are written without fraction, numbers with limits
//     without exponent, none with more than 16 digits but for its limits.
//   - A value of enum or const is written as the schema has it, without white space.
//
// What says nothing about validity is ignored, such as title, and so is a format that
// JSON Schema does not define. Any other keyword that the rules cannot hold to is an
// error that names it and where it stands, for instance not, patternProperties, or
// oneOf with alternatives of which two might be valid at once.
func SchemaRules(name string, schema []byte) (string, error) {
	root, err := parseJSON(schema)
	if err != nil {
		return "", err
	}
	w := &schemaWriter{
		root:    root,
		name:    name,
		named:   map[string]string{},
		options: map[*value][]conjunction{},
		checked: map[*value]bool{},
		shared:  map[string]bool{},
	}
	rule, err := w.rule(conjunction{root})
	if err != nil {
		return "", err
	}
	if rule == "" {
		return "", fmt.Errorf("no value is valid by the schema")
	}
	w.define(name, rule)
	if w.text.Len() > maxText {
		return "", w.tooLarge()
	}
	return w.text.String(), nil
}

// schemaWriter writes the rules of one schema. The parts that write an expression
// return "" where no value is possible.
type schemaWriter struct {
	root    *value
	name    string
	text    strings.Builder
	count   int
	named   map[string]string        // rules of conjunctions, by key; "" for none possible
	options map[*value][]conjunction // see alternatives; nil while they are sought
	checked map[*value]bool
	shared  map[string]bool // rules of sharedRules that are written
}

// conjunction is schemas that must all be valid, in the order of their properties.
// In an alternative, their keywords that combine schemas have been followed.
type conjunction []*value

// key tells conjunctions apart.
func (c conjunction) key() string {
	pointers := make([]string, len(c))
	for i, v := range c {
		pointers[i] = strconv.Quote(v.pointer)
	}
	return strings.Join(pointers, " ")
}

// join returns the conjunction of c and other.
func (c conjunction) join(other conjunction) conjunction {
	both := slices.Clone(c)
	for _, v := range other {
		if !slices.Contains(both, v) {
			both = append(both, v)
		}
	}
	return both
}

func failAt(v *value, format string, args ...any) error {
	return fmt.Errorf("%s: %s", place(v.pointer), fmt.Sprintf(format, args...))
}

func (w *schemaWriter) tooLarge() error {
	return fmt.Errorf("the schema is too large: its grammar has more than %d bytes", maxText)
}

func (w *schemaWriter) define(name, body string) {
	w.text.WriteString(name + " ::= " + body + "\n")
}

// fresh returns a name for a rule.
func (w *schemaWriter) fresh() string {
	w.count++
	return fmt.Sprintf("%s-%d", w.name, w.count)
}

// rule returns the name of the rule of c, and writes it if it is new.
func (w *schemaWriter) rule(c conjunction) (string, error) {
	key := c.key()
	if name, ok := w.named[key]; ok {
		return name, nil
	}
	if w.text.Len() > maxText || w.count > maxRules {
		return "", w.tooLarge()
	}
	name := w.fresh()
	w.named[key] = name
	list, err := w.alternativesOf(c)
	if err != nil {
		return "", err
	}
	var bodies []string
	for _, a := range list {
		more, err := w.values(a)
		if err != nil {
			return "", err
		}
		for _, body := range more {
			if !slices.Contains(bodies, body) {
				bodies = append(bodies, body)
			}
		}
	}
	if len(bodies) == 0 {
		w.named[key] = ""
		return "", nil
	}
	w.define(name, strings.Join(bodies, " | "))
	return name, nil
}

// maxAlternatives bounds what anyOf, oneOf and allOf multiply to.
const maxAlternatives = 1 << 10

// alternativesOf returns the alternatives of schemas that must all be valid.
func (w *schemaWriter) alternativesOf(c conjunction) ([]conjunction, error) {
	list := []conjunction{nil}
	for _, v := range c {
		more, err := w.alternatives(v)
		if err != nil {
			return nil, err
		}
		if list, err = product(v, list, more); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func product(v *value, a, b []conjunction) (list []conjunction, err error) {
	if len(a)*len(b) > maxAlternatives {
		return nil, failAt(v, "anyOf, oneOf and allOf multiply to more than %d alternatives", maxAlternatives)
	}
	for _, x := range a {
		for _, y := range b {
			list = append(list, x.join(y))
		}
	}
	return list, nil
}

// alternatives follows $ref, allOf, anyOf and oneOf: a value is valid by v if it is
// by one of the alternatives.
func (w *schemaWriter) alternatives(v *value) (list []conjunction, err error) {
	if list, ok := w.options[v]; ok {
		if list == nil {
			return nil, failAt(v, "the schema consists of itself")
		}
		return list, nil
	}
	switch {
	case v.kind == kindBool && v.truth:
		return []conjunction{nil}, nil
	case v.kind == kindBool:
		return nil, nil
	case v.kind != kindObject:
		return nil, failAt(v, "a schema is an object or a boolean")
	}
	if err := w.check(v); err != nil {
		return nil, err
	}
	w.options[v] = nil
	list = []conjunction{{v}}
	for _, m := range v.members {
		var more []conjunction
		switch m.name {
		case "$ref":
			target, err := w.resolve(m.value)
			if err != nil {
				return nil, err
			}
			more, err = w.alternatives(target)
			if err != nil {
				return nil, err
			}
		case "allOf":
			more, err = w.alternativesOf(m.items)
		case "anyOf":
			more, err = w.anyOf(m.items)
		case "oneOf":
			if more, err = w.anyOf(m.items); err == nil {
				err = w.checkOneOf(m.value)
			}
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		if list, err = product(v, list, more); err != nil {
			return nil, err
		}
	}
	if list == nil {
		list = []conjunction{}
	}
	w.options[v] = list
	return list, nil
}

func (w *schemaWriter) anyOf(items []*value) (list []conjunction, err error) {
	for _, item := range items {
		more, err := w.alternatives(item)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
		if len(list) > maxAlternatives {
			return nil, failAt(item, "anyOf and oneOf have more than %d alternatives", maxAlternatives)
		}
	}
	return list, nil
}

// resolve finds what a $ref means.
func (w *schemaWriter) resolve(ref *value) (*value, error) {
	fragment, ok := strings.CutPrefix(ref.text, "#")
	pointer, err := url.PathUnescape(fragment)
	if !ok || err != nil || pointer != "" && pointer[0] != '/' {
		return nil, failAt(ref, "$ref is %q: only places in the same document can be referred to, as #/$defs/NAME", ref.text)
	}
	at := w.root
	if pointer == "" {
		return at, nil
	}
	for _, part := range strings.Split(pointer[1:], "/") {
		part = pointerUnescaper.Replace(part)
		next := at.get(part)
		if i, err := strconv.Atoi(part); err == nil && at.kind == kindArray && 0 <= i && i < len(at.items) {
			next = at.items[i]
		}
		if next == nil {
			return nil, failAt(ref, "$ref is %q, which is not in the schema", ref.text)
		}
		at = next
	}
	return at, nil
}

// keywords says what the value of each keyword must be that the rules hold to.
var keywords = map[string]valueKind{
	"$ref": kindString, "allOf": kindArray, "anyOf": kindArray, "oneOf": kindArray,
	"type": kindString | kindArray, "enum": kindArray, "const": anyKind,
	"properties": kindObject, "required": kindArray, "additionalProperties": kindObject | kindBool,
	"unevaluatedProperties": kindBool, "minProperties": kindInteger, "maxProperties": kindInteger,
	"items": kindObject | kindBool | kindArray, "prefixItems": kindArray, "additionalItems": kindObject | kindBool,
	"minItems": kindInteger, "maxItems": kindInteger, "uniqueItems": kindBool,
	"minLength": kindInteger, "maxLength": kindInteger, "pattern": kindString, "format": kindString,
	"minimum": kindNumber, "maximum": kindNumber, "exclusiveMinimum": kindNumber, "exclusiveMaximum": kindNumber,
	"multipleOf": kindNumber,
	"$defs":      kindObject, "definitions": kindObject,
}

// counts are the keywords whose values count something.
var counts = []string{"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}

// refused are the keywords of JSON Schema that the rules cannot hold to.
var refused = []string{
	"$anchor", "$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentRequired", "dependentSchemas", "if",
	"maxContains", "minContains", "not", "patternProperties", "propertyNames", "unevaluatedItems",
}

// check looks at the keywords of a schema, except for what they mean.
func (w *schemaWriter) check(v *value) error {
	for _, m := range v.members {
		kinds, known := keywords[m.name]
		switch {
		case slices.Contains(refused, m.name):
			return failAt(v, "the keyword %s is not supported", m.name)
		case m.name == "$id" && v != w.root:
			return failAt(v, "the keyword $id is supported at the root only")
		case !known:
			continue
		case m.kind&kinds == 0:
			return failAt(m.value, "%s must be %s", m.name, kinds)
		case slices.Contains(counts, m.name) && strings.HasPrefix(m.text, "-"):
			return failAt(m.value, "%s must not be negative", m.name)
		case m.kind == kindArray && len(m.items) == 0 && (m.name == "allOf" || m.name == "anyOf" || m.name == "oneOf" || m.name == "enum" || m.name == "type"):
			return failAt(m.value, "%s must not be empty", m.name)
		}
	}
	return nil
}

var kindNames = []string{"null", "a boolean", "an object", "an array", "a string", "an integer", "a fraction"}

// String lists the kinds of a set for people.
func (k valueKind) String() string {
	var names []string
	for i, name := range kindNames {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if k&kindNumber == kindNumber {
		names = append(names[:len(names)-2], "a number")
	}
	return strings.Join(names, " or ")
}

// all returns the values of a keyword, in the schemas that have it.
func (c conjunction) all(keyword string) (values []*value) {
	for _, v := range c {
		if m := v.get(keyword); m != nil {
			values = append(values, m)
		}
	}
	return values
}

var typeKinds = map[string]valueKind{
	"null": kindNull, "boolean": kindBool, "object": kindObject, "array": kindArray, "string": kindString,
	"integer": kindInteger, "number": kindNumber,
}

// declared returns the kinds of value that type allows.
func (c conjunction) declared() (valueKind, error) {
	kinds := anyKind
	for _, v := range c.all("type") {
		items := v.items
		if v.kind == kindString {
			items = []*value{v}
		}
		these := valueKind(0)
		for _, item := range items {
			k, ok := typeKinds[item.text]
			if !ok || item.kind != kindString {
				return 0, failAt(item, "type is %s, which JSON does not have", item.encode(false))
			}
			these |= k
		}
		kinds &= these
	}
	return kinds, nil
}

// aboutKinds says which kind of value a keyword is about.
var aboutKinds = map[string]valueKind{
	"properties": kindObject, "required": kindObject, "additionalProperties": kindObject, "unevaluatedProperties": kindObject,
	"minProperties": kindObject, "maxProperties": kindObject,
	"items": kindArray, "prefixItems": kindArray, "minItems": kindArray, "maxItems": kindArray, "uniqueItems": kindArray,
	"additionalItems": kindArray,
	"minLength":       kindString, "maxLength": kindString, "pattern": kindString, "format": kindString,
	"minimum": kindNumber, "maximum": kindNumber, "exclusiveMinimum": kindNumber, "exclusiveMaximum": kindNumber,
	"multipleOf": kindNumber,
}

// about returns the kinds that the keywords of c, type apart, are about.
func (c conjunction) about() (kinds valueKind) {
	for _, v := range c {
		for _, m := range v.members {
			if m.name == "format" && formats[m.text] == "" {
				continue
			}
			kinds |= aboutKinds[m.name]
		}
	}
	return kinds
}

// kinds returns the kinds of value that the rules of an alternative allow.
func (c conjunction) kinds() (valueKind, error) {
	kinds, err := c.declared()
	if about := c.about(); about != 0 && len(c.all("type")) == 0 && len(c.all("enum"))+len(c.all("const")) == 0 {
		kinds = about
	}
	return kinds, err
}

// values returns the expressions of an alternative, one for each kind of value.
func (w *schemaWriter) values(c conjunction) ([]string, error) {
	kinds, err := c.kinds()
	if err != nil {
		return nil, err
	}
	if len(c.all("enum"))+len(c.all("const")) > 0 {
		return c.literals(kinds)
	}
	if kinds == anyKind && c.about() == 0 {
		return []string{w.share("any")}, nil
	}
	var list []string
	for _, part := range []struct {
		kind  valueKind
		write func(conjunction) (string, error)
	}{
		{kindObject, w.object},
		{kindArray, w.array},
		{kindString, w.string},
		{kindInteger, w.numbers},
		{kindBool, func(conjunction) (string, error) { return `"true" | "false"`, nil }},
		{kindNull, func(conjunction) (string, error) { return `"null"`, nil }},
	} {
		if kinds&part.kind == 0 {
			continue
		}
		body, err := part.write(c)
		if err != nil {
			return nil, err
		}
		if body != "" {
			list = append(list, body)
		}
	}
	return list, nil
}

// enumerated returns the values that enum and const leave of the kinds; false if
// neither is there.
func (c conjunction) enumerated(kinds valueKind) (list []*value, ok bool) {
	for _, v := range c {
		for _, m := range v.members {
			items := m.items
			switch m.name {
			case "const":
				items = []*value{m.value}
			case "enum":
			default:
				continue
			}
			allowed := map[string]bool{}
			for _, item := range items {
				allowed[item.encode(true)] = true
			}
			if !ok {
				list, ok = slices.Clone(items), true
			}
			list = slices.DeleteFunc(list, func(item *value) bool { return !allowed[item.encode(true)] || item.kind&kinds == 0 })
		}
	}
	return list, ok
}

// literals returns the values that enum and const leave.
func (c conjunction) literals(kinds valueKind) ([]string, error) {
	list, _ := c.enumerated(kinds)
	var literals []string
	for _, item := range list {
		if about := c.about() & item.kind; about != 0 {
			return nil, failAt(item, "a value of enum or const is not supported beside other keywords about %s: list only what these allow", about)
		}
		literals = append(literals, Literal(item.encode(false)))
	}
	return literals, nil
}

// largest returns the largest value of a count, or def without it; a count that is
// too large for an int counts as the largest int.
func (c conjunction) largest(keyword string, def int) int {
	for _, v := range c.all(keyword) {
		def = max(def, v.count())
	}
	return def
}

// smallest is the same for the smallest value.
func (c conjunction) smallest(keyword string, def int) int {
	for _, v := range c.all(keyword) {
		def = min(def, v.count())
	}
	return def
}

// unbounded stands for a count without limit.
const unbounded = 1<<31 - 1

// count returns an integer that is not negative as an int, unbounded if it is too
// large.
func (v *value) count() int {
	n, ok := v.number()
	if !ok || !n.Num().IsInt64() || n.Num().Int64() > unbounded {
		return unbounded
	}
	return int(n.Num().Int64())
}

// times writes a repetition from low to high times.
func times(low, high int) string {
	switch {
	case low == 0 && high == unbounded:
		return "*"
	case high == unbounded:
		return fmt.Sprintf("{%d,}", low)
	case low == high:
		return fmt.Sprintf("{%d}", low)
	}
	return fmt.Sprintf("{%d,%d}", low, high)
}

// sharedRules are those that many schemas need. $ stands for the name and a hyphen.
var sharedRules = map[string]string{
	"ws":      `" "? | "\n" (" "{0,32} | "\t"{0,16})`,
	"char":    `[^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F] | [dD] [0-7]) [0-9a-fA-F]{2})`,
	"string":  `"\"" $char* "\""`,
	"integer": `"0" | "-"? [1-9] [0-9]{0,15}`,
	"number":  `"-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [+-]? [0-9]{1,2})?`,
	"object":  `"{" $ws ($member ("," $ws $member)* $ws)? "}"`,
	"member":  `$string ":" " "? $any`,
	"array":   `"[" $ws ($any ("," $ws $any)* $ws)? "]"`,
	"any":     `$object | $array | $string | $number | "true" | "false" | "null"`,
}

// share returns the name of a shared rule, and writes it, with those that it needs,
// if it is not there.
func (w *schemaWriter) share(rule string) string {
	if !w.shared[rule] {
		w.shared[rule] = true
		body := sharedRules[rule]
		for _, other := range slices.Sorted(maps.Keys(sharedRules)) {
			if strings.Contains(body, "$"+other) {
				w.share(other)
			}
		}
		w.define(w.name+"-"+rule, strings.ReplaceAll(body, "$", w.name+"-"))
	}
	return w.name + "-" + rule
}
