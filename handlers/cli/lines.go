package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// lineReader reads lines of input. more is false at the end of the input and after a signal.
type lineReader interface {
	read(ctx context.Context, prompt string) (line string, more bool)
}

// lines returns a reader of lines from t.In. At a terminal, lines can be edited and earlier
// ones recalled, and a pasted text is one line with line breaks in it.
func (t *Terminal) lines(ctx context.Context) lineReader {
	in, _ := t.In.(*os.File)
	if !IsTerminal(in) || !IsTerminal(t.Err) {
		return &plainLines{t, readLines(ctx, t.In)}
	}
	return &editedLines{t, int(in.Fd()), term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, t.Err}, "")}
}

type plainLines struct {
	terminal *Terminal
	lines    <-chan string
}

func (p *plainLines) read(ctx context.Context, prompt string) (line string, more bool) {
	fmt.Fprint(p.terminal.Err, prompt)
	select {
	case line, more = <-p.lines:
	case <-p.terminal.Signals:
	case <-ctx.Done():
	}
	return line, more
}

type editedLines struct {
	terminal *Terminal
	fd       int
	editor   *term.Terminal
}

// read restores the terminal's mode when it returns, so that Ctrl-C sends a signal while an
// answer is written.
func (e *editedLines) read(ctx context.Context, prompt string) (line string, more bool) {
	state, err := term.MakeRaw(e.fd)
	if err != nil {
		return "", false
	}
	defer term.Restore(e.fd, state)
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
			if text = append(text, line); err != term.ErrPasteIndicator {
				read <- result{strings.Join(text, "\n"), err}
				return
			}
			prompt = morePrompt
		}
	}()
	select {
	case r := <-read:
		return r.line, r.err == nil
	case <-e.terminal.Signals:
	case <-ctx.Done():
	}
	return "", false
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
