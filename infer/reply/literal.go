package reply

import (
	"strconv"
	"strings"
)

// literalReader parses calls in Python, NAME(KEY=VALUE, …), or in the format of Gemma,
// call:NAME{KEY:VALUE, …}. The first error sets failed.
type literalReader struct {
	rest   string
	quote  string // a marker around strings; empty for Python's quotes
	depth  int
	failed bool
}

func (r *literalReader) skip() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

// accept skips text if it comes next, and reports whether it did.
func (r *literalReader) accept(text string) bool {
	r.skip()
	rest, found := strings.CutPrefix(r.rest, text)
	r.rest = rest
	return found
}

// require skips text, and fails if it does not come next.
func (r *literalReader) require(text string) {
	if !r.accept(text) {
		r.failed = true
	}
}

// word reads up to one of the bytes of stop.
func (r *literalReader) word(stop string) string {
	r.skip()
	n := strings.IndexAny(r.rest, stop)
	if n < 0 {
		r.failed, n = true, 0
	}
	word := strings.TrimSpace(r.rest[:n])
	r.rest = r.rest[n:]
	return word
}

// scalar reads up to a byte that may follow a value.
func (r *literalReader) scalar() string {
	n := strings.IndexAny(r.rest, ",)}] \t\r\n")
	if n < 0 {
		n = len(r.rest)
	}
	word := r.rest[:n]
	r.rest = r.rest[n:]
	return word
}

// members reads KEY MARK VALUE up to close.
func (r *literalReader) members(mark, close string) string {
	var o object
	for !r.failed && !r.accept(close) {
		key := r.key(mark)
		r.require(mark)
		o.member(key, r.value())
		if !r.accept(",") {
			r.require(close)
			break
		}
	}
	return o.end()
}

// key reads the key of a member, with or without quotes.
func (r *literalReader) key(mark string) string {
	r.skip()
	if text, ok := r.text(); ok {
		return text
	}
	key := r.word(mark + ",(){}[]")
	if key == "" {
		r.failed = true
	}
	return key
}

// value reads a value and returns it as JSON.
func (r *literalReader) value() string {
	if r.depth++; r.depth > maxNesting {
		r.failed = true
	}
	defer func() { r.depth-- }()
	if r.failed {
		return ""
	}
	r.skip()
	if text, ok := r.text(); ok {
		return quote(text)
	}
	switch {
	case r.accept("{"):
		return r.members(":", "}")
	case r.accept("["):
		return r.items("]")
	case r.quote == "" && r.accept("("):
		return r.items(")")
	}
	word := r.scalar()
	switch word {
	case "true", "false", "null":
		return word
	}
	if literal, ok := literals[word]; ok {
		return literal
	}
	value, ok := number(word)
	if !ok {
		r.failed = true
	}
	return value
}

func (r *literalReader) items(close string) string {
	var items []string
	for !r.failed && !r.accept(close) {
		items = append(items, r.value())
		if !r.accept(",") {
			r.require(close)
			break
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// text reads a string, if one comes next.
func (r *literalReader) text() (string, bool) {
	if r.quote != "" {
		if rest, found := strings.CutPrefix(r.rest, r.quote); found {
			text, rest, closed := strings.Cut(rest, r.quote)
			r.rest, r.failed = rest, r.failed || !closed
			return text, true
		}
	}
	if r.rest == "" || r.rest[0] != '"' && r.rest[0] != '\'' {
		return "", false
	}
	mark := r.rest[:1]
	if strings.HasPrefix(r.rest, strings.Repeat(mark, 3)) {
		mark = r.rest[:3]
	}
	var b strings.Builder
	for rest := r.rest[len(mark):]; rest != ""; {
		if after, found := strings.CutPrefix(rest, mark); found {
			r.rest = after
			return b.String(), true
		}
		if rest[0] != '\\' || len(rest) == 1 {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		char, _, tail, err := strconv.UnquoteChar(rest, mark[0])
		switch {
		case rest[1] == '\'' || rest[1] == '"' || rest[1] == '/':
			b.WriteByte(rest[1])
			rest = rest[2:]
		case rest[1] == '\n':
			rest = rest[2:]
		case err != nil: // Python keeps unknown escapes
			b.WriteByte('\\')
			rest = rest[1:]
		default:
			b.WriteRune(char)
			rest = tail
		}
	}
	r.failed = true
	return "", true
}

// parsePython parses NAME(KEY=VALUE, …), also within print(…), or a list of such calls; nil
// if text is anything else.
func parsePython(_ *Parser, text string) (calls []parsedCall) {
	r := &literalReader{rest: strings.TrimSpace(text)}
	inList := r.accept("[")
	for !r.failed {
		if inList && len(calls) > 0 && r.accept("]") {
			break
		}
		printed := !inList && r.accept("print(")
		name := strings.TrimSuffix(r.word("("), ".call")
		r.require("(")
		calls = append(calls, parsedCall{name, r.members("=", ")")})
		if printed {
			r.require(")")
		}
		if inList && !r.accept(",") {
			r.require("]")
			break
		}
		if r.skip(); !inList && r.rest == "" {
			break
		}
	}
	if r.skip(); r.failed || r.rest != "" {
		return nil
	}
	return calls
}

// parseGemma returns a parser of call:NAME{KEY:VALUE, …} with strings between quote.
func parseGemma(quote string) func(*Parser, string) []parsedCall {
	return func(_ *Parser, text string) []parsedCall {
		r := &literalReader{rest: text, quote: quote}
		r.require("call:")
		name := r.word("{")
		r.require("{")
		arguments := r.members(":", "}")
		if r.skip(); r.failed || r.rest != "" {
			return nil
		}
		return []parsedCall{{name, arguments}}
	}
}

// pythonCalls reads calls without a marker, NAME(…), NAME.call(…) or [NAME(…), …], up to the
// bracket that closes the first one.
type pythonCalls struct {
	buffer  []byte
	name    []byte
	checked bool   // the name is that of an offered tool
	nesting []byte // open brackets
	quote   byte   // of the string that is read; 0 outside of strings
	escaped bool
}

func (c *pythonCalls) text(p *Parser, b byte) verdict {
	c.buffer = append(c.buffer, b)
	if !c.checked {
		return c.checkName(p, b)
	}
	if c.quote != 0 {
		switch {
		case c.escaped:
			c.escaped = false
		case b == '\\':
			c.escaped = true
		case b == c.quote:
			c.quote = 0
		}
		return more
	}
	switch b {
	case '"', '\'':
		c.quote = b
	case '(', '[', '{':
		if len(c.nesting) == maxNesting {
			return invalid
		}
		c.nesting = append(c.nesting, b)
	case ')', ']', '}':
		if c.nesting = c.nesting[:len(c.nesting)-1]; len(c.nesting) == 0 {
			return c.finish(p)
		}
	}
	return more
}

// checkName reads up to the bracket after the first name.
func (c *pythonCalls) checkName(p *Parser, b byte) verdict {
	switch {
	case b == '[' && len(c.nesting) == 0 && len(c.name) == 0:
		c.nesting = append(c.nesting, b)
	case isSpace(b) && len(c.name) == 0:
	case b == '(':
		if !p.offers(strings.TrimSuffix(string(c.name), ".call")) {
			return invalid
		}
		c.checked = true
		c.nesting = append(c.nesting, b)
	default:
		c.name = append(c.name, b)
		if !couldBeName(b) || len(c.name) > maxName {
			return invalid
		}
	}
	return more
}

func couldBeName(b byte) bool {
	return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'z' || b == '_' || b == '-' || b == '.'
}

func (c *pythonCalls) marker(p *Parser, m *marker) verdict { return eachByte(c, p, m.text) }

func (c *pythonCalls) end(*Parser, bool) verdict { return invalid }

func (c *pythonCalls) finish(p *Parser) verdict {
	return (&block{buffer: c.buffer, parse: parsePython}).finish(p)
}
