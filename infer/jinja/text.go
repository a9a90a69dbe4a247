package jinja

import (
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Origin is where a piece of text came from. Origins above FromCaller are the caller's too: who
// renders a template uses them to find the pieces of the caller's text in the result.
type Origin int

const (
	FromTemplate Origin = iota
	FromCaller          // any value of the request
)

// mark is the origin of the bytes lo to hi of a text; bytes without a mark are the template's.
type mark struct {
	lo, hi int
	from   Origin
}

// Text is a string that records which of its bytes came from the caller. Marks are ordered,
// disjoint and not empty; adjacent ones differ in origin. A slice of a Text shares its marks:
// s starts at offset base of the marks, and the first and the last of them may extend
// beyond s.
type Text struct {
	s     string
	marks []mark
	base  int
	safe  bool // the filter safe was applied: + with an unsafe text escapes that text
}

// Literal returns a text of the template.
func Literal(s string) Text { return Text{s: s} }

// Marked returns a text of one origin.
func Marked(s string, from Origin) Text {
	if s == "" || from == FromTemplate {
		return Text{s: s}
	}
	return Text{s: s, marks: []mark{{0, len(s), from}}}
}

// WithOrigin returns a decoded value with all of its text of one origin, and reports whether it has text that is not
// white space.
func WithOrigin(v Value, from Origin) (marked Value, hasText bool) {
	switch v := v.(type) {
	case Text:
		return Marked(v.s, from), strings.TrimFunc(v.s, IsSpace) != ""
	case *List:
		list := &List{Items: make([]Value, len(v.Items))}
		for i, item := range v.Items {
			value, has := WithOrigin(item, from)
			list.Items[i], hasText = value, hasText || has
		}
		return list, hasText
	case *Dict:
		dict := NewDict()
		for i := range v.keys {
			key, named := WithOrigin(v.keys[i], from)
			value, has := WithOrigin(v.vals[i], from)
			dict.set(key, value)
			hasText = hasText || named || has
		}
		return dict, hasText
	}
	return v, false
}

// Slice returns the bytes lo to hi.
func (t Text) Slice(lo, hi int) Text {
	out := Text{s: t.s[lo:hi], base: t.base + lo, safe: t.safe}
	first := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].hi > t.base+lo })
	end := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].lo >= t.base+hi })
	if first < end {
		out.marks = t.marks[first:end]
	}
	return out
}

// String returns the text without its origins.
func (t Text) String() string { return t.s }

// Append returns t with s, all of it of one origin, after it.
func (t Text) Append(s string, from Origin) Text {
	var b builder
	b.text(t)
	b.add(s, from)
	return b.take()
}

// fromCaller reports whether any part of t is the caller's.
func (t Text) fromCaller() bool { return len(t.marks) > 0 }

// markedWhole returns t, all of which counts as the caller's if any part does, because
// quotes, brackets and escapes around data are not the template's text.
func (t Text) markedWhole() Text {
	if !t.fromCaller() {
		return t
	}
	var b builder
	t.runs(func(lo, hi int, from Origin) bool {
		b.setOrigin(lo, hi, max(from, FromCaller))
		return true
	})
	return Text{s: t.s, marks: b.marks, safe: t.safe}
}

// runes counts code points.
func (t Text) runes() int { return utf8.RuneCountInString(t.s) }

// offset returns the byte offset of code point i, which lies in [0, runes].
func (t Text) offset(i int) int {
	if i <= 0 {
		return 0
	}
	for at := range t.s {
		if i == 0 {
			return at
		}
		i--
	}
	return len(t.s)
}

// at returns the code point that starts at byte offset i.
func (t Text) at(i int) Text {
	_, n := utf8.DecodeRuneInString(t.s[i:])
	return t.Slice(i, i+n)
}

// runs calls yield for each maximal piece of one origin, until yield returns false.
func (t Text) runs(yield func(lo, hi int, from Origin) bool) {
	at := 0
	for _, m := range t.marks {
		lo, hi := max(m.lo-t.base, 0), min(m.hi-t.base, len(t.s))
		if at < lo && !yield(at, lo, FromTemplate) {
			return
		}
		if !yield(lo, hi, m.from) {
			return
		}
		at = hi
	}
	if at < len(t.s) {
		yield(at, len(t.s), FromTemplate)
	}
}

// Pieces calls yield for each maximal piece of one origin, until yield returns false.
func (t Text) Pieces(yield func(piece string, from Origin) bool) {
	t.runs(func(lo, hi int, from Origin) bool { return yield(t.s[lo:hi], from) })
}

// trim removes the code points for which cut is true from the chosen ends.
func (t Text) trim(left, right bool, cut func(rune) bool) Text {
	lo, hi := 0, len(t.s)
	if left {
		lo = hi - len(strings.TrimLeftFunc(t.s, cut))
	}
	if right {
		hi = lo + len(strings.TrimRightFunc(t.s[lo:], cut))
	}
	return t.Slice(lo, hi)
}

// IsSpace reports whether Python's str.isspace holds for r.
func IsSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// builder builds a text. If it has a budget, the text counts there.
type builder struct {
	buf    strings.Builder
	marks  []mark
	budget *budget
	output bool // the text is the prompt, not an intermediate string
}

// add appends s, all of it of one origin.
func (b *builder) add(s string, from Origin) {
	b.count(b.buf.Len()+len(s), len(s))
	b.setOrigin(b.buf.Len(), b.buf.Len()+len(s), from)
	b.buf.WriteString(s)
}

// count counts n new bytes of a text that has size bytes with them.
func (b *builder) count(size, n int) {
	if b.budget != nil {
		b.budget.checkSize(size, b.output)
		b.budget.alloc(n)
	}
}

// setOrigin sets the origin of the bytes lo to hi, which follow all marked bytes.
func (b *builder) setOrigin(lo, hi int, from Origin) {
	if from == FromTemplate || lo >= hi {
		return
	}
	if n := len(b.marks); n > 0 && b.marks[n-1].hi == lo && b.marks[n-1].from == from {
		b.marks[n-1].hi = hi
		return
	}
	if b.budget != nil {
		b.budget.alloc(markSize)
	}
	b.marks = append(b.marks, mark{lo, hi, from})
}

func (b *builder) literal(s string) { b.add(s, FromTemplate) }

func (b *builder) text(t Text) {
	t.runs(func(lo, hi int, from Origin) bool {
		b.add(t.s[lo:hi], from)
		return true
	})
}

// take returns the text. The builder must not be used afterwards.
func (b *builder) take() Text {
	return Text{s: b.buf.String(), marks: slices.Clip(b.marks)}
}

func (in *interp) builder() *builder { return &builder{budget: in.budget} }

// concat joins texts.
func (in *interp) concat(parts ...Text) Text {
	b := in.builder()
	for _, p := range parts {
		b.text(p)
	}
	return b.take()
}

// repeat returns n copies of t.
func (in *interp) repeat(t Text, n int) Text {
	b := in.builder()
	if t.s != "" {
		for range n {
			in.budget.step(1)
			b.text(t)
		}
	}
	out := b.take()
	out.safe = t.safe
	return out
}

// runeText returns r as a string, without an allocation for ASCII.
func runeText(r rune) string {
	if r >= 0 && r < utf8.RuneSelf {
		return ascii[r : r+1]
	}
	return string(r)
}

var ascii = func() string {
	var all [utf8.RuneSelf]byte
	for i := range all {
		all[i] = byte(i)
	}
	return string(all[:])
}()

// countEvery is the number of bytes after which mapRunes counts what it has written.
const countEvery = 4096

// mapRunes replaces each code point r at byte offset i by f(i, r), which has the origin of r.
func (in *interp) mapRunes(t Text, f func(i int, r rune) string) Text {
	in.budget.scan(len(t.s))
	b := in.builder()
	b.buf.Grow(len(t.s))
	t.runs(func(lo, hi int, from Origin) bool {
		begin := b.buf.Len()
		counted := begin
		for i, r := range t.s[lo:hi] {
			b.buf.WriteString(f(lo+i, r))
			if n := b.buf.Len() - counted; n >= countEvery {
				b.count(b.buf.Len(), n)
				counted += n
			}
		}
		b.count(b.buf.Len(), b.buf.Len()-counted)
		b.setOrigin(begin, b.buf.Len(), from)
		return true
	})
	out := b.take()
	out.safe = t.safe
	return out
}

// cut is the place of one separator in a text.
type cut struct{ lo, hi int }

// find returns the places of sep, from the left and without overlap, at most n of them
// unless n is negative.
func (in *interp) find(s, sep string, n int) []cut {
	in.budget.scan(len(s))
	var cuts []cut
	for at := 0; n != 0; n-- {
		i := strings.Index(s[at:], sep)
		if i < 0 {
			break
		}
		cuts = append(cuts, cut{at + i, at + i + len(sep)})
		at += i + len(sep)
		in.budget.alloc(itemSize)
	}
	return cuts
}

// findLast finds from the right, and returns the places from the left.
func (in *interp) findLast(s, sep string, n int) []cut {
	in.budget.scan(len(s))
	var cuts []cut
	for end := len(s); n != 0; n-- {
		i := strings.LastIndex(s[:end], sep)
		if i < 0 {
			break
		}
		cuts = append(cuts, cut{i, i + len(sep)})
		end = i
		in.budget.alloc(itemSize)
	}
	slices.Reverse(cuts)
	return cuts
}

// pieces returns the parts of t between the cuts.
func (in *interp) pieces(t Text, cuts []cut) []Value {
	in.budget.alloc((len(cuts) + 1) * (itemSize + valueSize))
	out := make([]Value, 0, len(cuts)+1)
	at := 0
	for _, c := range cuts {
		out = append(out, t.Slice(at, c.lo))
		at = c.hi
	}
	return append(out, t.Slice(at, len(t.s)))
}

// replace replaces old by with, at most n times unless n is negative.
func (in *interp) replace(t, old, with Text, n int) Text {
	if t.s == "" && old.s != "" {
		return t
	}
	var cuts []cut
	if old.s == "" { // before each code point, and at the end
		in.budget.alloc((in.length(t) + 1) * itemSize)
		for i := range t.s {
			cuts = append(cuts, cut{i, i})
		}
		cuts = append(cuts, cut{len(t.s), len(t.s)})
		if n >= 0 && n < len(cuts) {
			cuts = cuts[:n]
		}
	} else {
		cuts = in.find(t.s, old.s, n)
	}
	if len(cuts) == 0 {
		return t
	}
	b := in.builder()
	at := 0
	for _, c := range cuts {
		in.budget.step(1)
		b.text(t.Slice(at, c.lo))
		b.text(with)
		at = c.hi
	}
	b.text(t.Slice(at, len(t.s)))
	out := b.take()
	out.safe = t.safe
	return out
}

// words splits at white space as Python's str.split() does, at most n times
// unless n is negative.
func (in *interp) words(t Text, n int, fromRight bool) []Value {
	in.budget.scan(len(t.s))
	var out []Value
	rest := t.trim(!fromRight, fromRight, IsSpace)
	for rest.s != "" {
		in.budget.alloc(itemSize + valueSize)
		if n == 0 {
			out = append(out, rest.trim(fromRight, !fromRight, IsSpace))
			break
		}
		n--
		if fromRight {
			i := strings.LastIndexFunc(rest.s, IsSpace)
			lo := 0
			if i >= 0 {
				_, size := utf8.DecodeRuneInString(rest.s[i:])
				lo = i + size
			}
			out = append(out, rest.Slice(lo, len(rest.s)))
			rest = rest.Slice(0, lo).trim(false, true, IsSpace)
			continue
		}
		hi := strings.IndexFunc(rest.s, IsSpace)
		if hi < 0 {
			hi = len(rest.s)
		}
		out = append(out, rest.Slice(0, hi))
		rest = rest.Slice(hi, len(rest.s)).trim(true, false, IsSpace)
	}
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

// lines splits as Python's str.splitlines does.
func (in *interp) lines(t Text, keepEnds bool) []Value {
	in.budget.scan(len(t.s))
	var out []Value
	start := 0
	for i := 0; i < len(t.s); {
		r, size := utf8.DecodeRuneInString(t.s[i:])
		if !isLineBreak(r) {
			i += size
			continue
		}
		end := i + size
		if r == '\r' && end < len(t.s) && t.s[end] == '\n' {
			end++
		}
		if keepEnds {
			out = append(out, t.Slice(start, end))
		} else {
			out = append(out, t.Slice(start, i))
		}
		in.budget.alloc(itemSize + valueSize)
		start, i = end, end
	}
	if start < len(t.s) {
		out = append(out, t.Slice(start, len(t.s)))
	}
	return out
}

func isLineBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// upperRune returns r in upper case. Like Python, it returns several code points where
// Unicode's special casing says so, for Latin script only.
func upperRune(r rune) string {
	if r < utf8.RuneSelf {
		return runeText(unicode.ToUpper(r))
	}
	if s, ok := specialUpper[r]; ok {
		return s
	}
	return runeText(unicode.ToUpper(r))
}

var specialUpper = map[rune]string{
	'ß': "SS", 'ŉ': "ʼN", 'ǰ': "J̌", 'ẖ': "H̱", 'ẗ': "T̈", 'ẘ': "W̊", 'ẙ': "Y̊", 'ẚ': "Aʾ",
	'ﬀ': "FF", 'ﬁ': "FI", 'ﬂ': "FL", 'ﬃ': "FFI", 'ﬄ': "FFL", 'ﬅ': "ST", 'ﬆ': "ST",
}

func titleRune(r rune) string {
	if s, ok := specialUpper[r]; ok {
		if head, size := utf8.DecodeRuneInString(s); isCased(head) {
			return string(head) + strings.ToLower(s[size:])
		}
		return s
	}
	return runeText(unicode.ToTitle(r))
}

// lowerRune returns the code point r at byte offset i of s in lower case. A sigma at the
// end of a word has its own form.
func lowerRune(s string, i int, r rune) string {
	switch r {
	case 'İ':
		return "i̇"
	case 'Σ':
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		after, _ := utf8.DecodeRuneInString(s[i+utf8.RuneLen(r):])
		if isCased(before) && !isCased(after) {
			return "ς"
		}
	}
	return runeText(unicode.ToLower(r))
}

// isUpper, isLower and isCased follow Python, which reads properties: some code points,
// such as Roman numerals, have case without being letters.
func isUpper(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Other_Uppercase) }
func isLower(r rune) bool { return unicode.In(r, unicode.Ll, unicode.Other_Lowercase) }
func isCased(r rune) bool { return isUpper(r) || isLower(r) || unicode.IsTitle(r) }

func (in *interp) upper(t Text) Text {
	return in.mapRunes(t, func(_ int, r rune) string { return upperRune(r) })
}

func (in *interp) lower(t Text) Text {
	return in.mapRunes(t, func(i int, r rune) string { return lowerRune(t.s, i, r) })
}

func (in *interp) capitalize(t Text) Text {
	return in.mapRunes(t, func(i int, r rune) string {
		if i == 0 {
			return titleRune(r)
		}
		return lowerRune(t.s, i, r)
	})
}

// title evaluates Python's str.title: a letter after a letter becomes lower case, any other
// title case.
func (in *interp) title(t Text) Text {
	inWord := false
	return in.mapRunes(t, func(i int, r rune) string {
		was := inWord
		inWord = isCased(r)
		if was {
			return lowerRune(t.s, i, r)
		}
		return titleRune(r)
	})
}

func (in *interp) swapcase(t Text) Text {
	return in.mapRunes(t, func(i int, r rune) string {
		switch {
		case isUpper(r):
			return lowerRune(t.s, i, r)
		case isLower(r):
			return upperRune(r)
		}
		return runeText(r)
	})
}

// escapeHTML returns t with the escapes of HTML, marked as safe.
func (in *interp) escapeHTML(t Text) Text {
	out := t
	if strings.ContainsAny(t.s, `&<>"'`) {
		out = in.mapRunes(t, func(_ int, r rune) string {
			switch r {
			case '&':
				return "&amp;"
			case '<':
				return "&lt;"
			case '>':
				return "&gt;"
			case '"':
				return "&#34;"
			case '\'':
				return "&#39;"
			}
			return runeText(r)
		})
	}
	out.safe = true
	return out
}

// pad adds fill characters up to width code points, of which left(n) of all n go before t.
func (in *interp) pad(t Text, width int, fill Text, left func(n int) int) Text {
	n := width - t.runes()
	if n <= 0 {
		return t
	}
	before := left(n)
	out := in.concat(in.repeat(fill, before), t, in.repeat(fill, n-before))
	out.safe = t.safe
	return out
}
