package jinja

import (
	"fmt"
	"strings"
)

// RaisedError is returned if the template refuses a conversation by calling
// raise_exception.
type RaisedError struct {
	Message string
	Line    int
}

func (e *RaisedError) Error() string {
	return fmt.Sprintf("chat template, line %d, refuses the conversation: %s", e.Line, e.Message)
}

// SyntaxError is returned if a template cannot be parsed.
type SyntaxError struct {
	Line    int
	Message string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Message)
}

// RenderError is returned if a template fails on a conversation.
type RenderError struct {
	Line    int
	Message string
}

func (e *RenderError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Message)
}

// thrown carries an error to the exported function that catches it. Any expression can
// fail, so the parser and the interpreter panic with this type instead of returning errors.
type thrown struct{ err error }

func throw(err error) { panic(thrown{err}) }

// catch is deferred: it stores a thrown error in err and passes other panics on.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case thrown:
		*err = r.err
	default:
		panic(r)
	}
}

// fail throws a *RenderError; interp.run adds the line.
func fail(format string, args ...any) {
	throw(&RenderError{Message: shorten(fmt.Sprintf(format, args...))})
}

const maxMessage = 2000 // bytes of an error message, into which templates can put any text

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
