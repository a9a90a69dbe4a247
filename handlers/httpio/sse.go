package httpio

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
)

// SSE writes server-sent events, each at once.
type SSE struct {
	response *echo.Response
}

// OpenSSE sends the headers of an event stream at once, because clients time out without them,
// and forbids proxies to buffer it.
func OpenSSE(c echo.Context) (SSE, error) {
	r := c.Response()
	r.Header().Set(echo.HeaderContentType, "text/event-stream")
	r.Header().Set("X-Accel-Buffering", "no")
	r.WriteHeader(http.StatusOK)
	w := SSE{response: r}
	return w, w.flush()
}

// Send writes v as one event.
func (w SSE) Send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.Data(data)
}

// SendNamed writes v as one event with a name.
func (w SSE) SendNamed(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.write("event: %s\ndata: %s\n\n", name, data)
}

// Comment writes a line that clients ignore.
func (w SSE) Comment(format string, args ...any) error {
	return w.write(": %s\n\n", fmt.Sprintf(format, args...))
}

// End writes OpenAI's last event.
func (w SSE) End() error { return w.write("data: [DONE]\n\n") }

func (w SSE) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(w.response, format, args...); err != nil {
		return err
	}
	return w.flush()
}

func (w SSE) flush() error { return http.NewResponseController(w.response.Writer).Flush() }

// Data writes data as one event.
func (w SSE) Data(data []byte) error { return w.write("data: %s\n\n", data) }
