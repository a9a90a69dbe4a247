package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// percentFormat evaluates Python's t % v with the conversions that chat templates use: %s, %d, %x and %f, the flags - and
// 0, a width, and a precision of %f. Others are refused by their names.
func (in *interp) percentFormat(t Text, v Value) Text {
	in.budget.scan(len(t.s))
	items, mayRemain := []Value{v}, false // of values that can be indexed, items may be left over
	switch v := v.(type) {
	case *List:
		if mayRemain = !v.tuple; v.tuple {
			items = v.Items
		}
	case *Dict, *undefined:
		mayRemain = true
	}
	b, at := in.builder(), 0
	for {
		i := strings.IndexByte(t.s[at:], '%')
		if i < 0 {
			break
		}
		b.text(t.Slice(at, at+i))
		in.budget.step(1)
		c := parseConversion(t.s[at+i:])
		at += i + c.size
		if c.verb == '%' {
			b.text(t.Slice(at-1, at))
			continue
		}
		if len(items) == 0 {
			fail("not enough arguments for format string")
		}
		b.text(in.convert(c, items[0]))
		items = items[1:]
	}
	if !mayRemain && len(items) > 0 {
		fail("not all arguments converted during string formatting")
	}
	b.text(t.Slice(at, len(t.s)))
	return b.take()
}

// conversion is what a format string has for one argument, such as %-5s.
type conversion struct {
	left      bool // aligned to the left
	zero      bool // filled with zeros
	width     int
	precision int  // -1 for none
	verb      rune // s, d, x or f; % for a percent sign
	size      int  // bytes of the conversion
}

// parseConversion reads the conversion at the beginning of s.
func parseConversion(s string) conversion {
	c := conversion{precision: -1, size: 1}
	for ; c.size < len(s) && (s[c.size] == '-' || s[c.size] == '0'); c.size++ {
		c.left = c.left || s[c.size] == '-'
		c.zero = c.zero || s[c.size] == '0'
	}
	c.width = c.number(s)
	if strings.HasPrefix(s[c.size:], ".") {
		c.size++
		c.precision = c.number(s)
	}
	if c.size >= len(s) {
		fail("incomplete format")
	}
	verb, n := utf8.DecodeRuneInString(s[c.size:])
	c.verb = verb
	c.size += n
	if !strings.ContainsRune("sdxf%", verb) || c.precision >= 0 && verb != 'f' {
		fail("the format %s is not supported: templates can use %%s, %%d, %%x and %%f with a width, as in %%5.1f, %%-5s and %%02d", s[:c.size])
	}
	return c
}

// number reads the digits at the end of what was read of s.
func (c *conversion) number(s string) int {
	n := 0
	for ; c.size < len(s) && s[c.size] >= '0' && s[c.size] <= '9'; c.size++ {
		n = min(n*10+int(s[c.size]-'0'), maxSlice)
	}
	return n
}

func (in *interp) convert(c conversion, v Value) Text {
	in.budget.checkSize(c.width, false)
	if c.verb == 's' {
		return in.align(c, in.str(v))
	}
	sign, digits := "", ""
	if x, ok := float(v); ok && c.verb == 'f' {
		if math.Signbit(x) && !math.IsNaN(x) {
			sign = "-"
		}
		digits = fixed(math.Abs(x), c.precision)
	} else if c.verb == 'f' {
		fail("must be real number, not %s", TypeName(v))
	} else {
		i := in.whole(c.verb, v)
		in.allocDigits(i)
		if i.Sign() < 0 {
			sign = "-"
		}
		digits = new(big.Int).Abs(i).Text(map[rune]int{'d': 10, 'x': 16}[c.verb])
	}
	if c.zero && !c.left {
		return in.concat(Literal(sign), in.pad(Literal(digits), c.width-len(sign), Literal("0"), func(n int) int { return n }))
	}
	return in.align(c, Literal(sign+digits))
}

const maxPrecision = 1 << 12

// fixed returns the digits of x, which is not negative, with so many after the point: 6 if precision is negative.
func fixed(x float64, precision int) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return formatFloat(x)
	}
	if precision > maxPrecision {
		throw(overLimit("string", maxPrecision, "digits of a number"))
	}
	if precision < 0 {
		precision = 6
	}
	return strconv.FormatFloat(x, 'f', precision, 64)
}

// whole returns the integer that %d or %x writes for v; %d cuts the fraction of other numbers.
func (in *interp) whole(verb rune, v Value) *big.Int {
	if x, ok := v.(float64); ok && verb == 'd' {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			fail("cannot convert float %s to integer", formatFloat(x))
		}
		i, _ := big.NewFloat(x).Int(nil)
		return i
	}
	i, ok := integer(v)
	if !ok {
		fail("%%%c format: an integer is required, not %s", verb, TypeName(v))
	}
	return i
}

func (in *interp) align(c conversion, t Text) Text {
	return in.pad(t, c.width, Literal(" "), func(n int) int {
		if c.left {
			return 0
		}
		return n
	})
}

// braceFormat evaluates Python's t.format(a) with the fields that chat templates use: {} and {0}. Others are refused by
// their names.
func (in *interp) braceFormat(t Text, a args) Text {
	in.budget.scan(len(t.s))
	b, at, numbers := in.builder(), 0, numbering{}
	for {
		i := strings.IndexAny(t.s[at:], "{}")
		if i < 0 {
			b.text(t.Slice(at, len(t.s)))
			return b.take()
		}
		b.text(t.Slice(at, at+i))
		at += i
		rest := t.s[at:]
		if strings.HasPrefix(rest, "{{") || strings.HasPrefix(rest, "}}") {
			b.text(t.Slice(at, at+1))
			at += 2
			continue
		}
		if rest[0] == '}' {
			fail("single '}' encountered in format string")
		}
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			fail("expected '}' before end of string")
		}
		in.budget.step(1)
		index := numbers.index(rest[1:end])
		if index >= len(a.pos) {
			fail("replacement index %d out of range for positional args tuple", index)
		}
		b.text(in.str(a.pos[index]))
		at += end + 1
	}
}

// numbering numbers the fields {}. A format string cannot have both such fields and fields with a number.
type numbering struct{ automatic, manual int }

func (n *numbering) index(field string) int {
	index := n.automatic
	if field == "" {
		n.automatic++
	} else {
		i, err := strconv.ParseUint(field, 10, 31)
		if err != nil {
			fail("the field {%s} is not supported: templates can use {} and {0}", field)
		}
		index = int(i)
		n.manual++
	}
	if n.automatic > 0 && n.manual > 0 {
		fail("a format string cannot number some fields and leave others to be numbered")
	}
	return index
}
