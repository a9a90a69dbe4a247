package page

import (
	"math"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/view"
	"m40-llm/infer"
)

// scoreLine is a line of the response to scorePrompt: progress, then the result or an error.
type scoreLine struct {
	Queued  *infer.Queued  `json:"queued,omitempty"`
	Loading *infer.Loading `json:"loading,omitempty"`
	Prefill *infer.Prefill `json:"prefill,omitempty"`
	Scored  *view.Scored   `json:"scored,omitempty"`
	Error   *scoreError    `json:"error,omitempty"`
}

type scoreError struct {
	Title   string `json:"title"`
	Message string `json:"message"`
}

// scoreEvery is the least time between two lines of progress.
const scoreEvery = 50 * time.Millisecond

// scorePrompt answers POST /c/:id/score/:answer, whose body may name another model: the tokens of the
// prompt of an answer, and with another model those of the answer too, as their model scores them in one
// pass. The response is newline-delimited JSON; who closes the connection cancels the pass.
func (h *Handlers) scorePrompt(c echo.Context) error {
	chat, answer, err := h.answerOf(c)
	if err != nil {
		return err
	}
	var other inspect.Other
	if err := httpio.ReadStrictJSON(c, &other); err != nil {
		return err
	}
	var lines *httpio.Lines
	var last time.Time
	send := func(line scoreLine) error {
		if lines == nil {
			opened, err := httpio.OpenLines(c)
			if err != nil {
				return err
			}
			lines = &opened
		}
		return lines.Send(line)
	}
	scored, err := h.Inspect.Score(c.Request().Context(), principal(c), chat, answer, other, func(e infer.Event) {
		if now := time.Now(); now.Sub(last) >= scoreEvery && (e.Queued != nil || e.Loading != nil || e.Prefill != nil) {
			last = now
			_ = send(scoreLine{Queued: e.Queued, Loading: e.Loading, Prefill: e.Prefill}) // a client that is gone cancels the context
		}
	})
	if err != nil && lines == nil {
		return err
	}
	if err != nil {
		f := failure.Describe(err)
		if f.Status >= http.StatusInternalServerError {
			h.Log.Error("a prompt was not scored", "error", err)
		}
		return send(scoreLine{Error: &scoreError{Title: f.Title, Message: f.Text}})
	}
	v := view.ScoredOf(scored)
	return send(scoreLine{Scored: &v})
}

// scoredToken answers GET /c/:id/score/:answer/:index: one token of a scored prompt, 0 being the first,
// with the candidates in its place.
func (h *Handlers) scoredToken(c echo.Context) error {
	chat, answer, at, err := h.tokenOf(c)
	if err != nil {
		return err
	}
	token, total, err := h.Inspect.ScoredToken(c.Request().Context(), principal(c), chat, answer, at, math.MaxInt)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view.TokenDetailOf(token, total))
}
