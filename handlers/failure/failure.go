// Package failure turns errors into what clients are told. table.go is the one table of codes,
// statuses, types and texts for HTTP, streams, the websocket and the page.
package failure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/infer/fault"
)

// Failure is what a client is told about an error.
type Failure struct {
	Code          fault.Code // a key of the table; empty: the error is just an HTTP status
	Status        int        // HTTP status
	Type          string     // OpenAI's name for the kind of error
	Message       string     // for programs
	Title         string     // what happened, for people
	Text          string     // why and what to do, for people, in sentences
	Param         string     // the invalid field
	State         string     // the chat's state, if that does not allow the command
	PromptTokens  int
	Part          fault.Part // which has most of them; empty: not known
	ContextLength int
	RetryAfter    int  // seconds; 0: do not retry
	Final         bool // the same request would fail again

	reason, advice string // of a prompt that is too long: the engine's own text, and what to do
}

// OfPanic returns the error of a panic with the value v, including the stack.
func OfPanic(v any) error { return fmt.Errorf("panic: %v\n%s", v, debug.Stack()) }

// Describe returns what the client of a request that failed with err is told.
func Describe(err error) Failure {
	f := classify(err)
	r, known := table[f.Code]
	switch {
	case f.Code == "": // HTTP has the status
	case !known:
		r = table[fault.CodeInternal]
		fallthrough
	default:
		f.Status, f.Final = r.status, r.final
	}
	f.Title = cmp.Or(f.Title, r.title, titleOf(f.Status))
	f.Text = cmp.Or(f.Text, r.text, Sentence(f.Message))
	f.RetryAfter = cmp.Or(f.RetryAfter, retryAfter(f.Status))
	f.Type = typeOf(f.Status)
	return f
}

// titleOf returns the title of a code without one in the table.
func titleOf(status int) string {
	if status == http.StatusBadRequest || status == http.StatusConflict {
		return "That did not work"
	}
	title := http.StatusText(status)
	return title[:1] + strings.ToLower(title[1:])
}

// classify returns the code of err, its message and the fields that depend on its type.
func classify(err error) Failure {
	var (
		known  *fault.Error
		status *echo.HTTPError
		size   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return ofKnown(known)
	case errors.As(err, &size):
		return Failure{Code: fault.CodeBodyTooLarge, Message: fmt.Sprintf("the body is larger than the %d bytes that this route accepts", size.Limit)}
	case errors.Is(err, context.Canceled):
		return Failure{Code: fault.CodeClosed, Message: "the request was cancelled: its client closed the connection, or its own half of it, before the answer was complete; or the server is stopping"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Failure{Code: fault.CodeTimeout, Message: "the body did not arrive in time"}
	case errors.As(err, &status) && status.Code < http.StatusInternalServerError:
		f := Failure{Status: status.Code, Message: http.StatusText(status.Code)}
		if status.Code == http.StatusNotFound {
			f.Text = "There is nothing at this address."
		}
		return f
	}
	return Failure{Code: fault.CodeInternal, Message: "internal error; the server's log says more"}
}

func ofKnown(e *fault.Error) Failure {
	f := Failure{Code: e.Code, Param: e.Param, Message: e.Message, Title: e.Title, State: e.State, RetryAfter: e.RetryAfter,
		PromptTokens: e.PromptTokens, ContextLength: e.ContextLength, Part: e.Largest}
	switch e.Code {
	case fault.CodeContext:
		f.advice = e.Largest.Advice(e.LargestTokens)
		larger := e.ContextTrain > e.ContextLength && e.ContextLength > 0
		if larger {
			f.advice += fmt.Sprintf(", or start the server with a larger --ctx, of which the model takes up to %d", e.ContextTrain)
		}
		f.reason = e.Message
		if f.Message = tooLongForOpenAI.of(f); f.Param == "documents" || f.Param == "query" {
			f.Message = e.Message // says which document does not fit
		}
		if f.Text = TooLongBecause(e.Largest, e.LargestTokens, e.ContextLength, larger); f.Text == "" {
			f.Text = TooLong(false, larger)
		}
		f.Text = NothingCut + f.Text
	case fault.CodeLoading:
		f.Message = "Loading model" // as llama-server has it
	default:
		if isPrivate(e.Code) {
			f.Message = "the engine failed on this request; the server's log says more"
		}
	}
	return f
}

// NothingCut is the sentence before TooLong about a refused prompt.
const NothingCut = "Nothing was cut. "

// TooLong says what to do about a prompt that does not fit. first: the prompt is the chat's
// first message. larger: the model supports a larger context.
func TooLong(first, larger bool) string {
	switch {
	case first && larger:
		return "Shorten it, or raise the context on the page Models."
	case first:
		return "Shorten it."
	case larger:
		return "Shorten it, raise the context on the page Models, or start a new chat with a summary of this one."
	}
	return "Shorten it, or start a new chat with a summary of this one."
}

// TooLongBecause says which part of a prompt has most of its tokens, and what to do; empty if it is the last message or not
// known, of which TooLong speaks.
func TooLongBecause(part fault.Part, tokens, context int, larger bool) string {
	what, todo := "", ""
	switch part {
	case fault.PartSystem:
		what, todo = "Your system prompt has", "Shorten it"
	case fault.PartTools:
		what, todo = "The definitions of the tools have", "Offer fewer of them, or describe them in fewer words"
	case fault.PartPictures:
		what, todo = "The pictures have", "Send fewer of them, or show them in low detail"
	case fault.PartHistory:
		what, todo = "The messages before yours have", "Start a new chat with a summary of this one"
	default:
		return ""
	}
	if larger {
		todo += ", or raise the context on the page Models"
	}
	return fmt.Sprintf("%s %s tokens of the %s that fit. %s.", what, thousands(tokens), thousands(context), todo)
}

// thousands returns n as people read it, with a comma between thousands.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// isPrivate reports whether the text of an engine's error is for the log only.
func isPrivate(code fault.Code) bool {
	r, known := table[code]
	return !known || r.private
}

// Shown returns err as an engine's error, without a text that is for the log only.
func Shown(err error) fault.Error {
	shown := Whole(err)
	if e, ok := errors.AsType[*fault.Error](err); !ok || isPrivate(e.Code) {
		shown.Message = Describe(err).Message
	}
	return shown
}

// Whole returns err as an engine's error with its full text, for the server of a worker.
func Whole(err error) fault.Error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return *e
	}
	e := fault.Error{Code: fault.CodeInternal, Message: err.Error()}
	if errors.Is(err, context.Canceled) {
		e.Code = fault.CodeClosed
	}
	return e
}

// Sentence turns an error's text into a sentence. It does not capitalise a name at its beginning.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	if first, _, _ := strings.Cut(text, " "); strings.Trim(first, "abcdefghijklmnopqrstuvwxyz") == "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if !strings.ContainsAny(text[len(text)-1:], ".!?") {
		text += "."
	}
	return text
}
