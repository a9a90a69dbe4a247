// Package reply parses the text of a model, while it is generated, into reasoning, content
// and tool calls.
//
// The syntax of calls differs between model families; [Detect] finds it in the source of the
// chat template. A [Parser] takes the text piece by piece and returns deltas. Joined, the
// deltas do not depend on how the text was split. The parser buffers only text that may be
// the beginning of a marker, the white space around markers, and calls that it cannot
// announce yet. Time is linear in the text; nesting and buffers are limited.
//
// A call is announced as soon as a marker or the form of the reply shows that it is one, its
// name is that of an offered tool, and its arguments begin as a JSON object. From then on the
// arguments are emitted as they come. Each byte is checked to be valid JSON; raw control
// characters in strings, which models often write, are escaped. Calls in formats that are not
// JSON (XML-like parameters, Python, Gemma's), and in those that put the id after the
// arguments, are emitted when they are complete.
//
// Text that turns out not to be a call, for example because the tool was not offered, is
// content exactly as the model wrote it. A call that becomes invalid after it was announced
// cannot be revoked: the rest of it is content, and Called returns false, so that the caller
// does not run it. With
// Options.Whole calls are announced only when they are complete, so that this cannot
// happen. White space around calls and reasoning is layout and is dropped.
package reply

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
)

// Delta is the addition of a piece of text to a message.
type Delta struct {
	Content   string
	Reasoning string
	Calls     []CallDelta
}

// Add appends the delta that follows d.
func (d *Delta) Add(next Delta) {
	d.Content += next.Content
	d.Reasoning += next.Reasoning
	d.Calls = append(d.Calls, next.Calls...)
}

// CallDelta is an addition to the call number Index of a message. The first delta of a call
// has ID and Name; the Arguments of all of them, joined, are a JSON object.
type CallDelta struct {
	Index     int    `json:"index"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

// Tool is a function that may be called.
type Tool struct {
	Name       string
	Parameters json.RawMessage // JSON schema of the arguments; empty for any object
	Strict     bool            // it is an error if the schema cannot be enforced in full
}

// ParseTools parses tool definitions in OpenAI's form: an array of
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

// Options are the parts of a request that a parser needs.
type Options struct {
	Tools       []Tool        // offered tools; without any, all text is content
	Prompt      string        // the end of the text that the reply continues
	BufferCalls bool          // emit calls when they are complete
	Single      bool          // of several calls in one block, use only the first
	Required    bool          // the reply is calls and nothing else: one that is cut off is no content
	NewID       func() string // of calls whose format has no id; nil for random ones
}

// idLength is the length that Mistral's templates require; other families accept any.
const idLength = 9

// NewID returns a random id of nine letters and digits.
func NewID() string { return rand.Text()[:idLength] }

// Limits of buffers in bytes.
const (
	maxName     = 256
	maxSpace    = 4 << 10
	maxCallText = 1 << 20 // of a call that is not announced yet
)

// verdict is the effect of a byte or marker on the call or JSON value that is read.
type verdict int

const (
	more       verdict = iota
	done               // it is complete, including the byte
	doneBefore         // it was complete before the byte
	invalid            // it is not a call or value
)

// callReader reads a call, or several in a row, after the opening marker.
type callReader interface {
	text(p *Parser, b byte) verdict
	marker(p *Parser, m *marker) verdict
	end(p *Parser, complete bool) verdict // the reply ends; complete if the model ended it
}

// state is the part of the reply that the parser reads.
type state int

const (
	inContent state = iota
	inReasoning
	inCall
	inHeader  // of a harmony message
	inBetween // between harmony messages
)

// Parser parses one reply. It is not safe for concurrent use.
type Parser struct {
	syntax      *Syntax
	tools       map[string]Tool
	kinds       map[string]properties // by name, of tools that were called
	bufferCalls bool
	single      bool
	required    bool
	newID       func() string
	lexer       lexer

	// The next delta.
	content, reasoning []byte
	calls              []callBuffer

	state        state
	atStart      bool   // the content so far is white space
	skipSpace    bool   // drop white space, because a call or reasoning has just ended
	pendingSpace []byte // white space and wrappers of calls, which are content only if content follows
	reasoningEnd string // the tag that ends the reasoning
	frameEnd     string // the tag that ends the content; empty for none

	reader       callReader
	callText     []byte       // text of the current call that is in no delta yet
	nextIndex    int          // of the next call
	announced    bool         // the current call is announced
	brokeOff     bool         // a call became invalid after it was announced
	pendingCalls []callBuffer // calls that are emitted when they are complete

	header       []byte // of a harmony message
	hasContent   bool
	hasReasoning bool
	newMessage   bool // a new harmony message has started, which is separated from the last one
}

// callBuffer is a CallDelta whose arguments are being appended.
type callBuffer struct {
	CallDelta
	arguments []byte
}

// Parser returns a parser for one reply.
func (f *Syntax) Parser(o Options) *Parser {
	p := &Parser{
		syntax:      f,
		tools:       make(map[string]Tool, len(o.Tools)),
		bufferCalls: o.BufferCalls,
		single:      o.Single,
		required:    o.Required,
		newID:       o.NewID,
		lexer:       lexer{syntax: f},
		atStart:     true,
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
	case f.opensCall != nil && f.opensCall(o.Prompt):
		p.atStart = false
		p.beginCall(f.newOpenedReader())
	default:
		p.reasoningEnd = f.OpenedBy(o.Prompt)
		if p.reasoningEnd != "" {
			p.state = inReasoning
		}
	}
	return p
}

// Text parses the next piece of the reply and returns what it adds.
func (p *Parser) Text(text string) Delta {
	for i := range len(text) {
		p.lexer.byte(p, text[i])
	}
	return p.takeDelta()
}

// Control parses a control token that spells text. It drops tokens that the format does not
// interpret.
func (p *Parser) Control(text string) Delta {
	p.lexer.control(p, text)
	return p.takeDelta()
}

// Flush returns buffered text as what it is so far, as if no marker could follow.
func (p *Parser) Flush() Delta {
	p.lexer.flush(p)
	if !p.skipSpace {
		p.releaseSpace()
	}
	return p.takeDelta()
}

// End ends the reply and returns what was buffered. complete is set if the model ended the
// reply, not if it was truncated.
func (p *Parser) End(complete bool) Delta {
	cut := p.required && !complete
	if cut && p.state != inReasoning {
		p.lexer.buffer = nil // of a marker
	}
	p.lexer.flush(p)
	if p.state == inCall {
		switch p.reader.end(p, complete) {
		case done, doneBefore:
			p.endCall()
		default:
			if cut {
				p.callText = p.callText[:0]
			}
			p.breakCall()
		}
	}
	if cut {
		p.pendingSpace, p.header = p.pendingSpace[:0], p.header[:0]
	}
	if p.state == inHeader && len(p.header) > 0 && (complete || !mayBeginHeader(string(p.header))) {
		p.addContent(string(p.header))
	}
	if !p.skipSpace {
		p.releaseSpace()
	}
	return p.takeDelta()
}

// Called reports, after End, whether there are calls and all announced ones are complete.
func (p *Parser) Called() bool { return p.nextIndex > 0 && !p.brokeOff }

// InReasoning reports whether the parser is inside reasoning.
func (p *Parser) InReasoning() bool { return p.state == inReasoning }

// ReasoningEnd returns the tag that closes the reasoning that the parser is inside of; "" if it is not, or if that is a harmony
// channel, which ends with its message.
func (p *Parser) ReasoningEnd() string {
	if p.state != inReasoning {
		return ""
	}
	return p.reasoningEnd
}

// Calls returns the number of complete calls.
func (p *Parser) Calls() int {
	if p.announced {
		return p.nextIndex - 1
	}
	return p.nextIndex
}

func (p *Parser) takeDelta() Delta {
	d := Delta{Content: string(p.content), Reasoning: string(p.reasoning)}
	for _, c := range p.calls {
		c.Arguments = string(c.arguments)
		d.Calls = append(d.Calls, c.CallDelta)
	}
	p.content, p.reasoning, p.calls = p.content[:0], p.reasoning[:0], nil
	return d
}

// read parses a byte of text, or a marker if m is not nil.
func (p *Parser) read(b byte, m *marker) {
	switch p.state {
	case inCall:
		p.callSymbol(b, m)
	case inReasoning:
		p.reasoningSymbol(b, m)
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
		if p.skipSpace {
			return
		}
		p.addSpace(string(b))
		return
	}
	if p.atStart && len(p.tools) > 0 && p.syntax.bareReader != nil {
		if p.nextIndex > 0 && b == ';' { // between calls
			return
		}
		if body := p.syntax.bareReader(b); body != nil {
			p.beginCall(body)
			p.callSymbol(b, nil)
			return
		}
	}
	p.addContent(string([]byte{b}))
}

func (p *Parser) contentMarker(m *marker) {
	switch {
	case m.role == opensCall && len(p.tools) > 0:
		p.beginCall(m.newReader())
		p.callText = append(p.callText, m.text...)
		return
	case m.role == wrapsCalls && len(p.tools) > 0:
		p.addSpace(m.text)
		return
	case m.role == closesCall && p.skipSpace, m.role == ignored:
		return
	case m.role == opensReasoning && (m.control || p.atStart && p.nextIndex == 0 && !p.hasReasoning):
		p.pendingSpace, p.skipSpace = p.pendingSpace[:0], false
		p.state, p.reasoningEnd = inReasoning, m.close
		return
	case m.role == opensFrame && !p.hasContent && p.frameEnd == "":
		p.pendingSpace, p.skipSpace, p.frameEnd = p.pendingSpace[:0], true, m.close
		return
	case p.frameEnd != "" && m.text == p.frameEnd:
		p.pendingSpace, p.skipSpace, p.frameEnd = p.pendingSpace[:0], true, ""
		return
	case m.role == framesMessage:
		p.endMessage(m)
		return
	}
	p.addContent(m.text)
}

// addSpace buffers text that is dropped if a call or reasoning follows.
func (p *Parser) addSpace(text string) {
	if len(p.pendingSpace)+len(text) > maxSpace {
		p.releaseSpace()
	}
	p.pendingSpace = append(p.pendingSpace, text...)
	if len(p.tools) == 0 && !p.atStart {
		p.releaseSpace()
	}
}

func (p *Parser) releaseSpace() {
	if p.state == inReasoning {
		p.reasoning = append(p.reasoning, p.pendingSpace...)
	} else {
		p.content = append(p.content, p.pendingSpace...)
	}
	p.pendingSpace = p.pendingSpace[:0]
}

// addContent adds text to the content.
func (p *Parser) addContent(text string) {
	if p.newMessage && p.hasContent {
		p.content = append(p.content, "\n\n"...)
	}
	p.newMessage, p.hasContent = false, true
	p.releaseSpace()
	p.atStart, p.skipSpace = false, false
	p.content = append(p.content, text...)
}

func (p *Parser) reasoningSymbol(b byte, m *marker) {
	if m != nil {
		switch {
		case m.text == p.reasoningEnd, m.role == opensCall && m.control && len(p.tools) > 0:
			p.state, p.skipSpace = inContent, true
			p.pendingSpace = p.pendingSpace[:0]
			if m.role == opensCall {
				p.contentMarker(m)
			}
			return
		case m.role == framesMessage:
			p.endMessage(m)
			return
		}
		p.addReasoning(m.text)
		return
	}
	if isSpace(b) {
		if p.hasReasoning && !p.newMessage {
			if len(p.pendingSpace) == maxSpace {
				p.releaseSpace()
			}
			p.pendingSpace = append(p.pendingSpace, b)
		}
		return
	}
	p.addReasoning(string([]byte{b}))
}

func (p *Parser) addReasoning(text string) {
	if p.newMessage && p.hasReasoning {
		p.reasoning = append(p.reasoning, "\n\n"...)
	}
	p.newMessage, p.hasReasoning = false, true
	p.releaseSpace()
	p.reasoning = append(p.reasoning, text...)
}

// beginCall starts reading a call.
func (p *Parser) beginCall(b callReader) {
	p.state, p.reader, p.announced = inCall, b, false
	p.callText = p.callText[:0]
}

func (p *Parser) callSymbol(b byte, m *marker) {
	var v verdict
	if m != nil {
		p.callText = append(p.callText, m.text...)
		v = p.reader.marker(p, m)
	} else {
		p.callText = append(p.callText, b)
		v = p.reader.text(p, b)
	}
	if v == more && p.announced && !p.bufferCalls {
		p.callText = p.callText[:0]
	}
	if v == more && len(p.callText) > maxCallText {
		v = invalid
	}
	switch v {
	case done:
		p.endCall()
	case doneBefore:
		p.endCall()
		p.read(b, m)
	case invalid:
		p.breakCall()
	}
}

// endCall continues after a call.
func (p *Parser) endCall() {
	p.reader = nil
	p.callText, p.pendingSpace = p.callText[:0], p.pendingSpace[:0]
	p.state, p.skipSpace, p.atStart = inContent, true, !p.hasContent
	if p.syntax.harmony {
		p.state = inBetween
	}
}

// breakCall emits the buffered text of a call as content.
func (p *Parser) breakCall() {
	if p.announced && !p.bufferCalls {
		p.brokeOff = true
	} else if p.announced {
		p.nextIndex--
	}
	p.reader, p.announced = nil, false
	p.pendingCalls = nil
	p.state = inContent
	if len(p.callText) > 0 {
		p.addContent(string(p.callText))
	}
	p.callText = p.callText[:0]
}

// announce starts emitting a call of an offered tool. An empty id is replaced.
func (p *Parser) announce(id, name string) {
	if id == "" {
		id = p.newID()
	}
	p.announced = true
	c := callBuffer{CallDelta: CallDelta{Index: p.nextIndex, ID: id, Name: name}}
	p.nextIndex++
	if p.bufferCalls {
		p.pendingCalls = append(p.pendingCalls, c)
	} else {
		p.calls = append(p.calls, c)
	}
}

// addArguments adds to the arguments of the call that was announced last.
func (p *Parser) addArguments(fragment string) {
	to := &p.calls
	if p.bufferCalls {
		to = &p.pendingCalls
	}
	n := len(*to)
	if n == 0 || (*to)[n-1].Index != p.nextIndex-1 {
		*to = append(*to, callBuffer{CallDelta: CallDelta{Index: p.nextIndex - 1}})
		n++
	}
	last := &(*to)[n-1]
	last.arguments = append(last.arguments, fragment...)
}

// completeCall ends the call that was announced last.
func (p *Parser) completeCall() {
	p.calls = append(p.calls, p.pendingCalls...)
	p.pendingCalls, p.announced = nil, false
	p.callText = p.callText[:0]
}

// addCall announces and completes a call. It returns false if the tool is not offered or the
// arguments are not a JSON object.
func (p *Parser) addCall(id, name, arguments string) bool {
	if !p.offers(name) || !isObject(arguments) {
		return false
	}
	p.announce(id, name)
	p.addArguments(arguments)
	p.completeCall()
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
