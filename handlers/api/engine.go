package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// load answers POST /v1/models/load, which loads a model.
func (api *API) load(c echo.Context) error { return api.manage(c, api.list.Load) }

// unload answers POST /v1/models/unload, which unloads a model when its answers have ended.
func (api *API) unload(c echo.Context) error { return api.manage(c, api.list.Unload) }

// pin answers POST /v1/models/pin, which keeps a loaded model in memory.
func (api *API) pin(c echo.Context) error {
	return api.manage(c, func(ctx context.Context, name string) error { return api.list.Pin(ctx, name, true) })
}

// unpin answers POST /v1/models/unpin.
func (api *API) unpin(c echo.Context) error {
	return api.manage(c, func(ctx context.Context, name string) error { return api.list.Pin(ctx, name, false) })
}

// NamedModel is the body of the routes that load and unload models.
type NamedModel struct {
	Model string `json:"model"`
}

// manage calls change with the model of the body, and answers with how that is now.
func (api *API) manage(c echo.Context, change func(ctx context.Context, name string) error) error {
	if err := mayManage(c); err != nil {
		return err
	}
	var body NamedModel
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	info, err := api.find(c, body.Model)
	if err != nil {
		return err
	}
	if info.Upstream != nil {
		return fault.Invalid("model", "%s runs at %s: only models of this machine can be loaded here", info.Name, info.Upstream.Servers[0])
	}
	if err := change(c.Request().Context(), info.Name); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, api.describeModel(info))
}

// status answers GET /v1/status with the engine's infer.Status.
func (api *API) status(c echo.Context) error {
	s := api.engine.Status()
	if !api.gate.Trusted() {
		s.Model.Path = ""
		s.Models = slices.Clone(s.Models)
		for i := range s.Models {
			s.Models[i].Model.Path = ""
		}
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
		return fault.Errorf(fault.CodeInvalid, "the setup is not valid JSON: %v", err)
	}
	if err := engine.Reload(c.Request().Context(), s); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct{}{})
}

// keep answers POST /v1/keep, which sets how long a worker's model stays without a request, for the server of that worker.
func (api *API) keep(c echo.Context) error {
	engine, ok := api.engine.(interface {
		Keep(ctx context.Context, seconds *float64) error
	})
	if !ok {
		return echo.ErrNotFound
	}
	var body struct{ Seconds *float64 }
	if err := json.NewDecoder(c.Request().Body).Decode(&body); err != nil {
		return fault.Errorf(fault.CodeInvalid, "the time is not valid JSON: %v", err)
	}
	if err := engine.Keep(c.Request().Context(), body.Seconds); err != nil {
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
	if err := api.showPictures(c.Request().Context(), &r); err != nil {
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
