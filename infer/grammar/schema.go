package grammar

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// SchemaRules returns GBNF rules of JSON documents that are valid by a JSON Schema (2020-12,
// or the part of earlier drafts that agrees with it). The rule of the whole document is
// called name; the names of the others begin with name and a hyphen.
//
// All documents that the rules allow are valid. Some valid documents are not allowed, where
// a schema permits more than models should write:
//   - Properties come in the order of the schema, then others if additionalProperties
//     explicitly allows them or the schema lists none.
//   - An array has no items after its prefixItems unless items explicitly allows them.
//   - A value of a schema without type has one of the types that its keywords constrain.
//   - White space is at most a blank after a colon, and a blank or a line break with up to
//     32 blanks or 16 tabs after commas and inside brackets.
//   - Characters are escaped only where JSON requires it, or as \/ or as \uXXXX outside of
//     surrogate pairs. Integers have no fraction, numbers with limits have no exponent, and
//     numbers have at most 16 digits unless a limit has more.
//   - A value of enum or const is written as in the schema, without white space.
//
// Annotations such as title are ignored. If the rules cannot enforce a keyword, for example
// if, or oneOf of which two alternatives may be valid at once, then SchemaRules returns an
// error that names the keyword and its place if strict is set. Otherwise it omits the
// keyword and adds a line such as "if at #/properties/a" to ignored. A format that cannot be
// enforced next to a pattern is always omitted. The error may also be that of ctx.
func SchemaRules(ctx context.Context, name string, schema []byte, strict bool) (rules string, ignored []string, err error) {
	root, err := parseJSON(ctx, schema)
	if err != nil {
		return "", nil, err
	}
	w := newSchemaWriter(ctx, name, root, strict)
	if err := w.document(); err != nil {
		return "", nil, err
	}
	ignored = w.ignored
	if n := len(ignored); n > maxIgnored {
		ignored = append(ignored[:maxIgnored], fmt.Sprintf("and %d more", n-maxIgnored))
	}
	return w.text.String(), ignored, nil
}

func newSchemaWriter(ctx context.Context, name string, root *value, strict bool) *schemaWriter {
	return &schemaWriter{
		ctx:                 ctx,
		strict:              strict,
		root:                root,
		name:                name,
		ruleNames:           map[string]string{},
		alternativesByValue: map[*value][]conjunction{},
		objectShapes:        map[string]*objectShape{},
		canonicalTexts:      map[*value]string{},
		patternMatchers:     map[string]*patternMatcher{},
		omitted:             map[*value]bool{},
		sharedWritten:       map[string]bool{},
	}
}

// document writes the rules of the document.
func (w *schemaWriter) document() error {
	rule, err := w.rule(conjunction{w.root})
	if err != nil {
		return err
	}
	if rule == "" {
		return fmt.Errorf("the schema is contradictory: no value is valid by it")
	}
	w.define(w.name, rule)
	if w.text.Len() > maxText {
		return w.tooLarge()
	}
	return nil
}

// maxIgnored limits the list of omitted keywords.
const maxIgnored = 100

// maxSchemaWork limits the steps in which rules are written: about 0.3 s.
const maxSchemaWork = 1 << 22

// schemaWriter writes the rules of one schema. Methods that return an expression return ""
// if no value is valid.
type schemaWriter struct {
	ctx                 context.Context
	strict              bool
	root                *value
	name                string
	text                strings.Builder
	count               int
	work                int                        // steps so far
	ruleNames           map[string]string          // by key of a conjunction; "" if no value is valid
	alternativesByValue map[*value][]conjunction   // see alternatives; nil while they are computed
	objectShapes        map[string]*objectShape    // by key of a conjunction
	canonicalTexts      map[*value]string          // see canonical
	patternMatchers     map[string]*patternMatcher // by pattern
	ids                 map[string]*value          // schemas by $id and #$anchor; nil until the first $ref
	omitted             map[*value]bool            // keywords in ignored
	ignored             []string
	languages           *languages
	sharedWritten       map[string]bool // rules of sharedRules that are written
}

// spend counts n steps. It returns an error beyond the limit, or that of the context.
func (w *schemaWriter) spend(n int) error {
	before := w.work
	w.work += n
	if w.work > maxSchemaWork {
		return fmt.Errorf("the schema is too large: compiling it takes more than %d steps, because its enums, properties or combinations of schemas multiply", maxSchemaWork)
	}
	if before>>12 != w.work>>12 {
		return w.ctx.Err()
	}
	return nil
}

// ignore omits a keyword that the rules cannot enforce. If strict is set, it returns an error
// with the message instead.
func (w *schemaWriter) ignore(keyword *value, format string, args ...any) error {
	if w.strict {
		return failAt(keyword, format, args...)
	}
	w.omit(keyword)
	return nil
}

func (w *schemaWriter) omit(keyword *value) {
	if !w.omitted[keyword] {
		w.omitted[keyword] = true
		w.ignored = append(w.ignored, keyword.name+" at "+keyword.parent.pointer())
	}
}

// conjunction are schemas by which a value must be valid, in the order of their properties.
// In an alternative, $ref, allOf, anyOf and oneOf have been resolved.
type conjunction []*value

// key identifies a conjunction.
func (c conjunction) key() string {
	b := make([]byte, 0, 4*len(c))
	for _, v := range c {
		b = binary.LittleEndian.AppendUint32(b, uint32(v.id))
	}
	return string(b)
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
	return fmt.Errorf("%s: %s", v.pointer(), fmt.Sprintf(format, args...))
}

func (w *schemaWriter) tooLarge() error {
	return fmt.Errorf("the schema is too large: its grammar has more than %d bytes", maxText)
}

func (w *schemaWriter) define(name, body string) {
	w.text.WriteString(name + " ::= " + body + "\n")
}

// newName returns an unused name for a rule.
func (w *schemaWriter) newName() string {
	w.count++
	return fmt.Sprintf("%s-%d", w.name, w.count)
}

// rule returns the name of the rule of c, and writes it if it is new.
func (w *schemaWriter) rule(c conjunction) (string, error) {
	key := c.key()
	if name, ok := w.ruleNames[key]; ok {
		return name, nil
	}
	if w.text.Len() > maxText || w.count > maxRules {
		return "", w.tooLarge()
	}
	if err := w.spend(1 + len(c)); err != nil {
		return "", err
	}
	name := w.newName()
	w.ruleNames[key] = name
	list, err := w.alternativesOf(c)
	if err != nil {
		return "", err
	}
	var bodies []string
	seen := map[string]bool{}
	for _, a := range list {
		more, err := w.values(a)
		if err != nil {
			return "", err
		}
		for _, body := range more {
			if !seen[body] {
				seen[body] = true
				bodies = append(bodies, body)
			}
		}
	}
	if len(bodies) == 0 {
		w.ruleNames[key] = ""
		return "", nil
	}
	w.define(name, strings.Join(bodies, " | "))
	return name, nil
}

// maxAlternatives limits the product of anyOf, oneOf and allOf.
const maxAlternatives = 1 << 10

// alternativesOf returns the alternatives of schemas that must all be valid.
func (w *schemaWriter) alternativesOf(c conjunction) ([]conjunction, error) {
	list := []conjunction{nil}
	for _, v := range c {
		more, err := w.alternatives(v)
		if err != nil {
			return nil, err
		}
		if list, err = w.product(v, list, more); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (w *schemaWriter) product(v *value, a, b []conjunction) (list []conjunction, err error) {
	if len(a)*len(b) > maxAlternatives {
		return nil, failAt(v, "anyOf, oneOf and allOf multiply to more than %d alternatives", maxAlternatives)
	}
	for _, x := range a {
		for _, y := range b {
			if err := w.spend(1 + len(x)*(1+len(y))); err != nil {
				return nil, err
			}
			list = append(list, x.join(y))
		}
	}
	return list, nil
}

// alternatives resolves $ref, allOf, anyOf and oneOf: a value is valid by v if it is valid
// by one of the alternatives.
func (w *schemaWriter) alternatives(v *value) (list []conjunction, err error) {
	if list, ok := w.alternativesByValue[v]; ok {
		if list == nil {
			return nil, failAt(v, "the schema refers to itself without end: $ref, allOf, anyOf and oneOf lead back to it")
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
	w.alternativesByValue[v] = nil
	list = []conjunction{{v}}
	for _, m := range v.members {
		var more []conjunction
		switch m.name {
		case "$ref":
			target, err := w.resolve(m.value)
			if err != nil {
				return nil, err
			}
			if more = []conjunction{nil}; target != nil {
				more, err = w.alternatives(target)
			}
			if err != nil {
				return nil, err
			}
		case "allOf":
			more, err = w.alternativesOf(m.items)
		case "anyOf":
			more, err = w.anyOf(m.items)
		case "oneOf":
			if more, err = w.anyOf(m.items); err == nil && !w.omitted[m.value] {
				err = w.checkOneOf(m.value)
			}
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		if list, err = w.product(v, list, more); err != nil {
			return nil, err
		}
	}
	if list == nil {
		list = []conjunction{}
	}
	w.alternativesByValue[v] = list
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

// resolve returns the schema of a $ref; nil if it is in another document and ignored.
func (w *schemaWriter) resolve(ref *value) (*value, error) {
	if w.ids == nil {
		w.ids = map[string]*value{}
		w.findIDs(w.root)
	}
	if err := w.spend(1 + len(ref.text)); err != nil {
		return nil, err
	}
	base, fragment, pointed := strings.Cut(ref.text, "#")
	at := w.root
	if base != "" {
		at = w.ids[base]
	}
	if at == nil {
		return nil, w.ignore(ref, "$ref is %q: only places in the same document can be referred to, as #/$defs/NAME", shorten(ref.text))
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, failAt(ref, "$ref is %q, which is not the address of a schema: %s", shorten(ref.text), err)
	}
	if !pointed || pointer == "" {
		return at, nil
	}
	if pointer[0] != '/' {
		if at = w.ids["#"+pointer]; at == nil {
			return nil, failAt(ref, "$ref is %q, which is not in the schema", shorten(ref.text))
		}
		return at, nil
	}
	for _, part := range strings.Split(pointer[1:], "/") {
		part = pointerUnescaper.Replace(part)
		next := at.get(part)
		if i, err := strconv.Atoi(part); err == nil && at.kind == kindArray && 0 <= i && i < len(at.items) {
			next = at.items[i]
		}
		if next == nil {
			return nil, failAt(ref, "$ref is %q, which is not in the schema", shorten(ref.text))
		}
		at = next
	}
	return at, nil
}

// findIDs records the schemas in v that have an $id or $anchor.
func (w *schemaWriter) findIDs(v *value) {
	for _, m := range v.members {
		if m.kind == kindString && m.text != "" {
			switch m.name {
			case "$id":
				w.ids[strings.TrimSuffix(m.text, "#")] = v
			case "$anchor":
				w.ids["#"+m.text] = v
			}
		}
		if m.name != "const" && m.name != "enum" {
			w.findIDs(m.value)
		}
	}
	for _, item := range v.items {
		w.findIDs(item)
	}
}

// keyword is what the rules know of a keyword of JSON Schema.
type keyword struct {
	takes      valueKind // that its value may be
	constrains valueKind // of documents; 0: none, or all
	isCount    bool      // it must not be negative
	nonEmpty   bool      // a list must have an item
}

// keywords are those that the rules enforce.
var keywords = map[string]keyword{
	"$ref":        {takes: kindString},
	"$defs":       {takes: kindObject},
	"definitions": {takes: kindObject},
	"allOf":       {takes: kindArray, nonEmpty: true},
	"anyOf":       {takes: kindArray, nonEmpty: true},
	"oneOf":       {takes: kindArray, nonEmpty: true},
	"not":         {takes: kindObject | kindBool},
	"type":        {takes: kindString | kindArray, nonEmpty: true},
	"enum":        {takes: kindArray, nonEmpty: true},
	"const":       {takes: anyKind},

	"properties":            {takes: kindObject, constrains: kindObject},
	"required":              {takes: kindArray, constrains: kindObject},
	"additionalProperties":  {takes: kindObject | kindBool, constrains: kindObject},
	"unevaluatedProperties": {takes: kindBool, constrains: kindObject},
	"patternProperties":     {takes: kindObject, constrains: kindObject},
	"propertyNames":         {takes: kindObject | kindBool, constrains: kindObject},
	"minProperties":         {takes: kindInteger, constrains: kindObject, isCount: true},
	"maxProperties":         {takes: kindInteger, constrains: kindObject, isCount: true},

	"items":           {takes: kindObject | kindBool | kindArray, constrains: kindArray},
	"prefixItems":     {takes: kindArray, constrains: kindArray},
	"additionalItems": {takes: kindObject | kindBool, constrains: kindArray},
	"uniqueItems":     {takes: kindBool, constrains: kindArray},
	"minItems":        {takes: kindInteger, constrains: kindArray, isCount: true},
	"maxItems":        {takes: kindInteger, constrains: kindArray, isCount: true},

	"pattern":   {takes: kindString, constrains: kindString},
	"format":    {takes: kindString, constrains: kindString},
	"minLength": {takes: kindInteger, constrains: kindString, isCount: true},
	"maxLength": {takes: kindInteger, constrains: kindString, isCount: true},

	"minimum":          {takes: kindNumber, constrains: kindNumber},
	"maximum":          {takes: kindNumber, constrains: kindNumber},
	"exclusiveMinimum": {takes: kindNumber | kindBool, constrains: kindNumber},
	"exclusiveMaximum": {takes: kindNumber | kindBool, constrains: kindNumber},
	"multipleOf":       {takes: kindNumber, constrains: kindNumber},
}

// unsupportedKeywords are the keywords of JSON Schema that the rules cannot enforce.
var unsupportedKeywords = []string{
	"$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentRequired", "dependentSchemas", "if",
	"maxContains", "minContains",
}

// check checks which keywords a schema has and the kinds of their values.
func (w *schemaWriter) check(v *value) error {
	if err := w.spend(1 + len(v.members)); err != nil {
		return err
	}
	for _, m := range v.members {
		k, known := keywords[m.name]
		switch {
		case slices.Contains(unsupportedKeywords, m.name):
			if err := w.ignore(m.value, "the keyword %s is not supported", m.name); err != nil {
				return err
			}
		case m.name == "unevaluatedItems" && !(m.kind == kindBool && (m.truth || v.get("items") != nil || v.get("prefixItems") != nil)):
			if err := w.ignore(m.value, "the keyword unevaluatedItems is not supported without items or prefixItems"); err != nil {
				return err
			}
		case !known:
			continue
		case m.kind&k.takes == 0:
			return failAt(m.value, "%s must be %s", m.name, k.takes)
		case k.isCount && strings.HasPrefix(m.text, "-"):
			return failAt(m.value, "%s must not be negative", m.name)
		case m.name == "not":
			if _, ok := typeOnlyKinds(m.value); !ok {
				if err := w.ignore(m.value, "the keyword not is supported for types only"); err != nil {
					return err
				}
			}
		case m.kind == kindBool && strings.HasPrefix(m.name, "exclusive") && v.get(inclusive[m.name]) == nil:
			return failAt(m.value, "%s must be a number", m.name)
		case k.nonEmpty && m.kind == kindArray && len(m.items) == 0:
			return failAt(m.value, "%s must not be empty", m.name)
		}
	}
	return nil
}

// inclusive are the limits that exclusiveMinimum and exclusiveMaximum, if they are true as
// in drafts before 6, make exclusive.
var inclusive = map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}

// typeOnlyKinds returns the kinds of value that a schema allows; false if it constrains more
// than their type.
func typeOnlyKinds(v *value) (kinds valueKind, ok bool) {
	if v.kind == kindBool {
		if v.truth {
			return anyKind, true
		}
		return 0, true
	}
	for _, m := range v.members {
		if _, known := keywords[m.name]; known && m.name != "type" && m.name != "$defs" && m.name != "definitions" || slices.Contains(unsupportedKeywords, m.name) || m.name == "unevaluatedItems" {
			return 0, false
		}
	}
	kinds, err := conjunction{v}.allowedKinds()
	return kinds, err == nil
}

var kindNames = []string{"null", "a boolean", "an object", "an array", "a string", "an integer", "a fraction"}

// String returns the kinds of a set for error messages.
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

// all returns the values of a keyword in the schemas that have it.
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

// allowedKinds returns the kinds of value that type and not allow.
func (c conjunction) allowedKinds() (valueKind, error) {
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
				return 0, failAt(item, "type is %s, which is not a type of JSON Schema", shorten(item.encode(false)))
			}
			these |= k
		}
		kinds &= these
	}
	for _, v := range c.all("not") {
		if not, ok := typeOnlyKinds(v); ok {
			kinds &^= not
		}
	}
	return kinds, nil
}

// constrainedKinds returns the kinds that the keywords of c other than type constrain.
func (c conjunction) constrainedKinds() (kinds valueKind) {
	for _, v := range c {
		for _, m := range v.members {
			if m.name == "format" && formats[m.text] == "" {
				continue
			}
			kinds |= keywords[m.name].constrains
		}
	}
	return kinds
}

// kinds returns the kinds of value that the rules of an alternative allow.
func (c conjunction) kinds() (valueKind, error) {
	kinds, err := c.allowedKinds()
	if about := c.constrainedKinds(); about != 0 && len(c.all("type")) == 0 && len(c.all("enum"))+len(c.all("const")) == 0 {
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
		return w.enumLiterals(c, kinds)
	}
	if kinds == anyKind && c.constrainedKinds() == 0 {
		return []string{w.sharedRule("any")}, nil
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

// enumValues returns the different values of the kinds that enum and const allow; false if c
// has neither.
func (w *schemaWriter) enumValues(c conjunction, kinds valueKind) (list []*value, ok bool, err error) {
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
			allowed := make(map[string]*value, len(items))
			var values []*value
			for _, item := range items {
				code, err := w.canonical(item)
				if err != nil {
					return nil, false, err
				}
				if allowed[code] == nil && item.kind&kinds != 0 {
					allowed[code] = item
					values = append(values, item)
				}
			}
			if ok {
				values = slices.DeleteFunc(list, func(item *value) bool { return allowed[w.canonicalTexts[item]] == nil })
			}
			list, ok = values, true
		}
	}
	return list, ok, nil
}

// canonical returns a text that is the same for equal values.
func (w *schemaWriter) canonical(v *value) (string, error) {
	code, ok := w.canonicalTexts[v]
	if !ok {
		code = v.encode(true)
		w.canonicalTexts[v] = code
		return code, w.spend(1 + len(code)/16)
	}
	return code, w.spend(1)
}

// maxEnum limits the bytes of an enum; common prefixes count once.
const maxEnum = 1 << 16

// enumLiterals returns the values that enum and const allow as GBNF literals.
func (w *schemaWriter) enumLiterals(c conjunction, kinds valueKind) ([]string, error) {
	list, _, err := w.enumValues(c, kinds)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, item := range list {
		fits, err := w.validValue(c, item)
		if err != nil {
			return nil, err
		}
		if fits {
			texts = append(texts, item.encode(false))
		}
	}
	size, before := 0, ""
	for _, text := range slices.Sorted(slices.Values(texts)) {
		common := 0
		for common < min(len(text), len(before)) && text[common] == before[common] {
			common++
		}
		size, before = size+len(text)-common, text
	}
	if size > maxEnum {
		return nil, failAt(append(c.all("enum"), c.all("const")...)[0], "the values take %d bytes, with common prefixes counted once; the limit is %d", size, maxEnum)
	}
	for i, text := range texts {
		texts[i] = Literal(text)
	}
	return texts, nil
}

// validValue reports whether a value of enum or const is valid by the other keywords that
// can be enforced.
func (w *schemaWriter) validValue(c conjunction, item *value) (bool, error) {
	about := c.constrainedKinds() & item.kind
	switch {
	case about == 0:
		return true, nil
	case item.kind == kindString:
		return w.validString(c, item.text)
	case item.kind&kindNumber != 0:
		n, ok := item.number()
		if !ok {
			return true, w.ignoreBeside(c, item)
		}
		return w.validNumber(c, n)
	}
	return true, w.ignoreBeside(c, item)
}

// ignoreBeside ignores the keywords next to an enum or const that constrain item.
func (w *schemaWriter) ignoreBeside(c conjunction, item *value) error {
	for _, v := range c {
		for _, m := range v.members {
			if keywords[m.name].constrains&item.kind == 0 {
				continue
			}
			if w.strict {
				return failAt(item, "a value of enum or const is not supported with other keywords about %s: list only what these allow", item.kind)
			}
			if err := w.ignore(m.value, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxCount returns the largest value of a count, or def if that is larger.
func (c conjunction) maxCount(keyword string, def int) int {
	for _, v := range c.all(keyword) {
		def = max(def, v.count())
	}
	return def
}

// minCount returns the smallest value of a count, or def if that is smaller.
func (c conjunction) minCount(keyword string, def int) int {
	for _, v := range c.all(keyword) {
		def = min(def, v.count())
	}
	return def
}

// unbounded is a count without limit.
const unbounded = 1<<31 - 1

// count returns a non-negative integer as an int; unbounded if it is too large.
func (v *value) count() int {
	n, ok := v.number()
	if !ok || !n.Num().IsInt64() || n.Num().Int64() > unbounded {
		return unbounded
	}
	return int(n.Num().Int64())
}

// times returns the operator of a repetition from low to high times.
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

// sharedRules are the rules that many schemas need. $ is replaced by the prefix of rule names.
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

// sharedRule returns the name of a shared rule, and writes it and those that it needs if
// they are not written yet.
func (w *schemaWriter) sharedRule(rule string) string {
	if !w.sharedWritten[rule] {
		w.sharedWritten[rule] = true
		body := sharedRules[rule]
		for _, other := range slices.Sorted(maps.Keys(sharedRules)) {
			if strings.Contains(body, "$"+other) {
				w.sharedRule(other)
			}
		}
		w.define(w.name+"-"+rule, strings.ReplaceAll(body, "$", w.name+"-"))
	}
	return w.name + "-" + rule
}
