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

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/handlers/people"
	"m40-llm/infer"
	"m40-llm/store"
)

// Failure is what a client is told about an error.
type Failure struct {
	Code          string // a key of the table; empty: the error is just an HTTP status
	Status        int    // HTTP status
	Type          string // OpenAI's name for the kind of error
	Message       string // for programs
	Title         string // what happened, for people
	Text          string // why and what to do, for people, in sentences
	Param         string // the invalid field
	State         string // the chat's state, if that does not allow the command
	PromptTokens  int
	ContextLength int
	RetryAfter    int  // seconds; 0: do not retry
	Final         bool // the same request would fail again

	reason, advice string // of a prompt that is too long: the engine's own text, and what to do
}

// failed is an error with a code of the table.
type failed struct {
	code    string
	message string
}

func (e *failed) Error() string { return e.message }

// New returns an error with a code of the table.
func New(code, format string, args ...any) error {
	return &failed{code: code, message: fmt.Sprintf(format, args...)}
}

// Invalid returns the error of a request whose field param is wrong.
func Invalid(param, format string, args ...any) error {
	return &infer.Error{Code: infer.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
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
		r = table[string(infer.CodeInternal)]
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
		engine   *infer.Error
		own      *failed
		status   *echo.HTTPError
		size     *http.MaxBytesError
		space    *store.SpaceError
		busy     *store.BusyError
		missing  *store.MissingError
		conflict *models.Conflict
		registry *models.Failure
		taken    *live.TakenError
		command  *live.Conflict
		tries    *people.TooManyError
		invalid  *people.InvalidError
		soon     *guest.TooSoonError
		gone     *live.PictureGoneError
		quota    *store.QuotaError
	)
	switch {
	case errors.As(err, &engine):
		return ofEngine(engine)
	case errors.As(err, &own):
		return Failure{Code: own.code, Message: own.message}
	case errors.As(err, &command):
		return Failure{Code: Conflict, Message: command.Error(), Title: conflictTitle(command), State: command.State}
	case errors.Is(err, live.ErrNotFound):
		return Failure{Code: ChatNotFound, Message: live.ErrNotFound.Error()}
	case errors.Is(err, activity.ErrEnded):
		return Failure{Code: AnswerEnded, Message: err.Error()}
	case errors.Is(err, access.ErrDenied):
		return Failure{Code: Denied, Message: access.ErrDenied.Error()}
	case errors.Is(err, people.ErrWrongKey), errors.Is(err, people.ErrWrongSecret):
		return Failure{Code: InvalidKey, Message: err.Error()}
	case errors.Is(err, people.ErrWrongCode):
		return Failure{Code: InvalidCode, Message: people.ErrWrongCode.Error()}
	case errors.Is(err, people.ErrWrongLogin):
		return Failure{Code: InvalidLogin, Message: people.ErrWrongLogin.Error()}
	case errors.Is(err, people.ErrWrongPassphrase):
		return Failure{Code: WrongPassphrase, Param: "old", Message: people.ErrWrongPassphrase.Error()}
	case errors.As(err, &invalid):
		return Failure{Code: string(infer.CodeInvalid), Param: invalid.Field, Message: invalid.Error()}
	case errors.Is(err, people.ErrNoPerson):
		return Failure{Code: PersonNotFound, Message: people.ErrNoPerson.Error()}
	case errors.Is(err, people.ErrNameTaken):
		return Failure{Code: NameTaken, Param: "name", Message: people.ErrNameTaken.Error()}
	case errors.Is(err, people.ErrNotLoggedIn):
		return Failure{Code: NotLoggedIn, Message: people.ErrNotLoggedIn.Error()}
	case errors.Is(err, people.ErrRevoked):
		return Failure{Code: NotLoggedIn, Message: people.ErrRevoked.Error()}
	case errors.As(err, &tries):
		return Failure{Code: TooManyAttempts, Message: tries.Error(), RetryAfter: tries.Seconds()}
	case errors.As(err, &gone):
		return Failure{Code: PictureGone, Param: "pictures", Message: gone.Error()}
	case errors.As(err, &quota):
		return Failure{Code: PicturesFull, Param: "pictures", Message: quota.Error()}
	case errors.Is(err, live.ErrNoPicture):
		return Failure{Code: PictureNotFound, Message: live.ErrNoPicture.Error()}
	case errors.Is(err, live.ErrNotShared):
		return Failure{Code: NotShared, Message: live.ErrNotShared.Error()}
	case errors.Is(err, live.ErrManyFollow):
		return Failure{Code: TooManyFollow, Message: live.ErrManyFollow.Error()}
	case errors.Is(err, guest.ErrNoKeyboard):
		return Failure{Code: NoKeyboard, Message: guest.ErrNoKeyboard.Error()}
	case errors.Is(err, guest.ErrNotYours):
		return Failure{Code: NoKeyboard, Message: guest.ErrNotYours.Error()}
	case errors.Is(err, guest.ErrNoRequests):
		return Failure{Code: NoRequests, Message: guest.ErrNoRequests.Error()}
	case errors.Is(err, guest.ErrManyAsk):
		return Failure{Code: TooManyAsk, Message: guest.ErrManyAsk.Error()}
	case errors.Is(err, guest.ErrNoWriter):
		return Failure{Code: WriterNotFound, Message: guest.ErrNoWriter.Error()}
	case errors.As(err, &soon):
		return Failure{Code: TooSoon, Message: soon.Error(), RetryAfter: soon.Seconds()}
	case errors.Is(err, live.ErrClosed):
		return Failure{Code: string(infer.CodeClosed), Message: live.ErrClosed.Error()}
	case errors.Is(err, live.ErrFull):
		return Failure{Code: TooManyChats, Message: live.ErrFull.Error()}
	case errors.As(err, &missing):
		return Failure{Code: ChatsMissing, Message: "nothing was changed: " + missing.Error()}
	case errors.As(err, &busy):
		return Failure{Code: ChatsLocked, Message: "nothing was changed: " + busy.Error()}
	case errors.Is(err, live.ErrNoPreset):
		return Failure{Code: PresetNotFound, Message: err.Error()}
	case errors.Is(err, live.ErrBuiltin):
		return Failure{Code: PresetBuiltin, Message: err.Error()}
	case errors.As(err, &taken):
		return Failure{Code: NameTaken, Param: "name", Message: err.Error()}
	case errors.As(err, &space):
		return Failure{Code: DiskFull, Message: "nothing was changed: the disk of the data folder is full; free some space and try again"}
	case errors.As(err, &conflict):
		return Failure{Code: Conflict, Message: conflict.Error()}
	case errors.As(err, &registry):
		return Failure{Code: Registry, Message: registry.Error()}
	case errors.As(err, &size):
		return Failure{Code: BodyTooLarge, Message: fmt.Sprintf("the body is larger than the %d bytes that this route accepts", size.Limit)}
	case errors.Is(err, context.Canceled):
		return Failure{Code: string(infer.CodeClosed), Message: "the request was cancelled: its client closed the connection, or its own half of it, before the answer was complete; or the server is stopping"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Failure{Code: Timeout, Message: "the body did not arrive in time"}
	case errors.As(err, &status) && status.Code < http.StatusInternalServerError:
		f := Failure{Status: status.Code, Message: http.StatusText(status.Code)}
		if status.Code == http.StatusNotFound {
			f.Text = "There is nothing at this address."
		}
		return f
	}
	return Failure{Code: string(infer.CodeInternal), Message: "internal error; the server's log says more"}
}

func ofEngine(e *infer.Error) Failure {
	f := Failure{Code: string(e.Code), Param: e.Param, Message: e.Message, PromptTokens: e.PromptTokens, ContextLength: e.ContextLength}
	switch e.Code {
	case infer.CodeContext:
		f.advice = "shorten it"
		larger := e.ContextTrain > e.ContextLength && e.ContextLength > 0
		if larger {
			f.advice += fmt.Sprintf(", or start the server with a larger --ctx, of which the model takes up to %d", e.ContextTrain)
		}
		f.reason = e.Message
		if f.Message = tooLongForOpenAI.of(f); f.Param == "documents" || f.Param == "query" {
			f.Message = e.Message // says which document does not fit
		}
		f.Text = NothingCut + TooLong(false, larger)
	case infer.CodeLoading:
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

// isPrivate reports whether the text of an engine's error is for the log only.
func isPrivate(code infer.ErrorCode) bool {
	r, known := table[string(code)]
	return !known || r.private
}

func conflictTitle(c *live.Conflict) string {
	switch c.State {
	case live.Idle:
		return "No answer is being written"
	case live.Replaying:
		return "Not while an answer is being replayed"
	case live.WritingGroup:
		return "Not while answers are being compared"
	}
	return "Not while an answer is being written"
}

// Shown returns err as an engine's error, without a text that is for the log only.
func Shown(err error) infer.Error {
	shown := Whole(err)
	if e, ok := errors.AsType[*infer.Error](err); !ok || isPrivate(e.Code) {
		shown.Message = Describe(err).Message
	}
	return shown
}

// Whole returns err as an engine's error with its full text, for the server of a worker.
func Whole(err error) infer.Error {
	if e, ok := errors.AsType[*infer.Error](err); ok {
		return *e
	}
	e := infer.Error{Code: infer.CodeInternal, Message: err.Error()}
	if errors.Is(err, context.Canceled) {
		e.Code = infer.CodeClosed
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
