// Package fault has the one value for errors that clients are told about, from the store and
// the engine to the routes: what kind of error it is, which field is wrong, and what to do.
// Its table of statuses and titles is in handlers/failure.
package fault

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Error is an error whose text a client may read. It is a plain value: other processes get it
// as JSON. An error type with more fields than these has a method Unwrap that returns one.
type Error struct {
	Code          Code   `json:"code"`
	Message       string `json:"message"` // what is wrong and what to do
	Param         string `json:"param,omitempty"`
	PromptTokens  int    `json:"prompt_tokens,omitempty"`
	ContextLength int    `json:"context_length,omitempty"`
	ContextTrain  int    `json:"context_train,omitempty"` // set with ContextLength: positions that the model was trained on
	Largest       Part   `json:"largest,omitempty"`       // set with PromptTokens: what of a conversation has most of them; empty: not known
	LargestTokens int    `json:"largest_tokens,omitempty"`
	Title         string `json:"-"` // what happened, for people, if the code's title does not say it
	State         string `json:"-"` // of CodeConflict: the chat's state, which does not allow the command
	RetryAfter    int    `json:"-"` // seconds until the same request may succeed; 0: as the code's status suggests
}

func (e *Error) Error() string { return e.Message }

// New returns an error of a code.
func New(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// Errorf returns an error of a code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns the error for an invalid field of a request.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// CheckUTF8 returns an error that names a field whose text is not valid.
func CheckUTF8(name, text string) error {
	if !utf8.ValidString(text) {
		return Invalid(name, "%s is not valid UTF-8", name)
	}
	return nil
}

// Of returns err as an *Error, with the given code unless it is or wraps one already.
func Of(code Code, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(code, "%s", err)
}

// Inside puts the place of a value in front of the field that an error names.
func Inside(err error, place string) error {
	wrong, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	moved := *wrong
	moved.Param = place + "." + moved.Param
	return &moved
}
