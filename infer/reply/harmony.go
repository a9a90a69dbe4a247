package reply

import "strings"

// The messages of harmony, gpt-oss's format:
//
//	<|start|>assistant<|channel|>CHANNEL to=RECIPIENT <|constrain|>json<|message|>TEXT<|end|>
//
// A message in the channel analysis is reasoning, a message to functions.NAME is a call, and
// other messages are content.

var harmonyMarkers = []marker{
	{text: "<|start|>", role: framesMessage},
	{text: "<|channel|>", role: framesMessage},
	{text: "<|constrain|>", role: framesMessage},
	{text: "<|message|>", role: framesMessage},
	{text: "<|end|>", role: framesMessage},
	{text: "<|call|>", role: framesMessage},
	{text: "<|return|>", role: framesMessage},
}

const maxHeader = 1 << 10

// beginHarmony sets the state in which a reply to prompt begins.
func (p *Parser) beginHarmony(prompt string) {
	if header, inside := openMessage(prompt); inside {
		p.beginMessage(header)
	} else {
		p.state = inHeader
	}
}

// openMessage returns the header of the message within which a prompt ends; inside is false
// if it does not end within one.
func openMessage(prompt string) (header string, inside bool) {
	_, last, found := cutLast(prompt, "<|start|>")
	header, _, open := strings.Cut(last, "<|message|>")
	return header, found && open && !strings.Contains(last, "<|end|>")
}

func cutLast(text, mark string) (before, after string, found bool) {
	if i := strings.LastIndex(text, mark); i >= 0 {
		return text[:i], text[i+len(mark):], true
	}
	return "", text, false
}

// headerSymbol reads text outside of messages.
func (p *Parser) headerSymbol(b byte, m *marker) {
	text := string([]byte{b})
	if m != nil {
		text = m.text
	}
	switch {
	case text == "<|start|>":
		p.state, p.header = inHeader, p.header[:0]
		return
	case p.state == inBetween && (m != nil || isSpace(b)):
		return
	case p.state == inBetween:
		p.state = inContent
		p.addContent(text)
		return
	case text == "<|message|>":
		p.beginMessage(string(p.header))
		return
	case text == "<|end|>" || text == "<|call|>" || text == "<|return|>":
		p.addContent(string(p.header))
		p.state = inBetween
		return
	}
	p.header = append(p.header, text...)
	if len(p.header) > maxHeader {
		p.addContent(string(p.header))
		p.state = inContent
	}
}

// beginMessage starts the message of a header.
func (p *Parser) beginMessage(header string) {
	defer func() { p.header = p.header[:0] }()
	p.newMessage = p.hasContent || p.hasReasoning
	if _, to, found := strings.Cut(header, "to="); found {
		to, _, _ = strings.Cut(to, "<")
		to, _, _ = strings.Cut(to, " ")
		if name, isFunction := strings.CutPrefix(to, "functions."); isFunction && p.offers(name) {
			p.beginCall(&harmonyCall{name: name})
			p.callText = append(append(p.callText, header...), "<|message|>"...)
			return
		}
		p.state = inContent
		p.addContent(header + "<|message|>")
		return
	}
	_, channel, _ := strings.Cut(header, "<|channel|>")
	p.state = inContent
	if strings.HasPrefix(channel, "analysis") {
		p.state, p.reasoningEnd = inReasoning, ""
	}
}

// mayBeginHeader reports whether text may be the beginning of a header, which is not content.
func mayBeginHeader(text string) bool {
	const role = "assistant"
	channel := strings.TrimPrefix(text, role)
	return strings.HasPrefix(role, text) || strings.HasPrefix(channel, "<|channel|>")
}

// endMessage handles a marker within a message, which ends the message.
func (p *Parser) endMessage(m *marker) {
	p.releaseSpace()
	p.state = inBetween
	if m.text == "<|start|>" {
		p.state, p.header = inHeader, p.header[:0]
	}
}

// harmonyCall reads the arguments of a call.
type harmonyCall struct {
	name string
	args argumentsReader
}

func (c *harmonyCall) text(p *Parser, b byte) verdict {
	if b == '{' && !c.args.started {
		p.announce("", c.name)
	}
	switch c.args.step(p, b) {
	case invalid:
		return invalid
	case more:
		return more
	}
	if p.announced {
		p.completeCall()
		return done
	}
	if arguments, ok := c.args.object(); !ok || !p.addCall("", c.name, arguments) {
		return invalid
	}
	return done
}

func (c *harmonyCall) marker(p *Parser, m *marker) verdict { return eachByte(c, p, m.text) }

func (c *harmonyCall) end(*Parser, bool) verdict { return invalid }
