package reply

import "strings"

// role is what a marker means in content.
type role int

const (
	opens   role = iota // a call
	wraps               // stands around calls; text if none follows
	closes              // ends a call; text anywhere else
	skips               // layout that is never shown
	frames              // opens what is said, up to close; text anywhere else
	thinks              // opens a thought
	ends                // a thought, or something else inside of a call: text in content
	harmony             // steers the messages of harmony
)

// marker is a piece of text with a meaning.
type marker struct {
	text    string
	role    role
	body    func() body // with opens: reads what follows
	close   string      // with thinks and frames: the marker that ends it
	control bool        // only the control token of this spelling counts
}

// lexer finds markers in text: the leftmost, and of those that begin there the longest.
type lexer struct {
	syntax *Syntax
	held   []byte // what may be the beginning of a marker
}

func (l *lexer) byte(p *Parser, b byte) {
	if len(l.held) == 0 && l.syntax.first[b] == nil {
		p.symbol(b, nil)
		return
	}
	l.held = append(l.held, b)
	l.settle(p, false)
}

// settle gives out what is certain of the held text: all of it if the text ends here.
func (l *lexer) settle(p *Parser, last bool) {
	for len(l.held) > 0 {
		whole, longer := l.syntax.match(string(l.held))
		if longer && !last {
			return
		}
		if whole == nil {
			p.symbol(l.held[0], nil)
			l.held = l.held[1:]
			continue
		}
		p.symbol(0, whole)
		l.held = l.held[len(whole.text):]
	}
	l.held = nil
}

func (l *lexer) flush(p *Parser) { l.settle(p, true) }

// control takes a control token. Part of a marker counts as text.
func (l *lexer) control(p *Parser, text string) {
	if m := l.syntax.controls[text]; m != nil {
		l.flush(p)
		p.symbol(0, m)
		return
	}
	if l.syntax.IsMarker(text) {
		for i := range len(text) {
			l.byte(p, text[i])
		}
	}
}

// IsMarker reports whether the syntax interprets this control token.
func (f *Syntax) IsMarker(control string) bool {
	if f.controls[control] != nil {
		return true
	}
	for _, m := range f.texts {
		if strings.Contains(m.text, control) {
			return true
		}
	}
	return false
}

// match returns the longest marker that text begins with, and whether text may still
// become a longer one.
func (f *Syntax) match(text string) (whole *marker, longer bool) {
	for _, m := range f.first[text[0]] {
		switch {
		case len(m.text) > len(text):
			longer = longer || strings.HasPrefix(m.text, text)
		case strings.HasPrefix(text, m.text) && (whole == nil || len(whole.text) < len(m.text)):
			whole = m
		}
	}
	return whole, longer
}
