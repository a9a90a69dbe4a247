package infer

import (
	"errors"
	"fmt"
)

// ErrorCode classifies an Error for programs.
type ErrorCode string

const (
	CodeInvalid   ErrorCode = "invalid_request"         // a field of the request is wrong; Param names it
	CodeContext   ErrorCode = "context_length_exceeded" // the prompt does not fit; PromptTokens and ContextLength say by how much
	CodeNotFound  ErrorCode = "model_not_found"
	CodeModelFile ErrorCode = "model_file" // the file is broken or of a kind that is not supported
	CodeMemory    ErrorCode = "out_of_memory"
	CodeTemplate  ErrorCode = "template" // the chat template failed or refused the conversation
	CodeQueueFull ErrorCode = "queue_full"
	CodeLoading   ErrorCode = "loading"
	CodeClosed    ErrorCode = "closed"         // the engine is shutting down
	CodeDevice    ErrorCode = "device"         // the device failed
	CodeNotFinite ErrorCode = "not_finite"     // the model computed NaN or infinity
	CodeGrammar   ErrorCode = "grammar"        // the model has no token for what its grammar wants next, or following it takes too long
	CodeLost      ErrorCode = "engine_lost"    // the engine's process ended while it wrote the answer; the same request may work
	CodeCrashes   ErrorCode = "crashes_engine" // the engine's process ended each time it was given this input; it is not given it again
	CodeInternal  ErrorCode = "internal"
)

// Error is every failure that Engine returns but a context's own: a plain value
// that says what is wrong and what to do.
type Error struct {
	Code          ErrorCode `json:"code"`
	Message       string    `json:"message"`
	Param         string    `json:"param,omitempty"`
	PromptTokens  int       `json:"prompt_tokens,omitempty"`
	ContextLength int       `json:"context_length,omitempty"`
	ContextTrain  int       `json:"context_train,omitempty"` // beside ContextLength: the positions that the model was trained on
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an error of a code.
func Errorf(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns the error of a field of a request that is wrong.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// AsError returns err as an *Error, of the given code if it has none.
func AsError(code ErrorCode, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(code, "%s", err)
}
