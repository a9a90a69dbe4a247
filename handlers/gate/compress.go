package gate

import (
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"sync"

	"m40-llm/handlers/httpio"

	"github.com/labstack/echo/v4"
)

// compressedTypes are what is worth compressing. Streams of events are not among them:
// each event must leave at once, and is small.
var compressedTypes = map[string]bool{
	"text/html":        true,
	"text/css":         true,
	"text/javascript":  true,
	"text/markdown":    true,
	"application/json": true,
}

// leastCompressed is the size in bytes from which compressing saves packets.
const leastCompressed = 1400

// compress sends pages and JSON compressed. A response whose length depends on how well
// a text of the asker's choice compresses beside private text would tell that text to
// whoever can see the length (BREACH). No such response carries a token or a key, but the
// pages carry titles of chats beside what was searched for; so nothing is compressed that
// another site has made the browser ask for. Other sites can do no more than lead to a
// page: checkOrigin refuses the rest.
func (g *Gate) compress(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, response := c.Request(), c.Response()
		site := r.Header.Get("Sec-Fetch-Site")
		if !httpio.AcceptsGzip(r) || site == "cross-site" || site == "same-site" {
			return next(c)
		}
		w := &compressWriter{ResponseWriter: response.Writer}
		response.Writer = w
		if err := g.surviving(next)(c); err != nil {
			g.handleError(err, c) // it is part of the body
		}
		return w.Close()
	}
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// compressWriter compresses a response, or does not; the first write decides, which for
// everything but streams is the whole body.
type compressWriter struct {
	http.ResponseWriter
	status  int // to be sent; 0: none was set
	decided bool
	gzip    *gzip.Writer // nil: what is written goes out as it is
}

// WriteHeader waits for the first byte of a body that may be compressed.
func (w *compressWriter) WriteHeader(status int) {
	if status >= http.StatusOK && !w.decided && w.compressible() && status != http.StatusNoContent && status != http.StatusNotModified {
		w.Header().Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
		w.status = status
		return
	}
	if status >= http.StatusOK {
		w.decided = true
	}
	w.ResponseWriter.WriteHeader(status)
}

// compressible reports whether the headers describe something worth compressing. What
// keeps proxies from buffering is a stream.
func (w *compressWriter) compressible() bool {
	header := w.Header()
	kind, _, _ := mime.ParseMediaType(header.Get(echo.HeaderContentType))
	return compressedTypes[kind] && header.Get(echo.HeaderContentEncoding) == "" && header.Get("X-Accel-Buffering") == ""
}

func (w *compressWriter) Write(p []byte) (int, error) {
	if !w.decided {
		w.decide(len(p))
	}
	if w.gzip != nil {
		return w.gzip.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

func (w *compressWriter) decide(size int) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.decided {
		return
	}
	w.decided = true
	if size >= leastCompressed {
		header := w.Header()
		header.Set(echo.HeaderContentEncoding, "gzip")
		header.Del(echo.HeaderContentLength)
		w.gzip = gzipWriters.Get().(*gzip.Writer)
		w.gzip.Reset(w.ResponseWriter)
	}
	w.ResponseWriter.WriteHeader(w.status)
}

// FlushError is for http.ResponseController.
func (w *compressWriter) FlushError() error {
	if !w.decided {
		w.decide(0)
	}
	if w.gzip != nil {
		if err := w.gzip.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Close ends the body.
func (w *compressWriter) Close() error {
	if w.status != 0 && !w.decided { // no body
		w.decide(0)
	}
	if w.gzip == nil {
		return nil
	}
	err := w.gzip.Close()
	w.gzip.Reset(io.Discard)
	gzipWriters.Put(w.gzip)
	w.gzip = nil
	return err
}

// Unwrap is for http.ResponseController, which takes over websockets.
func (w *compressWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
