package chat

import (
	"fmt"
	"strings"
)

// RaisedError is the template's own refusal of a conversation: it called
// raise_exception.
type RaisedError struct {
	Message string
	Line    int
}

func (e *RaisedError) Error() string {
	return fmt.Sprintf("chat template, line %d, refuses the conversation: %s", e.Line, e.Message)
}

// SyntaxError says where and why a template cannot be parsed.
type SyntaxError struct {
	Line    int
	Message string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Message)
}

// RenderError says where and why a template failed on a conversation.
type RenderError struct {
	Line    int
	Message string
}

func (e *RenderError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Message)
}

// thrown carries an error up to the exported call that catches it: inside the
// parser and the interpreter, where every expression can fail, failures are
// panics with this type and no other.
type thrown struct{ err error }

func throw(err error) { panic(thrown{err}) }

// catch turns a thrown error into a returned one.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case thrown:
		*err = r.err
	default:
		panic(r)
	}
}

// fail ends the rendering with a message; the line is added on the way out.
func fail(format string, args ...any) {
	throw(&RenderError{Message: shorten(fmt.Sprintf(format, args...))})
}

const maxMessage = 2000 // bytes of an error message; what a template puts in it has no bound

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
