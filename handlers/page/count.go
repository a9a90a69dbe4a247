package page

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/infer"
)

// countRequest is a draft in a chat, or in a new chat if Chat is empty.
type countRequest struct {
	Chat string `json:"chat"`
	live.Draft
}

// CountResponse is the size of the prompt that a draft would lead to.
type CountResponse struct {
	Tokens int `json:"tokens"` // of the whole prompt
	Draft  int `json:"draft"`  // of the draft alone

	Pictures []int                 `json:"pictures,omitempty"` // of each picture of the draft
	Details  []infer.PictureTokens `json:"details,omitempty"`  // of each of them in each detail

	Advice string `json:"advice,omitempty"` // about a prompt that is too long because of another part than the draft

	Context int `json:"context"` // context length in tokens, for prompt and answer; 0: not known yet
}

// countDraft answers POST /count. It is a request rather than a command on the websocket, so
// that the page can cancel one that is outdated.
func (h *Handlers) countDraft(c echo.Context) error {
	var in countRequest
	if err := httpio.ReadStrictJSON(c, &in); err != nil {
		return err
	}
	n, err := h.Inspect.Count(c.Request().Context(), principal(c), in.Chat, in.Draft)
	if err != nil {
		return err
	}
	advice := ""
	if n.Context > 0 && n.Tokens >= n.Context {
		advice = failure.TooLongBecause(c.Request().Context(), n.Largest, n.Most, n.Context, n.Larger)
	}
	return c.JSON(http.StatusOK, CountResponse{Tokens: n.Tokens, Draft: n.Draft, Context: n.Context, Pictures: n.Pictures, Details: n.Details, Advice: advice})
}
