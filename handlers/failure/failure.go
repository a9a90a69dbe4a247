package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/store"
)

// httpError is a failure of the request itself, before or beside the engine.
type httpError struct {
	status  int
	code    string
	message string
	final   bool // the same request fails again
	retry   int  // seconds after which a client may try again; 0: what the status has
}

func (e *httpError) Error() string { return e.message }

func httpErrorf(status int, code, format string, args ...any) error {
	return &httpError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// retryIn is httpErrorf with the pause asked of the client, in seconds.
func retryIn(seconds, status int, code, format string, args ...any) error {
	return &httpError{status: status, code: code, message: fmt.Sprintf(format, args...), retry: seconds}
}

// invalidf says that a field of the request is wrong.
func invalidf(param, format string, args ...any) error {
	return &infer.Error{Code: infer.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// failure is what a client may learn of an error.
type failure struct {
	Status        int
	Type          string
	Code          any // a string, or 503 as llama-server has it
	Param         string
	Message       string
	PromptTokens  int
	ContextLength int
	RetryAfter    int    // seconds; 0: no use
	Final         bool   // the same request fails again
	Advice        string // what helps beside a shorter prompt, if one is too long
}

// engineFailures is the table of the engine's errors.
var engineFailures = map[infer.ErrorCode]struct {
	status  int
	private bool // the text is for the log alone
	final   bool // the same request fails again
}{
	infer.CodeInvalid:   {status: http.StatusBadRequest},
	infer.CodeContext:   {status: http.StatusBadRequest},
	infer.CodeTemplate:  {status: http.StatusBadRequest},
	infer.CodeNotFound:  {status: http.StatusNotFound},
	infer.CodeQueueFull: {status: http.StatusTooManyRequests},
	infer.CodeLoading:   {status: http.StatusServiceUnavailable},
	infer.CodeMemory:    {status: http.StatusServiceUnavailable, final: true},
	infer.CodeClosed:    {status: http.StatusServiceUnavailable},
	infer.CodeModelFile: {status: http.StatusInternalServerError, final: true},
	infer.CodeDevice:    {status: http.StatusInternalServerError, private: true},
	infer.CodeNotFinite: {status: http.StatusInternalServerError, private: true, final: true},
	infer.CodeGrammar:   {status: http.StatusInternalServerError, final: true},
	infer.CodeLost:      {status: http.StatusServiceUnavailable},
	infer.CodeCrashes:   {status: http.StatusInternalServerError, final: true},
	infer.CodeInternal:  {status: http.StatusInternalServerError, private: true},
}

// failureTypes are OpenAI's names for the kinds of failure; other statuses below
// 500 are invalid_request_error, others above it server_error.
var failureTypes = map[int]string{
	http.StatusUnauthorized:       "authentication_error",
	http.StatusForbidden:          "permission_error",
	http.StatusTooManyRequests:    "rate_limit_error",
	http.StatusServiceUnavailable: "unavailable_error",
}

// retryAfter is the pause, in seconds, asked of a client that was turned away, unless its
// error names another.
var retryAfter = map[int]int{
	http.StatusTooManyRequests:    5,
	http.StatusServiceUnavailable: 5,
}

// describe turns any error into what its client may learn. It is the only place
// that maps errors to statuses.
func describe(err error) failure {
	f := failure{Status: http.StatusInternalServerError, Code: string(infer.CodeInternal), Message: "internal error; the server's log says more"}
	var (
		engineErr *infer.Error
		ownErr    *httpError
		echoErr   *echo.HTTPError
		sizeErr   *http.MaxBytesError
		spaceErr  *store.SpaceError
		busyErr   *store.BusyError
		missing   *store.MissingError
		conflict  *models.Conflict
		registry  *models.Failure
		takenErr  *live.TakenError
	)
	switch {
	case errors.As(err, &engineErr):
		f = describeEngine(engineErr)
	case errors.As(err, &ownErr):
		f.Status, f.Code, f.Message, f.Final, f.RetryAfter = ownErr.status, ownErr.code, ownErr.message, ownErr.final, ownErr.retry
	case errors.Is(err, live.ErrNotFound):
		f.Status, f.Code, f.Message = http.StatusNotFound, "chat_not_found", live.ErrNotFound.Error()
	case errors.Is(err, live.ErrClosed):
		f.Status, f.Code, f.Message = http.StatusServiceUnavailable, string(infer.CodeClosed), live.ErrClosed.Error()
	case errors.Is(err, live.ErrFull):
		f.Status, f.Code, f.Message = http.StatusServiceUnavailable, "too_many_chats", live.ErrFull.Error()
	case errors.As(err, &missing):
		f.Status, f.Code, f.Message = http.StatusServiceUnavailable, "chats_missing", "nothing was changed: "+missing.Error()
	case errors.As(err, &busyErr):
		f.Status, f.Code, f.Message = http.StatusServiceUnavailable, "chats_locked", "nothing was changed: "+busyErr.Error()
	case errors.Is(err, live.ErrNoPreset):
		f.Status, f.Code, f.Message = http.StatusNotFound, "preset_not_found", err.Error()
	case errors.Is(err, live.ErrBuiltin):
		f.Status, f.Code, f.Message = http.StatusConflict, "preset_builtin", err.Error()
	case errors.As(err, &takenErr):
		f.Status, f.Code, f.Param, f.Message = http.StatusConflict, "name_taken", "name", err.Error()
	case errors.As(err, &spaceErr):
		f.Status, f.Code, f.Message = http.StatusInsufficientStorage, "disk_full", "nothing was changed: the disk of the data folder is full; make room and try again"
	case errors.As(err, &conflict):
		f.Status, f.Code, f.Message = http.StatusConflict, "conflict", conflict.Error()
	case errors.As(err, &registry):
		f.Status, f.Code, f.Message = http.StatusBadGateway, "registry", registry.Error()
	case errors.As(err, &sizeErr):
		f.Status, f.Code = http.StatusRequestEntityTooLarge, "body_too_large"
		f.Message = fmt.Sprintf("the body is larger than the %d bytes that this route takes", sizeErr.Limit)
	case errors.Is(err, context.Canceled):
		f = describeEngine(&infer.Error{Code: infer.CodeClosed, Message: "the request was cancelled: its client closed the connection, or its own half of it, before the answer was complete; or the server is stopping"})
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.Status, f.Code, f.Message = http.StatusRequestTimeout, "timeout", "the body did not arrive in time"
	case errors.As(err, &echoErr) && echoErr.Code < http.StatusInternalServerError:
		f.Status, f.Code, f.Message = echoErr.Code, nil, http.StatusText(echoErr.Code)
	}
	if f.RetryAfter == 0 {
		f.RetryAfter = retryAfter[f.Status]
	}
	f.Type = failureTypes[f.Status]
	switch {
	case f.Type != "":
	case f.Status < http.StatusInternalServerError:
		f.Type = "invalid_request_error"
	default:
		f.Type = "server_error"
	}
	return f
}

func describeEngine(e *infer.Error) failure {
	row, known := engineFailures[e.Code]
	if !known {
		row.status, row.private = http.StatusInternalServerError, true
	}
	f := failure{
		Status:        row.status,
		Code:          string(e.Code),
		Param:         e.Param,
		Message:       e.Message,
		PromptTokens:  e.PromptTokens,
		ContextLength: e.ContextLength,
		Final:         row.final,
	}
	switch {
	case e.Code == infer.CodeContext:
		// Clients look for these very words to shorten the conversation.
		f.Advice = largerContext(e)
		f.Message = fmt.Sprintf("maximum context length is %d tokens, and this prompt has %d: shorten it%s", e.ContextLength, e.PromptTokens, f.Advice)
	case e.Code == infer.CodeLoading:
		f.Code, f.Message = http.StatusServiceUnavailable, "Loading model"
	case row.private:
		f.Message = "the engine failed on this request; the server's log says more"
	}
	return f
}

// largerContext is the advice beside a shorter prompt. A larger --ctx helps up to what the
// model was trained on.
func largerContext(e *infer.Error) string {
	if e.ContextTrain <= e.ContextLength {
		return ""
	}
	return fmt.Sprintf(", or start the server with a larger --ctx, of which the model takes up to %d", e.ContextTrain)
}

// errorBody is the OpenAI shape of a failure, with llama-server's two numbers.
type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Message       string  `json:"message"`
	Type          string  `json:"type"`
	Param         *string `json:"param"`
	Code          any     `json:"code"`
	PromptTokens  int     `json:"n_prompt_tokens,omitempty"`
	ContextLength int     `json:"n_ctx,omitempty"`
}

func (f failure) body() errorBody {
	b := errorBody{errorFields{
		Message:       f.Message,
		Type:          f.Type,
		Code:          f.Code,
		PromptTokens:  f.PromptTokens,
		ContextLength: f.ContextLength,
	}}
	if f.Param != "" {
		b.Error.Param = &f.Param
	}
	return b
}

// handleError answers a request whose handler failed. A response that has begun
// cannot be changed: a stream has reported the failure itself by then.
func (h *Handlers) handleError(err error, c echo.Context) {
	err = h.explainRoute(c, err)
	f := describe(err)
	h.logFailure(c, f, err)
	if c.Response().Committed {
		return
	}
	if err := h.answerFailure(c, f, err); err != nil {
		h.logUnsent(c, err)
	}
}

// logFailure logs what is the server's fault. A worker tells its server instead.
func (h *Handlers) logFailure(c echo.Context, f failure, err error) {
	if h.trusted || f.Status < http.StatusInternalServerError || errors.Is(err, context.Canceled) || errors.Is(err, errClientLost) {
		return
	}
	h.log.ErrorContext(c.Request().Context(), "request failed", "route", c.Path(), "request", requestID(c), "error", err)
}

func (h *Handlers) logUnsent(c echo.Context, err error) {
	h.log.DebugContext(c.Request().Context(), "cannot report a failure", "request", requestID(c), "error", err)
}

func (h *Handlers) answerFailure(c echo.Context, f failure, err error) error {
	setRetry(c, f)
	switch {
	case h.trusted:
		return c.JSON(f.Status, engineErrorBody{h.shownError(err)})
	case c.Request().Method == http.MethodHead:
		return c.NoContent(f.Status)
	case asksForPage(c.Request()) && !wantsJSON(c.Request()):
		return errorPage(c, f.Status, f.Message)
	default:
		return c.JSON(f.Status, f.body())
	}
}

// setRetry tells a client when to ask again, or that it need not: OpenAI's clients ask
// twice more after the statuses 408, 409, 429 and those from 500 on.
func setRetry(c echo.Context, f failure) {
	header := c.Response().Header()
	if f.Final {
		header.Set("X-Should-Retry", "false")
	}
	if f.RetryAfter > 0 && (!f.Final || f.Status == http.StatusTooManyRequests) {
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(f.RetryAfter))
	}
}

// failGenerate answers a failed POST /v1/generate, whose clients want the
// engine's error itself.
func (h *Handlers) failGenerate(c echo.Context, err error) error {
	var engineErr *infer.Error
	if !errors.As(err, &engineErr) {
		return err
	}
	f := describe(err)
	h.logFailure(c, f, err)
	setRetry(c, f)
	return c.JSON(f.Status, engineErrorBody{h.shownError(err)})
}
