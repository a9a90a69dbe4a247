package grammar

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// property is a member that an object may have.
type property struct {
	name     string
	required bool
	schema   conjunction
}

// properties returns what the properties of an object are, in order. rest are the
// schemas of all others; closed says that there may be none.
func (c conjunction) properties() (list []property, rest conjunction, closed bool, err error) {
	find := func(name string) *property {
		i := slices.IndexFunc(list, func(p property) bool { return p.name == name })
		if i < 0 {
			i = len(list)
			list = append(list, property{name: name})
		}
		return &list[i]
	}
	for _, properties := range c.all("properties") {
		for _, m := range properties.members {
			find(m.name)
		}
	}
	listed := len(c.all("properties")) > 0
	for _, names := range c.all("required") {
		for _, name := range names.items {
			if name.kind != kindString {
				return nil, nil, false, failAt(name, "required lists names of properties, which are strings")
			}
			find(name.text).required = true
		}
	}
	for _, v := range c {
		properties, others := v.get("properties"), v.get("additionalProperties")
		for i := range list {
			p := &list[i]
			if schema := properties.getOrNil(p.name); schema != nil {
				p.schema = p.schema.join(conjunction{schema})
			} else if others != nil {
				p.schema = p.schema.join(conjunction{others})
			}
		}
		if others != nil {
			rest = rest.join(conjunction{others})
		}
		if u := v.get("unevaluatedProperties"); u != nil && !u.truth {
			closed = true
		}
	}
	return list, rest, closed || listed && len(rest) == 0, nil
}

// getOrNil is get of a value that may not be there.
func (v *value) getOrNil(name string) *value {
	if v == nil {
		return nil
	}
	return v.get(name)
}

// maxProperties bounds the work on one object.
const maxProperties = 2000

// object writes the objects of an alternative.
func (w *schemaWriter) object(c conjunction) (string, error) {
	list, rest, closed, err := c.properties()
	if err != nil {
		return "", err
	}
	if len(list) > maxProperties {
		return "", failAt(c[0], "an object has more than %d properties", maxProperties)
	}
	low, high := c.largest("minProperties", 0), c.smallest("maxProperties", unbounded)
	if len(list) == 0 && len(rest) == 0 && !closed && low == 0 && high == unbounded {
		return w.share("object"), nil
	}
	var kept []property
	var members []string
	required := 0
	for _, p := range list {
		rule, err := w.rule(p.schema)
		switch {
		case err != nil:
			return "", err
		case rule == "" && p.required:
			return "", nil
		case rule == "":
			continue
		}
		if p.required {
			required++
		}
		kept = append(kept, p)
		members = append(members, Literal(jsonName(p.name)+":")+` " "? `+rule)
	}
	other := ""
	if !closed && high > 0 {
		rule, err := w.rule(rest)
		if err != nil {
			return "", err
		}
		if rule != "" {
			name, err := w.otherName(c, list)
			if err != nil {
				return "", err
			}
			other = name + ` ":" " "? ` + rule
		}
	}
	if err := checkCounts(c, len(kept), required, other != "", low, high); err != nil {
		return "", err
	}
	if len(kept) == 0 {
		return w.list("{", other, low, high, "}"), nil
	}
	ws := w.share("ws")
	tail := ws + ` "}"`
	if other != "" {
		tail = fmt.Sprintf(`("," %s %s)* %s`, ws, other, tail)
	}
	return w.members(kept, members, other, tail), nil
}

// jsonName is a name of a property as JSON.
func jsonName(name string) string {
	var b strings.Builder
	writeJSONString(&b, name)
	return b.String()
}

// checkCounts refuses minProperties and maxProperties that rules would have to count
// for.
func checkCounts(c conjunction, listed, required int, open bool, low, high int) error {
	switch {
	// Other properties may have the same name, and then count once.
	case low > required && (listed > 0 || low > 1):
		return failAt(c.all("minProperties")[0], "minProperties is supported up to the number of required properties, or up to 1 where none is listed")
	case high < listed || high < unbounded && open && listed > 0:
		return failAt(c.all("maxProperties")[0], "maxProperties is supported where no property is listed, or no more than it says and no others are allowed")
	}
	return nil
}

// members writes an object with listed properties: each is a rule that goes on with
// those behind it, so that the rules grow no faster than the list.
func (w *schemaWriter) members(list []property, members []string, other, end string) string {
	prefix := w.fresh()
	name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	ws := w.share("ws")
	// Rule i is all from property i on, behind another one.
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

// list writes an array, or an object, of low to high items of one kind; "" if that
// is not possible.
func (w *schemaWriter) list(open, item string, low, high int, end string) string {
	ws := w.share("ws")
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

// otherName writes the name of a property that is none of those listed. It has no
// escapes, so that no spelling of a listed one slips through.
func (w *schemaWriter) otherName(c conjunction, list []property) (string, error) {
	var names []string
	for _, p := range list {
		if len(p.name) > maxNesting {
			return "", failAt(c[0], "names of properties may have %d bytes where others are allowed", maxNesting)
		}
		if !strings.ContainsFunc(p.name, func(r rune) bool { return r == '"' || r == '\\' || r < ' ' }) {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return fmt.Sprintf(`"\"" %s`, w.otherThan(slices.Compact(names))), nil
}

const plainChar = `[^"\\\x00-\x1f]`

// otherThan writes a rule of the rest of a name that is none of the sorted names, and
// the quote behind it.
func (w *schemaWriter) otherThan(names []string) string {
	if len(names) == 0 {
		return plainChar + `* "\""`
	}
	rule := w.fresh()
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
		bodies = append(bodies, Literal(first)+" "+w.otherThan(rests))
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
	low, high := c.largest("minItems", 0), c.smallest("maxItems", unbounded)
	if unique := c.all("uniqueItems"); high > 1 {
		for _, u := range unique {
			if u.truth {
				return "", failAt(u, "uniqueItems is not supported for arrays of more than one item")
			}
		}
	}
	if low > maxRepeat {
		return "", failAt(c.all("minItems")[0], "minItems is supported up to %d", maxRepeat)
	}
	if high < unbounded {
		high = min(high, maxRepeat)
	}
	prefix := 0
	for _, v := range c {
		prefix = max(prefix, len(v.prefixItems()))
	}
	if prefix > maxProperties {
		return "", failAt(c[0], "prefixItems has more than %d items", maxProperties)
	}
	// Item number prefix stands for all behind.
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

// tuple writes an array whose items have rules of their own; the last rule is that of
// all further items, "" if there are none.
func (w *schemaWriter) tuple(rules []string, low, high int) string {
	ws := w.share("ws")
	prefix, last := w.fresh(), len(rules)-1
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
