package handlers

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/infer"
)

// errorBody is the OpenAI shape of a failure, with llama-server's two numbers.
type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Message       string  `json:"message"`
	Type          string  `json:"type"`
	Param         *string `json:"param"`
	Code          any     `json:"code"`
	Title         string  `json:"title,omitempty"` // for the page's scripts
	PromptTokens  int     `json:"n_prompt_tokens,omitempty"`
	ContextLength int     `json:"n_ctx,omitempty"`
}

func bodyOf(f failure.Failure) errorBody {
	b := errorBody{errorFields{Message: f.Message, Type: f.Type, PromptTokens: f.PromptTokens, ContextLength: f.ContextLength}}
	switch f.Code {
	case "":
	case string(infer.CodeLoading):
		b.Error.Code = f.Status // as llama-server has it
	default:
		b.Error.Code = f.Code
	}
	if f.Param != "" {
		b.Error.Param = &f.Param
	}
	return b
}

// handleError answers a request whose handler failed. A response that has begun
// cannot be changed: a stream has reported the failure itself by then.
func (h *Handlers) handleError(err error, c echo.Context) {
	err = h.explainRoute(c, err)
	f := failure.Describe(err)
	h.logFailure(c, f, err)
	if c.Response().Committed {
		return
	}
	if err := h.answerFailure(c, f, err); err != nil {
		h.logUnsent(c, err)
	}
}

// logFailure logs what is the server's fault. A worker tells its server instead.
func (h *Handlers) logFailure(c echo.Context, f failure.Failure, err error) {
	if h.trusted || f.Status < http.StatusInternalServerError || errors.Is(err, context.Canceled) || errors.Is(err, errClientLost) {
		return
	}
	h.log.ErrorContext(c.Request().Context(), "request failed", "route", c.Path(), "request", requestID(c), "error", err)
}

func (h *Handlers) logUnsent(c echo.Context, err error) {
	h.log.DebugContext(c.Request().Context(), "cannot report a failure", "request", requestID(c), "error", err)
}

func (h *Handlers) answerFailure(c echo.Context, f failure.Failure, err error) error {
	setRetry(c, f)
	switch {
	case h.trusted:
		return c.JSON(f.Status, engineErrorBody{h.shownError(err)})
	case c.Request().Method == http.MethodHead:
		return c.NoContent(f.Status)
	case asksForPage(c.Request()) && !wantsJSON(c.Request()):
		return errorPage(c, f)
	default:
		body := bodyOf(f)
		if !isAPI(c.Request().URL.Path) {
			body.Error.Title = f.Title
		}
		return c.JSON(f.Status, body)
	}
}

// setRetry tells a client when to ask again, or that it need not: OpenAI's clients ask
// twice more after the statuses 408, 409, 429 and those from 500 on.
func setRetry(c echo.Context, f failure.Failure) {
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
	f := failure.Describe(err)
	h.logFailure(c, f, err)
	setRetry(c, f)
	return c.JSON(f.Status, engineErrorBody{h.shownError(err)})
}

// invalidf returns the error of a request whose field param is wrong.
func invalidf(param, format string, args ...any) error {
	return failure.Invalid(param, format, args...)
}
