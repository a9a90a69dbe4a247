package gate

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/web"
)

// handleError answers a request whose handler failed. A response that has begun
// cannot be changed: a stream has reported the failure itself by then.
func (g *Gate) handleError(err error, c echo.Context) {
	err = g.explainRoute(c, err)
	f := g.Failed(c, err)
	if c.Response().Committed {
		return
	}
	if err := g.answerFailure(c, f, err); err != nil {
		g.LogUnsent(c, err)
	}
}

// Failed returns what the client of a request that failed with err may learn, and logs err
// if it is the server's fault. A worker tells its server instead.
func (g *Gate) Failed(c echo.Context, err error) failure.Failure {
	f := failure.Describe(err)
	if g.trusted || f.Status < http.StatusInternalServerError || errors.Is(err, context.Canceled) || errors.Is(err, ErrClientLost) {
		return f
	}
	g.log.ErrorContext(c.Request().Context(), "request failed", "route", c.Path(), "request", requestID(c), "error", err)
	return f
}

// LogUnsent logs why a client could not be told that its request failed.
func (g *Gate) LogUnsent(c echo.Context, err error) {
	g.log.DebugContext(c.Request().Context(), "cannot report a failure", "request", requestID(c), "error", err)
}

func (g *Gate) answerFailure(c echo.Context, f failure.Failure, err error) error {
	setRetry(c, f)
	switch {
	case g.trusted:
		return c.JSON(f.Status, g.EngineError(err))
	case c.Request().Method == http.MethodHead:
		return c.NoContent(f.Status)
	case AsksForPage(c.Request()) && !httpio.WantsJSON(c.Request()):
		return httpio.Render(c, f.Status, web.Message(f.Title, f.Text))
	default:
		body := f.Body()
		if !isAPI(c.Request().URL.Path) {
			body.Error.Title = f.Title
		}
		return c.JSON(f.Status, body)
	}
}

// setRetry tells a client when to ask again, or that it need not: OpenAI's clients ask
// twice more after the statuses 408, 409, 429 and those from 500 on.
func setRetry(c echo.Context, f failure.Failure) {
	header := c.Response().Header()
	if f.Final {
		header.Set("X-Should-Retry", "false")
	}
	if f.RetryAfter > 0 && (!f.Final || f.Status == http.StatusTooManyRequests) {
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(f.RetryAfter))
	}
}

// EngineErrorBody is a failure as the engine has it.
type EngineErrorBody struct {
	Error infer.Error `json:"error"`
}

// EngineError returns err as the engine has it, less what is for the log alone. The server
// whose engine this is has a log of its own.
func (g *Gate) EngineError(err error) EngineErrorBody {
	if g.trusted {
		return EngineErrorBody{failure.Whole(err)}
	}
	return EngineErrorBody{failure.Shown(err)}
}

// AnswerEngineError answers a failed request whose client wants the engine's error itself.
// It returns err if that is none.
func (g *Gate) AnswerEngineError(c echo.Context, err error) error {
	if _, ok := errors.AsType[*infer.Error](err); !ok {
		return err
	}
	f := g.Failed(c, err)
	setRetry(c, f)
	return c.JSON(f.Status, g.EngineError(err))
}
