package reply

import "encoding/json"

// argumentsReader reads the arguments of a call: an object, which is emitted as it comes, or
// a string or null in place of one.
type argumentsReader struct {
	scan     scanner
	started  bool
	buffer   []byte // nil if the arguments are emitted
	buffered bool   // the arguments are buffered, not emitted
}

// step reads a byte of the arguments, and buffers it or adds it to the announced call.
func (r *argumentsReader) step(p *Parser, b byte) verdict {
	if !r.started {
		switch {
		case isSpace(b):
			return more
		case b == '"' || b == 'n':
			r.buffered = true
		case b != '{':
			return invalid
		}
		r.started = true
	}
	written := r.scan.escape(b)
	verdict := r.scan.step(b)
	if verdict == invalid || verdict == doneBefore {
		return invalid
	}
	if r.buffered {
		r.buffer = append(r.buffer, written...)
	} else {
		p.addArguments(written)
	}
	return verdict
}

// object returns the buffered arguments as an object; false if they are not one.
func (r *argumentsReader) object() (string, bool) {
	text := string(r.buffer)
	if len(r.buffer) == 0 || text == "null" {
		return "{}", true
	}
	if text[0] == '"' {
		if json.Unmarshal(r.buffer, &text) != nil {
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
	state   func(*jsonCalls, *Parser, byte) verdict
	inList  bool
	hasCall bool // at least one call of the list is complete

	scan         scanner
	key          []byte
	value        []byte // of a name or an id
	role         int
	id           string
	name         string
	args         argumentsReader
	hasArguments bool // the arguments are complete
}

// shape is the form of calls in JSON.
type shape struct {
	lists          bool // allows lists of calls
	onlyLists      bool // allows only lists
	nameAsKey      bool // a call is {NAME: {ARGUMENTS}}
	noOtherMembers bool // an object with other members is not a call
	idLast         bool // the id follows the arguments
	modelIDs       bool // the model writes ids
}

// Roles of the members of a call.
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

func readJSON(s shape) func() callReader {
	return func() callReader { return &jsonCalls{shape: s, state: (*jsonCalls).begin} }
}

func (c *jsonCalls) text(p *Parser, b byte) verdict { return c.state(c, p, b) }

// marker reads the text of a marker, which is valid within a string only.
func (c *jsonCalls) marker(p *Parser, m *marker) verdict { return eachByte(c, p, m.text) }

func eachByte(c callReader, p *Parser, text string) verdict {
	for i := range len(text) {
		if v := c.text(p, text[i]); v != more {
			if i < len(text)-1 {
				return invalid
			}
			return v
		}
	}
	return more
}

func (c *jsonCalls) end(*Parser, bool) verdict {
	if c.inList && c.hasCall && c.isBetween() {
		return done
	}
	return invalid
}

// isBetween reports whether the reader is between calls of a list.
func (c *jsonCalls) isBetween() bool { return c.key == nil && c.name == "" && !c.hasArguments }

func (c *jsonCalls) begin(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
	case b == '[' && c.lists && !c.inList:
		c.inList = true
	case b == ']' && c.inList && c.hasCall:
		return done
	case b == '{' && (c.inList || !c.onlyLists):
		c.state = (*jsonCalls).beginMember
		c.key = []byte{}
	default:
		return invalid
	}
	return more
}

// afterCall reads what follows a call of a list.
func (c *jsonCalls) afterCall(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
	case b == ',':
		c.state = (*jsonCalls).begin
	case b == ']':
		return done
	default:
		return invalid
	}
	return more
}

func (c *jsonCalls) beginMember(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
		return more
	case b == '}' && !c.nameAsKey:
		return c.close(p)
	case b == '"':
		c.scan = scanner{}
		c.scan.step(b)
		c.key = append(c.key[:0], b)
		c.state = (*jsonCalls).readKey
		return more
	}
	return invalid
}

func (c *jsonCalls) readKey(p *Parser, b byte) verdict {
	c.key = append(c.key, c.scan.escape(b)...)
	switch c.scan.step(b) {
	case invalid:
		return invalid
	case done:
		c.state = (*jsonCalls).colon
	}
	if len(c.key) > maxName {
		return invalid
	}
	return more
}

func (c *jsonCalls) colon(p *Parser, b byte) verdict {
	if isSpace(b) {
		return more
	}
	if b != ':' {
		return invalid
	}
	var key string
	if json.Unmarshal(c.key, &key) != nil {
		return invalid
	}
	role, known := memberRoles[key]
	switch {
	case c.nameAsKey:
		c.name, role = key, isArguments
		if !p.offers(key) {
			return invalid
		}
	case c.noOtherMembers && !known && key != "type":
		return invalid
	case role == isName && c.name != "", role == isArguments && c.hasArguments:
		return invalid
	}
	c.role = role
	c.scan = scanner{}
	c.value = c.value[:0]
	c.state = (*jsonCalls).readValue
	if role == isArguments {
		c.args = argumentsReader{buffered: c.name == "" || c.idLast}
		if !c.args.buffered {
			c.state = (*jsonCalls).beginArguments
		} else {
			c.state = (*jsonCalls).readArguments
		}
	}
	return more
}

// beginArguments announces the call at the first byte of an object.
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
	case invalid:
		return invalid
	case done:
		c.hasArguments = true
		c.state = (*jsonCalls).afterMember
	}
	return more
}

func (c *jsonCalls) readValue(p *Parser, b byte) verdict {
	if c.role == isName && len(c.value) == 0 && !isSpace(b) && b != '"' {
		return invalid
	}
	if c.role != isOther && (len(c.value) > 0 || !isSpace(b)) {
		c.value = append(c.value, c.scan.escape(b)...)
		if len(c.value) > maxName {
			return invalid
		}
	}
	switch c.scan.step(b) {
	case invalid:
		return invalid
	case more:
		return more
	case doneBefore:
		c.state = (*jsonCalls).afterMember
		if c.role != isOther {
			c.value = c.value[:len(c.value)-1]
		}
		if v := c.storeMember(p); v != more {
			return v
		}
		return c.afterMember(p, b)
	}
	c.state = (*jsonCalls).afterMember
	return c.storeMember(p)
}

// storeMember stores the value of a name or an id.
func (c *jsonCalls) storeMember(p *Parser) verdict {
	var text string
	switch c.role {
	case isName:
		if json.Unmarshal(c.value, &text) != nil || !p.offers(text) {
			return invalid
		}
		c.name = text
	case isID:
		if json.Unmarshal(c.value, &text) == nil && c.modelIDs {
			c.id = text
		}
	}
	return more
}

func (c *jsonCalls) afterMember(p *Parser, b byte) verdict {
	switch {
	case isSpace(b):
		return more
	case b == ',' && !c.nameAsKey:
		c.state = (*jsonCalls).nextMember
		return more
	case b == '}':
		return c.close(p)
	}
	return invalid
}

func (c *jsonCalls) nextMember(p *Parser, b byte) verdict {
	if b == '}' {
		return invalid
	}
	return c.beginMember(p, b)
}

// close ends a call.
func (c *jsonCalls) close(p *Parser) verdict {
	if p.announced {
		p.completeCall()
	} else {
		arguments, ok := c.args.object()
		if !ok || !p.addCall(c.id, c.name, arguments) {
			return invalid
		}
	}
	c.hasCall, c.hasArguments = true, false
	c.key, c.id, c.name = nil, "", ""
	c.args = argumentsReader{}
	if !c.inList {
		return done
	}
	c.state = (*jsonCalls).afterCall
	return more
}
