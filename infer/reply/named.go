package reply

import "strings"

// firstByte chooses a reader by the first byte that is no white space.
type firstByte struct {
	choose func(b byte) body
	body   body
}

func byFirst(choose func(b byte) body) func() body {
	return func() body { return &firstByte{choose: choose} }
}

func (f *firstByte) text(p *Parser, b byte) verdict {
	if f.body == nil {
		if isSpace(b) {
			return more
		}
		if f.body = f.choose(b); f.body == nil {
			return broken
		}
	}
	return f.body.text(p, b)
}

func (f *firstByte) marker(p *Parser, m *marker) verdict {
	if f.body == nil {
		if f.body = f.choose(m.text[0]); f.body == nil {
			return broken
		}
	}
	return f.body.marker(p, m)
}

func (f *firstByte) end(p *Parser, whole bool) verdict {
	if f.body == nil {
		return broken
	}
	return f.body.end(p, whole)
}

// naming says how a format writes the name of a call in front of its arguments.
type naming struct {
	nameEnd  byte   // behind the name; 0: none
	idMark   string // between name and id
	argsMark string // in front of the arguments
	brace    bool   // the arguments may begin without argsMark
	fenced   bool   // behind argsMark there may be a name and a code fence: what was in front of it is a type
	numbered bool   // the name is functions.NAME:NUMBER, and an id
	content  string // the name of what is no call but content
}

// namedCall reads a name and then arguments.
type namedCall struct {
	naming
	name, id []byte
	fence    []byte // what is between argsMark and the arguments
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

func readNamed(n naming) func() body { return func() body { return &namedCall{naming: n} } }

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
			return broken
		}
		if len(c.fence) > 0 || !isSpace(b) {
			c.fence = append(c.fence, b)
		}
	case partArguments:
		switch c.args.step(p, b) {
		case wrong:
			return broken
		case ended:
			return c.close(p)
		}
	}
	if len(c.name)+len(c.id)+len(c.fence) > maxName {
		return broken
	}
	return more
}

// begin checks the name and begins the arguments with b.
func (c *namedCall) begin(p *Parser, b byte) verdict {
	c.part = partArguments
	name := string(c.name)
	if fence := strings.TrimSpace(string(c.fence)); fence != "" {
		head, found := strings.CutSuffix(fence, "```json")
		if !found {
			return broken
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
		return broken
	}
	c.name = []byte(name)
	if b == '{' {
		p.announce(strings.TrimSpace(string(c.id)), name)
	}
	return c.text(p, b)
}

func (c *namedCall) close(p *Parser) verdict {
	if p.begun {
		p.complete()
		return done
	}
	arguments, ok := c.args.object()
	if !ok || !p.call(strings.TrimSpace(string(c.id)), string(c.name), arguments) {
		return broken
	}
	return done
}

func (c *namedCall) end(*Parser, bool) verdict { return broken }
