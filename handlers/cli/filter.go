package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Filter removes what could steer a terminal from text that comes in pieces: control
// characters but newline and tab, those that turn the direction of text, and escape
// sequences as a whole. What it returns is
// valid UTF-8 without any of them. The zero Filter is at the beginning of a text.
type Filter struct {
	state   filterState
	skipped int // runes of the sequence that is being skipped
}

type filterState uint8

const (
	inText    filterState = iota
	inEscape              // after ESC
	inControl             // in a control sequence (CSI), up to its final character
	inString              // in a command string (OSC, DCS, SOS, PM, APC), up to its terminator
)

// maxSequence bounds an escape sequence: longer ones are no real ones, and must not
// swallow the answer.
const maxSequence = 4096

// Text returns what may be shown of s, which must not end within a rune.
func (f *Filter) Text(s string) string {
	var out strings.Builder
	for _, r := range s {
		if f.shows(r) {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// shows takes the next rune and reports whether it is shown.
func (f *Filter) shows(r rune) bool {
	switch {
	case r == 0x1b: // ESC begins a sequence, or the end of a command string
		f.enter(inEscape)
		return false
	case r == 0x9b: // the one-character forms of ESC [, ESC P and so on
		f.enter(inControl)
		return false
	case r == 0x90 || r == 0x98 || r == 0x9d || r == 0x9e || r == 0x9f:
		f.enter(inString)
		return false
	}
	if f.state != inText {
		if f.skipped++; f.skips(r) {
			return false
		}
		f.state = inText
	}
	if unicode.Is(unicode.Bidi_Control, r) { // it could show text in another order than it has
		return false
	}
	return r == '\n' || r == '\t' || r >= ' ' && r < 0x7f || r > 0x9f && r <= utf8.MaxRune
}

func (f *Filter) enter(s filterState) { f.state, f.skipped = s, 0 }

// skips reports whether r belongs to the sequence that is being skipped. The sequence
// may end with it.
func (f *Filter) skips(r rune) bool {
	if f.skipped > maxSequence || r == '\n' {
		return false
	}
	switch f.state {
	case inEscape:
		switch {
		case r == '[':
			f.enter(inControl)
		case strings.ContainsRune("]PX^_", r):
			f.enter(inString)
		case r >= ' ' && r <= '/': // more of it follows
		case r >= '0' && r <= '~': // its last character
			f.state = inText
		default:
			return false
		}
	case inControl:
		switch {
		case r >= '@' && r <= '~':
			f.state = inText
		case r < ' ' || r > '~':
			return false
		}
	case inString:
		if r == 0x07 || r == 0x9c {
			f.state = inText
		}
	}
	return true
}

// Line returns s fit for one line of a terminal.
func Line(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, s)
	return new(Filter).Text(s)
}

// writeJSON writes v as indented JSON for people and programs. What could steer a terminal
// is escaped, so that nothing of it is lost.
func writeJSON(w io.Writer, v any) error {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	var safe strings.Builder
	for _, r := range out.String() {
		if r >= 0x7f && r <= 0x9f || unicode.Is(unicode.Bidi_Control, r) {
			fmt.Fprintf(&safe, `\u%04x`, r)
		} else {
			safe.WriteRune(r)
		}
	}
	_, err := io.WriteString(w, safe.String())
	return err
}
