// Package live holds the chats and what can be done with them: send, stop, answer
// again, edit, continue, show another version, fork. It knows no HTTP and no HTML.
//
// Commands and the engine's events change a chat one after the other, each as a whole, and
// each change is published as an event with the next number; lock.go has the rules. A reader
// subscribes with the last number it has seen and gets what follows, without a
// gap and without a repeat; a reader that has seen nothing, or too little, gets a
// snapshot first. Readers have bounded queues and never delay the chat: the subscription of one that
// falls behind ends, and it subscribes again with its number.
//
// An answer belongs to the chat, not to the reader who asked for it: it goes on
// when everybody leaves.
//
// Chats are stored in a Store. What a command has returned without error is in it; the
// text of running answers is at most half a second behind, saved for all chats in one
// transaction. Only chats that are used are in memory. Temporary chats are in a store in memory
// of their own, and end with the server.
package live

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/chatlist"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/disk"
	"m40-llm/handlers/links"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/temporary"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/kvfile"
	"m40-llm/store"
)

// Engine is what chats need of the inference engine.
type Engine interface {
	// Generate streams one answer. A failure is a *fault.Error, or the
	// context's own error after a cancel; nothing follows it.
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	// Status is a snapshot; it never waits for the engine.
	Status() infer.Status
	// Tokenize uses the tokenizer of the model called name, or of the loaded one if
	// name is empty.
	Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	// Detokenize returns what tokens of a model spell.
	Detokenize(ctx context.Context, name string, ids []int32) (string, error)
	// Pieces returns the bytes of each token.
	Pieces(ctx context.Context, name string, ids []int32) ([]string, error)
	// Render shows a request as the model would get it.
	Render(ctx context.Context, r infer.Request) (infer.Rendered, error)
}

// ErrFull says that no further chat fits, because all are writing, or because too many
// without a reader are.
var ErrFull = fault.New(fault.CodeTooManyChats, "too many chats are being answered at once; wait for one to end")

// Options are the limits and sources of a Service. The zero value of each field
// means the default.
type Options struct {
	Store        Store            // default: none, all chats are temporary
	KVFiles      *kvfile.Dir      // where the engine stores the KV caches of chats; default: they are not stored
	MaxChats     int              // chats in memory, the longest idle goes; default 256
	MaxUnwatched int              // answers that are written without a reader; with so many no chat begins; default 64
	QueueEvents  int              // events a reader may be behind; default 256
	QueueBytes   int              // bytes a reader may be behind; default 256 KiB
	Page         int              // messages handed out at once; default 100
	History      int              // events remembered for readers that come back; default 2048
	SaveEvery    time.Duration    // how often running answers are saved; default 250 ms, so that half a second holds on a slow disk
	UnloadAfter  time.Duration    // how long a stored chat without readers stays in memory; default 10 minutes
	Now          func() time.Time // default time.Now
	Seed         func() int64     // draws a seed; default at most six digits, which people can note down
	Log          *slog.Logger     // default: nothing is logged

	// Sight returns an error, for people, if a model is known to read no pictures; default: none is.
	Sight func(ctx context.Context, model string) error

	// FirstModel returns the model of a person's new chats. chosen is the one that the person chose last; empty: none. An empty
	// result is the loaded model. Default: chosen.
	FirstModel func(ctx context.Context, chosen string) string
}

// Service holds the chats of a server.
type Service struct {
	List    *chatlist.Service // the stored chats of a person
	Links   *links.Service    // to chats
	Disk    *disk.Service     // what the chats take there
	Choice  *choice.Service   // of models
	Uploads *attached.Uploads // pictures of questions that are not sent yet

	engine    Engine
	opt       Options
	temporary *temporary.Chats
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup // answers
	saver     saver

	// loading has a lock for each chat that is held from looking it up in the store until
	// it is in chats, and while it is deleted, so that a chat is in memory once, and a deleted
	// one is not. It comes before the lock of the chat. While the store works only this and the
	// command slot of one chat are taken: no chat waits for a lock of another.
	loading owned.Locks

	mu     sync.Mutex // of these alone; no other lock is taken with it
	chats  map[string]*Chat
	hooks  []Hooks
	closed bool
}

// New returns a Service that answers with engine.
func New(engine Engine, opt Options) *Service {
	if opt.MaxChats == 0 {
		opt.MaxChats = 256
	}
	if opt.MaxUnwatched == 0 {
		opt.MaxUnwatched = 64
	}
	if opt.QueueEvents == 0 {
		opt.QueueEvents = 256
	}
	if opt.QueueBytes == 0 {
		opt.QueueBytes = 256 << 10
	}
	if opt.Page == 0 {
		opt.Page = 100
	}
	if opt.History == 0 {
		opt.History = 2048
	}
	if opt.SaveEvery == 0 {
		opt.SaveEvery = 250 * time.Millisecond
	}
	if opt.UnloadAfter == 0 {
		opt.UnloadAfter = 10 * time.Minute
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
	s := &Service{
		engine: engine,
		opt:    opt,
		ctx:    ctx,
		cancel: cancel,
		chats:  map[string]*Chat{},
	}
	s.temporary = temporary.New(opt.Now, opt.Log)
	s.Uploads = attached.NewUploads(opt.Now)
	s.Choice = choice.New(opt.Store, opt.FirstModel, opt.Log)
	s.List = chatlist.New(opt.Store, s.temporary, ctx.Done())
	s.Links = links.New(opt.Store, s, s.List.Notify, opt.Now)
	s.Disk = disk.New(ctx, opt.Store, opt.KVFiles, opt.Now, opt.Log)
	if opt.Store != nil {
		s.saver.start(s)
	}
	if err := s.PruneKVCaches(ctx); err != nil {
		opt.Log.Warn("failed to tidy up the stored KV caches of chats", "error", err)
	}
	return s
}

// Status is the engine's.
func (s *Service) Status() infer.Status { return s.engine.Status() }

// keepsNothing reports whether all chats of who are temporary.
func (s *Service) keepsNothing(who Principal) bool {
	return s.opt.Store == nil || who.Role == access.RoleVisitor
}

// Create makes an empty chat, which is stored with its first question. Without a store
// every chat is temporary, and so are those of visitors. When there are MaxChats in memory already, the one that has
// been idle longest goes.
func (s *Service) Create(ctx context.Context, who Principal, temporary bool) (*Chat, error) {
	if err := owned.May(who, access.ActionChange, access.KindChat); err != nil {
		return nil, err
	}
	c := s.newChat(who.Owner, store.NewID(), temporary || s.keepsNothing(who))
	if c.temporary {
		db, err := s.temporary.Open(ctx)
		if err != nil {
			return nil, err
		}
		c.messages = db
	}
	return c, s.add(c)
}

// What visitors take of the memory: so many chats each, and together this part of MaxChats, so that they end no temporary chat of a
// person.
const (
	visitorsChats = 16
	visitorsShare = 4
	visitorsText  = 1 << 20 // bytes that one writes in a chat
)

// add lists a chat. Where there are too many, others that are idle are ended for it.
func (s *Service) add(c *Chat) error {
	if access.IsVisitor(c.owner) {
		if err := s.makeRoomForVisitor(c); err != nil {
			return err
		}
	}
	for {
		full, err := s.tryAdd(c)
		if err != nil || !full {
			return err
		}
		oldest := s.longestIdle(func(*Chat) bool { return true })
		if oldest == nil {
			return ErrFull
		}
		s.unlist(oldest)
	}
}

// makeRoomForVisitor ends chats of visitors that are idle until c is not beyond what they may have.
func (s *Service) makeRoomForVisitor(c *Chat) error {
	for _, bound := range []struct {
		most   int
		counts func(*Chat) bool
	}{
		{visitorsChats, func(other *Chat) bool { return other.owner == c.owner }},
		{max(1, s.opt.MaxChats/visitorsShare), func(other *Chat) bool { return access.IsVisitor(other.owner) }},
	} {
		for {
			n := 0
			for _, other := range s.inMemory() {
				if other != c && bound.counts(other) {
					n++
				}
			}
			if n < bound.most {
				break
			}
			oldest := s.longestIdle(bound.counts)
			if oldest == nil {
				return ErrFull
			}
			s.unlist(oldest)
		}
	}
	return nil
}

// tryAdd lists a chat unless there are too many.
func (s *Service) tryAdd(c *Chat) (full bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false, owned.ErrClosed
	case len(s.chats) >= s.opt.MaxChats:
		return true, nil
	}
	s.chats[c.id] = c
	return false, nil
}

// unlist ends a chat in memory unless it has something to do by now.
func (s *Service) unlist(c *Chat) {
	if c.dropIdle() {
		s.forget(c)
	}
}

// remove ends a chat in memory. A stored one can be loaded again.
func (s *Service) remove(c *Chat) (ended <-chan struct{}) {
	ended = c.drop()
	s.forget(c)
	return ended
}

// forget takes a chat that was dropped out of the list.
func (s *Service) forget(c *Chat) {
	s.mu.Lock()
	if s.chats[c.id] == c {
		delete(s.chats, c.id)
	}
	s.mu.Unlock()
	s.callWith(c.id, func(h Hooks) func(string) { return h.DropCaches })
	if c.temporary {
		s.forgetTemporary(c.owner, c.id)
	}
}

// forgetTemporary erases a temporary chat.
func (s *Service) forgetTemporary(owner, id string) {
	if err := s.temporary.Erase(owner, id); err != nil {
		s.opt.Log.Warn("a temporary chat is not erased before the server stops", "chat", id, "error", err)
	}
}

// Start makes a chat that begins with q.
func (s *Service) Start(ctx context.Context, who Principal, q Question, temporary bool) (*Chat, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	if s.unwatched() >= s.opt.MaxUnwatched {
		return nil, ErrFull
	}
	c, err := s.Create(ctx, who, temporary)
	if err != nil {
		return nil, err
	}
	if err := c.Send(ctx, who, q); err != nil {
		s.remove(c)
		return nil, err
	}
	s.Choice.Began(ctx, who, q.Model)
	return c, nil
}

// Closing is closed when the server begins to shut down.
func (s *Service) Closing() <-chan struct{} { return s.ctx.Done() }

// Context ends when the server begins to shut down.
func (s *Service) Context() context.Context { return s.ctx }

// Now returns the time by the clock of the Service.
func (s *Service) Now() time.Time { return s.opt.Now() }

// Engine returns what answers.
func (s *Service) Engine() Engine { return s.engine }

// Log returns the log of the Service.
func (s *Service) Log() *slog.Logger { return s.opt.Log }

// PageSize returns how many messages are handed out at once.
func (s *Service) PageSize() int { return s.opt.Page }

// DrawSeed draws a seed.
func (s *Service) DrawSeed() int64 { return s.opt.Seed() }

// Chat returns the chat called id, or owned.ErrNotFound.
func (s *Service) Chat(ctx context.Context, who Principal, id string) (*Chat, error) {
	if err := owned.May(who, access.ActionRead, access.KindChat); err != nil {
		return nil, err
	}
	c, err := s.load(ctx, who.Owner, id)
	if err != nil {
		return nil, err
	}
	return c, c.may(who, access.ActionRead)
}

// load returns a chat from memory, else from where its messages are stored.
func (s *Service) load(ctx context.Context, owner, id string) (*Chat, error) {
	if c := s.loaded(id); c != nil {
		return c, nil
	}
	defer s.loading.Lock(id)()
	if c := s.loaded(id); c != nil {
		return c, nil
	}
	c := s.newChat(owner, id, false)
	if db := s.temporary.Has(ctx, owner, id); db != nil {
		c.messages, c.temporary = db, true // a fork of a temporary chat begins there
	} else if s.opt.Store == nil {
		if s.ctx.Err() != nil {
			return nil, owned.ErrClosed
		}
		return nil, owned.ErrNotFound
	}
	if err := c.load(ctx); err != nil {
		if s.ctx.Err() != nil {
			return nil, owned.ErrClosed
		}
		return nil, owned.StoreError(err)
	}
	return c, s.add(c)
}

// loaded returns a chat that is in memory, and counts that as a use; else nil.
func (s *Service) loaded(id string) *Chat {
	c := s.find(id)
	if c == nil || !c.touch() {
		return nil
	}
	return c
}

// longestIdle returns, of the chats that match, the one that is idle for longest. It prefers chats without readers.
func (s *Service) longestIdle(meant func(*Chat) bool) *Chat {
	var best *Chat
	var bestUsed time.Time
	bestRead := false
	for _, c := range s.inMemory() {
		used, busy, read := c.idle()
		if busy || !meant(c) {
			continue
		}
		if best == nil || (bestRead && !read) || (bestRead == read && used.Before(bestUsed)) {
			best, bestUsed, bestRead = c, used, read
		}
	}
	return best
}

// unwatched counts the answers that are being written without a reader.
func (s *Service) unwatched() (n int) {
	for _, c := range s.inMemory() {
		if c.unwatched() {
			n++
		}
	}
	return n
}

// unload takes chats out of memory that are stored and unused for long.
func (s *Service) unload() {
	s.call(func(h Hooks) func() { return h.Tick })
	for _, c := range s.inMemory() {
		used, busy, read := c.idle()
		if !busy && !read && !c.temporary && s.opt.Now().Sub(used) >= s.opt.UnloadAfter {
			s.unlist(c)
		}
	}
}

// PruneKVCaches deletes the KV caches of chats that do not exist, or are in the trash, and those beyond the limit.
func (s *Service) PruneKVCaches(ctx context.Context) error {
	return s.Disk.Prune(ctx, func(chat string) bool { return s.find(chat) != nil })
}

// inMemory returns the chats that are loaded.
func (s *Service) inMemory() []*Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.chats))
}

// Close stops all answers, stores their text, and waits until that is done. The store
// stays open.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	s.mu.Unlock()
	s.call(func(h Hooks) func() { return h.Closed })
	for _, c := range s.inMemory() {
		c.mustExclude()() // a barrier: a command that began before the cancel has counted its answer after this
	}
	s.wg.Wait()
	s.saver.stop()
	if err := s.temporary.Close(); err != nil {
		s.opt.Log.Warn("failed to close the store of temporary chats", "error", err)
	}
}
