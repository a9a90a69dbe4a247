// Package cli is the user interface in the terminal: flags, the chat, tables, and the start
// and stop of the server. It writes results to Terminal.Out and everything else, such as
// progress, to Terminal.Err. Text from a model or a model file is filtered before it is
// written to a terminal, so that it cannot control the terminal.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Exit codes of the program.
const (
	ExitOK      = 0
	ExitFailed  = 1
	ExitUsage   = 2
	ExitRunning = 3
)

// Terminal holds the streams, environment and signals of a command.
type Terminal struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Env     func(name string) string
	Signals <-chan os.Signal // interrupt and terminate

	// Commands returns the flags of each command, by its name; nil: unknown.
	Commands func() map[string]*Flags

	// Describe gets the flags of a command that would be executed otherwise; nil: it is executed.
	Describe func(*Flags)

	// EndOnSignal makes a signal end the process from now on, for commands that do not read
	// Signals; nil: it does not.
	EndOnSignal func()
}

// IsTerminal reports whether stream, one of a Terminal, is connected to a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Results returns the writer for a command's results: Out, filtered if it is a terminal.
func (t *Terminal) Results() io.Writer {
	if IsTerminal(t.Out) {
		return &filterWriter{w: t.Out}
	}
	return t.Out
}

// narrowest is the least number of columns at which lines are broken between words.
const narrowest = 20

// answers returns the writer for one answer of a chat: Out, with line breaks between words if it is a terminal.
func (t *Terminal) answers() io.Writer {
	if out, ok := t.Out.(*os.File); ok && IsTerminal(out) {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil && width >= narrowest {
			return &wrapper{w: out, width: width}
		}
	}
	return t.Out
}

// filterWriter filters what is written. No Write may end within a rune.
type filterWriter struct {
	w      io.Writer
	filter Filter
}

func (f *filterWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(f.w, f.filter.Text(string(p)))
	return len(p), err
}

// UsageError is the error of a command with invalid flags or arguments.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// Usagef returns a formatted UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// ErrRunning is wrapped by errors that say that another m40-llm uses the address or the data.
var ErrRunning = errors.New("m40-llm is running there already")

// Exit prints err in one line, unless it is nil, and returns the exit code for it.
func (t *Terminal) Exit(err error) int {
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(t.Err, "m40-llm: %s\n", Line(err.Error()))
	var usage *UsageError
	switch {
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, ErrRunning):
		return ExitRunning
	}
	return ExitFailed
}
