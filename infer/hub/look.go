package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

const (
	lookPatience = 10 * time.Second // a slow line reads the header with the rest
	mostHeader   = 64 << 20         // bytes; those of the largest vocabularies have half as many
)

// Look reads the header of the file that Resolve found, tens of megabytes at most, and returns d
// with what it says: how the model fits, or why it would be of no use here. If the header does not
// come in time, d is returned as it was; Pull looks at the header again when it has come.
func (p *Puller) Look(ctx context.Context, d infer.Download) (infer.Download, error) {
	n, err := p.checkDownload(d)
	if err != nil || d.Problem != "" {
		return d, err
	}
	c := p.client(n)
	defer c.close()
	patient, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	f, err := remoteHeader(patient, c, d)
	if format := (*gguf.FormatError)(nil); errors.As(err, &format) {
		d.Problem = err.Error()
		return d, nil
	}
	if err != nil {
		return d, context.Cause(ctx)
	}
	info := infer.ModelInfo{}
	if err := readHeader(&info, f, p.hub.types); err != nil {
		d.Problem = err.Error()
		return d, nil
	}
	d.Fit = p.hub.fit(info)[0].Fit
	return d, nil
}

// remoteHeader reads the header of a file on a server.
func remoteHeader(ctx context.Context, c *client, d infer.Download) (*gguf.File, error) {
	a, err := c.get(ctx, d.Source, http.Header{"Range": {fmt.Sprintf("bytes=0-%d", min(mostHeader, d.Size)-1)}})
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK && a.StatusCode != http.StatusPartialContent {
		return nil, a.failure()
	}
	b := &beginning{from: a.Body}
	f, err := gguf.ReadHeader(b, int(d.Size))
	return f, cmp.Or(b.err, err) // of a header that did not come, nothing is known
}

// beginning is the beginning of a file that comes as a stream. It keeps what has come.
type beginning struct {
	from io.Reader
	have []byte
	err  error // why no more comes
}

func (b *beginning) ReadAt(p []byte, at int64) (int, error) {
	end := int(at) + len(p)
	if end > mostHeader {
		b.err = refuse("the header has more than %d bytes", mostHeader)
	}
	if had := len(b.have); end > had && b.err == nil {
		b.have = append(b.have, make([]byte, end-had)...)
		n, err := io.ReadFull(b.from, b.have[had:])
		b.have, b.err = b.have[:had+n], err
	}
	return copy(p, b.have[min(int(at), len(b.have)):]), b.err
}
