// Package httpio reads the bodies of requests and writes responses, for all routes.
package httpio

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"
)

// IgnoredHeader is the header that lists the keywords of JSON Schemas that are not enforced.
const IgnoredHeader = "X-M40-LLM-Schema-Ignored"

// NotesHeader is the header that says how the prompt differs from the conversation of the request.
const NotesHeader = "X-M40-LLM-Prompt-Notes"

// Render renders a component and sends it. If rendering fails, it sends nothing.
func Render(c echo.Context, status int, component templ.Component) error {
	var buf bytes.Buffer
	if err := component.Render(c.Request().Context(), &buf); err != nil {
		return fmt.Errorf("failed to render %s: %w", c.Path(), err)
	}
	return c.HTMLBlob(status, buf.Bytes())
}

// WantsJSON reports whether the client accepts JSON, as the page's scripts do.
func WantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get(echo.HeaderAccept), echo.MIMEApplicationJSON)
}

// Shorten truncates text that a client sent, for an error message that quotes it.
func Shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// AcceptsGzip reports whether Accept-Encoding allows gzip, by its name or by "*", with a quality
// above 0.
func AcceptsGzip(r *http.Request) bool {
	accepts := false
	for _, part := range strings.Split(strings.Join(r.Header.Values(echo.HeaderAcceptEncoding), ","), ",") {
		coding, parameters, _ := strings.Cut(strings.ToLower(part), ";")
		coding = strings.TrimSpace(coding)
		if coding != "gzip" && coding != "*" {
			continue
		}
		quality := 1.0
		if _, q, found := strings.Cut(parameters, "q="); found {
			quality, _ = strconv.ParseFloat(strings.TrimSpace(q), 64)
		}
		if coding == "gzip" {
			return quality > 0
		}
		accepts = quality > 0
	}
	return accepts
}
