package page

import (
	"math"
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/view"
	"m40-llm/infer"
)

// scoreLine is a line of the response to scorePrompt: progress, then the result.
type scoreLine struct {
	Queued  *infer.Queued  `json:"queued,omitempty"`
	Loading *infer.Loading `json:"loading,omitempty"`
	Prefill *infer.Prefill `json:"prefill,omitempty"`
	Scored  *view.Scored   `json:"scored,omitempty"`
}

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
	lines := &progressLines{c: c}
	scored, err := h.Inspect.Score(c.Request().Context(), principal(c), chat, answer, other, func(e infer.Event) {
		if e.Queued != nil || e.Loading != nil || e.Prefill != nil {
			lines.progress(scoreLine{Queued: e.Queued, Loading: e.Loading, Prefill: e.Prefill}, false)
		}
	})
	if err != nil {
		return h.fail(lines, "a prompt was not scored", err)
	}
	v := view.ScoredOf(scored)
	return lines.send(scoreLine{Scored: &v})
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
