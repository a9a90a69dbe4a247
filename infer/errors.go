package infer

import (
	"errors"
	"fmt"
)

// ErrorCode classifies an Error for programs.
type ErrorCode string

const (
	CodeInvalid   ErrorCode = "invalid_request"         // a field of the request is wrong; Param names it
	CodeContext   ErrorCode = "context_length_exceeded" // the prompt does not fit into the context; PromptTokens and ContextLength are set
	CodeNotFound  ErrorCode = "model_not_found"
	CodeModelFile ErrorCode = "model_file" // the file is corrupt or not supported
	CodeMemory    ErrorCode = "out_of_memory"
	CodeTemplate  ErrorCode = "template" // the chat template failed or refused the conversation
	CodeQueueFull ErrorCode = "queue_full"
	CodeLoading   ErrorCode = "loading"
	CodeClosed    ErrorCode = "closed"         // the engine is shutting down
	CodeDevice    ErrorCode = "device"         // the device failed
	CodeNotFinite ErrorCode = "not_finite"     // the model computed NaN or infinity
	CodeGrammar   ErrorCode = "grammar"        // the model has no token that the grammar allows next, or matching the grammar takes too long
	CodeStopped   ErrorCode = "stopped"        // somebody other than the client stopped the answer; set by the server
	CodeLost      ErrorCode = "engine_lost"    // the engine's process ended during the answer; the same request may succeed
	CodeCrashes   ErrorCode = "crashes_engine" // the engine's process ended every time it got this input; it is not retried
	CodeUpstream  ErrorCode = "upstream"       // the other engine that runs the model failed, or cannot be reached
	CodeInternal  ErrorCode = "internal"

	CodeNotSupported ErrorCode = "not_supported" // the model cannot do this: one that writes text computes no embeddings, and the other way round
)

// Error is the type of all errors that Engine returns, except those of a context. It is a plain value
// that says what is wrong and what to do.
type Error struct {
	Code          ErrorCode `json:"code"`
	Message       string    `json:"message"`
	Param         string    `json:"param,omitempty"`
	PromptTokens  int       `json:"prompt_tokens,omitempty"`
	ContextLength int       `json:"context_length,omitempty"`
	ContextTrain  int       `json:"context_train,omitempty"` // set with ContextLength: positions that the model was trained on
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an error of a code.
func Errorf(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns the error for an invalid field of a request.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// AsError returns err as an *Error, with the given code unless it is one already.
func AsError(code ErrorCode, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(code, "%s", err)
}
