package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
)

// status answers GET /v1/status with the engine's infer.Status.
func (api *API) status(c echo.Context) error {
	s := api.engine.Status()
	if !api.gate.Trusted() {
		s.Model.Path = ""
	}
	if s.Error != nil {
		shown := api.gate.EngineError(s.Error).Error
		s.Error = &shown
	}
	return c.JSON(http.StatusOK, s)
}

// reload answers POST /v1/reload, whose body is an infer.Setup, for the server of a worker.
func (api *API) reload(c echo.Context) error {
	engine, ok := api.engine.(interface {
		Reload(ctx context.Context, s infer.Setup) error
	})
	if !ok {
		return echo.ErrNotFound
	}
	var s infer.Setup
	if err := json.NewDecoder(c.Request().Body).Decode(&s); err != nil {
		return &infer.Error{Code: infer.CodeInvalid, Message: fmt.Sprintf("the setup is not valid JSON: %v", err)}
	}
	if err := engine.Reload(c.Request().Context(), s); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct{}{})
}

// catalog answers GET /v1/catalog with the engine's list of infer.ModelInfo, broken files
// included.
func (api *API) catalog(c echo.Context) error {
	infos, err := api.engine.Models(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, infos)
}

// renderedBody is an infer.Rendered. If the prompt is not valid UTF-8, Bytes has it in base64.
type renderedBody struct {
	infer.Rendered
	Bytes []byte `json:"bytes,omitempty"`
}

// renderRequest answers POST /v1/render, whose body is an infer.Request, for servers.
func (api *API) renderRequest(c echo.Context) error {
	r := infer.DefaultRequest()
	if err := httpio.ReadStrictJSON(c, &r); err != nil {
		return err
	}
	rendered, err := api.engine.Render(c.Request().Context(), r)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, renderedBody{rendered, unlessText(rendered.Prompt)})
}

// unlessText returns the bytes of s if JSON cannot hold them as a string.
func unlessText(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}
