package reply

import "encoding/json"

// argumentsReader reads the arguments of a call: an object, which is passed on as it
// comes, or a string or null that stands for one.
type argumentsReader struct {
	scan  scanner
	begun bool
	held  []byte // nil if the arguments are passed on
	hold  bool   // until the call is announced
}

// step takes a byte of the arguments and writes to the call that is announced.
func (r *argumentsReader) step(p *Parser, b byte) scanned {
	if !r.begun {
		switch {
		case isSpace(b):
			return goesOn
		case b == '"' || b == 'n':
			r.hold = true
		case b != '{':
			return wrong
		}
		r.begun = true
	}
	written := r.scan.escape(b)
	verdict := r.scan.step(b)
	if verdict == wrong || verdict == endedBefore {
		return wrong
	}
	if r.hold {
		r.held = append(r.held, written...)
	} else {
		p.argue(written)
	}
	return verdict
}

// object returns held arguments.
func (r *argumentsReader) object() (string, bool) {
	text := string(r.held)
	if len(r.held) == 0 || text == "null" {
		return "{}", true
	}
	if text[0] == '"' {
		if json.Unmarshal(r.held, &text) != nil {
			return "", false
		}
		if text == "" {
			return "{}", true
		}
	}
	return text, isObject(text)
}

// jsonCalls reads calls written as JSON objects: one, or a list of them.
type jsonCalls struct {
	shape
	state  func(*jsonCalls, *Parser, byte) verdict
	inList bool
	some   bool // a call of the list is complete

	scan  scanner
	key   []byte
	value []byte // of a name or an id
	role  int
	id    string
	name  string
	args  argumentsReader
	given bool // arguments are complete
}

// shape is how a format writes a call as JSON.
type shape struct {
	list   bool // lists of calls too
	only   bool // nothing but lists
	named  bool // {"name": {arguments}}
	strict bool // other members mean that it is no call
	lateID bool // the id comes behind the arguments
	hasID  bool // the ids are the model's
}

// What the value of a member is.
const (
	isOther = iota
	isName
	isID
	isArguments
)

var memberRoles = map[string]int{
	"name": isName, "tool_name": isName, "function": isName,
	"arguments": isArguments, "parameters": isArguments,
	"id": isID, "call_id": isID,
}

func readJSON(s shape) func() body {
	return func() body { return &jsonCalls{shape: s, state: (*jsonCalls).begin} }
}

func (c *jsonCalls) text(p *Parser, b byte) verdict { return c.state(c, p, b) }

// marker takes the text of a marker: only in a string can it be none.
func (c *jsonCalls) marker(p *Parser, m *marker) verdict { return eachByte(c, p, m.text) }

func eachByte(c body, p *Parser, text string) verdict {
	for i := range len(text) {
		if v := c.text(p, text[i]); v != more {
			if i < len(text)-1 {
				return broken
			}
			return v
		}
	}
	return more
}

func (c *jsonCalls) end(*Parser, bool) verdict {
	if c.inList && c.some && c.isBetween() {
		return done
	}
	return broken
}

// isBetween reports whether no call of the list is being read.
func (c *jsonCalls) isBetween() bool { return c.key == nil && c.name == "" && !c.given }

func (c *jsonCalls) begin(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
	case b == '[' && c.list && !c.inList:
		c.inList = true
	case b == ']' && c.inList && c.some:
		return done
	case b == '{' && (c.inList || !c.only):
		c.state = (*jsonCalls).beginMember
		c.key = []byte{}
	default:
		return broken
	}
	return more
}

// behind reads what follows a call of a list.
func (c *jsonCalls) behind(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
	case b == ',':
		c.state = (*jsonCalls).begin
	case b == ']':
		return done
	default:
		return broken
	}
	return more
}

func (c *jsonCalls) beginMember(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
		return more
	case b == '}' && !c.named:
		return c.close(p)
	case b == '"':
		c.scan = scanner{}
		c.scan.step(b)
		c.key = append(c.key[:0], b)
		c.state = (*jsonCalls).readKey
		return more
	}
	return broken
}

func (c *jsonCalls) readKey(p *Parser, b byte) verdict {
	c.key = append(c.key, c.scan.escape(b)...)
	switch c.scan.step(b) {
	case wrong:
		return broken
	case ended:
		c.state = (*jsonCalls).colon
	}
	if len(c.key) > maxName {
		return broken
	}
	return more
}

func (c *jsonCalls) colon(p *Parser, b byte) verdict {
	if isSpace(b) {
		return more
	}
	if b != ':' {
		return broken
	}
	var key string
	if json.Unmarshal(c.key, &key) != nil {
		return broken
	}
	role, known := memberRoles[key]
	switch {
	case c.named:
		c.name, role = key, isArguments
		if !p.offers(key) {
			return broken
		}
	case c.strict && !known && key != "type":
		return broken
	case role == isName && c.name != "", role == isArguments && c.given:
		return broken
	}
	c.role = role
	c.scan = scanner{}
	c.value = c.value[:0]
	c.state = (*jsonCalls).readValue
	if role == isArguments {
		c.args = argumentsReader{hold: c.name == "" || c.lateID}
		if !c.args.hold {
			c.state = (*jsonCalls).beginArguments
		} else {
			c.state = (*jsonCalls).readArguments
		}
	}
	return more
}

// beginArguments announces the call with the first byte of an object.
func (c *jsonCalls) beginArguments(p *Parser, b byte) verdict {
	if b == '{' {
		p.announce(c.id, c.name)
	}
	if !isSpace(b) {
		c.state = (*jsonCalls).readArguments
	}
	return c.readArguments(p, b)
}

func (c *jsonCalls) readArguments(p *Parser, b byte) verdict {
	switch c.args.step(p, b) {
	case wrong:
		return broken
	case ended:
		c.given = true
		c.state = (*jsonCalls).behindMember
	}
	return more
}

func (c *jsonCalls) readValue(p *Parser, b byte) verdict {
	if c.role == isName && len(c.value) == 0 && !isSpace(b) && b != '"' {
		return broken
	}
	if c.role != isOther && (len(c.value) > 0 || !isSpace(b)) {
		c.value = append(c.value, c.scan.escape(b)...)
		if len(c.value) > maxName {
			return broken
		}
	}
	switch c.scan.step(b) {
	case wrong:
		return broken
	case goesOn:
		return more
	case endedBefore:
		c.state = (*jsonCalls).behindMember
		if c.role != isOther {
			c.value = c.value[:len(c.value)-1]
		}
		if v := c.take(p); v != more {
			return v
		}
		return c.behindMember(p, b)
	}
	c.state = (*jsonCalls).behindMember
	return c.take(p)
}

// take keeps the name or the id.
func (c *jsonCalls) take(p *Parser) verdict {
	var text string
	switch c.role {
	case isName:
		if json.Unmarshal(c.value, &text) != nil || !p.offers(text) {
			return broken
		}
		c.name = text
	case isID:
		if json.Unmarshal(c.value, &text) == nil && c.hasID {
			c.id = text
		}
	}
	return more
}

func (c *jsonCalls) behindMember(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
		return more
	case b == ',' && !c.named:
		c.state = (*jsonCalls).nextMember
		return more
	case b == '}':
		return c.close(p)
	}
	return broken
}

func (c *jsonCalls) nextMember(p *Parser, b byte) verdict {
	if b == '}' {
		return broken
	}
	return c.beginMember(p, b)
}

// close ends a call.
func (c *jsonCalls) close(p *Parser) verdict {
	if p.begun {
		p.complete()
	} else {
		arguments, ok := c.args.object()
		if !ok || !p.call(c.id, c.name, arguments) {
			return broken
		}
	}
	c.some, c.given = true, false
	c.key, c.id, c.name = nil, "", ""
	c.args = argumentsReader{}
	if !c.inList {
		return done
	}
	c.state = (*jsonCalls).behind
	return more
}
