package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern is a regular expression of ECMA-262, without back-references.
type pattern struct {
	op       op          // opSet, opSequence, opAlternatives, opRepeat; assertions if it is not plain
	set      []runeRange // opSet
	list     []*pattern
	min, max int  // opRepeat; max is unbounded for any number
	anything bool // opRepeat of any character, in place of a missing anchor
	negative bool // opLook
}

// Assertions: parts of patterns that match no character.
const (
	opLook        op = iota + opRepeat + 1 // a lookahead
	opStart                                // ^
	opEnd                                  // $
	opUnsupported                          // a lookbehind or word boundary, which is ignored
)

// parsePlainPattern parses a regular expression as a pattern of whole strings, with any text
// in place of a missing anchor. It returns an error if the expression is not plain: if it has
// lookarounds or word boundaries, or ^ and $ elsewhere than at the ends of an outermost alternative.
func parsePlainPattern(text string) (*pattern, error) { return readPattern(text, true) }

// parsePattern parses any regular expression, which matches somewhere in a string.
func parsePattern(text string) (*pattern, error) { return readPattern(text, false) }

func readPattern(text string, plain bool) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(text), maxPattern)
	}
	p := &patternParser{text: text, plain: plain}
	list, err := p.alternatives(plain)
	if err != nil {
		return nil, err
	}
	if p.at < len(p.text) {
		return nil, errors.New("a closing parenthesis has no opening one")
	}
	return list, nil
}

const maxPattern = 4096

type patternParser struct {
	text  string
	plain bool
	at    int
	depth int
}

func (p *patternParser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *patternParser) take(prefix string) bool {
	if strings.HasPrefix(p.text[p.at:], prefix) {
		p.at += len(prefix)
		return true
	}
	return false
}

func anyString() *pattern {
	return &pattern{op: opRepeat, list: []*pattern{{op: opSet, set: anyRune}}, max: unbounded, anything: true}
}

// alternatives reads up to a closing parenthesis or the end. Outermost alternatives may have
// anchors.
func (p *patternParser) alternatives(outermost bool) (*pattern, error) {
	all := &pattern{op: opAlternatives}
	for {
		s := &pattern{op: opSequence}
		if outermost && !p.take("^") {
			s.list = append(s.list, anyString())
		}
		ends := false
		for p.at < len(p.text) && p.peek() != '|' && p.peek() != ')' {
			if outermost && p.peek() == '$' {
				p.at++
				ends = true
				break
			}
			item, err := p.item()
			if err != nil {
				return nil, err
			}
			s.list = append(s.list, item)
		}
		if outermost && !ends {
			s.list = append(s.list, anyString())
		}
		all.list = append(all.list, s)
		if !p.take("|") {
			if ends && p.at < len(p.text) && p.peek() != ')' {
				return nil, errAnchor
			}
			return all, nil
		}
	}
}

var errAnchor = errors.New("^ and $ are supported at the ends of the pattern, or of its outermost alternatives, only")

// item reads an atom and its quantifiers.
func (p *patternParser) item() (*pattern, error) {
	atom, err := p.atom()
	if err != nil {
		return nil, err
	}
	low, high, ok, err := p.quantifier()
	if err != nil || !ok {
		return atom, err
	}
	p.take("?") // a lazy quantifier matches the same strings
	return &pattern{op: opRepeat, list: []*pattern{atom}, min: low, max: high}, nil
}

func (p *patternParser) quantifier() (low, high int, ok bool, err error) {
	switch {
	case p.take("?"):
		return 0, 1, true, nil
	case p.take("*"):
		return 0, unbounded, true, nil
	case p.take("+"):
		return 1, unbounded, true, nil
	case p.take("{"):
		// GBNF allows {,n} and blanks, which are not quantifiers in a pattern.
		gbnf := parser{text: p.text, at: p.at - 1}
		if low, high, err = gbnf.bounds(); err != nil || strings.Trim(p.text[p.at:gbnf.at], "0123456789,}") != "" || p.peek() == ',' {
			return 0, 0, false, fmt.Errorf("a repetition is {m}, {m,} or {m,n}, with numbers up to %d", maxRepeat)
		}
		if p.at = gbnf.at; high < 0 {
			high = unbounded
		}
		return low, high, true, nil
	}
	return 0, 0, false, nil
}

func (p *patternParser) atom() (*pattern, error) {
	switch {
	case p.take("("):
		return p.group()
	case p.take("["):
		set, err := p.class()
		return &pattern{op: opSet, set: set}, err
	case p.take("."):
		return &pattern{op: opSet, set: complement(lineEnds)}, nil
	case p.plain && (p.take("^") || p.take("$")):
		return nil, errAnchor
	case p.take("^"):
		return &pattern{op: opStart}, nil
	case p.take("$"):
		return &pattern{op: opEnd}, nil
	case !p.plain && (p.take(`\b`) || p.take(`\B`)):
		return &pattern{op: opUnsupported}, nil
	case p.take("*"), p.take("+"), p.take("?"), p.take("{"):
		return nil, errors.New("a repetition has nothing to repeat")
	}
	set, err := p.char()
	return &pattern{op: opSet, set: set}, err
}

func (p *patternParser) group() (*pattern, error) {
	if p.depth++; p.depth > maxNesting/2 {
		return nil, fmt.Errorf("groups are nested more than %d deep", maxNesting/2)
	}
	var around *pattern
	switch {
	case p.plain:
	case p.take("?="):
		around = &pattern{op: opLook}
	case p.take("?!"):
		around = &pattern{op: opLook, negative: true}
	case p.take("?<="), p.take("?<!"):
		around = &pattern{op: opUnsupported}
	}
	if around == nil && p.take("?") {
		named := strings.HasPrefix(p.text[p.at:], "<") && !strings.HasPrefix(p.text[p.at:], "<=") && !strings.HasPrefix(p.text[p.at:], "<!")
		switch end := strings.IndexByte(p.text[p.at:], '>'); {
		case p.take(":"):
		case named && end > 0:
			p.at += end + 1
		default:
			return nil, errors.New("groups that begin with ? are supported as (?:…) and (?<name>…) only")
		}
	}
	e, err := p.alternatives(false)
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, errors.New("a parenthesis is not closed")
	}
	p.depth--
	if around != nil {
		around.list = []*pattern{e}
		e = around
	}
	return e, nil
}

var (
	lineEnds  = []runeRange{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
	digitSet  = []runeRange{{'0', '9'}}
	wordSet   = []runeRange{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	blankSet  = []runeRange{{'\t', '\r'}, {' ', ' '}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}}
	classSets = map[byte][]runeRange{'d': digitSet, 'w': wordSet, 's': blankSet}
	controls  = map[byte]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', '0': 0}
)

// char reads a character or an escape, which can be a set of characters.
func (p *patternParser) char() ([]runeRange, error) {
	r, size := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += size
	if r != '\\' {
		return []runeRange{{r, r}}, nil
	}
	c := p.peek()
	p.at = min(p.at+1, len(p.text))
	if set, ok := classSets[c|0x20]; ok && c|0x20 >= 'a' {
		if c < 'a' {
			set = complement(set)
		}
		return set, nil
	}
	if r, ok := controls[c]; ok && !('0' == c && '0' <= p.peek() && p.peek() <= '9') {
		return []runeRange{{r, r}}, nil
	}
	if c == 'p' || c == 'P' {
		return p.property(c == 'P')
	}
	if c == 'u' && p.take("{") {
		digits, _, closed := strings.Cut(p.text[p.at:], "}")
		r, err := strconv.ParseUint(digits, 16, 32)
		if !closed || err != nil || r > unicode.MaxRune || !utf8.ValidRune(rune(r)) {
			return nil, errors.New("\\u{…} needs hexadecimal digits of a character")
		}
		p.at += len(digits) + 1
		return []runeRange{{rune(r), rune(r)}}, nil
	}
	if c == 'x' || c == 'u' {
		gbnf := parser{text: p.text, at: p.at}
		r, err := gbnf.hex(c, hexEscapes[c])
		if err != nil {
			return nil, fmt.Errorf("\\%c needs %d hexadecimal digits of a character", c, hexEscapes[c])
		}
		p.at = gbnf.at
		return []runeRange{{r, r}}, nil
	}
	if !strings.ContainsRune(`^$\.*+?()[]{}|/-"'#&,:;<=>@_~!% `, rune(c)) || c == 0 {
		return nil, fmt.Errorf("the escape \\%s is not supported", strings.TrimRight(string(rune(c)), "\x00"))
	}
	return []runeRange{{rune(c), rune(c)}}, nil
}

// property reads {NAME} after \p: a category or script of Unicode.
func (p *patternParser) property(negated bool) ([]runeRange, error) {
	name, _, closed := strings.Cut(p.text[p.at:], "}")
	if !closed || !strings.HasPrefix(name, "{") {
		return nil, errors.New("\\p needs the name of a property in braces")
	}
	p.at += len(name) + 1
	name = name[strings.LastIndexAny(name, "{=")+1:]
	table := unicode.Categories[name]
	if table == nil {
		table = unicode.Scripts[name]
	}
	if table == nil {
		return nil, fmt.Errorf("the property \\p{%s} is not known: use the short name of a category, as L or Lu, or the name of a script", shorten(name))
	}
	var set []runeRange
	add := func(low, high, stride rune) {
		if stride == 1 {
			set = append(set, runeRange{low, high})
			return
		}
		for r := low; r <= high; r += stride {
			set = append(set, runeRange{r, r})
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	if set = normalise(set); negated {
		set = complement(set)
	}
	return set, nil
}

// class reads a class after its opening bracket.
func (p *patternParser) class() ([]runeRange, error) {
	negated := p.take("^")
	var set []runeRange
	for !p.take("]") {
		if p.at >= len(p.text) {
			return nil, errors.New("a class is not closed")
		}
		part, err := p.char()
		if err != nil {
			return nil, err
		}
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			end, err := p.char()
			if err != nil {
				return nil, err
			}
			single := func(s []runeRange) bool { return len(s) == 1 && s[0].low == s[0].high }
			switch {
			case !single(part) || !single(end): // [\w-.] has a hyphen
				part = slices.Concat(part, []runeRange{{'-', '-'}}, end)
			case part[0].low > end[0].low:
				return nil, errors.New("a range in a class is reversed")
			default:
				part = []runeRange{{part[0].low, end[0].low}}
			}
		}
		set = append(set, part...)
	}
	if set = normalise(set); negated {
		set = complement(set)
	}
	return set, nil
}

// width returns the least and the largest number of characters that the pattern matches.
func (p *pattern) width() (low, high int) {
	switch p.op {
	case opSet:
		return 1, 1
	case opSequence:
		for _, item := range p.list {
			l, h := item.width()
			low, high = min(low+l, unbounded), min(high+h, unbounded)
		}
	case opAlternatives:
		low = unbounded
		for _, item := range p.list {
			l, h := item.width()
			low, high = min(low, l), max(high, h)
		}
	case opRepeat:
		l, h := p.list[0].width()
		low = min(l*p.min, unbounded)
		if high = min(h*p.max, unbounded); h == 0 {
			high = 0
		}
	}
	return low, high
}

// fit restricts the pattern to strings of low to high characters. It returns false if it
// cannot: the pattern has other lengths, and is not a sequence in which the length depends
// on one repeated character.
func (p *pattern) fit(low, high int) bool {
	if l, h := p.width(); low <= l && h <= high {
		return true
	}
	if len(p.list) != 1 || p.op != opAlternatives {
		return false
	}
	var open *pattern
	fixed := 0
	for _, item := range p.list[0].list {
		l, h := item.width()
		switch {
		case l == h:
			fixed += l
		case open == nil && item.op == opRepeat && item.list[0].op == opSet:
			open = item
		default:
			return false
		}
	}
	if open == nil {
		return false
	}
	least, most := max(open.min, low-fixed), open.max
	if high < unbounded {
		most = min(most, high-fixed)
	}
	if least > most || least > maxRepeat {
		return false
	}
	open.min, open.max = least, most
	if most < unbounded {
		open.max = min(most, maxRepeat)
	}
	return true
}

// write writes the pattern as a GBNF expression of characters in JSON strings. char returns
// the name of the rule of any character.
func (p *pattern) write(b *strings.Builder, char func() string) {
	switch p.op {
	case opSet:
		writeJSONSet(b, p.set)
	case opSequence:
		b.WriteString(`""`)
		for _, item := range p.list {
			b.WriteByte(' ')
			item.write(b, char)
		}
	case opAlternatives:
		b.WriteByte('(')
		for i, item := range p.list {
			if i > 0 {
				b.WriteString(" | ")
			}
			item.write(b, char)
		}
		b.WriteByte(')')
	case opRepeat:
		if p.anything {
			b.WriteString(char())
		} else {
			b.WriteByte('(')
			p.list[0].write(b, char)
			b.WriteByte(')')
		}
		b.WriteString(times(p.min, p.max))
	}
}

// writeJSONSet writes a GBNF expression of a set of characters in JSON strings.
func writeJSONSet(b *strings.Builder, set []runeRange) {
	var plain []runeRange
	var escaped []string
	special := []runeRange{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}
	for _, r := range set {
		for _, s := range special {
			for c := max(r.low, s.low); c <= min(r.high, s.high); c++ {
				escaped = append(escaped, Literal(jsonChar(c)))
			}
		}
	}
	for _, r := range complement(normalise(slices.Concat(complement(set), special))) {
		plain = append(plain, r)
	}
	if len(plain) > 0 || len(escaped) == 0 {
		escaped = append(escaped, writeClass(plain))
	}
	b.WriteString("(" + strings.Join(escaped, " | ") + ")")
}
