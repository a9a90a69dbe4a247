package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// maxSecret is the longest line in bytes that ReadSecret reads.
const maxSecret = 64 << 10

// ReadSecret reads a line that no one else should see. At a terminal it shows prompt and not what is
// typed, and asks for the same line again. It returns no error for an empty line.
func (t *Terminal) ReadSecret(prompt, again string) (string, error) {
	in, _ := t.In.(*os.File)
	if !IsTerminal(in) {
		line, err := bufio.NewReader(io.LimitReader(t.In, maxSecret)).ReadString('\n')
		if err != nil && err != io.EOF {
			return "", fmt.Errorf("failed to read the standard input: %w", err)
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	first, err := t.readHidden(in, prompt)
	if err != nil {
		return "", err
	}
	second, err := t.readHidden(in, again)
	if err == nil && first != second {
		err = errors.New("nothing was changed: both lines must be the same")
	}
	return first, err
}

// readHidden reads a line from a terminal, which shows nothing meanwhile.
func (t *Terminal) readHidden(in *os.File, prompt string) (string, error) {
	fd := int(in.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("failed to read the mode of the terminal: %w", err)
	}
	fmt.Fprint(t.Err, prompt)
	defer fmt.Fprintln(t.Err)
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := term.ReadPassword(fd)
		read <- result{line, err}
	}()
	select {
	case r := <-read:
		if r.err != nil && r.err != io.EOF {
			return "", fmt.Errorf("failed to read from the terminal: %w", r.err)
		}
		return string(r.line), nil
	case <-t.Signals:
		return "", errors.Join(errors.New("nothing was changed: interrupted"), term.Restore(fd, state))
	}
}
