// Package live holds the chats and what can be done with them: send, stop,
// answer again, clear. It knows no HTTP and no HTML.
//
// A chat is an actor whose mailbox is its lock: every command and every event of
// the engine is applied whole, in some order, and gets the next number. A reader
// subscribes with the last number it has seen and gets what follows, without a
// gap and without a repeat; a reader that has seen nothing, or too little, gets a
// snapshot first. Readers have bounded queues and never hold up the writer: who
// falls behind is cut off and comes back by number.
//
// An answer belongs to the chat, not to the reader who asked for it: it goes on
// when everybody leaves.
package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"m40-llm/infer"
)

// Engine is what chats need of the inference engine.
type Engine interface {
	// Generate streams one answer. A failure is an *infer.Error, or the
	// context's own error after a cancel; nothing follows it.
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	// Status is a snapshot; it never waits for the engine.
	Status() infer.Status
}

// ErrNotFound says that there is no chat of this name: it never was, it was
// dropped as the oldest, or the server was started again.
var ErrNotFound = errors.New("there is no such chat on this server")

// ErrClosed says that the server is shutting down.
var ErrClosed = errors.New("the server is shutting down")

// ErrFull says that no further chat fits, because all are writing.
var ErrFull = errors.New("too many chats are being answered at once; wait for one to end")

// Conflict says that a command does not fit what the chat is doing.
type Conflict struct {
	Command string
	State   string // "idle", or the state of the running answer
	Answer  int64  // the running answer, if one runs
}

func (c *Conflict) Error() string {
	switch {
	case c.State == "idle":
		return fmt.Sprintf("cannot %s: no answer is being written", c.Command)
	case c.Command == "stop":
		return "cannot stop: that answer has ended, and another is being written"
	}
	return fmt.Sprintf("cannot %s while an answer is being written; stop it first", c.Command)
}

// Options are the limits and sources of a Service. The zero value of each field
// means the default.
type Options struct {
	MaxChats    int              // chats kept, the longest idle is dropped; default 256
	QueueEvents int              // events a reader may be behind; default 256
	QueueBytes  int              // bytes a reader may be behind; default 256 KiB
	History     int              // events kept for readers that come back; default 2048
	Now         func() time.Time // default time.Now
	Seed        func() int64     // draws a seed; default at most six digits, which people can note down
	Log         *slog.Logger     // default: nothing is logged
}

// Service holds the chats of a server in memory.
type Service struct {
	engine Engine
	opt    Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	chats  map[string]*Chat
	closed bool
}

// New returns a Service that answers with engine.
func New(engine Engine, opt Options) *Service {
	if opt.MaxChats == 0 {
		opt.MaxChats = 256
	}
	if opt.QueueEvents == 0 {
		opt.QueueEvents = 256
	}
	if opt.QueueBytes == 0 {
		opt.QueueBytes = 256 << 10
	}
	if opt.History == 0 {
		opt.History = 2048
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Seed == nil {
		opt.Seed = func() int64 { return mathrand.Int64N(1_000_000) }
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Service{engine: engine, opt: opt, ctx: ctx, cancel: cancel, chats: map[string]*Chat{}}
}

// Status is the engine's.
func (s *Service) Status() infer.Status { return s.engine.Status() }

// Create makes an empty chat. When there are MaxChats already, the one that has
// been idle longest goes.
func (s *Service) Create() (*Chat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if len(s.chats) >= s.opt.MaxChats {
		oldest := s.longestIdle()
		if oldest == nil {
			return nil, ErrFull
		}
		delete(s.chats, oldest.id)
		oldest.drop()
	}
	c := &Chat{service: s, id: rand.Text(), used: s.opt.Now(), subs: map[*Subscription]bool{}}
	s.chats[c.id] = c
	return c, nil
}

// Start makes a chat that begins with q.
func (s *Service) Start(q Question) (*Chat, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	c, err := s.Create()
	if err != nil {
		return nil, err
	}
	return c, c.Send(q)
}

// Closing is closed when the server begins to shut down.
func (s *Service) Closing() <-chan struct{} { return s.ctx.Done() }

// Chat returns the chat called id, or ErrNotFound.
func (s *Service) Chat(id string) (*Chat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chats[id]; c != nil {
		return c, nil
	}
	return nil, ErrNotFound
}

// longestIdle prefers chats that nobody looks at.
func (s *Service) longestIdle() *Chat {
	var best *Chat
	var bestUsed time.Time
	bestRead := false
	for _, c := range s.chats {
		used, running, read := c.idle()
		if running {
			continue
		}
		if best == nil || (bestRead && !read) || (bestRead == read && used.Before(bestUsed)) {
			best, bestUsed, bestRead = c, used, read
		}
	}
	return best
}

// Close stops all answers, keeps their text, and waits until they have ended.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	for _, c := range s.chats {
		c.idle() // a barrier: a command that began before the cancel has counted its answer after this
	}
	s.mu.Unlock()
	s.wg.Wait()
}
