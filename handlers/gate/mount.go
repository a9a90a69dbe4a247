package gate

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
)

// maxBasePath bounds a base path in bytes.
const maxBasePath = 200

// CheckBasePath returns an error if p cannot be the path under which a reverse proxy has the program: "", or one such as
// /llm. What it may contain needs no escapes in URLs, HTML and headers.
func CheckBasePath(p string) error {
	if p == "" {
		return nil
	}
	for _, r := range p {
		if r != '/' && r != '-' && r != '_' && r != '.' && r != '~' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return errors.New("it may have letters, digits and any of -._~/ only")
		}
	}
	switch {
	case len(p) > maxBasePath:
		return errors.New("it is too long")
	case !strings.HasPrefix(p, "/") || p == "/" || path.Clean(p) != p:
		return errors.New("it must begin with a slash, end without one, and have no empty, . or .. part")
	}
	return nil
}

type basePathKey struct{}

// mount lets the program be under a path of a reverse proxy: that of the options, or of X-Forwarded-Prefix if a trusted
// proxy sends it. Requests may have the path or not, because some proxies remove it. Responses have it in the addresses of
// their HTML, in Location, and in the paths of cookies.
func (g *Gate) mount(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		base := g.basePath(r)
		if base == "" {
			return next(c)
		}
		if rest, under := strings.CutPrefix(r.URL.Path, base); under && (rest == "" || rest[0] == '/') {
			r.URL.Path, r.URL.RawPath = "/"+strings.TrimPrefix(rest, "/"), ""
		}
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), basePathKey{}, base)))
		c.Response().Writer = &mountedWriter{ResponseWriter: c.Response().Writer, base: base}
		return next(c)
	}
}

func (g *Gate) basePath(r *http.Request) string {
	if sent := r.Header.Get("X-Forwarded-Prefix"); sent != "" && g.proxies.trusts(peerOf(r)) {
		if sent = strings.TrimRight(sent, "/"); sent != "" && CheckBasePath(sent) == nil {
			return sent
		}
	}
	return g.opt.BasePath
}

// OwnAddress returns the address of the program as the client of c sees it, such as https://example.org/llm, without a
// slash at the end; empty if OwnOrigin is.
func OwnAddress(c echo.Context) string {
	base, _ := c.Request().Context().Value(basePathKey{}).(string)
	if origin := OwnOrigin(c); origin != "" {
		return origin + base
	}
	return ""
}

// mountedWriter adds a base path to the addresses in a response.
type mountedWriter struct {
	http.ResponseWriter
	base    string
	started bool
	html    *strings.Replacer // of a page; else nil
}

// addresses are the beginnings of what an address in the HTML of a page begins with. Texts of people and models cannot
// contain them, because quotes in texts are escaped.
var addresses = []string{` href="/`, ` action="/`, ` formaction="/`, ` src="/`, ` content="0; url=/`, ` data-follow="/`, ` data-write="/`}

func (w *mountedWriter) WriteHeader(status int) {
	if status >= http.StatusOK && !w.started {
		w.started = true
		w.mountHeader()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *mountedWriter) mountHeader() {
	header := w.Header()
	if to := header.Get(echo.HeaderLocation); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		header.Set(echo.HeaderLocation, w.base+to)
	}
	for i, cookie := range header[echo.HeaderSetCookie] {
		if before, path, found := strings.Cut(cookie, "; Path=/"); found {
			if path == "" || path[0] == ';' {
				header[echo.HeaderSetCookie][i] = before + "; Path=" + w.base + path
			} else {
				header[echo.HeaderSetCookie][i] = before + "; Path=" + w.base + "/" + path
			}
		}
	}
	if kind, _, _ := mime.ParseMediaType(header.Get(echo.HeaderContentType)); kind == echo.MIMETextHTML {
		pairs := []string{`<html lang="`, `<html data-base="` + w.base + `" lang="`}
		for _, begin := range addresses {
			pairs = append(pairs, begin, strings.TrimSuffix(begin, "/")+w.base+"/")
		}
		w.html = strings.NewReplacer(pairs...)
		header.Del(echo.HeaderContentLength)
	}
}

// Write writes p, which ends where no address does: pages are written whole, and those that grow by whole elements.
func (w *mountedWriter) Write(p []byte) (int, error) {
	if !w.started {
		w.WriteHeader(http.StatusOK)
	}
	if w.html == nil {
		return w.ResponseWriter.Write(p)
	}
	if _, err := w.ResponseWriter.Write([]byte(w.html.Replace(string(p)))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap is for http.ResponseController.
func (w *mountedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
