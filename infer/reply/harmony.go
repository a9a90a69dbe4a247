package reply

import "strings"

// The messages of harmony, gpt-oss's format:
//
//	<|start|>assistant<|channel|>CHANNEL to=RECIPIENT <|constrain|>json<|message|>TEXT<|end|>
//
// What is said in the channel analysis is reasoning, a message to functions.NAME is a
// call, all else is content.

var harmonyMarkers = []marker{
	{text: "<|start|>", role: harmony},
	{text: "<|channel|>", role: harmony},
	{text: "<|constrain|>", role: harmony},
	{text: "<|message|>", role: harmony},
	{text: "<|end|>", role: harmony},
	{text: "<|call|>", role: harmony},
	{text: "<|return|>", role: harmony},
}

const maxHeader = 1 << 10

// beginHarmony finds out in which part of a message the reply begins.
func (p *Parser) beginHarmony(prompt string) {
	if header, inside := openMessage(prompt); inside {
		p.beginMessage(header)
	} else {
		p.state = inHeader
	}
}

// openMessage returns the header of the message that a prompt ends in, if it does.
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

// headerSymbol reads what is outside of messages.
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
		p.say(text)
		return
	case text == "<|message|>":
		p.beginMessage(string(p.header))
		return
	case text == "<|end|>" || text == "<|call|>" || text == "<|return|>":
		p.say(string(p.header))
		p.state = inBetween
		return
	}
	p.header = append(p.header, text...)
	if len(p.header) > maxHeader {
		p.say(string(p.header))
		p.state = inContent
	}
}

// beginMessage begins the message of a header.
func (p *Parser) beginMessage(header string) {
	defer func() { p.header = p.header[:0] }()
	p.paused = p.said || p.thinks
	if _, to, found := strings.Cut(header, "to="); found {
		to, _, _ = strings.Cut(to, "<")
		to, _, _ = strings.Cut(to, " ")
		if name, isFunction := strings.CutPrefix(to, "functions."); isFunction && p.offers(name) {
			p.open(&harmonyCall{name: name})
			p.raw = append(append(p.raw, header...), "<|message|>"...)
			return
		}
		p.state = inContent
		p.say(header + "<|message|>")
		return
	}
	_, channel, _ := strings.Cut(header, "<|channel|>")
	p.state = inContent
	if strings.HasPrefix(channel, "analysis") {
		p.state, p.closing = inThought, ""
	}
}

// beginsHeader reports whether text may be the beginning of a header, of which nothing is
// said.
func beginsHeader(text string) bool {
	const role = "assistant"
	channel := strings.TrimPrefix(text, role)
	return strings.HasPrefix(role, text) || strings.HasPrefix(channel, "<|channel|>")
}

// endMessage takes a marker inside of a message.
func (p *Parser) endMessage(m *marker) {
	p.flushSpace()
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
	if b == '{' && !c.args.begun {
		p.announce("", c.name)
	}
	switch c.args.step(p, b) {
	case wrong:
		return broken
	case goesOn:
		return more
	}
	if p.begun {
		p.complete()
		return done
	}
	if arguments, ok := c.args.object(); !ok || !p.call("", c.name, arguments) {
		return broken
	}
	return done
}

func (c *harmonyCall) marker(p *Parser, m *marker) verdict { return eachByte(c, p, m.text) }

func (c *harmonyCall) end(*Parser, bool) verdict { return broken }
