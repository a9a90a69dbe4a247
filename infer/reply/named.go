package reply

import "strings"

// firstByte selects a reader by the first byte that is not white space.
type firstByte struct {
	choose func(b byte) callReader
	reader callReader
}

func byFirst(choose func(b byte) callReader) func() callReader {
	return func() callReader { return &firstByte{choose: choose} }
}

func (f *firstByte) text(p *Parser, b byte) verdict {
	if f.reader == nil {
		if isSpace(b) {
			return more
		}
		if f.reader = f.choose(b); f.reader == nil {
			return invalid
		}
	}
	return f.reader.text(p, b)
}

func (f *firstByte) marker(p *Parser, m *marker) verdict {
	if f.reader == nil {
		if f.reader = f.choose(m.text[0]); f.reader == nil {
			return invalid
		}
	}
	return f.reader.marker(p, m)
}

func (f *firstByte) end(p *Parser, complete bool) verdict {
	if f.reader == nil {
		return invalid
	}
	return f.reader.end(p, complete)
}

// nameFormat is how a format writes the name of a call before its arguments.
type nameFormat struct {
	nameEnd  byte   // after the name; 0 for none
	idMark   string // between name and id
	argsMark string // before the arguments
	brace    bool   // the arguments may begin without argsMark
	fenced   bool   // argsMark may be followed by the name and a code fence; then a type precedes it
	numbered bool   // the name is functions.NAME:NUMBER, which is also the id
	content  string // the name of messages that are content, not calls
}

// namedCall reads a call whose name precedes its arguments.
type namedCall struct {
	nameFormat
	name, id []byte
	fence    []byte // text between argsMark and the arguments
	part     int
	args     argumentsReader
}

// Parts of a namedCall.
const (
	partName = iota
	partID
	partFence
	partArguments
)

func readNamed(n nameFormat) func() callReader {
	return func() callReader { return &namedCall{nameFormat: n} }
}

func (c *namedCall) marker(p *Parser, m *marker) verdict {
	switch {
	case c.part == partName && m.text == c.idMark:
		c.part = partID
		return more
	case c.part <= partID && m.text == c.argsMark:
		c.part = partFence
		return more
	}
	return eachByte(c, p, m.text)
}

func (c *namedCall) text(p *Parser, b byte) verdict {
	switch c.part {
	case partName:
		switch {
		case c.nameEnd != 0 && b == c.nameEnd:
			if c.content != "" && string(c.name) == c.content {
				return done
			}
			c.part = partFence
			return more
		case c.brace && b == '{':
			return c.begin(p, b)
		}
		c.name = append(c.name, b)
	case partID:
		c.id = append(c.id, b)
	case partFence:
		if b == '{' || b == '"' && len(c.fence) == 0 {
			return c.begin(p, b)
		}
		if !isSpace(b) && !c.fenced {
			return invalid
		}
		if len(c.fence) > 0 || !isSpace(b) {
			c.fence = append(c.fence, b)
		}
	case partArguments:
		switch c.args.step(p, b) {
		case invalid:
			return invalid
		case done:
			return c.close(p)
		}
	}
	if len(c.name)+len(c.id)+len(c.fence) > maxName {
		return invalid
	}
	return more
}

// begin checks the name and reads b, the first byte of the arguments.
func (c *namedCall) begin(p *Parser, b byte) verdict {
	c.part = partArguments
	name := string(c.name)
	if fence := strings.TrimSpace(string(c.fence)); fence != "" {
		head, found := strings.CutSuffix(fence, "```json")
		if !found {
			return invalid
		}
		name = head
	}
	name = strings.TrimSpace(name)
	if c.numbered {
		c.id = []byte(name)
		name = strings.TrimPrefix(name, "functions.")
		if i := strings.LastIndexByte(name, ':'); i >= 0 {
			name = name[:i]
		}
	}
	if !p.offers(name) {
		return invalid
	}
	c.name = []byte(name)
	if b == '{' {
		p.announce(strings.TrimSpace(string(c.id)), name)
	}
	return c.text(p, b)
}

func (c *namedCall) close(p *Parser) verdict {
	if p.announced {
		p.completeCall()
		return done
	}
	arguments, ok := c.args.object()
	if !ok || !p.addCall(strings.TrimSpace(string(c.id)), string(c.name), arguments) {
		return invalid
	}
	return done
}

func (c *namedCall) end(*Parser, bool) verdict { return invalid }
