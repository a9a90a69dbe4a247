package chat

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method returns the method name of a value. Methods are Python's, as far as they
// leave the value unchanged; the sandbox refuses the others, and everything that
// leads to Python's own objects.
func method(v value, name string) (value, bool) {
	if strings.HasPrefix(name, "__") {
		return unsafe(v, name), true
	}
	var call func(in *interp, a args) value
	switch v := v.(type) {
	case text:
		call = textMethod(v, name)
	case *list:
		if i := slices.Index(v.fields, name); i >= 0 {
			return v.items[i], true
		}
		call = listMethod(v, name)
		if !v.tuple && call == nil && slices.Contains(listChanges, name) {
			return unsafe(v, name), true
		}
	case *dict:
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

func unsafe(v value, name string) *undefined {
	return missing("access to attribute '%s' of '%s' object is unsafe", name, typeName(v))
}

func dictMethod(d *dict, name string) func(in *interp, a args) value {
	switch name {
	case "get":
		return func(in *interp, a args) value {
			p := a.bind("get", "key", "default")
			if i, ok := d.index[in.hash(p.need(0))]; ok {
				return d.vals[i]
			}
			return p.get(1, nil)
		}
	case "keys":
		return func(in *interp, a args) value {
			a.bind("keys")
			return &view{"dict_keys", d.keys}
		}
	case "values":
		return func(in *interp, a args) value {
			a.bind("values")
			return &view{"dict_values", d.vals}
		}
	case "items":
		return func(in *interp, a args) value {
			a.bind("items")
			return &view{"dict_items", in.pairs(d)}
		}
	case "copy":
		return func(in *interp, a args) value {
			a.bind("copy")
			return d
		}
	}
	return nil
}

// pairs returns the (key, value) tuples of a dict.
func (in *interp) pairs(d *dict) []value {
	in.budget.alloc(len(d.keys) * (3*itemSize + valueSize))
	out := make([]value, len(d.keys))
	for i, k := range d.keys {
		out[i] = tuple(k, d.vals[i])
	}
	return out
}

func listMethod(l *list, name string) func(in *interp, a args) value {
	switch name {
	case "index":
		return func(in *interp, a args) value {
			v := a.bind("index", "value").need(0)
			for i, e := range l.items {
				if in.equal(e, v) {
					return int64(i)
				}
			}
			fail("%s is not in list", in.str(v).s)
			return nil
		}
	case "count":
		return func(in *interp, a args) value {
			v := a.bind("count", "value").need(0)
			n := int64(0)
			for _, e := range l.items {
				if in.equal(e, v) {
					n++
				}
			}
			return n
		}
	case "copy":
		if !l.tuple {
			return func(in *interp, a args) value {
				a.bind("copy")
				return l
			}
		}
	}
	return nil
}

// textMethod returns a method of str, or nil.
func textMethod(t text, name string) func(in *interp, a args) value {
	switch name {
	case "upper", "lower", "casefold", "title", "capitalize", "swapcase":
		return func(in *interp, a args) value {
			a.bind(name)
			return in.recase(t, name)
		}
	case "strip", "lstrip", "rstrip":
		return func(in *interp, a args) value {
			chars := a.bind(name, "chars")
			return in.strip(t, chars.get(0, nil), name != "rstrip", name != "lstrip")
		}
	case "split", "rsplit":
		return func(in *interp, a args) value { return in.split(t, a.bind(name, "sep", "maxsplit"), name == "rsplit") }
	case "splitlines":
		return func(in *interp, a args) value {
			return &list{items: in.lines(t, a.bind(name, "keepends").truth(0, false))}
		}
	case "partition", "rpartition":
		return func(in *interp, a args) value {
			return in.partition(t, a.bind(name, "sep").text(0), name == "rpartition")
		}
	case "startswith", "endswith":
		return func(in *interp, a args) value {
			return in.affix(t, a.bind(name, "prefix", "start", "end"), name == "startswith")
		}
	case "removeprefix":
		return func(in *interp, a args) value {
			if p := a.bind(name, "prefix").text(0); strings.HasPrefix(t.s, p.s) {
				return t.slice(len(p.s), len(t.s))
			}
			return t
		}
	case "removesuffix":
		return func(in *interp, a args) value {
			if p := a.bind(name, "suffix").text(0); strings.HasSuffix(t.s, p.s) {
				return t.slice(0, len(t.s)-len(p.s))
			}
			return t
		}
	case "replace":
		return func(in *interp, a args) value {
			p := a.bind(name, "old", "new", "count")
			return in.replace(t, p.text(0), p.text(1), p.count(2))
		}
	case "join":
		return func(in *interp, a args) value {
			items := in.iterate(a.bind(name, "iterable").need(0))
			for i, v := range items {
				if _, ok := v.(text); !ok {
					fail("sequence item %d: expected str instance, %s found", i, typeName(v))
				}
			}
			return in.joinAll(t, items)
		}
	case "find", "rfind", "index", "rindex", "count":
		return func(in *interp, a args) value { return in.search(t, name, a.bind(name, "sub", "start", "end")) }
	case "center", "ljust", "rjust", "zfill":
		return func(in *interp, a args) value { return in.justify(t, name, a.bind(name, "width", "fillchar")) }
	case "expandtabs":
		return func(in *interp, a args) value { return in.expandTabs(t, a.bind(name, "tabsize").int(0, 8)) }
	case "format":
		return func(in *interp, a args) value { return in.braceFormat(t, a) }
	case "format_map":
		return func(in *interp, a args) value {
			d, ok := a.bind(name, "mapping").need(0).(*dict)
			if !ok {
				fail("format_map needs a mapping")
			}
			b := args{vals: d.vals}
			in.budget.alloc(len(d.keys) * valueSize)
			for _, k := range d.keys {
				b.names = append(b.names, in.str(k))
			}
			return in.braceFormat(t, b)
		}
	}
	if test, ok := textPredicates[name]; ok {
		return func(in *interp, a args) value {
			a.bind(name)
			in.budget.scan(len(t.s))
			return test(t.s)
		}
	}
	return nil
}

func (in *interp) recase(t text, name string) text {
	switch name {
	case "upper":
		return in.upper(t)
	case "title":
		return in.title(t)
	case "capitalize":
		return in.capitalize(t)
	case "swapcase":
		return in.swapcase(t)
	case "casefold":
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
	return in.lower(t)
}

// strip cuts a set of code points, or white space, off the ends.
func (in *interp) strip(t text, chars value, left, right bool) text {
	in.budget.scan(len(t.s))
	if chars == nil {
		return t.trim(left, right, isSpace)
	}
	set, ok := chars.(text)
	if !ok {
		fail("strip arg must be None or str, not %s", typeName(chars))
	}
	in.budget.scan(itemSize * len(set.s))
	cut := make(map[rune]bool, len(set.s))
	for _, r := range set.s {
		cut[r] = true
	}
	return t.trim(left, right, func(r rune) bool { return cut[r] })
}

func (in *interp) split(t text, p params, fromRight bool) *list {
	n := p.int(1, -1)
	if p.get(0, nil) == nil {
		return &list{items: in.words(t, n, fromRight)}
	}
	sep := p.text(0)
	if sep.s == "" {
		fail("empty separator")
	}
	if fromRight {
		return &list{items: in.pieces(t, in.findLast(t.s, sep.s, n))}
	}
	return &list{items: in.pieces(t, in.find(t.s, sep.s, n))}
}

func (in *interp) partition(t, sep text, last bool) *list {
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
		return tuple(t.slice(0, cuts[0].lo), t.slice(cuts[0].lo, cuts[0].hi), t.slice(cuts[0].hi, len(t.s)))
	case last:
		return tuple(text{}, text{}, t)
	}
	return tuple(t, text{}, text{})
}

// part returns t between the optional code point indices at start and end, and
// the index of its first code point; ok is false if start lies behind t.
func (in *interp) part(t text, start, end value) (part text, first int, ok bool) {
	in.budget.scan(len(t.s))
	if start == nil && end == nil {
		return t, 0, true
	}
	n := t.runes()
	if i, isInt := smallInt(start); isInt && i > int64(n) {
		return text{}, 0, false
	}
	from, to, _ := sliceRange(start, end, nil, n)
	lo := t.offset(from)
	return t.slice(lo, max(lo, t.offset(to))), from, from <= to
}

func (in *interp) affix(t text, p params, prefix bool) bool {
	t, _, ok := in.part(t, p.get(1, nil), p.get(2, nil))
	candidates := []value{p.need(0)}
	if l, isList := p.need(0).(*list); isList && l.tuple {
		candidates = l.items
	}
	for _, c := range candidates {
		s, isText := c.(text)
		if !isText {
			fail("%s first arg must be str or a tuple of str, not %s", p.fn, typeName(c))
		}
		in.budget.scan(len(s.s))
		if ok && (prefix && strings.HasPrefix(t.s, s.s) || !prefix && strings.HasSuffix(t.s, s.s)) {
			return true
		}
	}
	return false
}

// search is find, rfind, index, rindex and count.
func (in *interp) search(t text, name string, p params) value {
	sub := p.text(0)
	t, first, ok := in.part(t, p.get(1, nil), p.get(2, nil))
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

func (in *interp) justify(t text, name string, p params) text {
	width, fill := p.int(0, 0), p.textOr(1, " ")
	p.need(0)
	in.budget.text(width, false)
	if fill.runes() != 1 {
		fail("the fill character must be exactly one character long")
	}
	switch name {
	case "ljust":
		return in.pad(t, width, fill, func(int) int { return 0 })
	case "rjust":
		return in.pad(t, width, fill, func(n int) int { return n })
	case "zfill":
		sign := 0
		if strings.HasPrefix(t.s, "+") || strings.HasPrefix(t.s, "-") {
			sign = 1
		}
		digits := in.pad(t.slice(sign, len(t.s)), width-sign, literal("0"), func(n int) int { return n })
		return in.concat(t.slice(0, sign), digits)
	}
	return in.center(t, width, fill)
}

func (in *interp) center(t text, width int, fill text) text {
	return in.pad(t, width, fill, func(n int) int { return n/2 + n&width&1 })
}

func (in *interp) expandTabs(t text, size int) text {
	in.budget.text(size, false)
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

// joinAll puts sep between the items.
func (in *interp) joinAll(sep text, items []value) text {
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

// textPredicates are the str.is… methods. Unlike Python's, isdigit knows decimal digits
// alone, no superscripts, and isnumeric no Chinese numerals.
var textPredicates = map[string]func(s string) bool{
	"isascii":      isASCII,
	"isalpha":      all(unicode.IsLetter),
	"isdigit":      all(unicode.IsDigit),
	"isdecimal":    all(unicode.IsDigit),
	"isnumeric":    all(unicode.IsNumber),
	"isalnum":      all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isspace":      all(isSpace),
	"isprintable":  func(s string) bool { return s == "" || all(unicode.IsPrint)(s) },
	"isupper":      func(s string) bool { return cased(s, isUpper) },
	"islower":      func(s string) bool { return cased(s, isLower) },
	"istitle":      isTitle,
	"isidentifier": isIdentifier,
}

func all(is func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
}

// cased reports whether s has letters with case, all of them of this one.
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
