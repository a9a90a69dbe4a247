// Package links has the use cases of links under which others can read a chat. Whoever has a link is a principal
// that may follow this one chat, from a message on, and nothing else. The store has the hash of a link;
// the link itself is in memory, so that the owner can show it again, and gone with the server. Package guest has
// what people do with a link. The package knows no HTTP.
package links

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
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Store is where links are stored: *store.Store.
type Store interface {
	AddShare(ctx context.Context, owner string, share store.Share, token store.TokenHash) (store.Share, error)
	SharedAs(ctx context.Context, token store.TokenHash) (store.Share, error)
	SharedBy(ctx context.Context, id int64) (store.Share, error)
	Shares(ctx context.Context) ([]store.Share, error)
	EndShare(ctx context.Context, owner string, id int64) error
	AcceptRequests(ctx context.Context, owner string, id int64, accept bool) error
}

// Chats are what links lead to.
type Chats interface {
	// MayShare authorizes who to share a chat, and reports whether that is stored.
	MayShare(ctx context.Context, who access.Principal, chat string) (stored bool, err error)
	// ShareEnd checks which messages a link shall show, and returns the last; 0 if it follows the chat.
	ShareEnd(ctx context.Context, who access.Principal, chat string, w Wanted) (last int64, err error)
}

// Hooks are functions of a package that has something about links in memory. None of them may wait for a command
// of a chat, or call one of its methods.
type Hooks struct {
	Ended  func(link int64)
	ReadBy func(chat string) // it got or lost a link, or a reader of one
}

// Service has the links to the chats of a server, and who reads by them.
type Service struct {
	store       Store // nil: nothing can be shared
	chats       Chats
	listChanged func(owner string)
	now         func() time.Time

	mu        sync.Mutex // of these alone; no other lock is taken with it
	hooks     []Hooks
	tokens    map[int64]string // by id of the link
	followers map[*Seat]bool
	changed   chan struct{}
}

// New returns a Service for links to chats that are stored in db; nil: none are. listChanged is called when a
// chat of an owner got or lost a link.
func New(db Store, chats Chats, listChanged func(owner string), now func() time.Time) *Service {
	return &Service{store: db, chats: chats, listChanged: listChanged, now: now,
		tokens: map[int64]string{}, followers: map[*Seat]bool{}, changed: make(chan struct{})}
}

// AddHooks has functions called from now on.
func (s *Service) AddHooks(h Hooks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(slices.Clip(s.hooks), h)
}

func (s *Service) hooked() []Hooks {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hooks
}

// ErrNotShared says that there is no such link: it never was, it has expired, it was ended, or
// the chat is in the trash; the error does not say which.
var ErrNotShared = fault.New(fault.CodeNotShared, "there is nothing under this link")

// ErrManyFollow says that too many read shared chats already.
var ErrManyFollow = fault.New(fault.CodeTooManyFollow, "too many people are reading shared chats on this server; try again later")

// maxFollowers is how many readers the shared chats of a server have at once.
const maxFollowers = 256

// maxShares is how many links to one chat work at once.
const maxShares = 20

// Wanted is what a person chooses for a link.
type Wanted struct {
	First    int64         // message that it begins with; 0: the first
	System   bool          // it shows the system prompt
	Settings bool          // it shows how each answer was sampled
	Live     bool          // it follows the branch that is shown; else it ends with the last message of now
	Life     time.Duration // 0: until it is ended
}

// Link is a link to a chat.
type Link struct {
	store.Share
	Token     string // that the link ends with; empty: the server was started anew since
	Followers int    // who read it now
}

// Add makes a link to a chat.
func (s *Service) Add(ctx context.Context, who access.Principal, chat string, n Wanted) (Link, error) {
	stored, err := s.chats.MayShare(ctx, who, chat)
	if err != nil {
		return Link{}, err
	}
	if !stored {
		return Link{}, fault.Invalid("", "a temporary chat is never stored, so it cannot be shared: begin a chat that is not temporary")
	}
	there, err := s.List(ctx, who, chat)
	if err != nil {
		return Link{}, err
	}
	if len(there) >= maxShares {
		return Link{}, fault.Invalid("", "this chat has %d links already; end one first", len(there))
	}
	share := store.Share{Conversation: chat, First: n.First, System: n.System, Settings: n.Settings}
	if share.Last, err = s.chats.ShareEnd(ctx, who, chat, n); err != nil {
		return Link{}, err
	}
	if n.Life > 0 {
		share.Expires = s.now().Add(n.Life)
	}
	token := strings.ToLower(rand.Text())
	if share, err = s.store.AddShare(ctx, who.Owner, share, tokenHash(token)); err != nil {
		return Link{}, owned.StoreError(err)
	}
	s.mu.Lock()
	s.tokens[share.ID] = token
	s.mu.Unlock()
	if n.Life > 0 {
		time.AfterFunc(n.Life, func() {
			s.forget(share.ID)
			s.linksChanged(who.Owner, chat)
		})
	}
	s.Notify()
	s.linksChanged(who.Owner, chat)
	return Link{Share: share, Token: token}, nil
}

func tokenHash(token string) store.TokenHash { return sha256.Sum256([]byte(token)) }

// List returns the links to a chat that work.
func (s *Service) List(ctx context.Context, who access.Principal, chat string) (list []Link, err error) {
	if stored, err := s.chats.MayShare(ctx, who, chat); err != nil || !stored {
		return nil, err
	}
	all, err := s.store.Shares(ctx)
	if err != nil {
		return nil, owned.StoreError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, share := range all {
		if share.Conversation == chat {
			list = append(list, Link{Share: share, Token: s.tokens[share.ID], Followers: s.count(share.ID)})
		}
	}
	return list, nil
}

// End ends a link at once, and with it all who follow by it.
func (s *Service) End(ctx context.Context, who access.Principal, chat string, id int64) error {
	list, err := s.List(ctx, who, chat)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(link Link) bool { return link.ID == id }) {
		return ErrNotShared
	}
	if err := s.store.EndShare(ctx, who.Owner, id); err != nil && !errors.Is(err, store.ErrNotFound) {
		return owned.StoreError(err)
	}
	s.mu.Lock()
	delete(s.tokens, id)
	for seat := range s.followers {
		if seat.share.ID == id {
			seat.end()
		}
	}
	s.mu.Unlock()
	s.Notify()
	for _, h := range s.hooked() {
		h.Ended(id)
	}
	s.linksChanged(who.Owner, chat)
	return nil
}

// linksChanged tells the pages of a chat and the lists of its owner that it got or lost a link.
func (s *Service) linksChanged(owner, chat string) {
	s.readersChanged(chat)
	s.listChanged(owner)
}

func (s *Service) readersChanged(chat string) {
	for _, h := range s.hooked() {
		h.ReadBy(chat)
	}
}

// SharedChats returns the ids of the chats of who that have a link that works.
func (s *Service) SharedChats(ctx context.Context, who access.Principal) (map[string]bool, error) {
	if err := owned.May(who, access.ActionRead, access.KindChat); err != nil || s.store == nil {
		return nil, err
	}
	all, err := s.store.Shares(ctx)
	if err != nil {
		return nil, owned.StoreError(err)
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
func (s *Service) AcceptRequests(ctx context.Context, who access.Principal, chat string, id int64, accept bool) (Link, error) {
	list, err := s.List(ctx, who, chat)
	if err != nil {
		return Link{}, err
	}
	at := slices.IndexFunc(list, func(known Link) bool { return known.ID == id })
	if at < 0 {
		return Link{}, ErrNotShared
	}
	if err := s.store.AcceptRequests(ctx, who.Owner, id, accept); err != nil {
		return Link{}, NotShared(owned.StoreError(err))
	}
	return list[at], nil
}

// Follower returns the principal that has a link.
func (s *Service) Follower(ctx context.Context, token string) (access.Principal, error) {
	if s.store == nil {
		return access.Principal{}, ErrNotShared
	}
	share, err := s.store.SharedAs(ctx, tokenHash(token))
	if errors.Is(err, store.ErrNotFound) {
		return access.Principal{}, ErrNotShared
	}
	return access.Principal{Share: &share}, err
}

// Changed is closed when a link is made or ended next, or a chat with one may have gone
// to the trash or come from there.
func (s *Service) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Any returns whether a link works, of anybody, and when the first of them expires; zero if
// none does by itself.
func (s *Service) Any(ctx context.Context) (any bool, expires time.Time, err error) {
	if s.store == nil {
		return false, time.Time{}, nil
	}
	list, err := s.store.Shares(ctx)
	if err != nil {
		return false, time.Time{}, owned.StoreError(err)
	}
	for _, share := range list {
		if !share.Expires.IsZero() && (expires.IsZero() || share.Expires.Before(expires)) {
			expires = share.Expires
		}
	}
	return len(list) > 0, expires, nil
}

// Notify closes Changed: a chat with a link may have gone to the trash, or come from there.
func (s *Service) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// forget frees the token of a link that has expired.
func (s *Service) forget(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, id)
}

// count is how many follow by a link; with mu held.
func (s *Service) count(id int64) (n int) {
	for seat := range s.followers {
		if seat.share.ID == id {
			n++
		}
	}
	return n
}

// add lists a reader, unless there are too many.
func (s *Service) add(seat *Seat) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.followers) >= maxFollowers {
		return ErrManyFollow
	}
	s.followers[seat] = true
	return nil
}

func (s *Service) remove(seat *Seat) {
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
func (s *Service) Seat(ctx context.Context, who access.Principal) (*Seat, error) {
	if err := MayFollow(who); err != nil {
		return nil, err
	}
	seat := &Seat{service: s, share: *who.Share, ended: make(chan struct{})}
	if err := s.add(seat); err != nil {
		return nil, err
	}
	if expires := seat.share.Expires; !expires.IsZero() {
		seat.expires = time.AfterFunc(expires.Sub(s.now()), seat.end)
	}
	// A link that was ended after who got it, and before the reader was listed, has not ended it.
	if err := s.Works(ctx, who); err != nil {
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
	s.service.remove(s)
	s.service.readersChanged(s.share.Conversation)
}

// MayFollow authorizes who to read what its link shows.
func MayFollow(who access.Principal) error {
	if who.Share == nil {
		return ErrNotShared
	}
	return NotShared(owned.Authorize(who, access.ActionFollow, access.Object{Kind: access.KindChat, Owner: who.Share.Owner, ID: who.Share.Conversation}))
}

// NotShared returns what a guest learns of an error: of a chat that is gone, what it learns of a wrong link.
func NotShared(err error) error {
	if err == owned.ErrNotFound || err == owned.ErrGone {
		return ErrNotShared
	}
	return err
}

// Works returns nil if who's link has not ended meanwhile.
func (s *Service) Works(ctx context.Context, who access.Principal) error {
	_, err := s.store.SharedBy(ctx, who.Link())
	if err != nil {
		return NotShared(owned.StoreError(err))
	}
	return nil
}
