package page

import (
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// maxTokens is how many tokens of an answer one response has at most.
const maxTokens = 1024

// answerTokens answers GET /c/:id/tokens/:answer?from=N: the tokens of an answer with their
// probabilities, from token N on, 0 being the first.
func (h *Handlers) answerTokens(c echo.Context) error {
	from, err := number(c.QueryParam("from"), "from")
	if err != nil {
		return err
	}
	chat, answer, err := h.answerOf(c)
	if err != nil {
		return err
	}
	list, total, err := h.Inspect.Tokens(c.Request().Context(), principal(c), chat, answer, max(0, from), maxTokens, 0)
	if err != nil {
		return err
	}
	tokens := make([]view.Token, len(list))
	for i := range list {
		tokens[i] = view.TokenOf(&list[i])
	}
	return c.JSON(http.StatusOK, map[string]any{"tokens": tokens, "total": total})
}

// leastCertain answers GET /c/:id/tokens/:answer/unsure: what the samplers that remove candidates got for
// the token with the largest entropy; its candidates are null if none are stored, and if another version has taken the
// place of the answer since the page had it in view.
func (h *Handlers) leastCertain(c echo.Context) error {
	chat, answer, err := h.answerOf(c)
	if err != nil {
		return err
	}
	least, total, err := h.Inspect.LeastCertain(c.Request().Context(), principal(c), chat, answer)
	if known, ok := errors.AsType[*fault.Error](err); ok && known.Param == "answer" {
		err = nil
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"text": view.TokenOf(&least).Text, "total": total, "candidates": view.CandidatesOf(least.Row)})
}

// answerToken answers GET /c/:id/tokens/:answer/:index: one token, 0 being the first, with the candidates
// in its place.
func (h *Handlers) answerToken(c echo.Context) error {
	chat, answer, at, err := h.tokenOf(c)
	if err != nil {
		return err
	}
	list, total, err := h.Inspect.Tokens(c.Request().Context(), principal(c), chat, answer, max(0, at), 1, math.MaxInt)
	if err != nil {
		return err
	}
	if at < 0 || len(list) == 0 {
		return fault.Invalid("index", "the answer has no token %d: it has %d", at, total)
	}
	return c.JSON(http.StatusOK, view.TokenDetailOf(&list[0], total))
}

// tokenStages answers GET /c/:id/tokens/:answer/:index/stages: the way of a token through the samplers,
// as far as it follows from its stored candidates; and POST, for which one step of the model computes it.
func (h *Handlers) tokenStages(c echo.Context) error {
	chat, answer, at, err := h.tokenOf(c)
	if err != nil {
		return err
	}
	m, err := h.Inspect.Microscope(c.Request().Context(), principal(c), chat, answer, at, c.Request().Method == http.MethodPost)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view.StagesOf(c.Request().Context(), m))
}

// judgeAnswer answers POST /c/:id/tokens/:answer/judge, whose body has settings as JSON: what these
// would have made of each token.
func (h *Handlers) judgeAnswer(c echo.Context) error {
	chat, answer, err := h.answerOf(c)
	if err != nil {
		return err
	}
	settings := setting.Default()
	if err := httpio.ReadStrictJSON(c, &settings); err != nil {
		return err
	}
	settings.Seed = -1 // the answer's own
	v, err := h.Inspect.Judge(c.Request().Context(), principal(c), chat, answer, settings)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, v)
}

// candidateLimits answers GET /candidates: how long, and up to which size, candidates are stored, and how
// many bytes they take.
func (h *Handlers) candidateLimits(c echo.Context) error {
	limits, used, err := h.Live.Disk.RowLimits(c.Request().Context(), principal(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"days": limits.Days, "megabytes": limits.Megabytes, "bytes": used, "may": mayManageModels(c) == nil})
}

// setCandidateLimits answers POST /candidates, whose body has days and megabytes.
func (h *Handlers) setCandidateLimits(c echo.Context) error {
	var limits store.RowLimits
	if err := httpio.ReadStrictJSON(c, &limits); err != nil {
		return err
	}
	if err := h.Live.Disk.SetRowLimits(c.Request().Context(), principal(c), limits); err != nil {
		return err
	}
	return h.candidateLimits(c)
}

// tokenOf returns the chat, the answer and the index of the token that the address names.
func (h *Handlers) tokenOf(c echo.Context) (chat *live.Chat, answer int64, at int, err error) {
	if at, err = number(c.Param("index"), "index"); err != nil {
		return nil, 0, 0, err
	}
	chat, answer, err = h.answerOf(c)
	return chat, answer, at, err
}

// answerOf returns the chat and the answer that the address names.
func (h *Handlers) answerOf(c echo.Context) (*live.Chat, int64, error) {
	answer, err := strconv.ParseInt(c.Param("answer"), 10, 64)
	if err != nil {
		return nil, 0, fault.Invalid("answer", "answer is %q, but must be a number", httpio.Shorten(c.Param("answer")))
	}
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id"))
	return chat, answer, err
}

// number returns the number that text has; 0 if it is empty.
func number(text, param string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fault.Invalid(param, "%s is %q, but must be a whole number", param, httpio.Shorten(text))
	}
	return n, nil
}
