package handlers

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/infer"
)

// generateStream answers POST /v1/generate, the engine's own face: the body is an
// infer.Request, the answer one infer.Event a line. A server whose engine is
// another process speaks this, so nothing may be lost on the way: failures are
// whole infer.Errors, here and in the last line.
func (h *Handlers) generateStream(c echo.Context) error {
	r := infer.DefaultRequest()
	if err := readStrictJSON(c, &r); err != nil {
		return h.gate.AnswerEngineError(c, err)
	}
	err := h.stream(c, []infer.Request{r}, func() (sink, error) { return h.openEventLines(c) })
	if err != nil && !c.Response().Committed {
		return h.gate.AnswerEngineError(c, err)
	}
	return err
}

// eventLines writes events as NDJSON.
type eventLines struct {
	h        *Handlers
	response *echo.Response
}

func (h *Handlers) openEventLines(c echo.Context) (sink, error) {
	r := c.Response()
	r.Header().Set(echo.HeaderContentType, "application/x-ndjson")
	r.Header().Set("X-Accel-Buffering", "no")
	r.WriteHeader(http.StatusOK)
	return eventLines{h, r}, nil
}

func (l eventLines) event(_ int, e infer.Event) error { return l.line(e) }

func (l eventLines) fail(err error) error { return l.line(l.h.gate.EngineError(err)) }

func (l eventLines) idle() error { return nil } // a reader of this stream needs no reminders

func (l eventLines) end() error { return nil }

func (l eventLines) line(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := l.response.Write(append(data, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(l.response.Writer).Flush()
}
