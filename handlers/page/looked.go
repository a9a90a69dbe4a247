package page

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/view"
	"m40-llm/infer"
)

// lookLine is a line of the response to lookAtPicture: progress, then the result.
type lookLine struct {
	Queued  *infer.Queued  `json:"queued,omitempty"`
	Loading *infer.Loading `json:"loading,omitempty"`
	Parts   *lookedParts   `json:"parts,omitempty"`
	Looked  *view.Looked   `json:"looked,omitempty"`
}

type lookedParts struct {
	Done  int     `json:"done"`
	Total int     `json:"total"`
	LeftS float64 `json:"left_s"` // expected seconds; 0: not known
}

// lookFields say what is asked of a picture.
type lookFields struct {
	Picture  int `json:"picture"`  // among those of all messages, from 0
	Division int `json:"division"` // of those that pictureSight lists, from 0
	Parts    int `json:"parts"`    // at most so many parts; 0: all
}

func (f lookFields) of(answer int64, token int) inspect.Look {
	return inspect.Look{Answer: answer, Token: token, Picture: f.Picture, Division: f.Division, Parts: f.Parts}
}

// pictureSight answers GET /c/:id/looked/:answer/:index: the pictures before an answer, and what it costs to see what their parts
// count for one of its tokens. With ?picture=N&division=N it answers what is known of that.
func (h *Handlers) pictureSight(c echo.Context) error {
	chat, answer, at, err := h.tokenOf(c)
	if err != nil {
		return err
	}
	if c.QueryParam("picture") == "" {
		sight, err := h.Inspect.Sight(c.Request().Context(), principal(c), chat, answer, at)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, view.SightOf(sight))
	}
	var f lookFields
	if f.Picture, err = number(c.QueryParam("picture"), "picture"); err != nil {
		return err
	}
	if f.Division, err = number(c.QueryParam("division"), "division"); err != nil {
		return err
	}
	looked, err := h.Inspect.Looked(c.Request().Context(), principal(c), chat, f.of(answer, at))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view.LookedOf(looked))
}

// lookAtPicture answers POST /c/:id/looked/:answer/:index, whose body has lookFields: what the parts of a picture count for a token. The
// response is newline-delimited JSON; who closes the connection cancels what is left, and what was scored stays known.
func (h *Handlers) lookAtPicture(c echo.Context) error {
	chat, answer, at, err := h.tokenOf(c)
	if err != nil {
		return err
	}
	var f lookFields
	if err := httpio.ReadStrictJSON(c, &f); err != nil {
		return err
	}
	lines := &progressLines{c: c}
	looked, err := h.Inspect.Look(c.Request().Context(), principal(c), chat, f.of(answer, at), func(p inspect.LookProgress) {
		lines.progress(lookLine{Queued: p.Event.Queued, Loading: p.Event.Loading, Parts: &lookedParts{p.Done, p.Total, p.Left.Seconds()}}, p.Done >= p.Total)
	})
	if err != nil {
		return h.fail(lines, "what counts in a picture was not scored", err)
	}
	v := view.LookedOf(looked)
	return lines.send(lookLine{Looked: &v})
}
