package share

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"m40-llm/handlers/guest"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/web/lang"
)

// flush is how long events are collected before they are sent together. While tokens are generated
// fast, the sizes of frames then do not reveal the lengths of single tokens.
const flush = 50 * time.Millisecond

// maxBacklog is the number of unsent bytes at which the stream of a reader ends with ErrSlow.
const maxBacklog = 1 << 20

// feeds are the feeds of all links that have readers. Its lock is held for a few instructions: what takes longer
// happens with the lock of one feed.
type feeds struct {
	mu   sync.Mutex
	open map[feedKey]*feed
}

// feedKey says which readers have a feed in common.
type feedKey struct {
	link     int64
	language lang.Language
}

// feed renders the events of a shared chat for the readers of one link who read one language. It renders each event
// once, and all readers get the same bytes, so further readers cost little.
type feed struct {
	feedKey
	users int // who joins, is a reader or leaves; the feeds' lock guards it
	stop  chan struct{}

	mu        sync.Mutex       // guards following too
	following *guest.Following // nil: no one has joined
	at        link
	readers   map[*feedReader]bool
	first     []byte // first chunk for a new reader; nil: not rendered since the last event
	err       error  // why the feed has ended; nil: it has not
}

// feedReader is one reader of a feed, with the chunks to send to it.
type feedReader struct {
	feed  *feed
	ready chan struct{} // signalled when send has something to do

	mu     sync.Mutex
	chunks [][]byte
	bytes  int
	err    error
}

// join adds a reader to the feed of who's link, whose page is at path. The reader gets the current chat first.
func (f *feeds) join(ctx context.Context, guests *guest.Service, who live.Principal, path string) (*feedReader, error) {
	for {
		r := &feedReader{feed: f.enter(feedKey{who.Link(), lang.Of(ctx)}), ready: make(chan struct{}, 1)}
		err := r.feed.join(ctx, guests, who, path, r)
		if err == nil {
			return r, nil
		}
		if f.leave(r); !errors.Is(err, errFailed) {
			return nil, err
		}
	}
}

// errFailed is returned by join of a feed that has failed; the caller enters a new one.
var errFailed = errors.New("the feed has failed")

// enter returns the feed with a key, a new one if there is none. The caller leaves it.
func (f *feeds) enter(key feedKey) *feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.open[key]
	if d == nil {
		d = &feed{feedKey: key, stop: make(chan struct{}), readers: map[*feedReader]bool{}}
		if f.open == nil {
			f.open = map[feedKey]*feed{}
		}
		f.open[key] = d
	}
	d.users++
	return d
}

// leave removes a reader. The feed ends with its last reader; those who come when it has failed get another.
func (f *feeds) leave(r *feedReader) {
	failed := r.feed.remove(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	d := r.feed
	d.users--
	if (d.users == 0 || failed) && f.open[d.feedKey] == d {
		delete(f.open, d.feedKey)
	}
	if d.users == 0 {
		close(d.stop)
	}
}

// remove removes a reader, and reports whether the feed has failed.
func (d *feed) remove(r *feedReader) (failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.readers, r)
	return d.err != nil
}

// join adds a reader, the first of whom begins to follow the chat. It returns errFailed if the feed has failed.
func (d *feed) join(ctx context.Context, guests *guest.Service, who live.Principal, path string, r *feedReader) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.following == nil {
		following, shown, err := guests.Follow(ctx, who, 0)
		if err != nil {
			return err
		}
		d.following, d.at = following, link{path, shown.Raw}
		go func() {
			d.run()
			following.Close()
		}()
	}
	return d.add(ctx, r)
}

// run renders the events of the chat until the feed is closed.
func (d *feed) run() {
	for {
		select {
		case <-d.stop:
			return
		case <-d.following.Ready():
			time.Sleep(flush)
			if !d.render() {
				<-d.stop
				return
			}
		}
	}
}

// render queues the new events for all readers, and reports whether the feed continues.
func (d *feed) render() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	events, err := d.following.Take()
	if failed := d.publish(events); err == nil {
		err = failed
	}
	if err == nil {
		return true
	}
	d.err = err
	for r := range d.readers {
		r.end(err)
	}
	return false
}

// publish renders events and queues them for all readers. The caller holds d.mu.
func (d *feed) publish(events []live.Event) error {
	frames, err := framesOf(lang.With(context.Background(), d.language), d.at, events)
	if err != nil || len(frames) == 0 {
		return err
	}
	chunk, err := json.Marshal(frames)
	if err != nil {
		return err
	}
	d.first = nil
	for r := range d.readers {
		r.put(chunk)
	}
	return nil
}

// add adds a reader. Events that are not rendered yet are first queued for the other readers, because
// the first chunk of the new reader already includes them. The caller holds d.mu.
func (d *feed) add(ctx context.Context, r *feedReader) error {
	if d.err != nil {
		return errFailed
	}
	events, shown, err := d.following.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := d.publish(events); err != nil {
		return err
	}
	if d.first == nil {
		turns, err := turnsFrame(ctx, d.at, live.Event{Type: live.EventBranch, Messages: shown.Messages, More: shown.More})
		if err != nil {
			return err
		}
		if d.first, err = json.Marshal([]frame{{Type: "title", Text: shown.Title}, turns}); err != nil {
			return err
		}
	}
	r.put(d.first)
	d.readers[r] = true
	return nil
}

// put queues a chunk for the reader. If too much is queued, the stream ends with ErrSlow.
func (r *feedReader) put(chunk []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes += len(chunk); r.bytes > maxBacklog && len(r.chunks) > 0 {
		r.chunks, r.err = nil, live.ErrSlow
	}
	if r.err == nil {
		r.chunks = append(r.chunks, chunk)
	}
	r.signal()
}

func (r *feedReader) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	r.signal()
}

func (r *feedReader) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// send sends the queued chunks. It returns an error if the stream must end.
func (r *feedReader) send(sse httpio.SSE) error {
	r.mu.Lock()
	chunks, ended := r.chunks, r.err
	r.chunks, r.bytes = nil, 0
	r.mu.Unlock()
	for _, chunk := range chunks {
		if err := sse.Data(chunk); err != nil {
			return err
		}
	}
	return ended
}
