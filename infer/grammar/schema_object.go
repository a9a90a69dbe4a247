package grammar

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// property is a member that an object may have.
type property struct {
	name      string
	required  bool
	forbidden bool // by propertyNames
	schema    conjunction
}

// objectShape is what an alternative says about objects.
type objectShape struct {
	list   []property // in order
	byName map[string]int
	others []otherNames
	closed bool // no other properties than those in list
}

// otherNames are names of properties that are not listed, and the schemas of their values.
type otherNames struct {
	names  *nameConstraint // nil for all
	schema conjunction
}

// find returns the property of a name; nil if it is not listed.
func (s *objectShape) find(name string) *property {
	if i, ok := s.byName[name]; ok {
		return &s.list[i]
	}
	return nil
}

func (s *objectShape) add(name string) *property {
	if p := s.find(name); p != nil {
		return p
	}
	s.byName[name] = len(s.list)
	s.list = append(s.list, property{name: name})
	return &s.list[len(s.list)-1]
}

// objectShape returns what c says about objects.
func (w *schemaWriter) objectShape(c conjunction) (*objectShape, error) {
	key := c.key()
	if s := w.objectShapes[key]; s != nil {
		return s, nil
	}
	s := &objectShape{byName: map[string]int{}}
	if err := w.addListed(s, c); err != nil {
		return nil, err
	}
	names, enumerated, err := w.propertyNames(c)
	if err != nil {
		return nil, err
	}
	open := c.allowsOtherProperties()
	if enumerated != nil && open {
		for _, name := range enumerated {
			s.add(name)
		}
		open = false
	}
	for i := range s.list {
		p := &s.list[i]
		if p.schema, err = w.schemasOf(c, p.name); err != nil {
			return nil, err
		}
		allowed, err := names.allows(w, p.name)
		if err != nil {
			return nil, err
		}
		p.forbidden = !allowed
	}
	if open {
		if s.others, err = w.otherNames(c, names); err != nil {
			return nil, err
		}
	}
	s.closed = !open
	w.objectShapes[key] = s
	return s, nil
}

// addListed adds the names in properties and required.
func (w *schemaWriter) addListed(s *objectShape, c conjunction) error {
	for _, properties := range c.all("properties") {
		for _, m := range properties.members {
			s.add(m.name)
		}
	}
	for _, names := range c.all("required") {
		for _, name := range names.items {
			if name.kind != kindString {
				return failAt(name, "required lists names of properties, which are strings")
			}
			s.add(name.text).required = true
		}
	}
	if err := w.spend((1 + len(s.list)) * len(c)); err != nil {
		return err
	}
	if len(s.list) > maxProperties {
		return failAt(c[0], "an object has more than %d properties", maxProperties)
	}
	return nil
}

// allowsOtherProperties reports whether the rules allow properties that are not listed.
func (c conjunction) allowsOtherProperties() bool {
	open := len(c.all("properties")) == 0 || len(c.all("additionalProperties")) > 0
	for _, patterns := range c.all("patternProperties") {
		open = open || len(patterns.members) > 0
	}
	for _, u := range c.all("unevaluatedProperties") {
		open = open && (u.kind != kindBool || u.truth)
	}
	return open
}

// schemasOf returns the schemas of the value of a property.
func (w *schemaWriter) schemasOf(c conjunction, name string) (schema conjunction, err error) {
	for _, v := range c {
		known := false
		if s := v.get("properties").getOrNil(name); s != nil {
			schema, known = schema.join(conjunction{s}), true
		}
		if patterns := v.get("patternProperties"); patterns != nil {
			for _, m := range patterns.members {
				has, err := w.matches(patterns, m.name, name)
				if err != nil {
					return nil, err
				}
				if has {
					schema, known = schema.join(conjunction{m.value}), true
				}
			}
		}
		if others := v.get("additionalProperties"); others != nil && !known {
			schema = schema.join(conjunction{others})
		}
	}
	return schema, nil
}

// otherNames returns the names that are not listed of an object with other properties: those
// that match a pattern if there are patterns, else all.
func (w *schemaWriter) otherNames(c conjunction, names *nameConstraint) ([]otherNames, error) {
	var first *value // patternProperties of the first schema that has any; names match one of them
	var rest conjunction
	var excluded []*value // patterns of the other schemas
	for _, v := range c {
		patterns := v.get("patternProperties")
		switch {
		case patterns != nil && len(patterns.members) > 0 && first == nil:
			first = patterns
			continue
		case patterns != nil:
			for _, m := range patterns.members {
				excluded = append(excluded, m.value)
			}
		}
		if others := v.get("additionalProperties"); others != nil {
			rest = rest.join(conjunction{others})
		}
	}
	if first == nil && len(excluded) == 0 {
		return []otherNames{{names, rest}}, nil
	}
	var list []otherNames
	for i, m := range first.members {
		n := &nameConstraint{exclude: excluded}
		if names != nil {
			n.alternatives = names.alternatives
		}
		n.match = append(n.match, m.value)
		for k, other := range first.members {
			if k != i {
				n.exclude = append(slices.Clip(n.exclude), other.value)
			}
		}
		if err := w.spend(1 + len(n.exclude)); err != nil {
			return nil, err
		}
		list = append(list, otherNames{n, conjunction{m.value}.join(rest)})
	}
	return list, nil
}

// nameConstraint constrains the names of properties; nil allows all.
type nameConstraint struct {
	match        []*value      // values of patternProperties whose patterns must match
	exclude      []*value      // values of patternProperties whose patterns must not match
	alternatives []conjunction // of propertyNames; nil if there is none
}

// propertyNames returns the constraint of propertyNames, nil for none, and the names if it
// lists them by enum or const.
func (w *schemaWriter) propertyNames(c conjunction) (names *nameConstraint, enumerated []string, err error) {
	schemas := conjunction(c.all("propertyNames"))
	if len(schemas) == 0 {
		return nil, nil, nil
	}
	list, err := w.alternativesOf(schemas)
	if err != nil {
		return nil, nil, err
	}
	names = &nameConstraint{alternatives: []conjunction{}}
	enumerated = []string{}
	for _, a := range list {
		kinds, err := a.allowedKinds()
		if err != nil {
			return nil, nil, err
		}
		if kinds&kindString == 0 {
			continue
		}
		values, ok, err := w.enumValues(a, kindString)
		if err != nil {
			return nil, nil, err
		}
		if !ok && a.constrainedKinds()&kindString == 0 {
			return nil, nil, nil // any string
		}
		names.alternatives = append(names.alternatives, a)
		if !ok {
			enumerated = nil
		}
		for _, v := range values {
			if fits, err := w.validValue(a, v); err != nil || !fits {
				if err != nil {
					return nil, nil, err
				}
				continue
			}
			if enumerated != nil {
				enumerated = append(enumerated, v.text)
			}
		}
	}
	if len(enumerated) > maxProperties {
		return nil, nil, failAt(schemas[0], "an object has more than %d properties", maxProperties)
	}
	return names, enumerated, nil
}

// allows reports whether propertyNames allows a name.
func (t *nameConstraint) allows(w *schemaWriter, name string) (bool, error) {
	if t == nil || t.alternatives == nil {
		return true, nil
	}
	for _, a := range t.alternatives {
		values, ok, err := w.enumValues(a, kindString)
		if err != nil {
			return false, err
		}
		if ok && !slices.ContainsFunc(values, func(v *value) bool { return v.text == name }) {
			continue
		}
		if holds, err := w.validString(a, name); holds || err != nil {
			return holds, err
		}
	}
	return false, nil
}

// rule writes the rule of the names, in quotes, that t allows and that are not listed; "" if
// there are none.
func (t *nameConstraint) rule(w *schemaWriter, listed []property) (string, error) {
	w.languages = newLanguages(w.spend)
	l := w.languages
	all := []*language{l.any}
	for _, m := range t.match {
		a, err := w.patternLanguage(m, l.any)
		if err != nil {
			return "", err
		}
		all = append(all, a)
	}
	for _, m := range t.exclude {
		a, err := w.patternLanguage(m, l.none)
		if err != nil {
			return "", err
		}
		all = append(all, l.not(a))
	}
	var either []*language
	for _, a := range t.alternatives {
		part, err := w.nameLanguage(a)
		if err != nil {
			return "", err
		}
		either = append(either, part)
	}
	if t.alternatives != nil {
		all = append(all, l.alt(either...))
	}
	for _, p := range listed {
		all = append(all, l.not(l.literal(p.name)))
	}
	rule, err := w.language(l.and(all...))
	if err != nil || rule == "" {
		return "", err
	}
	return fmt.Sprintf(`"\"" %s "\""`, rule), nil
}

// patternLanguage returns the language of the pattern of a schema in patternProperties;
// other if the pattern is ignored.
func (w *schemaWriter) patternLanguage(schema *value, other *language) (*language, error) {
	p, err := parsePattern(schema.name)
	if err != nil {
		return other, w.ignore(schema.parent, "the pattern %q cannot be used: %s", shorten(schema.name), err)
	}
	a, loose := w.languages.pattern(p)
	if loose {
		err = w.ignore(schema.parent, "%s", unsupportedPattern)
	}
	return a, err
}

// nameLanguage returns the language of an alternative of propertyNames.
func (w *schemaWriter) nameLanguage(c conjunction) (*language, error) {
	l := w.languages
	values, ok, err := w.enumValues(c, kindString)
	if err != nil {
		return nil, err
	}
	all := []*language{l.repeat(l.chars(anyRune), c.maxCount("minLength", 0), c.minCount("maxLength", unbounded))}
	if ok {
		var list []*language
		for _, v := range values {
			list = append(list, l.literal(v.text))
		}
		all = append(all, l.alt(list...))
	}
	forms, err := w.patternsOf(c)
	if err != nil {
		return nil, err
	}
	for _, f := range forms {
		p, err := parsePattern(f.pattern)
		if err != nil {
			if err := w.ignore(f.source, "the pattern cannot be used: %s", err); err != nil {
				return nil, err
			}
			continue
		}
		a, loose := l.pattern(p)
		if loose {
			if err := w.ignore(f.source, "%s", unsupportedPattern); err != nil {
				return nil, err
			}
		}
		all = append(all, a)
	}
	return l.and(all...), nil
}

// getOrNil returns the member of a name; nil also if v is nil.
func (v *value) getOrNil(name string) *value {
	if v == nil {
		return nil
	}
	return v.get(name)
}

// maxProperties limits the work on one object.
const maxProperties = 2000

// object writes the objects of an alternative.
func (w *schemaWriter) object(c conjunction) (string, error) {
	shape, err := w.objectShape(c)
	if err != nil {
		return "", err
	}
	low, high := c.maxCount("minProperties", 0), c.minCount("maxProperties", unbounded)
	if len(shape.list) == 0 && len(shape.others) == 1 && shape.others[0].names == nil && len(shape.others[0].schema) == 0 && low == 0 && high == unbounded {
		return w.sharedRule("object"), nil
	}
	var allowed []property
	var members []string
	required := 0
	for _, p := range shape.list {
		rule := ""
		if !p.forbidden {
			if rule, err = w.rule(p.schema); err != nil {
				return "", err
			}
		}
		switch {
		case rule == "" && p.required:
			return "", nil
		case rule == "":
			continue
		}
		if p.required {
			required++
		}
		allowed = append(allowed, p)
		members = append(members, Literal(jsonName(p.name)+":")+` " "? `+rule)
	}
	other := ""
	if high > 0 {
		if other, err = w.others(c, shape); err != nil {
			return "", err
		}
	}
	if low, high, err = w.checkCounts(c, len(allowed), required, other != "", low, high); err != nil {
		return "", err
	}
	if len(allowed) == 0 {
		return w.list("{", other, low, high, "}"), nil
	}
	ws := w.sharedRule("ws")
	tail := ws + ` "}"`
	if other != "" {
		tail = fmt.Sprintf(`("," %s %s)* %s`, ws, other, tail)
	}
	return w.members(allowed, members, other, tail), nil
}

// others writes a property that is not listed; "" if none is allowed.
func (w *schemaWriter) others(c conjunction, shape *objectShape) (string, error) {
	var list []string
	for _, o := range shape.others {
		rule, err := w.rule(o.schema)
		if err != nil {
			return "", err
		}
		if rule == "" {
			continue
		}
		name := ""
		if o.names == nil {
			name, err = w.otherName(c, shape.list)
		} else {
			name, err = o.names.rule(w, shape.list)
		}
		if errors.Is(err, errLanguage) {
			for _, keyword := range append(c.all("propertyNames"), c.all("patternProperties")...) {
				if err := w.ignore(keyword, "%s cannot be enforced: %s", keyword.name, err); err != nil {
					return "", err
				}
			}
			name, err = w.otherName(c, shape.list)
		}
		if err != nil {
			return "", err
		}
		if name != "" {
			list = append(list, name+` ":" " "? `+rule)
		}
	}
	if len(list) < 2 {
		return strings.Join(list, ""), nil
	}
	name := w.newName()
	w.define(name, strings.Join(list, " | "))
	return name, nil
}

// jsonName returns the name of a property as JSON.
func jsonName(name string) string {
	var b strings.Builder
	writeJSONString(&b, name)
	return b.String()
}

// checkCounts ignores minProperties and maxProperties if the rules would have to count
// properties, and returns the limits that remain.
func (w *schemaWriter) checkCounts(c conjunction, listed, required int, open bool, low, high int) (int, int, error) {
	// Other properties may repeat a name and then count once.
	if low > required && (listed > 0 || low > 1) {
		if err := w.ignore(c.all("minProperties")[0], "minProperties is supported up to the number of required properties, or up to 1 where none is listed"); err != nil {
			return 0, 0, err
		}
		low = min(low, 1)
	}
	if high < listed || high < unbounded && open && listed > 0 {
		if err := w.ignore(c.all("maxProperties")[0], "maxProperties is supported where no property is listed, or no more than it says and no others are allowed"); err != nil {
			return 0, 0, err
		}
		high = unbounded
	}
	if high < unbounded {
		high = min(high, maxRepeat)
	}
	return low, high, nil
}

// members writes an object with listed properties. Each property has a rule that continues
// with the later ones, so that the size of the rules is linear in the list.
func (w *schemaWriter) members(list []property, members []string, other, end string) string {
	prefix := w.newName()
	name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	ws := w.sharedRule("ws")
	// Rule i is the rest from property i on, after another property.
	w.define(name(len(list)), end)
	for i := len(list) - 1; i > 0; i-- {
		body := fmt.Sprintf(`"," %s %s`, ws, members[i])
		if !list[i].required {
			body = "(" + body + ")?"
		}
		w.define(name(i), body+" "+name(i+1))
	}
	var first []string // by which property comes first
	for i, p := range list {
		first = append(first, members[i]+" "+name(i+1))
		if p.required {
			return fmt.Sprintf(`"{" %s (%s)`, ws, strings.Join(first, " | "))
		}
	}
	if other != "" {
		first = append(first, other+" "+name(len(list)))
	}
	return fmt.Sprintf(`"{" %s (%s | "}")`, ws, strings.Join(first, " | "))
}

// list writes an array or an object of low to high items of one kind; "" if none is valid.
func (w *schemaWriter) list(open, item string, low, high int, end string) string {
	ws := w.sharedRule("ws")
	if item == "" {
		high = 0
	}
	switch {
	case low > high:
		return ""
	case high == 0:
		return fmt.Sprintf(`"%s" %s "%s"`, open, ws, end)
	}
	more := high - 1
	if high == unbounded {
		more = unbounded
	}
	body := fmt.Sprintf(`%s ("," %s %s)%s %s`, item, ws, item, times(max(low-1, 0), more), ws)
	if low == 0 {
		body = "(" + body + ")?"
	}
	return fmt.Sprintf(`"%s" %s %s "%s"`, open, ws, body, end)
}

// otherName writes the name of a property that is not listed. It has no escapes, so that it
// cannot be another spelling of a listed name.
func (w *schemaWriter) otherName(c conjunction, list []property) (string, error) {
	var names []string
	for _, p := range list {
		if err := w.spend(len(p.name)); err != nil {
			return "", err
		}
		if len(p.name) > maxNesting {
			return "", failAt(c[0], "names of properties may have at most %d bytes where other properties are allowed", maxNesting)
		}
		if !strings.ContainsFunc(p.name, func(r rune) bool { return r == '"' || r == '\\' || r < ' ' }) {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return fmt.Sprintf(`"\"" %s`, w.nameExcept(slices.Compact(names))), nil
}

const plainChar = `[^"\\\x00-\x1f]`

// nameExcept writes a rule of the rest of a name that is none of the sorted names, and of
// the quote after it.
func (w *schemaWriter) nameExcept(names []string) string {
	if len(names) == 0 {
		return plainChar + `* "\""`
	}
	rule := w.newName()
	var bodies []string
	if names[0] != "" {
		bodies = append(bodies, `"\""`)
	} else {
		names = names[1:]
	}
	var firsts strings.Builder
	for len(names) > 0 {
		r, size := utf8.DecodeRuneInString(names[0])
		first := names[0][:size]
		var rests []string
		for len(names) > 0 && strings.HasPrefix(names[0], first) {
			rests = append(rests, names[0][size:])
			names = names[1:]
		}
		writeChar(&firsts, r)
		bodies = append(bodies, Literal(first)+" "+w.nameExcept(rests))
	}
	if firsts.Len() > 0 {
		bodies = append(bodies, fmt.Sprintf(`[^"\\\x00-\x1f%s] %s* "\""`, firsts.String(), plainChar))
	} else {
		bodies = append(bodies, plainChar+`+ "\""`)
	}
	w.define(rule, strings.Join(bodies, " | "))
	return rule
}

// array writes the arrays of an alternative.
func (w *schemaWriter) array(c conjunction) (string, error) {
	low, high := c.maxCount("minItems", 0), c.minCount("maxItems", unbounded)
	if low > maxRepeat {
		return "", failAt(c.all("minItems")[0], "minItems is supported up to %d", maxRepeat)
	}
	if high < unbounded {
		high = min(high, maxRepeat)
	}
	for _, u := range c.all("uniqueItems") {
		if !u.truth || high < 2 {
			continue
		}
		if body, ok, err := w.uniqueItems(c, low, high); ok || err != nil {
			return body, err
		}
		if err := w.ignore(u, "uniqueItems is supported for arrays of at most one item, or of items that are one of up to %d values", maxUnique); err != nil {
			return "", err
		}
	}
	prefix := 0
	for _, v := range c {
		prefix = max(prefix, len(v.prefixItems()))
	}
	if prefix > maxProperties {
		return "", failAt(c[0], "prefixItems has more than %d items", maxProperties)
	}
	// Item number prefix describes all later ones.
	rules := make([]string, prefix+1)
	for i := range rules {
		schema, given := c.item(i)
		if i == prefix && prefix > 0 && !given && low <= prefix {
			break
		}
		var err error
		if rules[i], err = w.rule(schema); err != nil {
			return "", err
		}
		if rules[i] == "" {
			high = min(high, i)
			break
		}
	}
	switch {
	case low > high || low > prefix && rules[prefix] == "":
		return "", nil
	case prefix == 0:
		return w.list("[", rules[0], low, high, "]"), nil
	}
	return w.tuple(rules, low, high), nil
}

// maxUnique is the largest number of values from which uniqueItems can choose, because there
// is a rule for each set of them.
const maxUnique = 8

// uniqueItems writes the arrays of low to high different items; false if the schema does not
// list the values of the items, or lists more than maxUnique.
func (w *schemaWriter) uniqueItems(c conjunction, low, high int) (body string, ok bool, err error) {
	items, ok, err := w.listedItems(c)
	if err != nil || !ok || len(items) > maxUnique {
		return "", false, err
	}
	if high = min(high, len(items)); low > high {
		return "", true, nil
	}
	ws, prefix := w.sharedRule("ws"), w.newName()
	// next writes an item that is not in a set, followed by the rule of the set with it.
	next := func(set int) string {
		var list []string
		for i, item := range items {
			if set>>i&1 == 0 {
				list = append(list, fmt.Sprintf("%s %s-%d", item, prefix, set|1<<i))
			}
		}
		return strings.Join(list, " | ")
	}
	for set := range 1 << len(items) {
		n := bits.OnesCount(uint(set))
		var list []string
		if n < high && n > 0 {
			list = append(list, fmt.Sprintf(`"," %s (%s)`, ws, next(set)))
		}
		if n >= low && n <= high && n > 0 {
			list = append(list, ws+` "]"`)
		}
		if len(list) > 0 {
			w.define(fmt.Sprintf("%s-%d", prefix, set), strings.Join(list, " | "))
		}
	}
	first := next(0)
	if low == 0 {
		first = alternatives(first, `"]"`)
	}
	return fmt.Sprintf(`"[" %s (%s)`, ws, first), true, nil
}

// listedItems returns the values that the items of an array can have, as literals; false if
// the schema does not list them.
func (w *schemaWriter) listedItems(c conjunction) (items []string, ok bool, err error) {
	for _, v := range c {
		if len(v.prefixItems()) > 0 {
			return nil, false, nil
		}
	}
	schema, _ := c.item(0)
	list, err := w.alternativesOf(schema)
	if err != nil {
		return nil, false, err
	}
	seen := map[string]bool{}
	for _, a := range list {
		kinds, err := a.kinds()
		if err != nil {
			return nil, false, err
		}
		values, listed, err := w.enumValues(a, kinds)
		if err != nil || !listed {
			return nil, false, err
		}
		for _, v := range values {
			valid, err := w.validValue(a, v)
			if err != nil {
				return nil, false, err
			}
			if text := w.canonicalTexts[v]; valid && !seen[text] {
				seen[text] = true
				items = append(items, Literal(v.encode(false)))
			}
		}
	}
	return items, true, nil
}

// prefixItems returns the schemas of the first items.
func (v *value) prefixItems() []*value {
	if p := v.get("prefixItems"); p != nil {
		return p.items
	}
	if p := v.get("items"); p != nil && p.kind == kindArray {
		return p.items
	}
	return nil
}

// item returns the schemas of an item, and whether there are any.
func (c conjunction) item(i int) (schema conjunction, given bool) {
	for _, v := range c {
		rest := v.get("items")
		if rest != nil && rest.kind == kindArray {
			rest = v.get("additionalItems")
		}
		if prefix := v.prefixItems(); i < len(prefix) {
			rest = prefix[i]
		}
		if rest != nil {
			schema, given = schema.join(conjunction{rest}), true
		}
	}
	return schema, given
}

// tuple writes an array each of whose items has its own rule. The last rule is that of all
// further items; "" if there are none.
func (w *schemaWriter) tuple(rules []string, low, high int) string {
	ws := w.sharedRule("ws")
	prefix, last := w.newName(), len(rules)-1
	name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	end := ws + ` "]"`
	if rules[last] != "" && high > last {
		more := unbounded
		if high < unbounded {
			more = high - last
		}
		end = fmt.Sprintf(`("," %s %s)%s %s`, ws, rules[last], times(max(low-last, 0), more), end)
	}
	listed := min(last, high)
	if high == 0 {
		return fmt.Sprintf(`"[" %s "]"`, ws)
	}
	if listed < last {
		end = ws + ` "]"`
	}
	w.define(name(listed), end)
	for i := listed - 1; i > 0; i-- {
		body := fmt.Sprintf(`"," %s %s %s`, ws, rules[i], name(i+1))
		if i >= low {
			body += fmt.Sprintf(` | %s "]"`, ws)
		}
		w.define(name(i), body)
	}
	body := fmt.Sprintf(`%s %s`, rules[0], name(1))
	if low == 0 {
		body = "(" + body + ` | "]")`
	}
	return fmt.Sprintf(`"[" %s %s`, ws, body)
}
