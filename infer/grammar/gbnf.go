package grammar

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// expr is a node of a rule's body.
type expr struct {
	op       op
	literal  string      // opLiteral: UTF-8
	set      []runeRange // opSet: sorted, with gaps between them
	rule     int32       // opRule
	token    int32       // opToken
	list     []*expr     // opSequence, opAlternatives; opRepeat: the repeated item
	min, max int         // opRepeat; max is -1 for any number
}

type op uint8

const (
	opLiteral op = iota
	opSet
	opRule
	opToken
	opSequence
	opAlternatives
	opRepeat
)

// syntax is a parsed grammar.
type syntax struct {
	names  []string
	bodies []*expr // by rule, like names
	root   int32
}

// parser parses GBNF.
type parser struct {
	text     string
	at       int
	depth    int // of groups
	rules    map[string]int32
	firstUse []int // by rule: offset of its first use in text
	syntax
}

// parse parses the text of a grammar.
func parse(text string) (*syntax, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("the grammar has %d bytes; the limit is %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the grammar is not valid UTF-8")
	}
	p := &parser{text: text, rules: map[string]int32{}}
	p.space(true)
	for p.at < len(p.text) {
		if err := p.definition(); err != nil {
			return nil, err
		}
		p.space(true)
	}
	root, ok := p.rules["root"]
	if !ok {
		return nil, fmt.Errorf("the grammar has no rule root, at which every answer starts")
	}
	p.root = root
	for i, body := range p.bodies {
		if body == nil {
			p.at = p.firstUse[i]
			return nil, p.failf("the rule %s is not defined", p.names[i])
		}
	}
	return &p.syntax, nil
}

func (p *parser) failf(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", p.line(), fmt.Sprintf(format, args...))
}

func (p *parser) line() int { return 1 + strings.Count(p.text[:p.at], "\n") }

// space skips blanks and comments, and line breaks if newlines is set.
func (p *parser) space(newlines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == ' ' || c == '\t':
			p.at++
		case c == '#':
			for p.at < len(p.text) && p.text[p.at] != '\n' {
				p.at++
			}
		case newlines && (c == '\n' || c == '\r'):
			p.at++
		default:
			return
		}
	}
}

// peek returns the next byte; 0 at the end.
func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func (p *parser) name() string {
	from := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	return p.text[from:p.at]
}

// rule returns the number of a rule, and adds the rule if it is new.
func (p *parser) rule(name string) (int32, error) {
	if i, ok := p.rules[name]; ok {
		return i, nil
	}
	if len(p.names) == maxRules {
		return 0, p.failf("the grammar has more than %d rules", maxRules)
	}
	i := int32(len(p.names))
	p.rules[name] = i
	p.names = append(p.names, name)
	p.bodies = append(p.bodies, nil)
	p.firstUse = append(p.firstUse, p.at)
	return i, nil
}

// definition reads one rule: name ::= body.
func (p *parser) definition() error {
	name := p.name()
	if name == "" {
		return p.failf("expected the name of a rule, not %s", p.describeNext())
	}
	i, err := p.rule(name)
	if err != nil {
		return err
	}
	if p.bodies[i] != nil {
		return p.failf("the rule %s is defined twice", name)
	}
	p.space(false)
	if !strings.HasPrefix(p.text[p.at:], "::=") {
		return p.failf("expected ::= after %s, not %s", name, p.describeNext())
	}
	p.at += 3
	p.space(true)
	body, err := p.alternatives()
	if err != nil {
		return err
	}
	if c := p.peek(); c != 0 && c != '\n' && c != '\r' {
		return p.failf("expected the end of rule %s, not %s", name, p.describeNext())
	}
	p.bodies[i] = body
	return nil
}

// describeNext returns the next character as error messages name it.
func (p *parser) describeNext() string {
	if p.at >= len(p.text) {
		return "the end of the grammar"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return fmt.Sprintf("%q", r)
}

func (p *parser) alternatives() (*expr, error) {
	var list []*expr
	for {
		e, err := p.sequence()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if !p.bar() {
			break
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return &expr{op: opAlternatives, list: list}, nil
}

// bar accepts a |, also on a later line.
func (p *parser) bar() bool {
	from := p.at
	p.space(true)
	if p.peek() != '|' {
		p.at = from
		return false
	}
	p.at++
	p.space(true)
	return true
}

func (p *parser) sequence() (*expr, error) {
	e := &expr{op: opSequence}
	for {
		item, err := p.item()
		if err != nil {
			return nil, err
		}
		if item == nil {
			break
		}
		if item, err = p.repeated(item); err != nil {
			return nil, err
		}
		e.list = append(e.list, item)
	}
	if len(e.list) == 1 {
		return e.list[0], nil
	}
	return e, nil
}

// item reads one element of a sequence; nil at its end.
func (p *parser) item() (e *expr, err error) {
	p.space(p.depth > 0)
	switch c := p.peek(); {
	case c == '"':
		e, err = p.literal()
	case c == '[':
		e, err = p.class()
	case c == '.':
		p.at++
		e = &expr{op: opSet, set: anyRune}
	case c == '<':
		e, err = p.token()
	case c == '(':
		e, err = p.group()
	case isNameByte(c):
		e = &expr{op: opRule}
		e.rule, err = p.rule(p.name())
	}
	return e, err
}

func (p *parser) group() (*expr, error) {
	if p.depth == maxNesting {
		return nil, p.failf("groups are nested more than %d deep", maxNesting)
	}
	p.depth++
	p.at++
	e, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	p.space(true)
	if p.peek() != ')' {
		return nil, p.failf("expected ) instead of %s", p.describeNext())
	}
	p.at++
	p.depth--
	return e, nil
}

func (p *parser) literal() (*expr, error) {
	var b strings.Builder
	for p.at++; p.peek() != '"'; {
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		b.WriteRune(r)
	}
	p.at++
	return &expr{op: opLiteral, literal: b.String()}, nil
}

// class reads [a-z_] or [^a-z_].
func (p *parser) class() (*expr, error) {
	p.at++
	negated := p.peek() == '^'
	if negated {
		p.at++
	}
	var set []runeRange
	for p.peek() != ']' {
		low, err := p.char()
		if err != nil {
			return nil, err
		}
		high := low
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			if high, err = p.char(); err != nil {
				return nil, err
			}
		}
		if high < low {
			return nil, p.failf("the range %q-%q is reversed: write %q-%q", low, high, high, low)
		}
		set = append(set, runeRange{low, high})
	}
	p.at++
	if set = normalise(set); negated {
		set = complement(set)
	}
	return &expr{op: opSet, set: set}, nil
}

// escapes are the characters of the escapes without digits.
var escapes = map[byte]rune{'t': '\t', 'r': '\r', 'n': '\n', '\\': '\\', '"': '"', '[': '[', ']': ']', '-': '-', '^': '^', '/': '/'}

// hexEscapes are the numbers of digits of the hexadecimal escapes.
var hexEscapes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

// char reads a character of a literal or class.
func (p *parser) char() (rune, error) {
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	if n == 0 || r == '\n' {
		return 0, p.failf("a literal or class is not closed at the end of its line")
	}
	p.at += n
	if r != '\\' {
		return r, nil
	}
	c := p.peek()
	p.at = min(p.at+1, len(p.text))
	if digits, ok := hexEscapes[c]; ok {
		return p.hex(c, digits)
	}
	if r, ok := escapes[c]; ok {
		return r, nil
	}
	p.at--
	return 0, p.failf("the escape \\%s is not known: use \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH or \\UHHHHHHHH", strings.Trim(p.describeNext(), "'"))
}

func (p *parser) hex(letter byte, digits int) (rune, error) {
	var r uint32
	for range digits {
		d := strings.IndexByte("0123456789abcdef", p.peek()|0x20)
		if d < 0 || p.at >= len(p.text) {
			return 0, p.failf("\\%c needs %d hexadecimal digits", letter, digits)
		}
		r = r<<4 | uint32(d)
		p.at++
	}
	if r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
		return 0, p.failf("U+%04X is not a character", r)
	}
	return rune(r), nil
}

// token reads <[id]>.
func (p *parser) token() (*expr, error) {
	rest := p.text[p.at:]
	if !strings.HasPrefix(rest, "<[") {
		return nil, p.failf("a token is written by its id, as <[123]>")
	}
	p.at += 2
	id, ok := p.number(maxTokenID)
	if !ok || !strings.HasPrefix(p.text[p.at:], "]>") {
		return nil, p.failf("a token is written by its id, as <[123]>")
	}
	p.at += 2
	return &expr{op: opToken, token: int32(id)}, nil
}

// number reads a decimal number; false if there is none or it is above limit.
func (p *parser) number(limit int) (n int, ok bool) {
	for '0' <= p.peek() && p.peek() <= '9' {
		if n = 10*n + int(p.peek()-'0'); n > limit {
			return 0, false
		}
		p.at, ok = p.at+1, true
	}
	return n, ok
}

// repeated reads the repetition operators after an item.
func (p *parser) repeated(e *expr) (*expr, error) {
	for times := 0; ; times++ {
		p.space(p.depth > 0)
		low, high := 0, -1
		switch p.peek() {
		case '?':
			high = 1
		case '*':
		case '+':
			low = 1
		case '{':
			var err error
			if low, high, err = p.bounds(); err != nil {
				return nil, err
			}
			p.at--
		default:
			return e, nil
		}
		p.at++
		if times == maxNesting {
			return nil, p.failf("an item has more than %d repetition operators", maxNesting)
		}
		e = &expr{op: opRepeat, list: []*expr{e}, min: low, max: high}
	}
}

// bounds reads {m}, {m,}, {,n} or {m,n}.
func (p *parser) bounds() (low, high int, err error) {
	p.at++
	p.space(false)
	low, given := p.number(maxRepeat)
	high = low
	p.space(false)
	if p.peek() == ',' {
		p.at++
		p.space(false)
		var bounded bool
		if high, bounded = p.number(maxRepeat); !bounded {
			high = -1
			if !given {
				return 0, 0, p.failf("a repetition is {m}, {m,}, {,n} or {m,n}, with numbers up to %d", maxRepeat)
			}
		}
		given = true
		p.space(false)
	}
	switch {
	case !given || p.peek() != '}':
		return 0, 0, p.failf("a repetition is {m}, {m,}, {,n} or {m,n}, with numbers up to %d", maxRepeat)
	case high >= 0 && high < low:
		return 0, 0, p.failf("the repetition {%d,%d} is reversed: write {%d,%d}", low, high, high, low)
	}
	p.at++
	return low, high, nil
}

// runeRange are the characters from low to high.
type runeRange struct{ low, high rune }

const (
	lastBeforeSurrogates = 0xd7ff
	firstAfterSurrogates = 0xe000
)

// anyRune are all characters, which surrogates are not.
var anyRune = []runeRange{{0, lastBeforeSurrogates}, {firstAfterSurrogates, utf8.MaxRune}}

// normalise sorts ranges, joins those that overlap or are adjacent, and removes surrogates.
func normalise(set []runeRange) []runeRange {
	var parts []runeRange
	for _, r := range set {
		for _, whole := range anyRune {
			if part := (runeRange{max(r.low, whole.low), min(r.high, whole.high)}); part.low <= part.high {
				parts = append(parts, part)
			}
		}
	}
	slices.SortFunc(parts, func(a, b runeRange) int { return int(a.low - b.low) })
	var joined []runeRange
	for _, r := range parts {
		if n := len(joined); n > 0 && r.low <= joined[n-1].high+1 {
			joined[n-1].high = max(joined[n-1].high, r.high)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

// complement returns all characters that are not in set, which is normalised.
func complement(set []runeRange) []runeRange {
	var rest []runeRange
	next := rune(0)
	for _, r := range set {
		if r.low > next {
			rest = append(rest, runeRange{next, r.low - 1})
		}
		next = r.high + 1
	}
	if next <= utf8.MaxRune {
		rest = append(rest, runeRange{next, utf8.MaxRune})
	}
	return normalise(rest)
}
