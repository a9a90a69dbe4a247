package page

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
)

// countRequest is a draft in a chat; in a new one if Chat is empty.
type countRequest struct {
	Chat string `json:"chat"`
	live.Draft
}

// CountResponse says how large the prompt of the draft would be.
type CountResponse struct {
	Tokens  int `json:"tokens"`  // of the whole prompt
	Draft   int `json:"draft"`   // of them, those of the draft
	Context int `json:"context"` // what the engine can use, the answer included; 0: not known yet
}

// countDraft answers POST /count. It is a request of its own and no command, so that
// the page can cancel one that is outdated.
func (h *Handlers) countDraft(c echo.Context) error {
	var in countRequest
	if err := httpio.ReadStrictJSON(c, &in); err != nil {
		return err
	}
	n, err := h.Live.Count(c.Request().Context(), principal(c), in.Chat, in.Draft)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, CountResponse{Tokens: n.Tokens, Draft: n.Draft, Context: n.Context})
}
