package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// percentFormat evaluates Python's t % v.
func (in *interp) percentFormat(t text, v value) text {
	in.budget.scan(len(t.s))
	f := &percentFormatter{in: in, format: t, items: []value{v}}
	f.mapping, _ = v.(*dict)
	allowUnused := f.mapping != nil // of values that can be indexed, items may be left over
	switch v := v.(type) {
	case *list:
		if allowUnused = !v.tuple; v.tuple {
			f.items = v.items
		}
	case *undefined:
		allowUnused = true
	}
	b := in.builder()
	for f.at < len(t.s) {
		i := strings.IndexByte(t.s[f.at:], '%')
		if i < 0 {
			b.text(t.slice(f.at, len(t.s)))
			break
		}
		b.text(t.slice(f.at, f.at+i))
		f.at += i + 1
		in.budget.step(1)
		b.text(f.conversion())
	}
	if !allowUnused && f.used < len(f.items) {
		fail("not all arguments converted during string formatting")
	}
	return b.take()
}

// percentFormatter reads the conversions of a format string of the operator %.
type percentFormatter struct {
	in      *interp
	format  text
	at      int     // byte offset in format
	items   []value // the arguments
	used    int     // of items
	mapping *dict   // the argument of conversions with a key; nil: not a dict
}

// next returns the next argument.
func (f *percentFormatter) next() value {
	if f.used >= len(f.items) {
		fail("not enough arguments for format string")
	}
	f.used++
	return f.items[f.used-1]
}

// peek returns the next byte of the format, 0 at its end.
func (f *percentFormatter) peek() byte {
	if f.at < len(f.format.s) {
		return f.format.s[f.at]
	}
	return 0
}

// conversion reads what follows a % and formats its argument.
func (f *percentFormatter) conversion() text {
	arg := f.next
	if f.peek() == '(' {
		arg = f.key()
	}
	spec := spec{align: '>', precision: -1}
	f.flags(&spec)
	spec.width = f.number()
	if spec.width < 0 {
		spec.align, spec.width = '<', -spec.width
	}
	if f.peek() == '.' {
		f.at++
		spec.precision = max(f.number(), 0)
	}
	for c := f.peek(); c == 'h' || c == 'l' || c == 'L'; c = f.peek() {
		f.at++
	}
	if f.at >= len(f.format.s) {
		fail("incomplete format")
	}
	spec.verb = rune(f.peek())
	f.at++
	if spec.verb == '%' {
		return f.format.slice(f.at-1, f.at)
	}
	if spec.align == '<' {
		spec.zero = false
	}
	return f.in.percentItem(spec, arg())
}

// key reads (KEY) and returns a function that looks KEY up.
func (f *percentFormatter) key() func() value {
	end := strings.IndexByte(f.format.s[f.at:], ')')
	if end < 0 {
		fail("incomplete format key")
	}
	if f.mapping == nil {
		fail("format requires a mapping")
	}
	key := f.format.slice(f.at+1, f.at+end)
	f.used = len(f.items)
	f.at += end + 1
	return func() value {
		v, ok := f.in.get(f.mapping, key)
		if !ok {
			fail("format: no key '%s'", key.s)
		}
		return v
	}
}

func (f *percentFormatter) flags(s *spec) {
	for ; ; f.at++ {
		switch f.peek() {
		case '-':
			s.align = '<'
		case '0':
			s.zero = true
		case '#':
			s.alternate = true
		case '+':
			s.sign = '+'
		case ' ':
			if s.sign == 0 {
				s.sign = ' '
			}
		default:
			return
		}
	}
}

// number reads a width or a precision: digits, or * for the next argument.
func (f *percentFormatter) number() int {
	if f.peek() == '*' {
		f.at++
		n, ok := smallInt(f.next())
		if !ok {
			fail("* wants int")
		}
		return int(min(max(n, -maxSlice), maxSlice))
	}
	n, size := leadingInt(f.format.s[f.at:])
	f.at += size
	return n
}

func leadingInt(s string) (n, size int) {
	for size < len(s) && s[size] >= '0' && s[size] <= '9' {
		n = min(n*10+int(s[size]-'0'), maxSlice)
		size++
	}
	return n, size
}

func (in *interp) percentItem(f spec, v value) text {
	switch f.verb {
	case 's', 'r', 'a':
		f.zero = false
		t := in.str(v)
		switch f.verb {
		case 'r':
			t = in.reprOf(v)
		case 'a':
			t = in.asciiOf(v)
		}
		f.verb = 's'
		return in.formatText(f, t)
	case 'c':
		if i, ok := smallInt(v); ok {
			return in.formatText(f, character(i))
		}
		if t, ok := v.(text); ok && t.runes() == 1 {
			return in.formatText(f, t)
		}
		fail("%%c requires int or char")
	case 'd', 'i', 'u', 'x', 'X', 'o':
		if f.verb == 'i' || f.verb == 'u' {
			f.verb = 'd'
		}
		if x, ok := v.(float64); ok && f.verb == 'd' {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				fail("cannot convert float %s to integer", formatFloat(x))
			}
			i, _ := big.NewFloat(x).Int(nil)
			v = in.normalize(i)
		}
		i, ok := integer(v)
		if !ok {
			fail("%%%c format: an integer is required, not %s", f.verb, typeName(v))
		}
		return in.formatInt(f, i)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		x, ok := float(v)
		if !ok {
			fail("must be real number, not %s", typeName(v))
		}
		return in.formatReal(f, x)
	}
	fail("unsupported format character '%c'", f.verb)
	return text{}
}

// reprOf returns Python's repr(v).
func (in *interp) reprOf(v value) text {
	b := in.builder()
	in.repr(b, v)
	return b.take().markedWhole()
}

// asciiOf returns Python's ascii(v): repr(v) with escapes for code points beyond ASCII.
func (in *interp) asciiOf(v value) text {
	return in.mapRunes(in.reprOf(v), func(_ int, r rune) string {
		if r < utf8.RuneSelf {
			return runeText(r)
		}
		return escapeRune(r)
	})
}

// braceFormat evaluates Python's t.format(a).
func (in *interp) braceFormat(t text, a args) text {
	b := in.builder()
	in.formatInto(b, t, a, &numbering{}, 2)
	return b.take()
}

// numbering numbers the fields that name no argument. A format string cannot have both
// such fields and fields with a number.
type numbering struct {
	next   int  // argument of the next field without a number
	manual bool // there are fields with a number
}

func (in *interp) formatInto(b *builder, t text, a args, auto *numbering, depth int) {
	if depth == 0 {
		fail("max string recursion exceeded")
	}
	in.budget.scan(len(t.s))
	s := t.s
	for at := 0; at < len(s); {
		i := strings.IndexAny(s[at:], "{}")
		if i < 0 {
			b.text(t.slice(at, len(s)))
			return
		}
		b.text(t.slice(at, at+i))
		at += i
		if at+1 < len(s) && s[at+1] == s[at] {
			b.text(t.slice(at, at+1))
			at += 2
			continue
		}
		if s[at] == '}' {
			fail("single '}' encountered in format string")
		}
		end, open := at+1, 1
		for ; end < len(s); end++ {
			if s[end] == '{' {
				open++
			} else if s[end] == '}' {
				if open--; open == 0 {
					break
				}
			}
		}
		if open > 0 {
			fail("expected '}' before end of string")
		}
		in.budget.step(1)
		b.text(in.field(t.slice(at+1, end), a, auto, depth))
		at = end + 1
	}
}

// field formats one replacement field: name, conversion and format.
func (in *interp) field(t text, a args, auto *numbering, depth int) text {
	name, format := t, text{}
	if i := fieldEnd(t.s, ':'); i >= 0 {
		name, format = t.slice(0, i), t.slice(i+1, len(t.s))
	}
	conversion := ""
	if i := fieldEnd(name.s, '!'); i >= 0 {
		conversion = name.s[i+1:]
		name = name.slice(0, i)
	}
	v := in.fieldValue(name, a, auto)
	if strings.Contains(format.s, "{") {
		nested := in.builder()
		in.formatInto(nested, format, a, auto, depth-1)
		format = nested.take()
	}
	switch conversion {
	case "":
	case "s":
		v = in.str(v)
	case "r":
		v = in.reprOf(v)
	case "a":
		v = in.asciiOf(v)
	default:
		fail("unknown conversion specifier '%s'", conversion)
	}
	out := in.formatSpec(v, format.s)
	if format.fromCaller() { // the output may consist of the caller's fill characters
		out = marked(out.s, fromCaller)
	}
	return out
}

// fieldEnd returns the offset of c outside of brackets; -1 if there is none.
func fieldEnd(s string, c byte) int {
	open := false
	for i := range len(s) {
		switch {
		case s[i] == '[':
			open = true
		case s[i] == ']':
			open = false
		case s[i] == c && !open:
			return i
		}
	}
	return -1
}

// fieldValue looks up a field name such as 0.content[1].
func (in *interp) fieldValue(t text, a args, auto *numbering) value {
	n := strings.IndexAny(t.s, ".[")
	if n < 0 {
		n = len(t.s)
	}
	first, rest := t.s[:n], t.slice(n, len(t.s))
	var v value
	index, err := strconv.Atoi(first)
	switch {
	case first == "" || err == nil:
		if first == "" {
			index = auto.next
			auto.next++
		} else {
			auto.manual = true
		}
		if auto.manual && auto.next > 0 {
			fail("a format string cannot number some fields and leave others to be numbered")
		}
		if index < 0 || index >= len(a.pos) {
			fail("replacement index %d out of range for positional args tuple", index)
		}
		v = a.pos[index]
	default:
		in.budget.step(1 + len(a.names)/16)
		found := false
		for i, name := range a.names {
			if name.s == first {
				v, found = a.vals[i], true
			}
		}
		if !found {
			fail("format: no argument named '%s'", first)
		}
	}
	for rest.s != "" {
		in.budget.step(1)
		if rest.s[0] == '.' {
			n := strings.IndexAny(rest.s[1:], ".[") + 1
			if n == 0 {
				n = len(rest.s)
			}
			v = in.attr(v, rest.s[1:n])
			rest = rest.slice(n, len(rest.s))
			continue
		}
		n := strings.IndexByte(rest.s, ']')
		if rest.s[0] != '[' || n < 0 {
			fail("only '.' or '[' may follow a name in a format field")
		}
		var key value = rest.slice(1, n)
		if i, err := strconv.ParseInt(rest.s[1:n], 10, 64); err == nil {
			key = i
		}
		v = in.item(v, key)
		rest = rest.slice(n+1, len(rest.s))
	}
	return v
}

// character returns the code point i as text. It counts as the caller's, because numbers
// have no origin and the caller could spell any text with them.
func character(i int64) text {
	if i < 0 || i > unicode.MaxRune {
		fail("%d is not a character: it must be in 0 to 0x10ffff", i)
	}
	return marked(string(rune(i)), fromCaller)
}

// spec is a format specification of Python.
type spec struct {
	fill      string
	align     byte // < > = ^; 0 for that of the type
	sign      byte // + or blank; 0 for minus only
	alternate bool
	zero      bool
	width     int
	group     byte // , or _; 0 for none
	precision int  // -1 for none
	verb      rune // 0 for none
}

func parseSpec(s string) spec {
	whole := s
	f := spec{precision: -1}
	r, size := utf8.DecodeRuneInString(s)
	if size > 0 && size < len(s) && strings.IndexByte("<>=^", s[size]) >= 0 {
		f.fill, f.align = string(r), s[size]
		s = s[size+1:]
	} else if s != "" && strings.IndexByte("<>=^", s[0]) >= 0 {
		f.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		if s[0] != '-' {
			f.sign = s[0]
		}
		s = s[1:]
	}
	if strings.HasPrefix(s, "#") {
		f.alternate, s = true, s[1:]
	}
	if strings.HasPrefix(s, "0") {
		f.zero, s = true, s[1:]
	}
	n, size := leadingInt(s)
	f.width, s = n, s[size:]
	if s != "" && (s[0] == ',' || s[0] == '_') {
		f.group, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, ".") {
		n, size := leadingInt(s[1:])
		if size == 0 {
			fail("format specifier missing precision")
		}
		f.precision, s = n, s[1+size:]
	}
	if s != "" {
		r, size := utf8.DecodeRuneInString(s)
		f.verb, s = r, s[size:]
	}
	if s != "" {
		fail("invalid format specifier '%s'", whole)
	}
	return f
}

// formatSpec evaluates Python's format(v, s).
func (in *interp) formatSpec(v value, s string) text {
	if s == "" {
		return in.str(v)
	}
	f := parseSpec(s)
	switch v := v.(type) {
	case text:
		if f.verb != 0 && f.verb != 's' || f.sign != 0 || f.align == '=' || f.group != 0 || f.alternate {
			fail("invalid format specifier '%s' for a string", s)
		}
		if f.zero && f.fill == "" {
			f.fill = "0"
		}
		f.zero = false
		if f.align == 0 {
			f.align = '<'
		}
		return in.formatText(f, v)
	case float64:
		return in.formatReal(f, v)
	}
	i, ok := integer(v)
	if !ok {
		fail("unsupported format string passed to %s.__format__", typeName(v))
	}
	switch f.verb {
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		x, _ := float(v)
		return in.formatReal(f, x)
	case 0, 'd', 'n', 'x', 'X', 'o', 'b', 'c':
		if f.precision >= 0 {
			fail("precision is not allowed in the format of an integer")
		}
		if f.verb != 'c' {
			return in.formatInt(f, i)
		}
		return in.formatText(f, character(i.Int64()))
	}
	fail("unknown format code '%c' for an integer", f.verb)
	return text{}
}

// formatText truncates and pads a string.
func (in *interp) formatText(f spec, t text) text {
	if f.precision >= 0 {
		in.budget.scan(len(t.s))
		t = t.slice(0, t.offset(f.precision))
	}
	return in.align(f, t, '>')
}

func (in *interp) align(f spec, t text, otherwise byte) text {
	in.budget.checkSize(f.width, false)
	fill := f.fill
	if fill == "" {
		fill = " "
	}
	by := f.align
	if by == 0 {
		by = otherwise
	}
	return in.pad(t, f.width, literal(fill), func(n int) int {
		switch by {
		case '<':
			return 0
		case '^':
			return n / 2
		}
		return n
	})
}

// formatDigits puts sign, prefix and fill characters before the digits of a number.
func (in *interp) formatDigits(f spec, negative bool, prefix, digits string) text {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case f.sign != 0:
		sign = string(f.sign)
	}
	in.budget.checkSize(f.width, false)
	if f.group != 0 {
		digits = grouped(digits, f)
	}
	if f.zero && f.fill == "" && f.align != '<' && f.align != '^' {
		f.fill, f.align = "0", '='
	}
	if f.align == '=' {
		rest := f
		rest.width -= len(sign) + len(prefix)
		rest.align = '>'
		return in.concat(literal(sign+prefix), in.align(rest, literal(digits), '>'))
	}
	return in.align(f, literal(sign+prefix+digits), '>')
}

// grouped puts a separator between groups of three digits, or of four for other bases than 10.
func grouped(digits string, f spec) string {
	size := 3
	if f.verb == 'x' || f.verb == 'X' || f.verb == 'o' || f.verb == 'b' {
		size = 4
	}
	whole := strings.IndexFunc(digits, func(r rune) bool { return r == '.' || r == 'e' || r == 'E' })
	if whole < 0 || size == 4 {
		whole = len(digits)
	}
	var b strings.Builder
	for i := range whole {
		if i > 0 && (whole-i)%size == 0 {
			b.WriteByte(f.group)
		}
		b.WriteByte(digits[i])
	}
	return b.String() + digits[whole:]
}

func (in *interp) formatInt(f spec, i *big.Int) text {
	base, prefix := 10, ""
	switch f.verb {
	case 'x', 'X':
		base, prefix = 16, "0"+string(f.verb)
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	if !f.alternate {
		prefix = ""
	}
	in.allocDigits(i)
	digits := new(big.Int).Abs(i).Text(base)
	if f.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if f.precision > len(digits) {
		in.budget.checkSize(f.precision, false)
		digits = strings.Repeat("0", f.precision-len(digits)) + digits
	}
	return in.formatDigits(f, i.Sign() < 0, prefix, digits)
}

const maxPrecision = 1 << 12

func (in *interp) formatReal(f spec, x float64) text {
	negative := math.Signbit(x) && !math.IsNaN(x)
	x = math.Abs(x)
	if f.precision > maxPrecision {
		throw(overLimit("string", maxPrecision, "digits of a number"))
	}
	precision := f.precision
	if precision < 0 {
		precision = 6
	}
	var digits string
	switch {
	case math.IsInf(x, 0) || math.IsNaN(x):
		digits = formatFloat(x)
		if f.zero {
			f.zero = false
		}
	case f.verb == 0 && f.precision < 0:
		digits = formatFloat(x)
	case f.verb == 'f' || f.verb == 'F':
		digits = strconv.FormatFloat(x, 'f', precision, 64)
	case f.verb == '%':
		digits = strconv.FormatFloat(x*100, 'f', precision, 64) + "%"
	case f.verb == 'e' || f.verb == 'E':
		digits = strconv.FormatFloat(x, byte(f.verb), precision, 64)
	case f.verb == 'g' || f.verb == 'G' || f.verb == 0:
		digits = formatGeneral(x, max(precision, 1), f.alternate)
		if f.verb == 'G' {
			digits = strings.ToUpper(digits)
		}
		if f.verb == 0 && !strings.ContainsAny(digits, ".e") {
			digits += ".0"
		}
	default:
		fail("unknown format code '%c' for a float", f.verb)
	}
	return in.formatDigits(f, negative, "", digits)
}

// formatGeneral formats x as C's %g; precision counts significant digits.
func formatGeneral(x float64, precision int, keepZeros bool) string {
	s := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, e, _ := strings.Cut(s, "e")
	exponent, _ := strconv.Atoi(e)
	suffix := "e" + e
	if exponent >= -4 && exponent < precision {
		mantissa, suffix = strconv.FormatFloat(x, 'f', precision-1-exponent, 64), ""
	}
	if !keepZeros && strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + suffix
}
