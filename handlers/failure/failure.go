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
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/infer/fault"
	"m40-llm/web/lang"
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

	own bool // Text says something else than Message

	// Of a prompt that is too long:
	reason, advice string // the engine's own text, and what to do
	partTokens     int    // of Part
	larger         bool   // the model supports a larger context
}

// OfPanic returns the error of a panic with the value v, including the stack.
func OfPanic(v any) error { return fmt.Errorf("panic: %v\n%s", v, debug.Stack()) }

// Describe returns what the client of a request that failed with err is told, in English.
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
	f.Title = cmp.Or(f.Title, r.title, titles[f.Status], http.StatusText(f.Status))
	f.Text = cmp.Or(f.Text, r.text)
	f.own = f.Text != ""
	f.Text = cmp.Or(f.Text, sentence(f.Message))
	f.RetryAfter = cmp.Or(f.RetryAfter, retryAfter(f.Status))
	f.Type = typeOf(f.Status)
	return f
}

// For returns what the reader of a page is told about err, in the language of ctx: Message is Text then. All of it is English
// if that language has no text for the message.
func For(ctx context.Context, err error) Failure {
	f := Describe(err)
	if lang.Of(ctx) == lang.English {
		return f
	}
	shown, found := f, true
	switch {
	case f.Code == fault.CodeContext:
		shown.Text = f.tooLong(ctx)
	case f.own:
		shown.Text, found = lang.FindMessage(ctx, f.Text)
	default:
		shown.Text, found = lang.FindMessage(ctx, f.Message)
		shown.Text = sentence(shown.Text)
	}
	if !found {
		return f
	}
	shown.Title, shown.Message = lang.Message(ctx, f.Title), shown.Text
	return shown
}

// Messages in the place of those that errors have.
const (
	loadingModel = "Loading model" // as llama-server has it
	engineFailed = "the engine failed on this request; the server's log says more"
	nothingHere  = "There is nothing at this address."
)

// titles are those of codes without one in the table, and of errors that are just an HTTP status.
var titles = map[int]string{
	http.StatusBadRequest: "That did not work", http.StatusConflict: "That did not work",
	http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden", http.StatusNotFound: "Not found",
	http.StatusMethodNotAllowed: "Method not allowed", http.StatusRequestTimeout: "Request timeout", http.StatusGone: "Gone",
	http.StatusRequestEntityTooLarge: "Request entity too large", http.StatusUnsupportedMediaType: "Unsupported media type",
	http.StatusMisdirectedRequest: "Misdirected request", http.StatusUpgradeRequired: "Upgrade required",
	http.StatusTooManyRequests: "Too many requests", http.StatusServiceUnavailable: "Service unavailable",
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
			f.Text = nothingHere
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
		f.partTokens, f.larger = e.LargestTokens, e.ContextTrain > e.ContextLength && e.ContextLength > 0
		if f.larger {
			f.advice += fmt.Sprintf(", or start the server with a larger --ctx, of which the model takes up to %d", e.ContextTrain)
		}
		f.reason = e.Message
		if f.Message = tooLongForOpenAI.of(f); f.Param == "documents" || f.Param == "query" {
			f.Message = e.Message // says which document does not fit
		}
		f.Text = f.tooLong(context.Background())
	case fault.CodeLoading:
		f.Message = loadingModel
	default:
		if isPrivate(e.Code) {
			f.Message = engineFailed
		}
	}
	return f
}

// tooLong returns Text of a prompt that is too long.
func (f Failure) tooLong(ctx context.Context) string {
	return NothingCut(ctx, cmp.Or(TooLongBecause(ctx, f.Part, f.partTokens, f.ContextLength, f.larger), TooLong(ctx, false, f.larger)))
}

// NothingCut returns what people are told about a prompt that was refused, with what to do about it.
func NothingCut(ctx context.Context, advice string) string {
	return lang.T(ctx, "Nothing was cut. %s", advice)
}

// TooLong says what to do about a prompt that does not fit. first: the prompt is the chat's
// first message. larger: the model supports a larger context.
func TooLong(ctx context.Context, first, larger bool) string {
	switch {
	case first && larger:
		return lang.T(ctx, "Shorten it, or raise the context on the page Models.")
	case first:
		return lang.T(ctx, "Shorten it.")
	case larger:
		return lang.T(ctx, "Shorten it, raise the context on the page Models, or start a new chat with a summary of this one.")
	}
	return lang.T(ctx, "Shorten it, or start a new chat with a summary of this one.")
}

// tooLargeParts says of each part that can have most tokens of a prompt how many those are, and what to do.
var tooLargeParts = map[fault.Part]struct{ has, todo, orMore string }{
	fault.PartSystem: {lang.Key("Your system prompt has %s tokens of the %s that fit."),
		lang.Key("Shorten it."), lang.Key("Shorten it, or raise the context on the page Models.")},
	fault.PartTools: {lang.Key("The definitions of the tools have %s tokens of the %s that fit."),
		lang.Key("Offer fewer of them, or describe them in fewer words."), lang.Key("Offer fewer of them, or describe them in fewer words, or raise the context on the page Models.")},
	fault.PartPictures: {lang.Key("The pictures have %s tokens of the %s that fit."),
		lang.Key("Send fewer of them, or show them in low detail."), lang.Key("Send fewer of them, or show them in low detail, or raise the context on the page Models.")},
	fault.PartHistory: {lang.Key("The messages before yours have %s tokens of the %s that fit."),
		lang.Key("Start a new chat with a summary of this one."), lang.Key("Start a new chat with a summary of this one, or raise the context on the page Models.")},
}

// TooLongBecause says which part of a prompt has most of its tokens, and what to do; empty if it is the last message or not
// known, of which TooLong speaks.
func TooLongBecause(ctx context.Context, part fault.Part, tokens, context int, larger bool) string {
	p, ok := tooLargeParts[part]
	if !ok {
		return ""
	}
	if larger {
		p.todo = p.orMore
	}
	return lang.T(ctx, p.has, lang.Count(ctx, tokens), lang.Count(ctx, context)) + " " + lang.T(ctx, p.todo)
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

// Sentence turns an error's text or a notice into a sentence in the language of ctx. It does not capitalise a name at its
// beginning.
func Sentence(ctx context.Context, text string) string { return sentence(lang.Message(ctx, text)) }

func sentence(text string) string {
	if text == "" {
		return ""
	}
	if first, _, _ := strings.Cut(text, " "); strings.TrimFunc(first, unicode.IsLower) == "" {
		letter, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(letter)) + text[size:]
	}
	if !strings.ContainsAny(text[len(text)-1:], ".!?") {
		text += "."
	}
	return text
}
