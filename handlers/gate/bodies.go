package gate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
)

// defaultBodyLimit is the largest body in bytes on routes without a limit of their own.
const defaultBodyLimit = 1 << 20

// discardLimit bounds in bytes how much of a refused body is still read. Most clients read
// the response only after they have sent everything, and would otherwise see a broken
// connection instead of the error.
const discardLimit = 96 << 20

// limitBody limits the size of a request's body, before and after decompression, and the
// time its client may pause while sending it.
func (g *Gate) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		compressed, err := isGzip(r)
		if err != nil {
			c.Response().Header().Set(echo.HeaderAcceptEncoding, "gzip")
			return err
		}
		limit := cmp.Or(g.opt.BodyLimits[r.URL.Path], g.opt.BodyLimits[c.Path()], defaultBodyLimit)
		if r.Body != nil && r.Body != http.NoBody {
			body := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(c.Response()), timeout: g.opt.BodyTimeout}
			body.extendDeadline() // net/http reads the rest of a body that a handler has not read
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
			r.Body = &chargedBody{ReadCloser: r.Body, account: accountOf(c), sent: body}
		}
		return next(c)
	}
}

// chargedBody charges what is read of a body, and what a JSON body will take when it is decoded, to the request's account.
type chargedBody struct {
	io.ReadCloser
	account *account
	sent    io.Reader // the body as it is sent, compressed or not
	json    jsonSize
}

func (b *chargedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if refused := b.account.charge(int64(n)*BodyCost + b.json.add(p[:n])); refused != nil {
		_, _ = io.CopyN(io.Discard, b.sent, discardLimit)
		return 0, refused
	}
	return n, err
}

// jsonSize computes what the values of a JSON text that comes in pieces take apart from their texts.
type jsonSize struct {
	began    bool // something other than white space has come
	other    bool // it was no array or object: nothing is counted
	inString bool
	escaped  bool // in a string, after a backslash
}

// add returns the bytes that the values take that begin in the next piece.
func (j *jsonSize) add(piece []byte) (cost int64) {
	for i := 0; i < len(piece) && !j.other; i++ {
		c := piece[i]
		switch {
		case j.escaped:
			j.escaped = false
		case j.inString:
			end := bytes.IndexAny(piece[i:], `"\`)
			if end < 0 {
				return cost
			}
			i += end
			j.escaped, j.inString = piece[i] == '\\', piece[i] == '\\'
		case c == '{':
			cost += objectCost
		case c == ',':
			cost += elementCost
		case c == '"':
			j.inString = true
		}
		if !j.began && c > ' ' && c < utf8.RuneSelf { // not a byte order mark
			j.began, j.other = true, c != '{' && c != '['
		}
	}
	return cost
}

// timedBody gives its client timeout for each read. It removes the deadline after the whole
// body has arrived, because an expired read deadline would look to net/http like a
// disconnected client.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.extendDeadline()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *timedBody) extendDeadline() {
	_ = b.control.SetReadDeadline(time.Now().Add(b.timeout)) // not every connection has deadlines
}

// limitWrites gives the client Options.WriteTimeout to receive each piece of a response. A
// limit for whole responses would end long answers.
func (g *Gate) limitWrites(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		w := c.Response().Writer
		c.Response().Writer = &timedWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: g.opt.WriteTimeout}
		return next(c)
	}
}

type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// ErrClientLost is wrapped by errors of responses that could not be delivered.
var ErrClientLost = errors.New("the client disconnected or does not read")

// writePiece is how many bytes a client must receive within one timeout.
const writePiece = 64 << 10

func (w *timedWriter) Write(p []byte) (written int, err error) {
	for first := true; err == nil && (first || written < len(p)); first = false {
		piece := p[written:min(len(p), written+writePiece)]
		w.extendDeadline()
		var n int
		n, err = w.ResponseWriter.Write(piece)
		written += n
	}
	return written, clientLost(err)
}

// clientLost wraps err, unless it is nil, with ErrClientLost.
func clientLost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrClientLost, err)
}

// FlushError is for http.ResponseController.
func (w *timedWriter) FlushError() error {
	w.extendDeadline()
	return clientLost(w.control.Flush())
}

func (w *timedWriter) extendDeadline() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) // not every connection has deadlines
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
