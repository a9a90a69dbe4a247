package gate

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"m40-llm/handlers/failure"

	"github.com/labstack/echo/v4"
)

const requestIDKey = "request id"

// requestID returns the id of this request in the log.
func requestID(c echo.Context) string {
	id, _ := c.Get(requestIDKey).(string)
	return id
}

// observe gives a request its id, recovers from panics, responds to errors and logs the
// request: its route but not its path, which may hold a share's token, and not its content.
func (g *Gate) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		id := rand.Text()[:16]
		c.Set(requestIDKey, id)
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		if IsAnthropics(c.Request()) {
			c.Response().Header().Set("Request-Id", id)
		}
		if err := g.recoverPanics(next)(c); err != nil {
			g.handleError(err, c)
		}
		level, status := slog.LevelDebug, c.Response().Status
		if status >= http.StatusBadRequest {
			level = slog.LevelInfo
		}
		g.log.Log(c.Request().Context(), level, "request",
			"method", c.Request().Method,
			"route", c.Path(),
			"status", status,
			"bytes", c.Response().Size,
			"ms", time.Since(start).Milliseconds(),
			"client", c.RealIP(),
			"request", id)
		return nil
	}
}

// recoverPanics turns a panic of a handler into an error, which is logged with its stack.
func (g *Gate) recoverPanics(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				err = failure.OfPanic(v)
			}
		}()
		return next(c)
	}
}
