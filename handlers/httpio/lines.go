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

// OpenLines sends the headers, and forbids proxies to buffer what follows.
func OpenLines(c echo.Context) Lines {
	r := c.Response()
	r.Header().Set(echo.HeaderContentType, "application/x-ndjson")
	r.Header().Set("X-Accel-Buffering", "no")
	r.WriteHeader(http.StatusOK)
	return Lines{r}
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
	return http.NewResponseController(l.response.Writer).Flush()
}
