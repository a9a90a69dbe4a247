package share

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
)

// flush is how long events are collected before they are sent together. While tokens are generated
// fast, the sizes of frames then do not reveal the lengths of single tokens.
const flush = 50 * time.Millisecond

// maxBehind is the number of unsent bytes at which the stream of a reader ends with ErrSlow.
const maxBehind = 1 << 20

// feeds are the feeds of all links that have readers.
type feeds struct {
	mu   sync.Mutex
	open map[int64]*feed // by the id of the link
}

// feed renders the events of a shared chat for the readers of one link. It renders each event
// once, and all readers get the same bytes, so further readers cost little.
type feed struct {
	link      int64
	following *live.Following
	raw       bool
	stop      chan struct{}

	mu      sync.Mutex // guards following too
	readers map[*feedReader]bool
	first   []byte // first chunk for a new reader; nil: not rendered since the last event
	err     error  // why the feed has ended; nil: it has not
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

// join adds a reader to the feed of who's link. The reader gets the current chat first.
func (f *feeds) join(ctx context.Context, service *live.Service, who live.Principal) (*feedReader, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.open[who.Link()]
	if d != nil && d.failed() {
		f.close(d)
		d = nil
	}
	if d == nil {
		following, shown, err := service.Follow(ctx, who, 0)
		if err != nil {
			return nil, err
		}
		d = &feed{link: who.Link(), following: following, raw: shown.Raw, stop: make(chan struct{}), readers: map[*feedReader]bool{}}
		if f.open == nil {
			f.open = map[int64]*feed{}
		}
		f.open[d.link] = d
		go func() {
			d.run()
			following.Close()
		}()
	}
	r := &feedReader{feed: d, ready: make(chan struct{}, 1)}
	if err := d.add(ctx, r); err != nil {
		f.close(d)
		return nil, err
	}
	return r, nil
}

// leave removes a reader. The feed ends with its last reader.
func (f *feeds) leave(r *feedReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := r.feed
	d.mu.Lock()
	delete(d.readers, r)
	d.mu.Unlock()
	f.close(d)
}

// close ends a feed that has no reader or has failed. The caller holds f.mu.
func (f *feeds) close(d *feed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.readers) > 0 && d.err == nil || f.open[d.link] != d {
		return
	}
	delete(f.open, d.link)
	close(d.stop)
}

func (d *feed) failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err != nil
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
	frames, err := framesOf(context.Background(), d.raw, events)
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
// the first chunk of the new reader already includes them.
func (d *feed) add(ctx context.Context, r *feedReader) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	events, shown, err := d.following.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := d.publish(events); err != nil {
		return err
	}
	if d.first == nil {
		turns, err := turnsFrame(ctx, d.raw, live.Event{Type: live.EventBranch, Messages: shown.Messages, More: shown.More})
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
	if r.bytes += len(chunk); r.bytes > maxBehind && len(r.chunks) > 0 {
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
