package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

type templateRequest struct {
	Model        string `json:"model"`
	ChatTemplate string `json:"chat_template"` // instead of the model's
	chatFields
}

// RenderedTemplate is the response to POST /apply-template.
type RenderedTemplate struct {
	Prompt string  `json:"prompt"`
	Tokens []int32 `json:"tokens"`
	Notice string  `json:"notice,omitempty"`

	Pictures []int                 `json:"pictures,omitempty"` // how many of Tokens belong to each picture
	Grids    []infer.PictureGrid   `json:"picture_grids,omitempty"`
	Details  []infer.PictureTokens `json:"picture_details,omitempty"` // how many would, in each detail

	Notes []string `json:"notes,omitempty"`

	Largest       fault.Part `json:"largest,omitempty"` // of a prompt that leaves no room for an answer
	LargestTokens int        `json:"largest_tokens,omitempty"`

	Continued *chat.Message `json:"-"` // the request has none
}

// applyTemplate answers POST /apply-template with the prompt that a chat
// completion of the same messages would start from.
func (api *API) applyTemplate(c echo.Context) error {
	var body templateRequest
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r := infer.DefaultRequest()
	r.Model = body.Model
	if err := body.fill(&r); err != nil {
		return err
	}
	r.ChatTemplate = body.ChatTemplate
	if err := api.showPictures(c.Request().Context(), &r); err != nil {
		return err
	}
	rendered, err := api.engine.Render(c.Request().Context(), r)
	if err != nil {
		return err
	}
	if rendered.Tokens == nil {
		rendered.Tokens = []int32{}
	}
	return c.JSON(http.StatusOK, RenderedTemplate(rendered))
}
