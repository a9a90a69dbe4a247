package reply

import "strings"

// role is the meaning of a marker.
type role int

const (
	opensCall  role = iota
	wrapsCalls      // precedes the first of several calls; text if none follows
	closesCall      // text anywhere else than after a call
	ignored         // never emitted
	opensFrame      // opens the content, up to close; text anywhere else
	opensReasoning
	endsOther     // ends reasoning or a part of a call; text in content
	framesMessage // delimits the messages of harmony
)

// marker is a text or control token that the format interprets.
type marker struct {
	text      string
	role      role
	newReader func() callReader // of opensCall: returns the reader of what follows
	close     string            // of opensReasoning and opensFrame: the marker that ends it
	control   bool              // it is a control token; text that spells it is not a marker
}

// lexer finds markers in text: the leftmost one, and of those that begin there the longest.
type lexer struct {
	syntax *Syntax
	buffer []byte // text that may be the beginning of a marker
}

func (l *lexer) byte(p *Parser, b byte) {
	if len(l.buffer) == 0 && l.syntax.byFirstByte[b] == nil {
		p.read(b, nil)
		return
	}
	l.buffer = append(l.buffer, b)
	l.release(p, false)
}

// release passes on the buffered text that cannot become a marker; all of it if last is set.
func (l *lexer) release(p *Parser, last bool) {
	for len(l.buffer) > 0 {
		whole, longer := l.syntax.match(string(l.buffer))
		if longer && !last {
			return
		}
		if whole == nil {
			p.read(l.buffer[0], nil)
			l.buffer = l.buffer[1:]
			continue
		}
		p.read(0, whole)
		l.buffer = l.buffer[len(whole.text):]
	}
	l.buffer = nil
}

func (l *lexer) flush(p *Parser) { l.release(p, true) }

// control reads a control token. A token that is part of a marker is read as text.
func (l *lexer) control(p *Parser, text string) {
	if m := l.syntax.controlMarkers[text]; m != nil {
		l.flush(p)
		p.read(0, m)
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
	if f.controlMarkers[control] != nil {
		return true
	}
	for _, m := range f.textMarkers {
		if strings.Contains(m.text, control) {
			return true
		}
	}
	return false
}

// match returns the longest marker at the start of text, and whether text is the beginning of
// a longer one.
func (f *Syntax) match(text string) (whole *marker, longer bool) {
	for _, m := range f.byFirstByte[text[0]] {
		switch {
		case len(m.text) > len(text):
			longer = longer || strings.HasPrefix(m.text, text)
		case strings.HasPrefix(text, m.text) && (whole == nil || len(whole.text) < len(m.text)):
			whole = m
		}
	}
	return whole, longer
}
