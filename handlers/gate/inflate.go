package gate

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
)

// Limits against decompression bombs. A decompressed body has the limit of an uncompressed
// one; above minCheckedInflation bytes it may also not exceed maxInflation times its
// compressed size. Written text compresses to between a third and a tenth, a bomb to about a
// thousandth.
const (
	minCheckedInflation = 1 << 20
	maxInflation        = 200
)

// isGzip reports whether the body of r is compressed with gzip. It returns an error if the
// body has another encoding.
func isGzip(r *http.Request) (bool, error) {
	encodings := strings.Join(r.Header.Values("Content-Encoding"), ", ")
	switch strings.ToLower(strings.TrimSpace(encodings)) {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		return true, nil
	}
	return false, fault.Errorf(fault.CodeUnsupportedEncoding,
		"Content-Encoding %q is not supported; send the body with gzip or uncompressed", httpio.Shorten(encodings))
}

// inflatedBody decompresses the body of a request.
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

// Read returns a *http.MaxBytesError if the decompressed body exceeds its limit.
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
	case b.total > minCheckedInflation && b.total > maxInflation*b.source.read:
		n, err = 0, fault.Errorf(fault.CodeBodyTooLarge,
			"the decompressed body is more than %d times as large as the compressed one; send it uncompressed", maxInflation)
	case b.source.err != nil && b.source.err != io.EOF:
		err = b.source.err // the compressed body did not arrive whole
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fault.Errorf(fault.CodeInvalidEncoding, "the gzip body is truncated")
	case err != nil && err != io.EOF:
		err = fault.Errorf(fault.CodeInvalidEncoding, "the body is not valid gzip, as its Content-Encoding says: %v", err)
	}
	b.err = err
	return n, err
}

func (b *inflatedBody) Close() error { return b.sent.Close() }

// countedReader counts the bytes read from another reader, and stores its error.
type countedReader struct {
	from io.Reader
	read int64 // bytes
	err  error // nil, or what the last Read returned
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.read += int64(n)
	if err != nil {
		r.err = err
	}
	return n, err
}
