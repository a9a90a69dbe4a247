package gate

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
	"m40-llm/web"
)

// handleError responds to a request whose handler returned err. It cannot change a response
// that has been started; a stream reports its failure itself.
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

// Failed returns what the client of a request that failed with err is told, in the language of its page, and logs err if
// the server is at fault. A worker does not log it: its server does.
func (g *Gate) Failed(c echo.Context, err error) failure.Failure {
	f := failure.For(c.Request().Context(), err)
	if g.trusted || f.Status < http.StatusInternalServerError || errors.Is(err, context.Canceled) || errors.Is(err, ErrClientLost) {
		return f
	}
	g.log.ErrorContext(c.Request().Context(), "request failed", "route", c.Path(), "request", requestID(c), "error", err)
	return f
}

// LogUnsent logs err, because of which a client could not be told that its request failed.
func (g *Gate) LogUnsent(c echo.Context, err error) {
	g.log.DebugContext(c.Request().Context(), "failed to send an error to the client", "request", requestID(c), "error", err)
}

func (g *Gate) answerFailure(c echo.Context, f failure.Failure, err error) error {
	setRetryHeaders(c, f)
	switch {
	case g.trusted:
		return c.JSON(f.Status, g.EngineError(err))
	case c.Request().Method == http.MethodHead:
		return c.NoContent(f.Status)
	case AsksForPage(c.Request()) && !httpio.WantsJSON(c.Request()):
		return httpio.Render(c, f.Status, web.Message(f.Title, f.Text))
	default:
		if path := c.Request().URL.Path; !IsAnthropics(c.Request()) || strings.HasPrefix(path, "/api/") {
			return c.JSON(f.Status, ErrorBody(path, f))
		}
		return c.JSON(f.Status, f.Anthropic())
	}
}

// IsAnthropics reports whether a client of Anthropic's API sent r. It and OpenAI's have routes with the same
// paths.
func IsAnthropics(r *http.Request) bool {
	return r.Header.Get("Anthropic-Version") != "" || isMessages(r.URL.Path)
}

// isMessages reports whether only Anthropic's API has the route.
func isMessages(path string) bool {
	return path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/")
}

// llamaRoutes are those of llama-server that take a prompt.
var llamaRoutes = map[string]bool{"/apply-template": true, "/completion": true, "/embedding": true, "/infill": true}

// ErrorBody returns f in the shape of the API that path belongs to.
func ErrorBody(path string, f failure.Failure) any {
	switch {
	case path == "/api" || strings.HasPrefix(path, "/api/"):
		return f.Ollama()
	case isMessages(path):
		return f.Anthropic()
	case llamaRoutes[path]:
		return f.Llama()
	}
	body := f.Body()
	if !IsAPI(path) {
		body.Error.Title = f.Title
	}
	return body
}

// setRetryHeaders tells a client when to retry, or not to. By default OpenAI's clients retry
// twice after the statuses 408, 409, 429 and 5xx.
func setRetryHeaders(c echo.Context, f failure.Failure) {
	header := c.Response().Header()
	if f.Final {
		header.Set("X-Should-Retry", "false")
	}
	if f.RetryAfter > 0 && (!f.Final || f.Status == http.StatusTooManyRequests) {
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(f.RetryAfter))
	}
}

// EngineErrorBody is the JSON body of an engine's error.
type EngineErrorBody struct {
	Error fault.Error `json:"error"`
}

// EngineError returns err as an engine's error, without the details that are for the log
// only. A worker's error keeps them, for its server's log.
func (g *Gate) EngineError(err error) EngineErrorBody {
	if g.trusted {
		return EngineErrorBody{failure.Whole(err)}
	}
	return EngineErrorBody{failure.Shown(err)}
}

// AnswerEngineError responds with err itself, for clients that expect an engine's error. It
// returns err if that is not an engine's error.
func (g *Gate) AnswerEngineError(c echo.Context, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); !ok {
		return err
	}
	f := g.Failed(c, err)
	setRetryHeaders(c, f)
	return c.JSON(f.Status, g.EngineError(err))
}
