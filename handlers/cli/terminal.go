// Package cli is the terminal's face: flags, the chat, tables, and the start and stop
// of the server. It writes results to Terminal.Out and everything about them, such as
// progress, to Terminal.Err. Text that a model or a model file chose is filtered before
// it reaches a terminal, so that it cannot steer it.
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

// Terminal is what a command has of the world outside.
type Terminal struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Env     func(name string) string
	Signals <-chan os.Signal // interrupt and terminate
}

// IsTerminal reports whether stream, one of a Terminal, is one that a person sits at.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Results returns where a command writes its results: Out, through a filter if a person
// reads it.
func (t *Terminal) Results() io.Writer {
	if IsTerminal(t.Out) {
		return &filterWriter{w: t.Out}
	}
	return t.Out
}

// filterWriter takes whole runes with each Write.
type filterWriter struct {
	w      io.Writer
	filter Filter
}

func (f *filterWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(f.w, f.filter.Text(string(p)))
	return len(p), err
}

// UsageError says that a command was called in a wrong way.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// ErrRunning is wrapped by the error of a server whose address another m40-llm has.
var ErrRunning = errors.New("m40-llm is running there already")

// Exit reports err, if there is one, in one line and returns the exit code for it.
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
