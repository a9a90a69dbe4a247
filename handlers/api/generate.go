package api

import (
	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
)

// generateStream answers POST /v1/generate, the engine's own API: the body is an
// infer.Request, the response one infer.Event per line. A server calls its worker through it,
// so it loses nothing: errors are whole fault.Errors, as the response or in its last line.
func (api *API) generateStream(c echo.Context) error {
	r := infer.DefaultRequest()
	if err := httpio.ReadStrictJSON(c, &r); err != nil {
		return api.gate.AnswerEngineError(c, err)
	}
	err := api.stream(c, asked{requests: []infer.Request{r}}, func() (sink, error) { return api.openEventLines(c) })
	if err != nil && !c.Response().Committed {
		return api.gate.AnswerEngineError(c, err)
	}
	return err
}

// eventLines writes events as NDJSON.
type eventLines struct {
	gate  *gate.Gate
	lines httpio.Lines
}

func (api *API) openEventLines(c echo.Context) (sink, error) {
	lines, err := httpio.OpenLines(c)
	return eventLines{api.gate, lines}, err
}

func (l eventLines) event(_ int, e infer.Event) error { return l.lines.Send(e) }

func (l eventLines) fail(err error) error { return l.lines.Send(l.gate.EngineError(err)) }

func (l eventLines) idle() error { return nil } // this stream needs no keep-alives

func (l eventLines) end() error { return nil }
