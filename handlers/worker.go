package handlers

import (
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/api"
	"m40-llm/handlers/gate"
)

// NewWorker returns the engine's own API alone, for the server whose engine cfg.Engine
// is, from another process. Nobody else can connect to it, so nothing is kept from the
// client: failures are whole infer.Errors on every route, bodies have no limit, and a
// response waits for as long as it is not read.
func NewWorker(cfg Config) *echo.Echo {
	g := gate.NewTrusted(cfg.Logger)
	e := echo.New()
	g.Guard(e)
	api.New(cfg.Engine, nil, g, cfg.Version, time.Minute).EngineRoutes(e)
	return e
}
