package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"m40-llm/infer"
)

const (
	// segmentSize is the number of bytes that one connection requests while several download a
	// file. Smaller files are requested by one connection.
	segmentSize = 64 << 20

	// maxConnections is the number of connections that download a file at once.
	maxConnections = 4

	// extraRetries is the number of retries without progress after which a connection leaves its
	// segment to the others.
	extraRetries = 1
)

// segments distributes the missing bytes of a file among connections. The zero value has none.
type segments struct {
	mu      sync.Mutex
	missing []span // in order, not requested by any connection
	size    int64  // largest that take returns
	workers int    // connections at work
}

// take returns the first missing bytes for a connection; if none are missing, ok is false and the
// connection ends.
func (s *segments) take() (next span, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.missing) == 0 {
		s.workers--
		return span{}, false
	}
	first := &s.missing[0]
	next = span{first.From, min(first.From+s.size, first.To)}
	if first.From = next.To; first.From == first.To {
		s.missing = s.missing[1:]
	}
	return next, true
}

// giveBack returns the rest of a segment for another connection, unless the caller's is the only
// one.
func (s *segments) giveBack(rest span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers < 2 {
		return false
	}
	s.workers--
	s.missing = append([]span{rest}, s.missing...)
	return true
}

// begin counts a connection that begins.
func (s *segments) begin() {
	s.mu.Lock()
	s.workers++
	s.mu.Unlock()
}

// restartError is an error after which the file is downloaded from its beginning, by one
// connection.
type restartError struct{ reason string }

func (r *restartError) Error() string { return r.reason }

// fetch requests the missing bytes until the file is complete. Large files are requested in
// segments by several connections, if the server sends ranges.
func (t *transfer) fetch(ctx context.Context) error {
	defer t.part.saveEvery(t.puller.journalEvery)()
	t.retries = retries{furthest: t.part.done()}
	for t.part.offset < t.download.Size {
		if t.download.Size < 2*t.puller.segment || t.download.SHA256 == "" && t.part.etag == "" && t.part.done() > 0 {
			t.single = true
		}
		err := t.fetchMissing(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		restart := (*restartError)(nil)
		if !errors.As(err, &restart) {
			if err != nil {
				return err
			}
			continue
		}
		t.single = true
		if err := t.part.reset(); err != nil {
			return err
		}
		if err := t.pauseAfter(ctx, &t.retries, &transientError{err: restart}); err != nil {
			return err
		}
	}
	return nil
}

// fetchMissing requests the missing bytes, with one connection or several.
func (t *transfer) fetchMissing(ctx context.Context) error {
	t.segments = segments{missing: t.part.missing(), size: t.puller.segment}
	if t.single {
		if err := t.part.dropAhead(); err != nil {
			return err
		}
		t.segments = segments{missing: []span{{t.part.offset, t.download.Size}}, size: t.download.Size}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := func(c *client, r *retries) {
		t.segments.begin()
		if err := t.work(ctx, c, r); err != nil {
			cancel(err)
		}
	}
	var extra sync.WaitGroup
	t.ranged = sync.OnceFunc(func() {
		for range maxConnections - 1 {
			extra.Go(func() {
				c := t.client.clone()
				defer c.close()
				work(c, &retries{})
			})
		}
	})
	work(t.client, &t.retries)
	extra.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// retries counts the attempts of a connection without progress.
type retries struct {
	failures int
	furthest int64 // most bytes that were there
}

// work requests segments until none is missing.
func (t *transfer) work(ctx context.Context, c *client, r *retries) error {
	for {
		s, ok := t.segments.take()
		if !ok {
			return nil
		}
		for s.From < s.To {
			begin := s.From
			err := t.request(ctx, c, &s)
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			transientErr := (*transientError)(nil)
			if !errors.As(err, &transientErr) {
				return err
			}
			if !t.single && s.From > begin {
				r.failures = 0
			}
			if r.failures >= extraRetries && t.segments.giveBack(s) {
				return nil
			}
			if err := t.pauseAfter(ctx, r, transientErr); err != nil {
				return err
			}
		}
	}
}

// pauseAfter waits before the next attempt. It returns an error if there were too many without
// progress.
func (t *transfer) pauseAfter(ctx context.Context, r *retries, err *transientError) error {
	if done := t.part.done(); t.single && done > r.furthest {
		r.failures, r.furthest = 0, done
	}
	if r.failures == pullRetries {
		return fmt.Errorf("the download failed %d times at the same position: %w; pull again to resume", r.failures+1, err.err)
	}
	wait := max(firstWait<<r.failures, err.after)
	r.failures++
	t.report(infer.PhaseWaiting, fmt.Sprintf("%v; retrying in %s", err.err, wait))
	return t.puller.options.Sleep(ctx, wait)
}

// report reports the progress. Any connection may call it.
func (t *transfer) report(phase infer.DownloadPhase, notice string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.meter.report(phase, t.part.done(), notice)
}

// request sends one request for the bytes s and writes what it receives. It removes those from s.
func (t *transfer) request(ctx context.Context, c *client, s *span) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := t.puller.options.Stall
	watchdog := time.AfterFunc(stall, func() { cancel(t.puller.stallError()) })
	defer watchdog.Stop()

	etag := t.part.tag()
	if t.single && s.From > 0 && etag == "" && t.download.SHA256 == "" {
		if err := t.restartAt(s); err != nil { // nothing would detect that the file has changed
			return err
		}
	}
	header := http.Header{}
	if s.From > 0 || s.To < t.download.Size {
		header.Set("Range", s.header(t.download.Size))
		if etag != "" {
			header.Set("If-Range", etag)
		}
	}
	a, err := c.get(ctx, t.download.Source, header)
	if err != nil {
		return err
	}
	if err := t.accept(a, s); err != nil {
		return err
	}
	defer a.Body.Close()
	return t.receive(ctx, a, s, func() { watchdog.Reset(stall) })
}

// restartAt discards the downloaded bytes, for the only connection, which continues with all.
func (t *transfer) restartAt(s *span) error {
	*s = span{0, t.download.Size}
	return t.part.reset()
}

// accept checks a response before its body is read. It closes the response if it returns an
// error.
func (t *transfer) accept(a *response, s *span) error {
	err := t.check(a, s)
	if err != nil {
		a.Body.Close()
	}
	return err
}

func (t *transfer) check(a *response, s *span) error {
	host := a.Request.URL.Hostname()
	if e := a.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return permanent("%s compressed the file, which was not requested", host)
	}
	etag, known := strongETag(a.Header), t.part.tag()
	switch a.StatusCode {
	case http.StatusOK:
		return t.checkWhole(a, s, etag)
	case http.StatusPartialContent:
		start, total, ok := contentRange(a.Header)
		switch {
		case !ok || start != s.From:
			return &restartError{"the server sent another part of the file than requested"}
		case total != t.download.Size:
			return permanent("%s has %d bytes but announced %d: the file has changed; pull it again", host, total, t.download.Size)
		case known != "" && etag != known && (!t.single || t.part.done() > 0):
			return &restartError{"the file has changed on the server"}
		case !t.single && etag == "" && t.download.SHA256 == "":
			return &restartError{"the server does not say which version of the file it sends"}
		case !t.single:
			t.part.setETag(etag)
			t.ranged()
			return nil
		}
	case http.StatusRequestedRangeNotSatisfiable:
		return &restartError{"the server has fewer bytes than it announced"}
	default:
		err := a.asError()
		if status := (*statusError)(nil); errors.As(err, &status) && (status.status == 401 || status.status == 403) {
			return fmt.Errorf("%w: the file is not public; set HF_TOKEN in the environment to a token that may read it", err)
		}
		return err
	}
	t.part.setETag(etag)
	return nil
}

// checkWhole checks a response with the whole file. If a part was requested, the server does not
// send ranges, or the file has changed.
func (t *transfer) checkWhole(a *response, s *span, etag string) error {
	if a.ContentLength >= 0 && a.ContentLength != t.download.Size {
		return permanent("%s has %d bytes but announced %d: the file has changed, or the server is broken; pull it again",
			a.Request.URL.Hostname(), a.ContentLength, t.download.Size)
	}
	switch {
	case s.From == 0 && s.To == t.download.Size:
	case t.single || t.segments.alone():
		t.single = true
		if err := t.restartAt(s); err != nil {
			return err
		}
	default:
		return &restartError{"the server sent the whole file instead of a part"}
	}
	t.part.setETag(etag)
	return nil
}

// alone makes the caller's connection the only one, which gets all bytes, if it is the only one now.
func (s *segments) alone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers > 1 {
		return false
	}
	s.missing = nil
	return true
}

// receive writes the body of a to the partial file and removes it from s. It calls alive for each
// read.
func (t *transfer) receive(ctx context.Context, a *response, s *span, alive func()) error {
	buffer := make([]byte, 256<<10)
	for {
		n, err := a.Body.Read(buffer)
		if int64(n) > s.To-s.From {
			if s.To == t.download.Size {
				return &wrongFile{fmt.Sprintf("%s sends more than the %d bytes it announced", a.Request.URL.Hostname(), t.download.Size)}
			}
			return &restartError{"the server sent more of the file than requested"}
		}
		if n > 0 {
			alive()
			if err := t.write(buffer[:n], s.From); err != nil {
				return err
			}
			s.From += int64(n)
		}
		switch {
		case s.From == s.To:
			return nil
		case err == io.EOF:
			return &transientError{err: fmt.Errorf("%s closed the connection after %d of %d bytes", a.Request.URL.Hostname(), s.From, t.download.Size)}
		case err != nil:
			return connectionError(ctx, a.Request.URL.Hostname(), err)
		}
	}
}

// write stores bytes that were received, and checks the header when it is complete.
func (t *transfer) write(b []byte, at int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.part.writeAt(b, at); err != nil {
		return err
	}
	if err := t.checkHeader(); err != nil {
		return err
	}
	t.meter.report(infer.PhaseDownloading, t.part.done(), "")
	return nil
}

// span is a range of bytes in a file, From inclusive and To exclusive.
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// header returns the value of the header Range for a span of a file of size bytes.
func (s span) header(size int64) string {
	if s.To == size {
		return fmt.Sprintf("bytes=%d-", s.From)
	}
	return fmt.Sprintf("bytes=%d-%d", s.From, s.To-1)
}

// strongETag returns the ETag if it is a strong one, else "".
func strongETag(h http.Header) string {
	e := h.Get("Etag")
	if len(e) < 3 || len(e) > 1024 || e[0] != '"' || e[len(e)-1] != '"' {
		return ""
	}
	return e
}

// contentRange parses "bytes start-end/total".
func contentRange(h http.Header) (start, total int64, ok bool) {
	rest, isBytes := strings.CutPrefix(h.Get("Content-Range"), "bytes ")
	span, size, hasSize := strings.Cut(rest, "/")
	from, _, hasEnd := strings.Cut(span, "-")
	start, err := strconv.ParseInt(from, 10, 64)
	total, err2 := strconv.ParseInt(size, 10, 64)
	return start, total, isBytes && hasSize && hasEnd && err == nil && err2 == nil && start >= 0 && start < total
}
