// Package httpio reads the bodies of requests and writes responses, for all routes alike.
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

// IgnoredHeader lists what schemas say and the answer is not held to.
const IgnoredHeader = "X-M40-LLM-Schema-Ignored"

// Render writes a component, or nothing but the error if it fails.
func Render(c echo.Context, status int, component templ.Component) error {
	var buf bytes.Buffer
	if err := component.Render(c.Request().Context(), &buf); err != nil {
		return fmt.Errorf("failed to render %s: %w", c.Path(), err)
	}
	return c.HTMLBlob(status, buf.Bytes())
}

// WantsJSON reports whether a script asks.
func WantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get(echo.HeaderAccept), echo.MIMEApplicationJSON)
}

// Shorten keeps what a client sent from filling the answer that complains of it.
func Shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// AcceptsGzip reports whether the client takes gzip: by its name or by "*", and not with
// a quality of zero.
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
