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

// compressedTypes are the content types that are compressed. Event streams are not: their
// events are small and must be sent at once.
var compressedTypes = map[string]bool{
	"text/html":        true,
	"text/css":         true,
	"text/javascript":  true,
	"text/markdown":    true,
	"application/json": true,
}

// minCompressed is the smallest body in bytes that is compressed: a smaller one fits into
// one packet anyway.
const minCompressed = 1400

// compress compresses pages and JSON with gzip. It does not compress what another site made
// the browser request, because of BREACH: if a response holds a text of the attacker's
// choice next to private text, its compressed length reveals how much the two have in common.
// No response holds a token or a key, but the page of a search holds the titles of chats
// next to the text searched for. Other sites can only navigate to pages; checkOrigin refuses
// their other requests.
func (g *Gate) compress(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, response := c.Request(), c.Response()
		site := r.Header.Get("Sec-Fetch-Site")
		if !httpio.AcceptsGzip(r) || site == "cross-site" || site == "same-site" {
			return next(c)
		}
		w := &compressWriter{ResponseWriter: response.Writer}
		response.Writer = w
		if err := g.recoverPanics(next)(c); err != nil {
			g.handleError(err, c) // here, so that the error's body is compressed too
		}
		return w.Close()
	}
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// compressWriter decides at the first write whether it compresses a response. Except in
// streams, the first write is the whole body.
type compressWriter struct {
	http.ResponseWriter
	status  int // the delayed status; 0: none
	decided bool
	gzip    *gzip.Writer // nil: the body is not compressed
}

// WriteHeader delays the header of a response that may be compressed until its first write.
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

// compressible reports whether the headers describe a body worth compressing. A response
// with X-Accel-Buffering is a stream.
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
	if size >= minCompressed {
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

// Close sends a header that is still delayed and ends the compressed body.
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

// Unwrap is for http.ResponseController, which hijacks the connections of websockets.
func (w *compressWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
