package jinja

import (
	"html"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// bound returns a function that sorts its arguments by the names of its parameters
// before it calls call.
func bound[T any](call func(in *interp, v T, p params) Value, names ...string) func(in *interp, name string, v T, a args) Value {
	return func(in *interp, name string, v T, a args) Value { return call(in, v, a.bind(name, names...)) }
}

// filter applies the filter of a name to v.
func (in *interp) filter(name string, v Value, a args) Value {
	apply, ok := filters[name]
	if !ok {
		fail("no filter named '%s'", name)
	}
	return apply(in, name, v, a)
}

// filters are the filters by name. They are assigned in init because some apply others.
var filters map[string]func(in *interp, name string, v Value, a args) Value

func init() {
	filters = map[string]func(in *interp, name string, v Value, a args) Value{
		"batch":          bound(batch, "linecount", "fill_with"),
		"capitalize":     bound(textFilter((*interp).capitalize)),
		"center":         bound(centerFilter, "width"),
		"count":          bound(length),
		"d":              bound(defaultValue, "default_value", "boolean"),
		"default":        bound(defaultValue, "default_value", "boolean"),
		"dictsort":       bound((*interp).dictsort, "case_sensitive", "by", "reverse"),
		"e":              bound(escape),
		"escape":         bound(escape),
		"filesizeformat": bound(fileSize, "binary"),
		"first":          bound(first),
		"float":          bound((*interp).toFloat, "default"),
		"format":         formatFilter,
		"groupby":        bound((*interp).groupby, "attribute", "default", "case_sensitive"),
		"indent":         bound(indent, "width", "first", "blank"),
		"int":            bound((*interp).toInt, "default", "base"),
		"items":          bound(items),
		"join":           bound(join, "d", "attribute"),
		"last":           bound(last),
		"length":         bound(length),
		"list":           bound(toList),
		"lower":          bound(textFilter((*interp).lower)),
		"map":            mapFilter,
		"max":            bound(minOrMax, "case_sensitive", "attribute"),
		"min":            bound(minOrMax, "case_sensitive", "attribute"),
		"reject":         selectFilter,
		"rejectattr":     selectFilter,
		"replace":        bound(replaceFilter, "old", "new", "count"),
		"reverse":        bound(reverse),
		"round":          bound((*interp).round, "precision", "method"),
		"safe":           bound(safe),
		"select":         selectFilter,
		"selectattr":     selectFilter,
		"slice":          bound(sliceColumns, "slices", "fill_with"),
		"sort":           bound(sortFilter, "reverse", "case_sensitive", "attribute"),
		"string":         bound(textFilter((*interp).plain)),
		"striptags":      bound(textFilter((*interp).striptags)),
		"sum":            bound((*interp).sum, "attribute", "start"),
		"title":          bound(textFilter((*interp).titleWords)),
		"tojson":         bound((*interp).tojson, "ensure_ascii", "indent", "separators", "sort_keys"),
		"trim":           bound(trim, "chars"),
		"truncate":       bound((*interp).truncate, "length", "killwords", "end", "leeway"),
		"unique":         bound(unique, "case_sensitive", "attribute"),
		"upper":          bound(textFilter((*interp).upper)),
		"wordwrap":       bound(wordwrap, "width", "break_long_words", "wrapstring", "break_on_hyphens"),
	}
}

// textFilter makes a filter without parameters of a function of texts.
func textFilter(f func(in *interp, t Text) Text) func(in *interp, v Value, p params) Value {
	return func(in *interp, v Value, _ params) Value { return f(in, in.str(v)) }
}

// plain returns t.
func (in *interp) plain(t Text) Text { return t }

func safe(in *interp, v Value, _ params) Value {
	t := in.str(v)
	t.safe = true
	return t
}

func escape(in *interp, v Value, _ params) Value {
	if t := in.str(v); !t.safe {
		return in.escapeHTML(t)
	}
	return v
}

func trim(in *interp, v Value, p params) Value {
	return in.strip(in.str(v), p.get(0, nil), true, true)
}

func replaceFilter(in *interp, v Value, p params) Value {
	return in.replace(in.str(v), in.str(p.need(0)), in.str(p.need(1)), p.count(2))
}

func centerFilter(in *interp, v Value, p params) Value {
	width := p.int(0, 80)
	in.budget.checkSize(width, false)
	return in.center(in.str(v), width, Literal(" "))
}

func defaultValue(_ *interp, v Value, p params) Value {
	if _, ok := v.(*undefined); ok || p.truth(1, false) && !truth(v) {
		return p.get(0, Text{})
	}
	return v
}

func length(in *interp, v Value, _ params) Value { return int64(in.length(v)) }

func toList(in *interp, v Value, _ params) Value { return &List{Items: in.iterate(v)} }

func join(in *interp, v Value, p params) Value {
	items := in.iterate(v)
	if key := p.get(1, nil); key != nil {
		items = in.mapItems(items, in.getter(key, nil))
	}
	return in.joinAll(in.str(p.get(0, Text{})), items)
}

func sortFilter(in *interp, v Value, p params) Value {
	return &List{Items: in.sort(in.iterate(v), p.truth(0, false), in.sortKey(p.get(2, nil), p.truth(1, false)))}
}

func unique(in *interp, v Value, p params) Value {
	return &generator{func() []Value {
		return in.unique(v, in.getterIgnoringCase(p.get(1, nil), p.truth(0, false)))
	}}
}

func minOrMax(in *interp, v Value, p params) Value {
	return in.minOrMax(v, p.fn == "max", in.getterIgnoringCase(p.get(1, nil), p.truth(0, false)))
}

func batch(in *interp, v Value, p params) Value {
	return &generator{func() []Value { return in.batch(v, p) }}
}

func sliceColumns(in *interp, v Value, p params) Value {
	return &generator{func() []Value { return in.sliceColumns(v, p) }}
}

func items(in *interp, v Value, _ params) Value {
	return &generator{func() []Value { return in.itemPairs(v) }}
}

func mapFilter(in *interp, _ string, v Value, a args) Value {
	return &generator{func() []Value { return in.mapFilter(v, a) }}
}

// selectFilter applies select, reject, selectattr or rejectattr.
func selectFilter(in *interp, name string, v Value, a args) Value {
	return &generator{func() []Value { return in.selectItems(name, v, a) }}
}

// requireText returns v as a text. Unlike most filters, the filter name fails if it is not one.
func requireText(name string, v Value) Text {
	t, ok := v.(Text)
	if !ok {
		fail("%s needs a string, not %s", name, TypeName(v))
	}
	return t
}

// titleWords applies title: it writes the first letter of each word in upper case and the
// others in lower case. Words end at blanks, hyphens and opening brackets. The rest of a
// word is converted by itself, which matters for a sigma at its end.
func (in *interp) titleWords(t Text) Text {
	start, rest := true, 0
	return in.mapRunes(t, func(i int, r rune) string {
		was := start
		start = IsSpace(r) || strings.ContainsRune("-({[<", r)
		if was && !start {
			rest = i + utf8.RuneLen(r)
			return upperRune(r)
		}
		return lowerRune(t.s[rest:], i-rest, r)
	})
}

func indent(in *interp, v Value, p params) Value {
	t := requireText(p.fn, v)
	var indention Text
	if w, ok := p.get(0, int64(4)).(Text); ok {
		indention = w
	} else {
		n := p.int(0, 4)
		in.budget.checkSize(n, false)
		indention = in.repeat(Literal(" "), n)
	}
	lines := in.lines(in.concat(t, Literal("\n")), false)
	b := in.builder()
	for i, l := range lines {
		in.budget.step(1)
		line := l.(Text)
		if i > 0 {
			b.literal("\n")
		}
		if i == 0 && p.truth(1, false) || i > 0 && (line.s != "" || p.truth(2, false)) {
			b.text(indention)
		}
		b.text(line)
	}
	return b.take()
}

func (in *interp) truncate(v Value, p params) Value {
	length, end, leeway := p.int(0, 255), p.textOr(2, "..."), 5
	if p.get(3, nil) != nil {
		leeway = p.int(3, 5)
	}
	room := length - end.runes()
	if room < 0 || leeway < 0 {
		fail("truncate: expected length >= %d and leeway >= 0, got %d and %d", end.runes(), length, leeway)
	}
	if in.length(v) <= length+leeway {
		return v
	}
	t := requireText("truncate", v)
	kept := t.Slice(0, t.offset(room))
	if !p.truth(1, false) {
		if i := strings.LastIndexByte(kept.s, ' '); i >= 0 {
			kept = kept.Slice(0, i)
		}
	}
	return in.concat(kept, end)
}

// wordwrap breaks lines longer than width at blanks, after hyphens and, if necessary,
// within words. It follows Python's textwrap.
func wordwrap(in *interp, v Value, p params) Value {
	t := requireText(p.fn, v)
	width := p.int(0, 79)
	if width <= 0 {
		fail("wordwrap: invalid width %d (must be > 0)", width)
	}
	wrap := p.textOr(2, "\n")
	b := in.builder()
	for i, l := range in.lines(t, false) {
		if i > 0 {
			b.text(wrap)
		}
		for j, line := range in.wrapLine(l.(Text), width, p.truth(1, true), p.truth(3, true)) {
			if j > 0 {
				b.text(wrap)
			}
			b.text(line)
		}
	}
	return b.take()
}

// chunk is a part of a line within which no line is broken, and its width.
type chunk struct {
	Text
	width int
}

// wrapLine fills one line after the other with the chunks of t. A line is a slice of t,
// because its chunks are adjacent in t.
func (in *interp) wrapLine(t Text, width int, breakLong, atHyphens bool) []Text {
	var out []Text
	blank := func(s string) bool { return strings.TrimFunc(s, IsSpace) == "" }
	chunks := in.chunks(t, atHyphens)
	at := 0 // offset in t of the first chunk
	for len(chunks) > 0 {
		in.budget.step(1)
		if len(out) > 0 && blank(chunks[0].s) {
			at += len(chunks[0].s)
			chunks = chunks[1:]
		}
		start, used := at, 0
		kept, last := at, at // where the line ends without its last chunk, and with it
		take := func(c chunk) {
			kept, last = last, last+len(c.s)
			at = last
			used += c.width
		}
		some := false
		for len(chunks) > 0 && used+chunks[0].width <= width {
			in.budget.step(1)
			take(chunks[0])
			chunks, some = chunks[1:], true
		}
		if len(chunks) > 0 && chunks[0].width > width {
			if breakLong {
				head := breakWord(chunks[0], width-used, atHyphens)
				chunks[0] = chunk{chunks[0].Slice(len(head.s), len(chunks[0].s)), chunks[0].width - head.width}
				take(head)
				some = true
			} else if !some {
				take(chunks[0])
				chunks, some = chunks[1:], true
			}
		}
		if some && blank(t.s[kept:last]) {
			last = kept
			some = start < last
		}
		if some {
			in.budget.allocValue()
			out = append(out, t.Slice(start, last))
		}
	}
	return out
}

// breakWord returns the prefix of a word that fits into room, up to a hyphen if there is one.
func breakWord(word chunk, room int, atHyphens bool) chunk {
	head := chunk{word.Slice(0, word.offset(room)), room}
	if atHyphens {
		if i := strings.LastIndexByte(head.s, '-'); i > 0 && strings.Trim(head.s[:i], "-") != "" {
			upTo := head.Slice(0, i+1)
			return chunk{upTo, upTo.runes()}
		}
	}
	return head
}

// chunks splits t into blanks and words; if atHyphens is set also into dashes and the
// parts of hyphenated words.
func (in *interp) chunks(t Text, atHyphens bool) []chunk {
	in.budget.alloc(4 * in.length(t))
	runes := []rune(t.s)
	letter := func(i int) bool {
		return i >= 0 && i < len(runes) && (runes[i] == '_' || unicode.IsLetter(runes[i]) || unicode.IsNumber(runes[i]) && !unicode.IsDigit(runes[i]))
	}
	is := func(i int, set string) bool { return i >= 0 && i < len(runes) && strings.ContainsRune(set, runes[i]) }
	const blanks = "\t\n\v\f\r "
	wordRune := func(i int) bool { return letter(i) || i >= 0 && i < len(runes) && unicode.IsDigit(runes[i]) }
	// dash returns the end of the dash between words that begins at i; i if there is none.
	dash := func(i int) int {
		end := i
		for is(end, "-") {
			end++
		}
		if end < i+2 || !wordRune(end) || !wordRune(i-1) && !is(i-1, "!\"'&.,?") {
			return i
		}
		return end
	}
	hyphen := func(i int) bool {
		return is(i, "-") && letter(i-1) && (letter(i-2) || is(i-2, "-") && letter(i-3)) && letter(i+1) && (letter(i+2) || is(i+2, "-") && letter(i+3))
	}
	var out []chunk
	start := 0
	for at, i := 0, 0; i < len(runes); start = i {
		in.budget.step(1)
		switch {
		case is(i, blanks):
			for is(i, blanks) {
				i++
			}
		case atHyphens && dash(i) > i:
			i = dash(i)
		default:
			for i++; i < len(runes) && !is(i, blanks); i++ {
				if atHyphens && hyphen(i) {
					i++
					break
				}
				if atHyphens && is(i, "-") && dash(i) > i {
					break
				}
			}
		}
		size := len(string(runes[start:i]))
		in.budget.allocValue()
		out = append(out, chunk{t.Slice(at, at+size), i - start})
		at += size
	}
	return out
}

func (in *interp) striptags(t Text) Text {
	for _, tag := range [][2]string{{"<!--", "-->"}, {"<", ">"}} {
		in.budget.scan(len(t.s))
		var cuts []cut
		for at := 0; ; {
			lo := strings.Index(t.s[at:], tag[0])
			if lo < 0 {
				break
			}
			lo += at
			n := strings.Index(t.s[lo:], tag[1])
			if n < 0 {
				break
			}
			at = lo + n + len(tag[1])
			in.budget.alloc(itemSize)
			cuts = append(cuts, cut{lo, at})
		}
		t = in.joinAll(Text{}, in.pieces(t, cuts))
	}
	t = in.joinAll(Literal(" "), in.words(t, -1, false))
	if s := html.UnescapeString(t.s); s != t.s {
		in.budget.alloc(len(s))
		return markedLike(s, t)
	}
	return t
}

// markedLike returns s, which was computed from t as a whole: it counts as the caller's if
// any part of t does.
func markedLike(s string, t Text) Text {
	if t.fromCaller() {
		return Marked(s, FromCaller)
	}
	return Literal(s)
}

func formatFilter(in *interp, _ string, v Value, a args) Value {
	if len(a.names) > 0 {
		fail("format takes no keyword argument '%s'", a.names[0].s)
	}
	return in.percentFormat(in.str(v), tuple(a.pos...))
}

func fileSize(in *interp, v Value, p params) Value {
	n, ok := float(v)
	if t, isText := v.(Text); isText {
		in.budget.scan(len(t.s))
		f, err := strconv.ParseFloat(strings.TrimSpace(t.s), 64)
		n, ok = f, err == nil
	}
	if !ok {
		fail("filesizeformat needs a number, not %s", TypeName(v))
	}
	base, prefixes := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if p.truth(0, false) {
		base, prefixes = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if n == 1 {
		return Literal("1 Byte")
	}
	if n < base {
		return Literal(strconv.FormatFloat(math.Trunc(n)+0, 'f', 0, 64) + " Bytes")
	}
	unit, i := base, 0
	for n >= unit*base && i < len(prefixes)-1 {
		unit *= base
		i++
	}
	return Literal(strconv.FormatFloat(n/unit, 'f', 1, 64) + " " + prefixes[i])
}

// toInt applies int. It returns the default if v is not a number.
func (in *interp) toInt(v Value, p params) Value {
	base := p.int(1, 10)
	switch x := v.(type) {
	case Text:
		in.budget.scan(len(x.s))
		s := strings.TrimFunc(x.s, IsSpace)
		if len(s) > maxDigits/4 {
			throw(overLimit("integer", maxDigits, "bits"))
		}
		if base == 16 || base == 8 || base == 2 || base == 0 {
			if i, ok := new(big.Int).SetString(stripBase(s, base), base); ok {
				return in.normalize(i)
			}
		} else if base > 2 && base <= 36 {
			if i, ok := new(big.Int).SetString(strings.ReplaceAll(s, "_", ""), base); ok && isNumeral(s) {
				return in.normalize(i)
			}
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return in.floatToInt(f, p)
		}
	case float64:
		return in.floatToInt(x, p)
	case *undefined:
		x.fail()
	default:
		if i, ok := integer(v); ok {
			return in.normalize(i)
		}
	}
	return p.get(0, int64(0))
}

// stripBase removes the prefix that Python accepts before digits of the base, such as 0x.
func stripBase(s string, base int) string {
	sign := signAt(s, 0)
	rest := s[len(sign):]
	if len(rest) > 2 && rest[0] == '0' && map[int]byte{16: 'x', 8: 'o', 2: 'b'}[base] == rest[1]|0x20 {
		return sign + rest[2:]
	}
	return s
}

// isNumeral reports whether all underscores of s are between digits.
func isNumeral(s string) bool {
	return !strings.HasPrefix(s, "_") && !strings.HasSuffix(s, "_") && !strings.Contains(s, "__")
}

func (in *interp) floatToInt(f float64, p params) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return p.get(0, int64(0))
	}
	i, _ := big.NewFloat(f).Int(nil)
	return in.normalize(i)
}

func (in *interp) toFloat(v Value, p params) Value {
	if t, ok := v.(Text); ok {
		in.budget.scan(len(t.s))
		if f, err := strconv.ParseFloat(strings.TrimFunc(t.s, IsSpace), 64); err == nil {
			return f
		}
	} else if f, ok := float(v); ok {
		return f
	} else if u, ok := v.(*undefined); ok {
		u.fail()
	}
	return p.get(0, 0.0)
}

func (in *interp) round(v Value, p params) Value {
	precision, method := p.int(0, 0), p.textOr(1, "common").s
	if method != "common" && method != "ceil" && method != "floor" {
		fail("round: method must be common, ceil or floor, not '%s'", method)
	}
	if i, isInt := integer(v); isInt && method == "common" && precision >= 0 {
		return in.normalize(i)
	}
	f, ok := float(v)
	if !ok {
		fail("type %s doesn't define __round__ method", TypeName(v))
	}
	precision = min(max(precision, -400), 400)
	scale := math.Pow(10, float64(precision))
	switch {
	case method == "ceil":
		return (math.Ceil(f*scale) + 0) / scale // -0 + 0 is 0
	case method == "floor":
		return (math.Floor(f*scale) + 0) / scale
	case precision < 0:
		r := math.RoundToEven(f*scale) / scale
		if _, isInt := integer(v); isInt {
			return in.floatToInt(r, p)
		}
		return r
	}
	r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
	return r
}

func first(in *interp, v Value, _ params) Value {
	if t, ok := v.(Text); ok && t.s != "" {
		c := t.at(0)
		c.safe = false
		return c
	}
	if items := in.iterate(v); len(items) > 0 {
		return items[0]
	}
	return missing("no first item, sequence was empty")
}

func last(in *interp, v Value, _ params) Value {
	if _, ok := v.(*generator); ok {
		fail("'generator' object is not reversible")
	}
	if items := in.iterate(v); len(items) > 0 {
		return items[len(items)-1]
	}
	return missing("no last item, sequence was empty")
}

func reverse(in *interp, v Value, _ params) Value {
	items := in.iterate(v)
	in.budget.alloc(len(items) * itemSize)
	items = slices.Clone(items)
	slices.Reverse(items)
	switch v.(type) {
	case Text:
		return in.joinAll(Text{}, items)
	case *generator:
		return &List{Items: items}
	}
	return &generator{func() []Value { return items }}
}

// mapItems returns f of each item.
func (in *interp) mapItems(items []Value, f func(Value) Value) []Value {
	in.budget.alloc(len(items) * (itemSize + valueSize))
	out := make([]Value, len(items))
	for i, v := range items {
		in.budget.step(1)
		out[i] = f(v)
	}
	return out
}

// getter returns a function that reads an attribute path such as "address.0.city" of an
// item, and returns otherwise for a missing attribute unless otherwise is nil.
func (in *interp) getter(path, otherwise Value) func(Value) Value {
	if path == nil {
		return func(v Value) Value { return v }
	}
	keys := []Value{path}
	if t, ok := path.(Text); ok {
		keys = nil
		for _, part := range in.pieces(t, in.find(t.s, ".", -1)) {
			name := part.(Text)
			if i, err := strconv.ParseInt(name.s, 10, 64); err == nil && all(unicode.IsDigit)(name.s) {
				keys = append(keys, i)
			} else {
				keys = append(keys, name)
			}
		}
	}
	return func(v Value) Value {
		for _, k := range keys {
			in.budget.step(1)
			in.budget.allocValue()
			v = in.item(v, k)
			if _, ok := v.(*undefined); ok && otherwise != nil {
				v = otherwise
			}
		}
		return v
	}
}

// getterIgnoringCase returns a getter that lowers strings unless caseSensitive is set.
func (in *interp) getterIgnoringCase(path Value, caseSensitive bool) func(Value) Value {
	get := in.getter(path, nil)
	return func(v Value) Value {
		v = get(v)
		if t, ok := v.(Text); ok && !caseSensitive {
			return in.lower(t)
		}
		return v
	}
}

// sortKey returns a function that reads one or more paths, separated by commas, as a tuple.
func (in *interp) sortKey(path Value, caseSensitive bool) func(Value) Value {
	paths := []Value{path}
	if t, ok := path.(Text); ok {
		paths = in.pieces(t, in.find(t.s, ",", -1))
	}
	var getters []func(Value) Value
	for _, p := range paths {
		in.budget.allocValue()
		getters = append(getters, in.getterIgnoringCase(p, caseSensitive))
	}
	return func(v Value) Value {
		in.budget.alloc(valueSize + len(getters)*itemSize)
		key := tuple()
		for _, get := range getters {
			key.Items = append(key.Items, get(v))
		}
		return key
	}
}

func (in *interp) dictsort(v Value, p params) Value {
	d, ok := v.(*Dict)
	if !ok {
		fail("dictsort needs a mapping, not %s", TypeName(v))
	}
	by := int64(0)
	switch s := p.textOr(1, "key").s; s {
	case "key":
	case "value":
		by = 1
	default:
		fail("dictsort: by must be 'key' or 'value', not '%s'", s)
	}
	return &List{Items: in.sort(in.pairs(d), p.truth(2, false), in.getterIgnoringCase(by, p.truth(0, false)))}
}

func (in *interp) unique(v Value, key func(Value) Value) []Value {
	seen := map[any]bool{}
	var out []Value
	for _, e := range in.iterate(v) {
		in.budget.alloc(entrySize)
		id := in.keyOf(key(e))
		if !seen[id] {
			seen[id] = true
			out = append(out, e)
		}
	}
	return out
}

func (in *interp) minOrMax(v Value, most bool, key func(Value) Value) Value {
	items := in.iterate(v)
	if len(items) == 0 {
		return missing("no aggregated item, sequence was empty")
	}
	best, bestKey := items[0], key(items[0])
	for _, e := range items[1:] {
		k := key(e)
		order, _ := in.order("<", k, bestKey)
		if most && order > 0 || !most && order < 0 {
			best, bestKey = e, k
		}
	}
	return best
}

func (in *interp) sum(v Value, p params) Value {
	items := in.iterate(v)
	if path := p.get(0, nil); path != nil {
		items = in.mapItems(items, in.getter(path, nil))
	}
	total := p.get(1, int64(0))
	if _, ok := total.(Text); ok {
		fail("sum() can't sum strings [use ''.join(seq) instead]")
	}
	for _, e := range items {
		total = in.arithmetic("+", total, e)
	}
	return total
}

func (in *interp) groupby(v Value, p params) Value {
	caseSensitive := p.truth(2, false)
	get := in.getter(p.need(0), p.get(1, nil))
	folded := func(v Value) Value {
		if t, ok := v.(Text); ok && !caseSensitive {
			return in.lower(t)
		}
		return v
	}
	sorted := in.sort(in.iterate(v), false, func(v Value) Value { return folded(get(v)) })
	out := &List{}
	var group *List
	var groupKey Value
	for _, e := range sorted {
		in.budget.alloc(2 * itemSize)
		key := folded(get(e))
		if group == nil || !in.equal(key, groupKey) {
			in.budget.alloc(2*valueSize + 8*itemSize) // a pair of a key and a list, with names
			group, groupKey = &List{}, key
			out.Items = append(out.Items, &List{Items: []Value{get(e), group}, tuple: true, fields: []string{"grouper", "list"}})
		}
		group.Items = append(group.Items, e)
	}
	return out
}

func (in *interp) batch(v Value, p params) []Value {
	size := p.int(0, 0)
	if size <= 0 {
		fail("batch: linecount must be greater than 0, not %d", size)
	}
	items := in.iterate(v)
	var out []Value
	for len(items) > 0 {
		n := min(size, len(items))
		in.budget.alloc(valueSize + (n+1)*itemSize)
		row := slices.Clone(items[:n])
		if fill := p.get(1, nil); fill != nil && n < size {
			row = append(row, in.repeatValue(fill, size-n)...)
		}
		out = append(out, &List{Items: row})
		items = items[n:]
	}
	return out
}

func (in *interp) repeatValue(v Value, n int) []Value {
	if n > maxRange {
		throw(overLimit("range", maxRange, "items"))
	}
	in.budget.alloc(n * itemSize)
	return slices.Repeat([]Value{v}, n)
}

// sliceColumns applies slice: it splits v into n lists of nearly the same length.
func (in *interp) sliceColumns(v Value, p params) []Value {
	n := p.int(0, 0)
	if n <= 0 {
		fail("slice: slices must be greater than 0, not %d", n)
	}
	if n > maxRange {
		throw(overLimit("range", maxRange, "items"))
	}
	items := in.iterate(v)
	in.budget.alloc(n*(2*itemSize+valueSize) + len(items)*itemSize)
	var out []Value
	size, longer := len(items)/n, len(items)%n
	for i := range n {
		take := size
		if i < longer {
			take++
		}
		col := slices.Clone(items[:take])
		if fill := p.get(1, nil); fill != nil && i >= longer {
			col = append(col, fill)
		}
		out = append(out, &List{Items: col})
		items = items[take:]
	}
	return out
}

func (in *interp) itemPairs(v Value) []Value {
	switch v := v.(type) {
	case *undefined:
		return nil
	case *Dict:
		return in.pairs(v)
	}
	fail("can only get item pairs from a mapping, not %s", TypeName(v))
	return nil
}

// mapFilter applies map('filter', …) or map(attribute='path', default=…).
func (in *interp) mapFilter(v Value, a args) []Value {
	if len(a.pos) == 0 {
		p := a.bind("map", "attribute", "default")
		return in.mapItems(in.iterateOptional(v), in.getter(p.need(0), p.get(1, nil)))
	}
	name, ok := a.pos[0].(Text)
	if !ok {
		fail("map needs the name of a filter, not %s", TypeName(a.pos[0]))
	}
	rest := args{pos: a.pos[1:], names: a.names, vals: a.vals}
	return in.mapItems(in.iterateOptional(v), func(e Value) Value { return in.filter(name.s, e, rest) })
}

// iterateOptional is iterate for map and select, which take None and any other false value
// as an empty list.
func (in *interp) iterateOptional(v Value) []Value {
	if !truth(v) {
		return nil
	}
	return in.iterate(v)
}

// selectItems returns the items that select, reject, selectattr or rejectattr leave.
func (in *interp) selectItems(name string, v Value, a args) []Value {
	get := func(v Value) Value { return v }
	if strings.HasSuffix(name, "attr") {
		if len(a.pos) == 0 {
			fail("%s is missing the name of an attribute", name)
		}
		get = in.getter(a.pos[0], nil)
		a.pos = a.pos[1:]
	}
	test := truth
	if len(a.pos) > 0 {
		testName, ok := a.pos[0].(Text)
		if !ok {
			fail("%s needs the name of a test, not %s", name, TypeName(a.pos[0]))
		}
		rest := args{pos: a.pos[1:], names: a.names, vals: a.vals}
		test = func(v Value) bool { return in.test(testName.s, v, rest) }
	}
	want := strings.HasPrefix(name, "select")
	var out []Value
	for _, e := range in.iterateOptional(v) {
		in.budget.step(1)
		if test(get(e)) == want {
			in.budget.alloc(itemSize)
			out = append(out, e)
		}
	}
	return out
}
