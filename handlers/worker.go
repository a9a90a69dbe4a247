package handlers

import (
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/api"
	"m40-llm/handlers/gate"
)

// NewWorker returns the routes of a worker, by which its server calls cfg.Engine from another
// process. Only the server can connect, so errors are whole fault.Errors on every route, bodies
// have no limit, and writing a response waits as long as it is not read.
func NewWorker(cfg Config) *echo.Echo {
	g := gate.NewTrusted(cfg.Logger)
	e := echo.New()
	g.Guard(e)
	api.New(cfg.Engine, nil, nil, g, nil, cfg.Version, time.Minute).EngineRoutes(e)
	return e
}
