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
	inspectTimeout = 10 * time.Second // after this the header is read with the rest of the file
	maxHeader      = 64 << 20         // bytes; the headers with the largest vocabularies have half as many
)

// Inspect reads the headers of the files that Resolve found, tens of megabytes at most, and
// returns d with Fit, or with Problem if the model cannot be used here. If the header cannot
// be read within ten seconds it returns d unchanged; Pull checks the header again.
func (p *Puller) Inspect(ctx context.Context, d infer.Download) (infer.Download, error) {
	n, err := p.checkDownload(d)
	if err != nil || d.Problem != "" {
		return d, err
	}
	c := p.client(n)
	defer c.close()
	limited, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	parts, err := remoteHeaders(limited, c, d)
	if format := (*gguf.FormatError)(nil); errors.As(err, &format) {
		d.Problem = err.Error()
		return d, nil
	}
	if err != nil {
		return d, context.Cause(ctx)
	}
	info := infer.ModelInfo{}
	f, err := gguf.Join(parts)
	if err == nil {
		err = readHeader(&info, f, p.hub.types)
	}
	if err != nil {
		d.Problem = err.Error()
		return d, nil
	}
	d.Fit, d.Quant = p.hub.fit(info)[0].Fit, cmp.Or(d.Quant, info.Quant)
	return d, nil
}

// remoteHeaders reads the headers of a model's files from their server.
func remoteHeaders(ctx context.Context, c *client, d infer.Download) (parts []*gguf.File, err error) {
	files := d.Files()
	if d.Companion != nil {
		files = files[:len(files)-1]
	}
	for _, file := range files {
		f, err := remoteHeader(ctx, c, file)
		if err != nil {
			return nil, err
		}
		parts = append(parts, f)
	}
	return parts, nil
}

// remoteHeader reads the header of a model file from its server.
func remoteHeader(ctx context.Context, c *client, d infer.Download) (*gguf.File, error) {
	a, err := c.get(ctx, d.Source, http.Header{"Range": {fmt.Sprintf("bytes=0-%d", min(maxHeader, d.Size)-1)}})
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK && a.StatusCode != http.StatusPartialContent {
		return nil, a.asError()
	}
	b := &headerReader{from: a.Body}
	f, err := gguf.ReadHeader(b, int(d.Size))
	return f, cmp.Or(b.err, err) // an incomplete header is not a format error
}

// headerReader is an io.ReaderAt for the start of a stream. It buffers what it has read.
type headerReader struct {
	from io.Reader
	data []byte
	err  error // of from, or the header is too large
}

func (b *headerReader) ReadAt(p []byte, at int64) (int, error) {
	end := int(at) + len(p)
	if end > maxHeader {
		b.err = permanent("the header has more than %d bytes", maxHeader)
	}
	if had := len(b.data); end > had && b.err == nil {
		b.data = append(b.data, make([]byte, end-had)...)
		n, err := io.ReadFull(b.from, b.data[had:])
		b.data, b.err = b.data[:had+n], err
	}
	return copy(p, b.data[min(int(at), len(b.data)):]), b.err
}
