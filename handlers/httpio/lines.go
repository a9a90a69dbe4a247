package httpio

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Lines writes newline-delimited JSON, each line at once.
type Lines struct {
	response *echo.Response
}

// OpenLines sends the headers of such a stream at once, because clients time out without them, and
// forbids proxies to buffer it.
func OpenLines(c echo.Context) (Lines, error) {
	r := c.Response()
	r.Header().Set(echo.HeaderContentType, "application/x-ndjson")
	r.Header().Set("X-Accel-Buffering", "no")
	r.WriteHeader(http.StatusOK)
	l := Lines{r}
	return l, l.flush()
}

// Send writes v as one line.
func (l Lines) Send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := l.response.Write(append(data, '\n')); err != nil {
		return err
	}
	return l.flush()
}

func (l Lines) flush() error { return http.NewResponseController(l.response.Writer).Flush() }
