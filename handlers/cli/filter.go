package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Filter removes what could control a terminal from text that arrives in pieces: control
// characters except newline and tab, characters that change the direction of text, and whole
// escape sequences. It returns valid UTF-8. The zero Filter is ready for the beginning of a
// text.
type Filter struct {
	state   filterState
	skipped int // runes skipped so far of the current escape sequence
}

type filterState uint8

const (
	inText    filterState = iota
	inEscape              // after ESC
	inControl             // in a control sequence (CSI), up to its final character
	inString              // in a command string (OSC, DCS, SOS, PM, APC), up to its terminator
)

// maxSequence is the longest escape sequence, in runes. No real sequence is longer, and
// without a limit an unterminated one would remove the rest of the answer.
const maxSequence = 4096

// Text returns the part of s that may be shown. s must not end within a rune.
func (f *Filter) Text(s string) string {
	var out strings.Builder
	for _, r := range s {
		if f.accept(r) {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// accept processes the next rune and reports whether it may be shown.
func (f *Filter) accept(r rune) bool {
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
		if f.skipped++; f.skip(r) {
			return false
		}
		f.state = inText
	}
	if unicode.Is(unicode.Bidi_Control, r) { // it could show text in another order than it is stored
		return false
	}
	return r == '\n' || r == '\t' || r >= ' ' && r < 0x7f || r > 0x9f && r <= utf8.MaxRune
}

func (f *Filter) enter(s filterState) { f.state, f.skipped = s, 0 }

// skip reports whether r belongs to the current escape sequence, which may end with it.
func (f *Filter) skip(r rune) bool {
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
		case r >= ' ' && r <= '/': // an intermediate character
		case r >= '0' && r <= '~': // the final character
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

// Line returns s filtered for a terminal and in one line.
func Line(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, s)
	return new(Filter).Text(s)
}

// writeJSON writes v as indented JSON. Characters that could control a terminal are escaped
// rather than removed.
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
