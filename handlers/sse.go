package handlers

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/infer"
)

// sseWriter writes server-sent events, each at once.
type sseWriter struct {
	response *echo.Response
}

// openSSE sends the headers of an event stream: clients start their timers on
// them, and nothing may be buffered on the way.
func openSSE(c echo.Context) (sseWriter, error) {
	r := c.Response()
	r.Header().Set(echo.HeaderContentType, "text/event-stream")
	r.Header().Set("X-Accel-Buffering", "no")
	r.WriteHeader(http.StatusOK)
	w := sseWriter{response: r}
	return w, w.flush()
}

// send writes v as one event.
func (w sseWriter) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.write("data: %s\n\n", data)
}

// comment writes a line that clients ignore.
func (w sseWriter) comment(format string, args ...any) error {
	return w.write(": %s\n\n", fmt.Sprintf(format, args...))
}

// end writes OpenAI's last event.
func (w sseWriter) end() error { return w.write("data: [DONE]\n\n") }

func (w sseWriter) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(w.response, format, args...); err != nil {
		return err
	}
	return w.flush()
}

func (w sseWriter) flush() error { return http.NewResponseController(w.response.Writer).Flush() }

// sseStream is what the sinks of both OpenAI streams share.
type sseStream struct {
	sse sseWriter
}

func (s sseStream) idle() error { return s.sse.comment("ping") }

func (s sseStream) fail(err error) error { return s.sse.send(failure.Describe(err).Body()) }

// progress tells people who watch the raw stream what they wait for; to clients
// it is a comment.
func (s sseStream) progress(e infer.Event) error {
	switch e.Type {
	case infer.EventQueued:
		return s.sse.comment("queued %d", e.Queued.Position)
	case infer.EventLoading:
		if e.Loading.KernelsTotal > 0 {
			return s.sse.comment("compiling kernels, %d of %d", e.Loading.Kernels, e.Loading.KernelsTotal)
		}
		return s.sse.comment("loading %d of %d bytes", e.Loading.Done, e.Loading.Total)
	case infer.EventPrefill:
		return s.sse.comment("prefill %d of %d tokens", e.Prefill.Done, e.Prefill.Total)
	}
	return nil
}
