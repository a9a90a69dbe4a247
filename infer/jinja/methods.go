package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method returns the method name of a value, or a named item of a tuple. Methods are those
// of Python that do not change the value. The others, and names that begin with __, are
// undefined with a message that refuses the access.
func method(v Value, name string) (Value, bool) {
	if strings.HasPrefix(name, "__") {
		return unsafe(v, name), true
	}
	var call func(in *interp, a args) Value
	switch v := v.(type) {
	case Text:
		call = textMethod(v, name)
	case *List:
		if i := slices.Index(v.fields, name); i >= 0 {
			return v.Items[i], true
		}
		call = listMethod(v, name)
		if !v.tuple && call == nil && slices.Contains(listChanges, name) {
			return unsafe(v, name), true
		}
	case *Dict:
		call = dictMethod(v, name)
		if call == nil && slices.Contains(dictChanges, name) {
			return unsafe(v, name), true
		}
	}
	if call == nil {
		return nil, false
	}
	return &callable{name: name, call: call}, true
}

var (
	listChanges = []string{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
	dictChanges = []string{"clear", "pop", "popitem", "setdefault", "update"}
)

func unsafe(v Value, name string) *undefined {
	return missing("access to attribute '%s' of '%s' object is unsafe", name, TypeName(v))
}

func dictMethod(d *Dict, name string) func(in *interp, a args) Value {
	switch name {
	case "get":
		return func(in *interp, a args) Value {
			p := a.bind("get", "key", "default")
			if i, ok := d.index[in.keyOf(p.need(0))]; ok {
				return d.vals[i]
			}
			return p.get(1, nil)
		}
	case "keys":
		return func(in *interp, a args) Value {
			a.bind("keys")
			return &view{"dict_keys", d.keys}
		}
	case "values":
		return func(in *interp, a args) Value {
			a.bind("values")
			return &view{"dict_values", d.vals}
		}
	case "items":
		return func(in *interp, a args) Value {
			a.bind("items")
			return &view{"dict_items", in.pairs(d)}
		}
	case "copy":
		return func(in *interp, a args) Value {
			a.bind("copy")
			return d
		}
	}
	return nil
}

// pairs returns the (key, value) tuples of a dict.
func (in *interp) pairs(d *Dict) []Value {
	in.budget.alloc(len(d.keys) * (3*itemSize + valueSize))
	out := make([]Value, len(d.keys))
	for i, k := range d.keys {
		out[i] = tuple(k, d.vals[i])
	}
	return out
}

func listMethod(l *List, name string) func(in *interp, a args) Value {
	switch name {
	case "index":
		return func(in *interp, a args) Value {
			v := a.bind("index", "value").need(0)
			for i, e := range l.Items {
				if in.equal(e, v) {
					return int64(i)
				}
			}
			fail("%s is not in list", in.str(v).s)
			return nil
		}
	case "count":
		return func(in *interp, a args) Value {
			v := a.bind("count", "value").need(0)
			n := int64(0)
			for _, e := range l.Items {
				if in.equal(e, v) {
					n++
				}
			}
			return n
		}
	case "copy":
		if !l.tuple {
			return func(in *interp, a args) Value {
				a.bind("copy")
				return l
			}
		}
	}
	return nil
}

// textMethod returns the method of a name of t; nil if str has no such method.
func textMethod(t Text, name string) func(in *interp, a args) Value {
	call, ok := textMethods[name]
	if !ok {
		return nil
	}
	return func(in *interp, a args) Value { return call(in, name, t, a) }
}

// textMethods are the methods of str by name. They are assigned in init because a format
// string can name methods.
var textMethods map[string]func(in *interp, name string, t Text, a args) Value

func init() {
	textMethods = map[string]func(in *interp, name string, t Text, a args) Value{
		"capitalize": bound(mapText((*interp).capitalize)),
		"casefold":   bound(mapText((*interp).casefold)),
		"lower":      bound(mapText((*interp).lower)),
		"swapcase":   bound(mapText((*interp).swapcase)),
		"title":      bound(mapText((*interp).title)),
		"upper":      bound(mapText((*interp).upper)),

		"lstrip":       bound(func(in *interp, t Text, p params) Value { return in.strip(t, p.get(0, nil), true, false) }, "chars"),
		"rstrip":       bound(func(in *interp, t Text, p params) Value { return in.strip(t, p.get(0, nil), false, true) }, "chars"),
		"strip":        bound(func(in *interp, t Text, p params) Value { return in.strip(t, p.get(0, nil), true, true) }, "chars"),
		"removeprefix": bound(removePrefix, "prefix"),
		"removesuffix": bound(removeSuffix, "suffix"),
		"expandtabs":   bound(expandTabs, "tabsize"),

		"center": bound(justify, "width", "fillchar"),
		"ljust":  bound(justify, "width", "fillchar"),
		"rjust":  bound(justify, "width", "fillchar"),
		"zfill":  bound(justify, "width", "fillchar"),

		"split":      bound(split, "sep", "maxsplit"),
		"rsplit":     bound(split, "sep", "maxsplit"),
		"splitlines": bound(splitLines, "keepends"),
		"partition":  bound(partition, "sep"),
		"rpartition": bound(partition, "sep"),
		"join":       bound(joinTexts, "iterable"),
		"replace":    bound(replaceText, "old", "new", "count"),

		"count":      bound(search, "sub", "start", "end"),
		"find":       bound(search, "sub", "start", "end"),
		"index":      bound(search, "sub", "start", "end"),
		"rfind":      bound(search, "sub", "start", "end"),
		"rindex":     bound(search, "sub", "start", "end"),
		"startswith": bound(hasAffix, "prefix", "start", "end"),
		"endswith":   bound(hasAffix, "prefix", "start", "end"),

		"format": func(in *interp, _ string, t Text, a args) Value { return in.braceFormat(t, a) },

		// Unlike Python's, isdigit accepts decimal digits only, no superscripts, and isnumeric no
		// Chinese numerals.
		"isalnum":      predicate(all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })),
		"isalpha":      predicate(all(unicode.IsLetter)),
		"isascii":      predicate(isASCII),
		"isdecimal":    predicate(all(unicode.IsDigit)),
		"isdigit":      predicate(all(unicode.IsDigit)),
		"isidentifier": predicate(isIdentifier),
		"islower":      predicate(func(s string) bool { return cased(s, isLower) }),
		"isnumeric":    predicate(all(unicode.IsNumber)),
		"isprintable":  predicate(func(s string) bool { return s == "" || all(unicode.IsPrint)(s) }),
		"isspace":      predicate(all(IsSpace)),
		"istitle":      predicate(isTitle),
		"isupper":      predicate(func(s string) bool { return cased(s, isUpper) }),
	}
}

// mapText makes a method without parameters of a function of texts.
func mapText(f func(in *interp, t Text) Text) func(in *interp, t Text, _ params) Value {
	return func(in *interp, t Text, _ params) Value { return f(in, t) }
}

// predicate makes a method without parameters of a test of strings.
func predicate(is func(s string) bool) func(in *interp, name string, t Text, a args) Value {
	return bound(func(in *interp, t Text, _ params) Value {
		in.budget.scan(len(t.s))
		return is(t.s)
	})
}

func removePrefix(_ *interp, t Text, p params) Value {
	if prefix := p.text(0); strings.HasPrefix(t.s, prefix.s) {
		return t.Slice(len(prefix.s), len(t.s))
	}
	return t
}

func removeSuffix(_ *interp, t Text, p params) Value {
	if suffix := p.text(0); strings.HasSuffix(t.s, suffix.s) {
		return t.Slice(0, len(t.s)-len(suffix.s))
	}
	return t
}

func splitLines(in *interp, t Text, p params) Value {
	return &List{Items: in.lines(t, p.truth(0, false))}
}

func replaceText(in *interp, t Text, p params) Value {
	return in.replace(t, p.text(0), p.text(1), p.count(2))
}

func joinTexts(in *interp, t Text, p params) Value {
	items := in.iterate(p.need(0))
	for i, v := range items {
		if _, ok := v.(Text); !ok {
			fail("sequence item %d: expected str instance, %s found", i, TypeName(v))
		}
	}
	return in.joinAll(t, items)
}

func (in *interp) casefold(t Text) Text {
	folded := in.mapRunes(t, func(_ int, r rune) string {
		if s, ok := specialUpper[r]; ok {
			return s
		}
		return runeText(r)
	})
	return in.mapRunes(folded, func(_ int, r rune) string {
		if r == 'İ' {
			return "i̇"
		}
		return runeText(unicode.ToLower(r))
	})
}

// strip trims the code points in chars, or white space if chars is None, off the ends.
func (in *interp) strip(t Text, chars Value, left, right bool) Text {
	in.budget.scan(len(t.s))
	if chars == nil {
		return t.trim(left, right, IsSpace)
	}
	set, ok := chars.(Text)
	if !ok {
		fail("strip arg must be None or str, not %s", TypeName(chars))
	}
	in.budget.scan(itemSize * len(set.s))
	cut := make(map[rune]bool, len(set.s))
	for _, r := range set.s {
		cut[r] = true
	}
	return t.trim(left, right, func(r rune) bool { return cut[r] })
}

func split(in *interp, t Text, p params) Value {
	n, fromRight := p.int(1, -1), p.fn == "rsplit"
	if p.get(0, nil) == nil {
		return &List{Items: in.words(t, n, fromRight)}
	}
	sep := p.text(0)
	if sep.s == "" {
		fail("empty separator")
	}
	if fromRight {
		return &List{Items: in.pieces(t, in.findLast(t.s, sep.s, n))}
	}
	return &List{Items: in.pieces(t, in.find(t.s, sep.s, n))}
}

func partition(in *interp, t Text, p params) Value {
	sep, last := p.text(0), p.fn == "rpartition"
	if sep.s == "" {
		fail("empty separator")
	}
	find := in.find
	if last {
		find = in.findLast
	}
	cuts := find(t.s, sep.s, 1)
	switch {
	case len(cuts) == 1:
		return tuple(t.Slice(0, cuts[0].lo), t.Slice(cuts[0].lo, cuts[0].hi), t.Slice(cuts[0].hi, len(t.s)))
	case last:
		return tuple(Text{}, Text{}, t)
	}
	return tuple(t, Text{}, Text{})
}

// substring returns t between the optional code point indices start and end, and the index
// of its first code point; ok is false if start is beyond the end of t.
func (in *interp) substring(t Text, start, end Value) (sub Text, first int, ok bool) {
	in.budget.scan(len(t.s))
	if start == nil && end == nil {
		return t, 0, true
	}
	n := t.runes()
	if i, isInt := smallInt(start); isInt && i > int64(n) {
		return Text{}, 0, false
	}
	from, to, _ := sliceRange(start, end, nil, n)
	lo := t.offset(from)
	return t.Slice(lo, max(lo, t.offset(to))), from, from <= to
}

// hasAffix evaluates startswith and endswith.
func hasAffix(in *interp, t Text, p params) Value {
	t, _, ok := in.substring(t, p.get(1, nil), p.get(2, nil))
	candidates := []Value{p.need(0)}
	if l, isList := p.need(0).(*List); isList && l.tuple {
		candidates = l.Items
	}
	for _, c := range candidates {
		s, isText := c.(Text)
		if !isText {
			fail("%s first arg must be str or a tuple of str, not %s", p.fn, TypeName(c))
		}
		in.budget.scan(len(s.s))
		has := strings.HasSuffix
		if p.fn == "startswith" {
			has = strings.HasPrefix
		}
		if ok && has(t.s, s.s) {
			return true
		}
	}
	return false
}

// search evaluates find, rfind, index, rindex and count.
func search(in *interp, t Text, p params) Value {
	name, sub := p.fn, p.text(0)
	t, first, ok := in.substring(t, p.get(1, nil), p.get(2, nil))
	if name == "count" {
		switch {
		case !ok:
			return int64(0)
		case sub.s == "":
			return int64(t.runes() + 1)
		}
		return int64(strings.Count(t.s, sub.s))
	}
	at := -1
	if ok && strings.HasPrefix(name, "r") {
		at = strings.LastIndex(t.s, sub.s)
	} else if ok {
		at = strings.Index(t.s, sub.s)
	}
	if at < 0 {
		if strings.HasSuffix(name, "index") {
			fail("substring not found")
		}
		return int64(-1)
	}
	return int64(first + utf8.RuneCountInString(t.s[:at]))
}

// justify evaluates center, ljust, rjust and zfill.
func justify(in *interp, t Text, p params) Value {
	width, fill := p.int(0, 0), p.textOr(1, " ")
	p.need(0)
	in.budget.checkSize(width, false)
	if fill.runes() != 1 {
		fail("the fill character must be exactly one character long")
	}
	switch p.fn {
	case "ljust":
		return in.pad(t, width, fill, func(int) int { return 0 })
	case "rjust":
		return in.pad(t, width, fill, func(n int) int { return n })
	case "zfill":
		sign := 0
		if strings.HasPrefix(t.s, "+") || strings.HasPrefix(t.s, "-") {
			sign = 1
		}
		digits := in.pad(t.Slice(sign, len(t.s)), width-sign, Literal("0"), func(n int) int { return n })
		return in.concat(t.Slice(0, sign), digits)
	}
	return in.center(t, width, fill)
}

func (in *interp) center(t Text, width int, fill Text) Text {
	return in.pad(t, width, fill, func(n int) int { return n/2 + n&width&1 })
}

func expandTabs(in *interp, t Text, p params) Value {
	size := p.int(0, 8)
	in.budget.checkSize(size, false)
	column := 0
	return in.mapRunes(t, func(_ int, r rune) string {
		switch r {
		case '\t':
			if size <= 0 {
				return ""
			}
			n := size - column%size
			column += n
			in.budget.alloc(n)
			return strings.Repeat(" ", n)
		case '\n', '\r':
			column = 0
		default:
			column++
		}
		return runeText(r)
	})
}

// joinAll concatenates the items as text, separated by sep.
func (in *interp) joinAll(sep Text, items []Value) Text {
	b := in.builder()
	for i, v := range items {
		in.budget.step(1)
		if i > 0 {
			b.text(sep)
		}
		b.text(in.str(v))
	}
	return b.take()
}

func all(is func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
}

// cased reports whether s has letters with case and is holds for all of them.
func cased(s string, is func(rune) bool) bool {
	found := false
	for _, r := range s {
		if isCased(r) {
			if !is(r) {
				return false
			}
			found = true
		}
	}
	return found
}

func isTitle(s string) bool {
	found, inWord := false, false
	for _, r := range s {
		switch {
		case isUpper(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			found, inWord = true, true
		case isLower(r):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return found
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if !isNameRune(r) || i == 0 && unicode.In(r, unicode.Nd, unicode.M) {
			return false
		}
	}
	return s != ""
}
