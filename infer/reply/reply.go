// Package reply reads what a model wrote: it tells what it thinks, what it says and
// which tools it calls apart, while the answer is still being written.
//
// How calls are written differs between model families; [Detect] finds the syntax in
// the source of the chat template. A [Parser] takes the text of the answer as it comes
// and gives back deltas. However the text is cut, the deltas put together are the same.
// Only what may be the beginning of a marker, the white space around one and calls that
// cannot be told yet are held back. Time is linear in the text, nesting and what is held
// back are bounded.
//
// A call is announced when three things are certain: a marker or the shape of the reply
// says that it is one, its name is that of an offered tool, and its arguments begin as a
// JSON object. From then on the arguments are passed on as they come, each byte checked
// to be JSON; raw control characters in strings, which models like to write, are
// escaped. Formats that are not JSON (XML-like parameters, Python, Gemma's), and those
// that name the call's id behind its arguments, are passed on a call at a time.
//
// What turns out to be no call, a tool that was not offered included, is content exactly
// as the model wrote it. A call that breaks off after it was announced cannot be taken
// back: the rest of it is content, and Called is false, so that nobody runs it. With
// Options.Whole calls are announced only when they are complete, so that this cannot
// happen. White space around calls and thoughts is layout and is dropped.
package reply

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
)

// Delta is what a piece of text adds to a message.
type Delta struct {
	Content   string
	Reasoning string
	Calls     []CallDelta
}

// Add puts what comes behind d to it.
func (d *Delta) Add(next Delta) {
	d.Content += next.Content
	d.Reasoning += next.Reasoning
	d.Calls = append(d.Calls, next.Calls...)
}

// CallDelta adds to the call number Index of a message. The first one of a call has ID
// and Name; the Arguments of all, put together, are a JSON object.
type CallDelta struct {
	Index     int    `json:"index"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

// Tool is a function that may be called.
type Tool struct {
	Name       string
	Parameters json.RawMessage // JSON schema of the arguments; empty: any object
	Strict     bool            // calls are held to all of the schema, or refused
}

// ParseTools reads tool definitions in OpenAI's form: an array of
// {"type": "function", "function": {"name", "description", "parameters", "strict"}}.
func ParseTools(definitions json.RawMessage) ([]Tool, error) {
	if len(definitions) == 0 {
		return nil, nil
	}
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
			Strict     bool            `json:"strict"`
		} `json:"function"`
	}
	if err := json.Unmarshal(definitions, &list); err != nil {
		return nil, fmt.Errorf("tools must be an array of {\"type\": \"function\", \"function\": {…}}: %w", err)
	}
	tools := make([]Tool, len(list))
	for i, t := range list {
		if t.Function.Name == "" {
			return nil, fmt.Errorf("tools[%d].function.name is missing", i)
		}
		tools[i] = Tool(t.Function)
	}
	return tools, nil
}

// Options are what a parser needs to know of the request.
type Options struct {
	Tools  []Tool        // what may be called; none: nothing is a call
	Prompt string        // what the reply goes on from; its end alone counts
	Whole  bool          // announce calls when they are complete
	Single bool          // of calls that are written as one, the first alone counts
	NewID  func() string // of calls whose format has no id; nil: random
}

// idLength is that of the ids that Mistral's templates insist on; no other family minds.
const idLength = 9

// NewID returns a random id of nine letters and digits.
func NewID() string { return rand.Text()[:idLength] }

// Limits of what is held back, in bytes.
const (
	maxName  = 256
	maxSpace = 4 << 10
	maxHeld  = 1 << 20 // of a call that cannot be announced yet
)

// verdict is what a symbol means to the reader of a call.
type verdict int

const (
	more   verdict = iota
	done           // the call ends with the symbol
	over           // the call ended in front of the symbol
	broken         // this is no call
)

// body reads the inside of a call, or of several in a row.
type body interface {
	text(p *Parser, b byte) verdict
	marker(p *Parser, m *marker) verdict
	end(p *Parser, whole bool) verdict // the reply ends; whole: the model ended it
}

// state is what the parser reads.
type state int

const (
	inContent state = iota
	inThought
	inCall
	inHeader  // of a harmony message
	inBetween // harmony messages
)

// Parser reads one reply. It is used by one goroutine.
type Parser struct {
	syntax *Syntax
	tools  map[string]Tool
	known  map[string]properties // of tools that were called
	whole  bool
	single bool
	newID  func() string
	lexer  lexer

	// What the next delta holds.
	content, reasoning []byte
	calls              []growing

	state   state
	fresh   bool   // nothing but white space and calls has been said
	layout  bool   // a call or a thought has just ended
	space   []byte // white space and wrappers of calls, which count only if something is said behind them
	closing string // the tag that ends the thought
	framed  string // the tag that ends what is said; empty: none does

	body  body
	raw   []byte    // of the call that is being read, in no delta yet
	index int       // of the next call
	begun bool      // the call that is being read is announced
	lost  bool      // a call broke off after it was announced
	held  []growing // calls that are announced when they are complete

	header []byte // of a harmony message
	said   bool   // there is content
	thinks bool   // there is reasoning
	paused bool   // another message of harmony follows
}

// growing is a CallDelta whose arguments still come.
type growing struct {
	CallDelta
	arguments []byte
}

// Parser returns a parser for one reply.
func (f *Syntax) Parser(o Options) *Parser {
	p := &Parser{
		syntax: f,
		tools:  make(map[string]Tool, len(o.Tools)),
		whole:  o.Whole,
		single: o.Single,
		newID:  o.NewID,
		lexer:  lexer{syntax: f},
		fresh:  true,
	}
	if p.newID == nil {
		p.newID = NewID
	}
	for _, t := range o.Tools {
		p.tools[t.Name] = t
	}
	switch {
	case f.harmony:
		p.beginHarmony(o.Prompt)
	case f.opened != nil && f.opened(o.Prompt):
		p.fresh = false
		p.open(f.begins())
	default:
		p.closing = f.OpenedBy(o.Prompt)
		if p.closing != "" {
			p.state = inThought
		}
	}
	return p
}

// Text takes the next piece of the reply's text.
func (p *Parser) Text(text string) Delta {
	for i := range len(text) {
		p.lexer.byte(p, text[i])
	}
	return p.take()
}

// Control takes a control token that spells text. Those that mean nothing to the format
// are dropped.
func (p *Parser) Control(text string) Delta {
	p.lexer.control(p, text)
	return p.take()
}

// Settle takes what is held back of text for what it is so far, as if nothing could come
// that makes it something else.
func (p *Parser) Settle() Delta {
	p.lexer.flush(p)
	if !p.layout {
		p.flushSpace()
	}
	return p.take()
}

// End ends the reply: whole if the model ended it, not if it was cut.
func (p *Parser) End(whole bool) Delta {
	p.lexer.flush(p)
	if p.state == inCall {
		switch p.body.end(p, whole) {
		case done, over:
			p.closeCall()
		default:
			p.breakCall()
		}
	}
	if p.state == inHeader && len(p.header) > 0 && (whole || !beginsHeader(string(p.header))) {
		p.say(string(p.header))
	}
	if !p.layout {
		p.flushSpace()
	}
	return p.take()
}

// Called reports, behind End, whether there are calls, and none broke off after it was
// announced.
func (p *Parser) Called() bool { return p.index > 0 && !p.lost }

// Thinking reports whether a thought is being read.
func (p *Parser) Thinking() bool { return p.state == inThought }

// Calls returns how many calls are complete.
func (p *Parser) Calls() int {
	if p.begun {
		return p.index - 1
	}
	return p.index
}

func (p *Parser) take() Delta {
	d := Delta{Content: string(p.content), Reasoning: string(p.reasoning)}
	for _, c := range p.calls {
		c.Arguments = string(c.arguments)
		d.Calls = append(d.Calls, c.CallDelta)
	}
	p.content, p.reasoning, p.calls = p.content[:0], p.reasoning[:0], nil
	return d
}

// symbol takes a byte of text, or a marker if m is not nil.
func (p *Parser) symbol(b byte, m *marker) {
	switch p.state {
	case inCall:
		p.callSymbol(b, m)
	case inThought:
		p.thoughtSymbol(b, m)
	case inHeader, inBetween:
		p.headerSymbol(b, m)
	default:
		p.contentSymbol(b, m)
	}
}

func (p *Parser) contentSymbol(b byte, m *marker) {
	if m != nil {
		p.contentMarker(m)
		return
	}
	if isSpace(b) {
		if p.layout {
			return
		}
		p.addSpace(string(b))
		return
	}
	if p.fresh && len(p.tools) > 0 && p.syntax.bare != nil {
		if p.index > 0 && b == ';' { // between calls
			return
		}
		if body := p.syntax.bare(b); body != nil {
			p.open(body)
			p.callSymbol(b, nil)
			return
		}
	}
	p.say(string([]byte{b}))
}

func (p *Parser) contentMarker(m *marker) {
	switch {
	case m.role == opens && len(p.tools) > 0:
		p.open(m.body())
		p.raw = append(p.raw, m.text...)
		return
	case m.role == wraps && len(p.tools) > 0:
		p.addSpace(m.text)
		return
	case m.role == closes && p.layout, m.role == skips:
		return
	case m.role == thinks && (m.control || p.fresh && p.index == 0 && !p.thinks):
		p.space, p.layout = p.space[:0], false
		p.state, p.closing = inThought, m.close
		return
	case m.role == frames && !p.said && p.framed == "":
		p.space, p.layout, p.framed = p.space[:0], true, m.close
		return
	case p.framed != "" && m.text == p.framed:
		p.space, p.layout, p.framed = p.space[:0], true, ""
		return
	case m.role == harmony:
		p.endMessage(m)
		return
	}
	p.say(m.text)
}

// addSpace holds back what is layout if a call or thought follows.
func (p *Parser) addSpace(text string) {
	if len(p.space)+len(text) > maxSpace {
		p.flushSpace()
	}
	p.space = append(p.space, text...)
	if len(p.tools) == 0 && !p.fresh {
		p.flushSpace()
	}
}

func (p *Parser) flushSpace() {
	if p.state == inThought {
		p.reasoning = append(p.reasoning, p.space...)
	} else {
		p.content = append(p.content, p.space...)
	}
	p.space = p.space[:0]
}

// say adds text to the content.
func (p *Parser) say(text string) {
	if p.paused && p.said {
		p.content = append(p.content, "\n\n"...)
	}
	p.paused, p.said = false, true
	p.flushSpace()
	p.fresh, p.layout = false, false
	p.content = append(p.content, text...)
}

func (p *Parser) thoughtSymbol(b byte, m *marker) {
	if m != nil {
		switch {
		case m.text == p.closing, m.role == opens && m.control && len(p.tools) > 0:
			p.state, p.layout = inContent, true
			p.space = p.space[:0]
			if m.role == opens {
				p.contentMarker(m)
			}
			return
		case m.role == harmony:
			p.endMessage(m)
			return
		}
		p.think(m.text)
		return
	}
	if isSpace(b) {
		if p.thinks && !p.paused {
			if len(p.space) == maxSpace {
				p.flushSpace()
			}
			p.space = append(p.space, b)
		}
		return
	}
	p.think(string([]byte{b}))
}

func (p *Parser) think(text string) {
	if p.paused && p.thinks {
		p.reasoning = append(p.reasoning, "\n\n"...)
	}
	p.paused, p.thinks = false, true
	p.flushSpace()
	p.reasoning = append(p.reasoning, text...)
}

// open begins to read a call.
func (p *Parser) open(b body) {
	p.state, p.body, p.begun = inCall, b, false
	p.raw = p.raw[:0]
}

func (p *Parser) callSymbol(b byte, m *marker) {
	var v verdict
	if m != nil {
		p.raw = append(p.raw, m.text...)
		v = p.body.marker(p, m)
	} else {
		p.raw = append(p.raw, b)
		v = p.body.text(p, b)
	}
	if v == more && p.begun && !p.whole {
		p.raw = p.raw[:0]
	}
	if v == more && len(p.raw) > maxHeld {
		v = broken
	}
	switch v {
	case done:
		p.closeCall()
	case over:
		p.closeCall()
		p.symbol(b, m)
	case broken:
		p.breakCall()
	}
}

// closeCall goes on behind a call.
func (p *Parser) closeCall() {
	p.body = nil
	p.raw, p.space = p.raw[:0], p.space[:0]
	p.state, p.layout, p.fresh = inContent, true, !p.said
	if p.syntax.harmony {
		p.state = inBetween
	}
}

// breakCall makes content of what was held back of a call.
func (p *Parser) breakCall() {
	if p.begun && !p.whole {
		p.lost = true
	} else if p.begun {
		p.index--
	}
	p.body, p.begun = nil, false
	p.held = nil
	p.state = inContent
	if len(p.raw) > 0 {
		p.say(string(p.raw))
	}
	p.raw = p.raw[:0]
}

// announce begins a call of a tool that was offered. An empty id is replaced.
func (p *Parser) announce(id, name string) {
	if id == "" {
		id = p.newID()
	}
	p.begun = true
	c := growing{CallDelta: CallDelta{Index: p.index, ID: id, Name: name}}
	p.index++
	if p.whole {
		p.held = append(p.held, c)
	} else {
		p.calls = append(p.calls, c)
	}
}

// argue adds to the arguments of the call that was announced last.
func (p *Parser) argue(fragment string) {
	to := &p.calls
	if p.whole {
		to = &p.held
	}
	n := len(*to)
	if n == 0 || (*to)[n-1].Index != p.index-1 {
		*to = append(*to, growing{CallDelta: CallDelta{Index: p.index - 1}})
		n++
	}
	last := &(*to)[n-1]
	last.arguments = append(last.arguments, fragment...)
}

// complete ends the call that was announced last. What the model wrote of it is told.
func (p *Parser) complete() {
	p.calls = append(p.calls, p.held...)
	p.held, p.begun = nil, false
	p.raw = p.raw[:0]
}

// call announces and completes a call. It reports whether the tool is offered and the
// arguments are an object.
func (p *Parser) call(id, name, arguments string) bool {
	if !p.offers(name) || !isObject(arguments) {
		return false
	}
	p.announce(id, name)
	p.argue(arguments)
	p.complete()
	return true
}

func (p *Parser) offers(name string) bool {
	_, ok := p.tools[name]
	return ok
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && json.Valid([]byte(text))
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }
