package reply

import (
	"strconv"
	"strings"
)

// literalReader reads calls written as Python, NAME(KEY=VALUE, …), or as Gemma writes
// them, call:NAME{KEY:VALUE, …}.
type literalReader struct {
	rest  string
	quote string // a marker around strings; empty: Python's quotes
	depth int
	bad   bool
}

func (r *literalReader) skip() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

// takes reports whether text comes next, and goes on behind it.
func (r *literalReader) takes(text string) bool {
	r.skip()
	rest, found := strings.CutPrefix(r.rest, text)
	r.rest = rest
	return found
}

// wants fails unless text comes next.
func (r *literalReader) wants(text string) {
	if !r.takes(text) {
		r.bad = true
	}
}

// word reads up to one of the bytes of stop.
func (r *literalReader) word(stop string) string {
	r.skip()
	n := strings.IndexAny(r.rest, stop)
	if n < 0 {
		r.bad, n = true, 0
	}
	word := strings.TrimSpace(r.rest[:n])
	r.rest = r.rest[n:]
	return word
}

// scalar reads up to what may stand behind a value.
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
	for !r.bad && !r.takes(close) {
		key := r.key(mark)
		r.wants(mark)
		o.member(key, r.value())
		if !r.takes(",") {
			r.wants(close)
			break
		}
	}
	return o.end()
}

// key reads the key of a member, in quotes or not.
func (r *literalReader) key(mark string) string {
	r.skip()
	if text, ok := r.text(); ok {
		return text
	}
	key := r.word(mark + ",(){}[]")
	if key == "" {
		r.bad = true
	}
	return key
}

// value reads a value and returns it as JSON.
func (r *literalReader) value() string {
	if r.depth++; r.depth > maxNesting {
		r.bad = true
	}
	defer func() { r.depth-- }()
	if r.bad {
		return ""
	}
	r.skip()
	if text, ok := r.text(); ok {
		return quote(text)
	}
	switch {
	case r.takes("{"):
		return r.members(":", "}")
	case r.takes("["):
		return r.items("]")
	case r.quote == "" && r.takes("("):
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
		r.bad = true
	}
	return value
}

func (r *literalReader) items(close string) string {
	var items []string
	for !r.bad && !r.takes(close) {
		items = append(items, r.value())
		if !r.takes(",") {
			r.wants(close)
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
			r.rest, r.bad = rest, r.bad || !closed
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
		case err != nil: // an escape that Python leaves as it is
			b.WriteByte('\\')
			rest = rest[1:]
		default:
			b.WriteRune(char)
			rest = tail
		}
	}
	r.bad = true
	return "", true
}

// parsePython reads NAME(KEY=VALUE, …), or a list of such calls, in print(…) or not.
func parsePython(_ *Parser, text string) (calls []written) {
	r := &literalReader{rest: strings.TrimSpace(text)}
	inList := r.takes("[")
	for !r.bad {
		if inList && len(calls) > 0 && r.takes("]") {
			break
		}
		printed := !inList && r.takes("print(")
		name := strings.TrimSuffix(r.word("("), ".call")
		r.wants("(")
		calls = append(calls, written{name, r.members("=", ")")})
		if printed {
			r.wants(")")
		}
		if inList && !r.takes(",") {
			r.wants("]")
			break
		}
		if r.skip(); !inList && r.rest == "" {
			break
		}
	}
	if r.skip(); r.bad || r.rest != "" {
		return nil
	}
	return calls
}

// parseGemma returns a reader of call:NAME{KEY:VALUE, …} with strings in quote.
func parseGemma(quote string) func(*Parser, string) []written {
	return func(_ *Parser, text string) []written {
		r := &literalReader{rest: text, quote: quote}
		r.wants("call:")
		name := r.word("{")
		r.wants("{")
		arguments := r.members(":", "}")
		if r.skip(); r.bad || r.rest != "" {
			return nil
		}
		return []written{{name, arguments}}
	}
}

// pythonCalls reads bare calls: NAME(…), NAME.call(…) or [NAME(…), …], up to the bracket
// that closes the first one.
type pythonCalls struct {
	held    []byte
	name    []byte
	checked bool // the name is that of a tool
	nesting []byte
	quote   byte // 0: in no string
	escaped bool
}

func (c *pythonCalls) text(p *Parser, b byte) verdict {
	c.held = append(c.held, b)
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
			return broken
		}
		c.nesting = append(c.nesting, b)
	case ')', ']', '}':
		if c.nesting = c.nesting[:len(c.nesting)-1]; len(c.nesting) == 0 {
			return c.finish(p)
		}
	}
	return more
}

// checkName reads up to the bracket behind the first name.
func (c *pythonCalls) checkName(p *Parser, b byte) verdict {
	switch {
	case b == '[' && len(c.nesting) == 0 && len(c.name) == 0:
		c.nesting = append(c.nesting, b)
	case isSpace(b) && len(c.name) == 0:
	case b == '(':
		if !p.offers(strings.TrimSuffix(string(c.name), ".call")) {
			return broken
		}
		c.checked = true
		c.nesting = append(c.nesting, b)
	default:
		c.name = append(c.name, b)
		if !couldBeName(b) || len(c.name) > maxName {
			return broken
		}
	}
	return more
}

func couldBeName(b byte) bool {
	return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'z' || b == '_' || b == '-' || b == '.'
}

func (c *pythonCalls) marker(p *Parser, m *marker) verdict { return eachByte(c, p, m.text) }

func (c *pythonCalls) end(*Parser, bool) verdict { return broken }

func (c *pythonCalls) finish(p *Parser) verdict {
	return (&block{held: c.held, parse: parsePython}).finish(p)
}
