package gate

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
)

// A compressed body may become as large as one that is not, and above freeInflation bytes
// at most maxInflation times as large as it was sent: what somebody writes shrinks to a
// third or a tenth, what is made to fill a server's memory to a thousandth.
const (
	freeInflation = 1 << 20
	maxInflation  = 200
)

// isGzip reports whether the body of r is compressed with gzip, or returns an error if it
// is encoded in another way.
func isGzip(r *http.Request) (bool, error) {
	encodings := strings.Join(r.Header.Values("Content-Encoding"), ", ")
	switch strings.ToLower(strings.TrimSpace(encodings)) {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		return true, nil
	}
	return false, failure.New(failure.UnsupportedEncoding,
		"Content-Encoding %q is not supported; send the body with gzip or as it is", httpio.Shorten(encodings))
}

// inflatedBody is the body of a request that was sent compressed.
type inflatedBody struct {
	sent   io.ReadCloser
	limit  int64 // bytes
	source countedReader
	gzip   *gzip.Reader // nil before the first Read
	total  int64
	err    error
}

func newInflatedBody(sent io.ReadCloser, limit int64) *inflatedBody {
	return &inflatedBody{sent: sent, limit: limit, source: countedReader{from: sent}}
}

// Read returns a *http.MaxBytesError where the body becomes too large.
func (b *inflatedBody) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.gzip == nil {
		b.gzip, err = gzip.NewReader(&b.source)
	}
	if err == nil {
		n, err = b.gzip.Read(p)
	}
	b.total += int64(n)
	switch {
	case b.total > b.limit:
		n, err = 0, &http.MaxBytesError{Limit: b.limit}
	case b.total > freeInflation && b.total > maxInflation*b.source.read:
		n, err = 0, failure.New(failure.BodyTooLarge,
			"the body becomes more than %d times as large as it was sent: send it as it is", maxInflation)
	case b.source.err != nil && b.source.err != io.EOF:
		err = b.source.err // it did not arrive
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = failure.New(failure.InvalidEncoding, "the gzip body is cut off")
	case err != nil && err != io.EOF:
		err = failure.New(failure.InvalidEncoding, "the body is not valid gzip, as its Content-Encoding says: %v", err)
	}
	b.err = err
	return n, err
}

func (b *inflatedBody) Close() error { return b.sent.Close() }

// countedReader counts what is read, and keeps the error that ended it.
type countedReader struct {
	from io.Reader
	read int64
	err  error
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.read += int64(n)
	if err != nil {
		r.err = err
	}
	return n, err
}
