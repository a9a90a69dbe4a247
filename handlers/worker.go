package handlers

import (
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/infer"
)

// NewWorker returns the engine's own API alone, for the server whose engine cfg.Engine
// is, from another process. Nobody else can connect to it, so nothing is kept from the
// client: failures are whole infer.Errors on every route, bodies have no limit, and a
// response waits for as long as it is not read.
func NewWorker(cfg Config) *echo.Echo {
	cfg.PingInterval = time.Minute
	h := &Handlers{Config: cfg, log: cfg.Logger, gate: gate.NewTrusted(cfg.Logger)}
	e := echo.New()
	h.gate.Guard(e)
	e.POST("/v1/generate", h.generateStream)
	e.POST("/v1/render", h.renderRequest)
	e.GET("/v1/status", h.status)
	e.GET("/v1/catalog", h.catalog)
	e.POST("/tokenize", h.tokenize)
	e.POST("/detokenize", h.detokenize)
	return e
}

// status answers GET /v1/status with the engine's infer.Status.
func (h *Handlers) status(c echo.Context) error {
	s := h.Engine.Status()
	if !h.gate.Trusted() {
		s.Model.Path = ""
	}
	if s.Error != nil {
		shown := h.gate.EngineError(s.Error).Error
		s.Error = &shown
	}
	return c.JSON(http.StatusOK, s)
}

// catalog answers GET /v1/catalog with the engine's list of infer.ModelInfo, broken files
// included.
func (h *Handlers) catalog(c echo.Context) error {
	infos, err := h.Engine.Models(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, infos)
}

// renderedBody is an infer.Rendered. Bytes has the prompt too, in base64, where it is
// not whole characters.
type renderedBody struct {
	infer.Rendered
	Bytes []byte `json:"bytes,omitempty"`
}

// renderRequest answers POST /v1/render, whose body is an infer.Request.
func (h *Handlers) renderRequest(c echo.Context) error {
	r := infer.DefaultRequest()
	if err := readStrictJSON(c, &r); err != nil {
		return err
	}
	rendered, err := h.Engine.Render(c.Request().Context(), r)
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
