package gate

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// defaultBodyLimit is the size in bytes of a body on most routes.
const defaultBodyLimit = 1 << 20

// discardLimit is the size up to which a body that is too large is still taken in: most
// clients read no answer before they have sent everything, and would see a broken
// connection instead.
const discardLimit = 32 << 20

// boundBody limits the size of a request's body, as it is sent and as it is read, and the
// time its client may be silent while sending it.
func (g *Gate) boundBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		compressed, err := isGzip(r)
		if err != nil {
			c.Response().Header().Set(echo.HeaderAcceptEncoding, "gzip")
			return err
		}
		limit, ok := g.opt.BodyLimits[r.URL.Path]
		if !ok {
			limit = defaultBodyLimit
		}
		if r.Body != nil && r.Body != http.NoBody {
			body := &patientBody{ReadCloser: r.Body, control: http.NewResponseController(c.Response()), patience: g.opt.BodyTimeout}
			body.extendDeadline() // the server reads on where a handler stops
			if r.ContentLength > limit {
				if r.ContentLength <= discardLimit && r.Header.Get("Expect") == "" {
					io.Copy(io.Discard, body)
				}
				return &http.MaxBytesError{Limit: limit}
			}
			r.Body = http.MaxBytesReader(c.Response(), body, limit)
			if compressed {
				r.Body = newInflatedBody(r.Body, limit)
				r.ContentLength = -1
				r.Header.Del(echo.HeaderContentEncoding)
			}
			r.Body = &countedBody{ReadCloser: r.Body, account: accountOf(c), sent: body}
		}
		return next(c)
	}
}

// countedBody takes from an account what is read of a body, as it is read.
type countedBody struct {
	io.ReadCloser
	account *account
	sent    io.Reader // the body as it is sent
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if refused := b.account.take(int64(n) * BodyCost); refused != nil {
		_, _ = io.CopyN(io.Discard, b.sent, discardLimit)
		return 0, refused
	}
	return n, err
}

// patientBody gives its client so much time for each read. Once the whole body is there, the
// deadline is lifted: it would end the watch for a disconnect.
type patientBody struct {
	io.ReadCloser
	control  *http.ResponseController
	patience time.Duration
}

func (b *patientBody) Read(p []byte) (int, error) {
	b.extendDeadline()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *patientBody) extendDeadline() {
	_ = b.control.SetReadDeadline(time.Now().Add(b.patience)) // not every connection has deadlines
}

// boundWrites gives the client so much time to take each piece of a response. A
// limit for whole responses would end long answers.
func (g *Gate) boundWrites(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		w := c.Response().Writer
		c.Response().Writer = &boundWriter{ResponseWriter: w, control: http.NewResponseController(w), patience: g.opt.WriteTimeout}
		return next(c)
	}
}

type boundWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// ErrClientLost says that a response could not be delivered.
var ErrClientLost = errors.New("the client is gone or does not read")

// writePiece is what a client must take within the time of one write.
const writePiece = 64 << 10

func (w *boundWriter) Write(p []byte) (written int, err error) {
	for first := true; err == nil && (first || written < len(p)); first = false {
		piece := p[written:min(len(p), written+writePiece)]
		w.extendDeadline()
		var n int
		n, err = w.ResponseWriter.Write(piece)
		written += n
	}
	return written, lost(err)
}

func lost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrClientLost, err)
}

// FlushError is for http.ResponseController.
func (w *boundWriter) FlushError() error {
	w.extendDeadline()
	return lost(w.control.Flush())
}

func (w *boundWriter) extendDeadline() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.patience)) // not every connection has deadlines
}

// Unwrap is for http.ResponseController.
func (w *boundWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
