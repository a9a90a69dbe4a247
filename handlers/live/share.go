package live

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/store"
)

// Links under which others can read a chat. Whoever has a link is a principal that may follow
// this one chat, from a message on, and nothing else. The database has the hash of a link;
// the link itself is in memory, so that the owner can show it again, and gone with the server.

// ErrNotShared says that there is no such link: it never was, it has expired, it was ended, or
// the chat is in the trash. Nobody learns which.
var ErrNotShared = errors.New("there is nothing under this link")

// ErrManyFollow says that too many read shared chats already.
var ErrManyFollow = errors.New("too many people are reading shared chats on this server; try again later")

// maxFollowers is how many readers the shared chats of a server have at once.
const maxFollowers = 256

// maxShares is how many links to one chat work at once.
const maxShares = 20

// NewShare is what a person chooses for a link.
type NewShare struct {
	First    int64         // message that it begins with; 0: the first
	System   bool          // it shows the system prompt
	Settings bool          // it shows how each answer was sampled
	Live     bool          // it follows the branch that is shown; else it ends with the last message of now
	Life     time.Duration // 0: until it is ended
}

// Share is a link to a chat.
type Share struct {
	store.Share
	Token     string // that the link ends with; empty: the server was started anew since
	Followers int    // who read it now
}

// shares is what is known of links beside the store.
type shares struct {
	mu        sync.Mutex
	tokens    map[int64]string // by id of the share
	followers map[*Seat]bool
	changed   chan struct{}
}

// Share makes a link to a chat.
func (s *Service) Share(ctx context.Context, who Principal, chat string, n NewShare) (Share, error) {
	c, err := s.Chat(ctx, who, chat)
	if err != nil {
		return Share{}, err
	}
	if err := c.may(who, access.ActionShare); err != nil {
		return Share{}, err
	}
	if c.temporary {
		return Share{}, invalid("", "a temporary chat is never stored, so it cannot be shared: begin a chat that is not temporary")
	}
	there, err := s.Shares(ctx, who, chat)
	if err != nil {
		return Share{}, err
	}
	if len(there) >= maxShares {
		return Share{}, invalid("", "this chat has %d links already; end one first", len(there))
	}
	share := store.Share{Conversation: chat, First: n.First, System: n.System, Settings: n.Settings}
	if share.Last, err = c.shareEnd(n); err != nil {
		return Share{}, err
	}
	if n.Life > 0 {
		share.Expires = s.opt.Now().Add(n.Life)
	}
	token := strings.ToLower(rand.Text())
	if share, err = s.opt.Store.AddShare(ctx, who.Owner, share, tokenHash(token)); err != nil {
		return Share{}, StoreError(err)
	}
	s.shares.mu.Lock()
	s.shares.tokens[share.ID] = token
	s.shares.mu.Unlock()
	if n.Life > 0 {
		time.AfterFunc(n.Life, func() {
			s.shares.forget(share.ID)
			s.linksChanged(who.Owner, chat)
		})
	}
	s.shares.notify()
	s.linksChanged(who.Owner, chat)
	return Share{Share: share, Token: token}, nil
}

func tokenHash(token string) store.TokenHash { return sha256.Sum256([]byte(token)) }

// shareEnd checks which messages a link shall show, and returns the last; 0 if it follows the
// chat.
func (c *Chat) shareEnd(n NewShare) (last int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.First != 0 {
		if _, err := c.branch.find("first", n.First, ""); err != nil {
			return 0, err
		}
	}
	switch {
	case n.Live:
		return 0, nil
	case c.answer.run != nil:
		return 0, &Conflict{Command: "share the chat as it is", State: string(c.answer.run.turn.Answer.State), Answer: c.answer.run.turn.ID}
	case len(c.branch) == 0:
		return 0, invalid("", "this chat has no message yet")
	}
	return c.branch.leaf(), nil
}

// Shares returns the links to a chat that work.
func (s *Service) Shares(ctx context.Context, who Principal, chat string) (list []Share, err error) {
	c, err := s.Chat(ctx, who, chat)
	if err != nil {
		return nil, err
	}
	if err := c.may(who, access.ActionShare); err != nil || c.temporary {
		return nil, err
	}
	all, err := s.opt.Store.Shares(ctx)
	if err != nil {
		return nil, StoreError(err)
	}
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	for _, share := range all {
		if share.Conversation == chat {
			list = append(list, Share{Share: share, Token: s.shares.tokens[share.ID], Followers: s.shares.count(share.ID)})
		}
	}
	return list, nil
}

// EndShare ends a link at once, and with it all who follow by it.
func (s *Service) EndShare(ctx context.Context, who Principal, chat string, id int64) error {
	list, err := s.Shares(ctx, who, chat)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(share Share) bool { return share.ID == id }) {
		return ErrNotShared
	}
	if err := s.opt.Store.EndShare(ctx, who.Owner, id); err != nil && !errors.Is(err, store.ErrNotFound) {
		return StoreError(err)
	}
	s.shares.mu.Lock()
	delete(s.shares.tokens, id)
	for seat := range s.shares.followers {
		if seat.share.ID == id {
			seat.end()
		}
	}
	s.shares.mu.Unlock()
	s.shares.notify()
	s.call(func(h Hooks) func() {
		if h.LinkEnded == nil {
			return nil
		}
		return func() { h.LinkEnded(id) }
	})
	s.linksChanged(who.Owner, chat)
	return nil
}

// linksChanged tells the pages of a chat and the lists of its owner that it got or lost a link.
func (s *Service) linksChanged(owner, chat string) {
	s.readersChanged(chat)
	s.notify(owner)
}

func (s *Service) readersChanged(chat string) {
	s.callWith(chat, func(h Hooks) func(string) { return h.ReadBy })
}

// SharedChats returns the ids of the chats of who that have a link that works.
func (s *Service) SharedChats(ctx context.Context, who Principal) (map[string]bool, error) {
	if err := may(who, access.ActionRead, access.KindChat); err != nil || s.opt.Store == nil {
		return nil, err
	}
	all, err := s.opt.Store.Shares(ctx)
	if err != nil {
		return nil, StoreError(err)
	}
	chats := map[string]bool{}
	for _, share := range all {
		if share.Owner == who.Owner {
			chats[share.Conversation] = true
		}
	}
	return chats, nil
}

// AcceptRequests sets whether readers of a link to a chat can ask to write, and returns the link.
func (s *Service) AcceptRequests(ctx context.Context, who Principal, chat string, id int64, accept bool) (Share, error) {
	list, err := s.Shares(ctx, who, chat)
	if err != nil {
		return Share{}, err
	}
	at := slices.IndexFunc(list, func(known Share) bool { return known.ID == id })
	if at < 0 {
		return Share{}, ErrNotShared
	}
	if err := s.opt.Store.AcceptRequests(ctx, who.Owner, id, accept); err != nil {
		return Share{}, NotShared(StoreError(err))
	}
	return list[at], nil
}

// Follower returns the principal that has a link.
func (s *Service) Follower(ctx context.Context, token string) (Principal, error) {
	if s.opt.Store == nil {
		return Principal{}, ErrNotShared
	}
	share, err := s.opt.Store.SharedAs(ctx, tokenHash(token))
	if errors.Is(err, store.ErrNotFound) {
		return Principal{}, ErrNotShared
	}
	return Principal{Share: &share}, err
}

// SharesChanged is closed when a link is made or ended next, or a chat with one may have gone
// to the trash or come from there.
func (s *Service) SharesChanged() <-chan struct{} {
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	return s.shares.changed
}

// Shared returns whether a link works, of anybody, and when the first of them expires; zero if
// none does by itself.
func (s *Service) Shared(ctx context.Context) (any bool, expires time.Time, err error) {
	if s.opt.Store == nil {
		return false, time.Time{}, nil
	}
	list, err := s.opt.Store.Shares(ctx)
	if err != nil {
		return false, time.Time{}, StoreError(err)
	}
	for _, share := range list {
		if !share.Expires.IsZero() && (expires.IsZero() || share.Expires.Before(expires)) {
			expires = share.Expires
		}
	}
	return len(list) > 0, expires, nil
}

func (s *shares) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// forget frees the token of a link that has expired.
func (s *shares) forget(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, id)
}

// count is how many follow by a link; with mu held.
func (s *shares) count(id int64) (n int) {
	for seat := range s.followers {
		if seat.share.ID == id {
			n++
		}
	}
	return n
}

// add lists a reader, unless there are too many.
func (s *shares) add(seat *Seat) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.followers) >= maxFollowers {
		return ErrManyFollow
	}
	s.followers[seat] = true
	return nil
}

func (s *shares) remove(seat *Seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followers, seat)
}

// Seat is a reader of a shared chat: it is counted, and learns when the link has ended.
type Seat struct {
	service *Service
	share   store.Share
	ended   chan struct{}
	ends    sync.Once
	expires *time.Timer
}

// Seat lists a reader of the chat that who has a link to, until Close.
func (s *Service) Seat(ctx context.Context, who Principal) (*Seat, error) {
	if err := MayFollow(who); err != nil {
		return nil, err
	}
	seat := &Seat{service: s, share: *who.Share, ended: make(chan struct{})}
	if err := s.shares.add(seat); err != nil {
		return nil, err
	}
	if expires := seat.share.Expires; !expires.IsZero() {
		seat.expires = time.AfterFunc(expires.Sub(s.opt.Now()), seat.end)
	}
	// A link that was ended after who got it, and before the reader was listed, has not ended it.
	if err := s.LinkWorks(ctx, who); err != nil {
		seat.Close()
		return nil, err
	}
	s.readersChanged(seat.share.Conversation)
	return seat, nil
}

// Ended is closed when the link has expired or was ended, or its chat has gone to the trash.
func (s *Seat) Ended() <-chan struct{} { return s.ended }

func (s *Seat) end() { s.ends.Do(func() { close(s.ended) }) }

// Close lists the reader no more.
func (s *Seat) Close() {
	if s.expires != nil {
		s.expires.Stop()
	}
	s.service.shares.remove(s)
	s.service.readersChanged(s.share.Conversation)
}
