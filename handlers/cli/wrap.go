package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// wrapper writes text that arrives in pieces to a terminal and breaks its lines between words. What
// does not fit moves to the next line, with the part that is already shown. Lines of code blocks are
// left to the terminal, so that they are copied as they are.
type wrapper struct {
	w     io.Writer
	width int // columns of the terminal

	column int
	word   strings.Builder // the word that ends at column, on one line of the terminal; "" after a space
	line   strings.Builder // the beginning of the line, to recognise the fence of a code block
	inCode bool
}

const fence = "```"

// fenceSearch is how many bytes of a line are looked at for a fence.
const fenceSearch = 16

func (w *wrapper) Write(p []byte) (int, error) {
	var out strings.Builder
	for _, r := range string(p) {
		w.add(&out, r)
	}
	_, err := io.WriteString(w.w, out.String())
	return len(p), err
}

// add appends to out what shows r after the text so far.
func (w *wrapper) add(out *strings.Builder, r rune) {
	if r == '\n' {
		if strings.HasPrefix(strings.TrimLeft(w.line.String(), " "), fence) {
			w.inCode = !w.inCode
		}
		w.line.Reset()
		w.begin(out)
		return
	}
	if w.line.Len() < fenceSearch {
		w.line.WriteRune(r)
	}
	columns := cellWidth(string(r))
	if r == '\t' {
		columns = 8 - w.column%8
	}
	// The last column stays empty, because after it terminals differ in where the cursor is.
	full := !w.inCode && w.column+columns >= w.width
	switch {
	case unicode.IsSpace(r) && full:
		w.begin(out) // instead of the space
		return
	case unicode.IsSpace(r):
		w.word.Reset()
	case columns > 1: // scripts without spaces
		w.word.Reset()
		if full {
			w.begin(out)
		}
	case full:
		w.moveWord(out)
		w.word.WriteRune(r)
	default:
		w.word.WriteRune(r)
	}
	out.WriteRune(r)
	w.column += columns
}

// begin begins a line.
func (w *wrapper) begin(out *strings.Builder) {
	out.WriteByte('\n')
	w.column = 0
	w.word.Reset()
}

// moveWord moves the word before the cursor to the next line. One that is a line already stays.
func (w *wrapper) moveWord(out *strings.Builder) {
	word := w.word.String()
	columns := cellWidth(word)
	if columns == w.column {
		w.begin(out)
		return
	}
	if columns > 0 {
		fmt.Fprintf(out, "\x1b[%dD\x1b[K", columns)
	}
	w.begin(out)
	out.WriteString(word)
	w.word.WriteString(word)
	w.column = columns
}
