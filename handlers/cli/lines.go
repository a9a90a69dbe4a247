package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// lineReader reads lines of input. The error is errInterrupted after Ctrl-C, and another one at the end of
// the input and after other signals.
type lineReader interface {
	read(ctx context.Context, prompt string) (line string, err error)
}

// errInterrupted is the error of reading a line after Ctrl-C.
var errInterrupted = errors.New("interrupted")

// lines returns a reader of lines from t.In. At a terminal, lines can be edited and earlier
// ones recalled, and a pasted text is one line with line breaks in it.
func (t *Terminal) lines(ctx context.Context) lineReader {
	in, _ := t.In.(*os.File)
	if !IsTerminal(in) || !IsTerminal(t.Err) {
		return &plainLines{t, readLines(ctx, t.In)}
	}
	return &editedLines{terminal: t, fd: int(in.Fd()), keys: &keyReader{in: in}}
}

// keyReader reads keys and remembers whether the last ones had a Ctrl-C, which a terminal in raw mode
// passes on as a character.
type keyReader struct {
	in          io.Reader
	interrupted bool
}

func (k *keyReader) Read(p []byte) (int, error) {
	const ctrlC = 3
	n, err := k.in.Read(p)
	k.interrupted = bytes.IndexByte(p[:n], ctrlC) >= 0
	return n, err
}

type plainLines struct {
	terminal *Terminal
	lines    <-chan string
}

func (p *plainLines) read(ctx context.Context, prompt string) (line string, err error) {
	fmt.Fprint(p.terminal.Err, prompt)
	select {
	case line, more := <-p.lines:
		if !more {
			return "", io.EOF
		}
		return line, nil
	case s := <-p.terminal.Signals:
		if s == os.Interrupt {
			return "", errInterrupted
		}
		return "", io.EOF
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

type editedLines struct {
	terminal *Terminal
	fd       int
	keys     *keyReader
	editor   *term.Terminal // nil: the next line needs a new one
	history  term.History   // lines of editors before; nil: none
}

// newEditor sets the editor to an empty line, with the lines before in its history.
func (e *editedLines) newEditor() {
	e.editor = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, e.terminal.Err}, "")
	if e.history != nil {
		e.editor.History = e.history
	}
	e.history = e.editor.History
}

// read restores the terminal's mode when it returns, so that Ctrl-C sends a signal while an
// answer is written.
func (e *editedLines) read(ctx context.Context, prompt string) (line string, err error) {
	state, err := term.MakeRaw(e.fd)
	if err != nil {
		return "", err
	}
	defer term.Restore(e.fd, state)
	if e.editor == nil {
		e.newEditor()
	}
	if width, height, err := term.GetSize(e.fd); err == nil && width > 0 {
		e.editor.SetSize(width, height)
	}
	e.editor.SetBracketedPasteMode(true)
	defer e.editor.SetBracketedPasteMode(false)
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		var text []string
		for {
			e.editor.SetPrompt(prompt)
			line, err := e.editor.ReadLine()
			if err == io.EOF && e.keys.interrupted {
				err = errInterrupted
			}
			if text = append(text, line); err != term.ErrPasteIndicator {
				read <- result{strings.Join(text, "\n"), err}
				return
			}
			prompt = morePrompt
		}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			e.editor = nil // it still has the line
		}
		return r.line, r.err
	case <-e.terminal.Signals: // not from the keyboard
		return "", io.EOF
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// readLines sends the lines of r to the channel that it returns, and closes it when r ends.
func readLines(ctx context.Context, r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}
