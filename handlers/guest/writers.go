package guest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"m40-llm/handlers/access"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/ratelimit"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Limits of write access.
const (
	maxAsks       = 5  // requests that wait for the owner, of one link
	maxWriters    = 8  // of one link
	maxFormer     = 16 // who does not ask or write any more, of one link; the last ones are told why
	maxWriterName = 40 // characters

	askLife    = 10 * time.Minute // after which a request that was not answered ends
	formerLife = 10 * time.Minute // for which who does not ask or write any more is told why
	askEvery   = 10 * time.Second // between the requests of one link, after askBurst
	askBurst   = 5
	askAgain   = 30 * time.Second // between the end of a request and the next one of the same browser

	writeEvery = 3 * time.Second // between the messages of one writer, after writeBurst
	writeBurst = 5

	typingFor   = 5 * time.Second // how long somebody types after a signal
	typingEvery = time.Second     // further signals of one who types are ignored for so long
)

// WriterState is what a request to write has come to.
type WriterState string

const (
	WriterAsks    WriterState = "asks"
	WriterWrites  WriterState = "writes"
	WriterRefused WriterState = "refused" // by the owner
	WriterMissed  WriterState = "missed"  // not answered within askLife
	WriterEnded   WriterState = "ended"   // the owner took write access back
	WriterIdle    WriterState = "idle"    // nothing was written for Options.Idle
	WriterLeft    WriterState = "left"    // they withdrew the request or gave write access back
)

// Writer is a reader of a link who asks to write or writes, or who did.
type Writer struct {
	ID    int64
	Share int64 // the link
	Name  string
	State WriterState // empty: has not asked
}

// Typist is somebody who is typing.
type Typist struct {
	Owner bool   // of the chat
	Name  string // of a writer
}

// Errors of write access.
var (
	ErrNoKeyboard = fault.New(fault.CodeNoKeyboard, "only its owner and those whom the owner lets write can write in this chat")
	ErrNoRequests = fault.New(fault.CodeNoRequests, "the owner of this chat takes no requests to write")
	ErrManyAsk    = fault.New(fault.CodeTooManyAsk, "several people wait for the owner to let them write; try again when they have an answer")
	ErrNoWriter   = fault.New(fault.CodeWriterNotFound, "this person does not ask to write or write here any more")
	ErrNotYours   = fault.New(fault.CodeNoKeyboard, "this is the answer to somebody else's message; only the chat's owner can stop it")
)

// TooSoonError says that somebody asks or writes too often.
type TooSoonError struct{ Wait time.Duration }

func (e *TooSoonError) Error() string {
	return fmt.Sprintf("that was too often; try again in %d s", e.Seconds())
}

func (e *TooSoonError) Unwrap() error {
	return &fault.Error{Code: fault.CodeTooSoon, Message: e.Error(), RetryAfter: e.Seconds()}
}

// Seconds returns the wait in seconds, rounded up.
func (e *TooSoonError) Seconds() int { return int(math.Ceil(e.Wait.Seconds())) }

// writers are those who write in shared chats, or ask to.
type writers struct {
	idle time.Duration // Options.Idle
	now  func() time.Time

	mu      sync.Mutex
	last    int64                   // id of a writer
	writers []*writer               // oldest first
	asked   map[int64]*rate.Limiter // requests, by link
	accepts map[int64]accepts       // links for which it was set since the server started whether they take requests
	ends    map[int64]*time.Timer   // of links in asked or accepts that expire
	typing  map[typist]*typing
	changed map[string]chan struct{} // by chat; see watch
}

type writer struct {
	Writer
	chat, owner string
	secret      store.TokenHash
	since       time.Time // of State
	ends        time.Time // when State ends by itself
	expires     time.Time // of the link; zero: it does not
	timer       *time.Timer
	messages    *rate.Limiter
}

type accepts struct {
	accept      bool
	chat, owner string
}

type typist struct {
	chat   string
	writer int64 // 0: the owner
}

type typing struct {
	last  time.Time
	timer *time.Timer
}

func newWriters(idle time.Duration, now func() time.Time) writers {
	return writers{
		idle: idle, now: now, asked: map[int64]*rate.Limiter{}, accepts: map[int64]accepts{}, ends: map[int64]*time.Timer{},
		typing: map[typist]*typing{}, changed: map[string]chan struct{}{},
	}
}

// maxWatched is how many chats are watched before all are told of a change, so that those that no one watches any
// more are forgotten.
const maxWatched = 1024

// watch returns what is closed when write access to a chat changes next; with mu held, as all methods that follow
// but those of Service and Chat.
func (k *writers) watch(chat string) <-chan struct{} {
	if k.changed[chat] == nil {
		if len(k.changed) >= maxWatched {
			for known := range k.changed {
				k.notify(known)
			}
		}
		k.changed[chat] = make(chan struct{})
	}
	return k.changed[chat]
}

// tell is notify for who does not have mu.
func (k *writers) tell(chat string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notify(chat)
}

// notify publishes a change of write access to a chat.
func (k *writers) notify(chat string) {
	if k.changed[chat] != nil {
		close(k.changed[chat])
		delete(k.changed, chat)
	}
}

func (k *writers) find(is func(*writer) bool) *writer {
	if i := slices.IndexFunc(k.writers, is); i >= 0 {
		return k.writers[i]
	}
	return nil
}

// by returns the writer of who's link with a secret.
func (k *writers) by(who live.Principal, secret string) *writer {
	hash := sha256.Sum256([]byte(secret))
	return k.find(func(w *writer) bool { return w.Share == who.Link() && w.secret == hash })
}

// writing returns who as a writer; nil if who has no write access, or not any more.
func (k *writers) writing(who live.Principal) *writer {
	return k.find(func(w *writer) bool {
		return who.Writer != 0 && w.ID == who.Writer && w.Share == who.Link() && w.State == WriterWrites
	})
}

func (k *writers) count(share int64, states ...WriterState) (n int) {
	for _, w := range k.writers {
		if w.Share == share && slices.Contains(states, w.State) {
			n++
		}
	}
	return n
}

// put makes state what the request of w has come to.
func (k *writers) put(w *writer, state WriterState) {
	w.State, w.since = state, k.now()
	k.stopTyping(typist{w.chat, w.ID})
	switch state {
	case WriterAsks:
		k.endIn(w, askLife)
	case WriterWrites:
		w.messages = rate.NewLimiter(rate.Every(writeEvery), writeBurst)
		k.endIn(w, k.idle)
	default:
		k.endIn(w, formerLife)
		k.forgetFormer(w.Share)
	}
	k.notify(w.chat)
}

// endIn makes the state of w end by itself after d, or with the link.
func (k *writers) endIn(w *writer, d time.Duration) {
	now := k.now()
	w.ends = now.Add(d)
	if !w.expires.IsZero() && w.expires.Before(w.ends) {
		w.ends = w.expires
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.ends.Sub(now), func() { k.end(w) })
	} else {
		w.timer.Reset(w.ends.Sub(now))
	}
}

// end ends what is due. It is called without mu.
func (k *writers) end(w *writer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch left := w.ends.Sub(k.now()); {
	case left > 0:
		w.timer.Reset(left)
	case w.State == WriterAsks:
		k.put(w, WriterMissed)
	case w.State == WriterWrites:
		k.put(w, WriterIdle)
	default:
		k.writers = slices.DeleteFunc(k.writers, func(other *writer) bool { return other == w })
		if k.find(func(other *writer) bool { return other.Share == w.Share }) == nil {
			delete(k.asked, w.Share) // as many may ask again by now
		}
	}
}

// forgetFormer removes the oldest of those who do not ask or write any more.
func (k *writers) forgetFormer(share int64) {
	isFormer := func(w *writer) bool { return w.Share == share && w.State != WriterAsks && w.State != WriterWrites }
	former := 0
	for _, w := range slices.Backward(k.writers) {
		if isFormer(w) {
			former++
		}
	}
	k.writers = slices.DeleteFunc(k.writers, func(w *writer) bool {
		if isFormer(w) && former > maxFormer {
			former--
			return true
		}
		return false
	})
}

// remove forgets the writers that match, and their links, which have ended.
func (k *writers) remove(match func(*writer) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writers = slices.DeleteFunc(k.writers, func(w *writer) bool {
		if !match(w) {
			return false
		}
		w.timer.Stop()
		w.State = WriterEnded
		k.stopTyping(typist{w.chat, w.ID})
		k.notify(w.chat)
		k.forgetLink(w.Share)
		return true
	})
	for share, a := range k.accepts {
		if match(&writer{Writer: Writer{Share: share}, chat: a.chat, owner: a.owner}) {
			k.notify(a.chat)
			k.forgetLink(share)
		}
	}
}

// endLink forgets everything about a link that has ended.
func (k *writers) endLink(share int64) {
	k.remove(func(w *writer) bool { return w.Share == share })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLink(share)
}

// forgetLink removes the limit, the setting and the timer of a link that has ended.
func (k *writers) forgetLink(share int64) {
	delete(k.asked, share)
	delete(k.accepts, share)
	if timer := k.ends[share]; timer != nil {
		timer.Stop()
		delete(k.ends, share)
	}
}

// endsWith has everything about a link forgotten when it expires.
func (k *writers) endsWith(share int64, expires time.Time) {
	if !expires.IsZero() && k.ends[share] == nil {
		k.ends[share] = time.AfterFunc(expires.Sub(k.now()), func() { k.endLink(share) })
	}
}

// types marks somebody as typing.
func (k *writers) types(t typist) {
	now := k.now()
	if known := k.typing[t]; known != nil {
		if now.Sub(known.last) >= typingEvery {
			known.last = now
			known.timer.Reset(typingFor)
		}
		return
	}
	is := &typing{last: now}
	is.timer = time.AfterFunc(typingFor, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.typing[t] == is && k.now().Sub(is.last) >= typingFor {
			k.stopTyping(t)
		}
	})
	k.typing[t] = is
	k.notify(t.chat)
}

func (k *writers) stopTyping(t typist) {
	if is := k.typing[t]; is != nil {
		is.timer.Stop()
		delete(k.typing, t)
		k.notify(t.chat)
	}
}

// typists returns who is typing in a chat, less one of them: the owner first, then writers in the
// order in which they have asked.
func (k *writers) typists(chat string, except int64) (list []Typist) {
	if except != 0 && k.typing[typist{chat, 0}] != nil {
		list = append(list, Typist{Owner: true})
	}
	for _, w := range k.writers {
		if w.chat == chat && w.ID != except && k.typing[typist{chat, w.ID}] != nil {
			list = append(list, Typist{Name: w.Name})
		}
	}
	return list
}

// writerName returns a name as it is shown: one line, without characters that cannot be seen or that change
// the direction of the text around it.
func writerName(name string) (string, error) {
	if !utf8.ValidString(name) {
		return "", fault.Invalid("name", "name is not valid UTF-8")
	}
	name = strings.Join(strings.Fields(name), " ")
	const joiner, nonJoiner = '\u200d', '\u200c' // scripts and emoji need them
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		invisible := unicode.Is(unicode.Cf, r) && r != joiner && r != nonJoiner
		if invisible || unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Co, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
			return -1
		}
		return r
	}, name))
	visible := strings.ContainsFunc(name, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSymbol(r) })
	if n := utf8.RuneCountInString(name); n > maxWriterName || !visible {
		return "", fault.Invalid("name", "the name has %d characters, but must have 1 to %d, one of them a letter, digit or symbol", n, maxWriterName)
	}
	return name, nil
}

// IsName reports whether name can be at a message: it is empty or the name of a writer.
func IsName(name string) bool {
	cleaned, err := writerName(name)
	return name == "" || err == nil && cleaned == name
}

// AskToWrite asks the owner of the chat that who has a link to for write access, on behalf of
// somebody with a name. It returns the secret by which their browser is known from now on; empty if
// the one that it has, if any, stays valid.
func (s *Service) AskToWrite(ctx context.Context, who live.Principal, name, secret string) (fresh string, err error) {
	if err := links.MayFollow(who); err != nil {
		return "", err
	}
	if name, err = writerName(name); err != nil {
		return "", err
	}
	fresh, err = s.writers.ask(who, name, secret)
	if err != nil || fresh == "" {
		return "", err
	}
	// A link that was ended after who got it, and before the request was listed, has not ended it.
	if err := s.chats.Links.Works(ctx, who); err != nil {
		s.writers.endLink(who.Link())
		return "", err
	}
	return fresh, nil
}

// ask lists a request. It takes mu itself.
func (k *writers) ask(who live.Principal, name, secret string) (fresh string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	share, now := who.Share, k.now()
	w := k.by(who, secret)
	switch {
	case w != nil && (w.State == WriterAsks || w.State == WriterWrites):
		return "", nil
	case !k.takesRequests(share):
		return "", ErrNoRequests
	case w != nil && (w.State == WriterRefused || w.State == WriterEnded) && now.Sub(w.since) < askAgain:
		return "", &TooSoonError{askAgain - now.Sub(w.since)}
	case k.nameTaken(share.Conversation, name):
		return "", &owned.TakenError{Kind: "writer", Name: name}
	case k.count(share.ID, WriterAsks) >= maxAsks:
		return "", ErrManyAsk
	}
	if k.asked[share.ID] == nil {
		k.asked[share.ID] = rate.NewLimiter(rate.Every(askEvery), askBurst)
	}
	if wait := ratelimit.Wait(k.asked[share.ID], now); wait > 0 {
		return "", &TooSoonError{wait}
	}
	k.asked[share.ID].AllowN(now, 1)
	k.endsWith(share.ID, share.Expires)
	if w == nil {
		k.last++
		w = &writer{Writer: Writer{ID: k.last, Share: share.ID}, chat: share.Conversation, owner: share.Owner, expires: share.Expires}
		k.writers = append(k.writers, w)
	}
	fresh = rand.Text()
	w.Name, w.secret = name, sha256.Sum256([]byte(fresh))
	k.put(w, WriterAsks)
	return fresh, nil
}

// takesRequests reports whether readers of a link can ask to write.
func (k *writers) takesRequests(share *store.Share) bool {
	accept := share.Requests
	if set, known := k.accepts[share.ID]; known {
		accept = set.accept
	}
	return accept && share.Last == 0
}

func (k *writers) nameTaken(chat, name string) bool {
	return k.find(func(w *writer) bool {
		return w.chat == chat && strings.EqualFold(w.Name, name) && (w.State == WriterAsks || w.State == WriterWrites)
	}) != nil
}

// StopWriting withdraws who's request, or gives write access back.
func (s *Service) StopWriting(who live.Principal, secret string) error {
	if err := links.MayFollow(who); err != nil {
		return err
	}
	k := &s.writers
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.by(who, secret); w != nil && (w.State == WriterAsks || w.State == WriterWrites) {
		k.put(w, WriterLeft)
	}
	return nil
}

// Writing returns the principal of requests by who's link that have a secret: with write access, if it was given to
// that browser.
func (s *Service) Writing(who live.Principal, secret string) live.Principal {
	s.writers.mu.Lock()
	defer s.writers.mu.Unlock()
	if w := s.writers.by(who, secret); w != nil && w.State == WriterWrites {
		who.Writer = w.ID
	}
	return who
}

// Asker returns the id by which ReaderAccess knows a browser with a secret; 0: it has not asked.
func (s *Service) Asker(who live.Principal, secret string) int64 {
	s.writers.mu.Lock()
	defer s.writers.mu.Unlock()
	if w := s.writers.by(who, secret); w != nil {
		return w.ID
	}
	return 0
}

// ReaderAccess is what a reader of a link sees of write access.
type ReaderAccess struct {
	Writer
	Accepts bool     // one can ask
	Typing  []Typist // others, for one who writes
}

// ReaderAccess returns what an asker sees of write access to the chat that who has a link to, and
// what is closed when that may change next.
func (s *Service) ReaderAccess(who live.Principal, asker int64) (r ReaderAccess, changed <-chan struct{}) {
	k := &s.writers
	k.mu.Lock()
	defer k.mu.Unlock()
	if links.MayFollow(who) != nil {
		return r, nil
	}
	r.Accepts = k.takesRequests(who.Share)
	if w := k.find(func(w *writer) bool { return asker != 0 && w.ID == asker && w.Share == who.Link() }); w != nil {
		if r.Writer = w.Writer; w.State == WriterWrites {
			r.Typing = k.typists(w.chat, w.ID)
		}
	}
	return r, k.watch(who.Share.Conversation)
}

// WriteAccess is who besides the owner of a chat reads and writes there, or asks to write.
type WriteAccess struct {
	Links   int      // to the chat that work
	Readers int      // who follow the chat by one of them now
	Writers []Writer // in the order in which they asked
	Typing  []Typist // writers
}

// WriteAccess returns who writes in a chat, for its owner, and what is closed when that may change
// next.
func (s *Service) WriteAccess(ctx context.Context, who live.Principal, c *live.Chat) (held WriteAccess, changed <-chan struct{}, err error) {
	err = owned.Authorize(who, access.ActionShare, c.Object())
	if errors.Is(err, access.ErrVisitor) {
		return held, nil, nil // a visitor cannot share their chats
	}
	if err != nil {
		return held, nil, err
	}
	k := &s.writers
	k.mu.Lock()
	changed = k.watch(c.ID()) // before anything is read
	k.mu.Unlock()
	list, err := s.chats.Links.List(ctx, who, c.ID())
	if err != nil {
		return held, nil, err
	}
	held.Links = len(list)
	for _, link := range list {
		held.Readers += link.Followers
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.writers {
		if w.chat == c.ID() && (w.State == WriterAsks || w.State == WriterWrites) {
			held.Writers = append(held.Writers, w.Writer)
		}
	}
	held.Typing = k.typists(c.ID(), 0)
	return held, changed, nil
}

// SetWriter answers the request of a writer of a chat: WriterWrites gives them write access and
// WriterRefused does not. WriterEnded takes it back.
func (s *Service) SetWriter(who live.Principal, c *live.Chat, id int64, state WriterState) error {
	if err := owned.Authorize(who, access.ActionShare, c.Object()); err != nil {
		return err
	}
	from := map[WriterState]WriterState{WriterWrites: WriterAsks, WriterRefused: WriterAsks, WriterEnded: WriterWrites}[state]
	if from == "" {
		return fault.Invalid("state", "state is %q, but must be %s, %s or %s", state, WriterWrites, WriterRefused, WriterEnded)
	}
	k := &s.writers
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.find(func(w *writer) bool { return w.ID == id && w.chat == c.ID() })
	switch {
	case w == nil:
		return ErrNoWriter
	case w.State == state: // a second click
		return nil
	case w.State != from:
		return ErrNoWriter
	case state == WriterWrites && k.count(w.Share, WriterWrites) >= maxWriters:
		return fault.Invalid("", "%d people write by this link already; take the keyboard back from one of them first", maxWriters)
	}
	k.put(w, state)
	return nil
}

// AcceptRequests sets whether readers of a link to a chat can ask to write. Without, those who wait
// for an answer are refused.
func (s *Service) AcceptRequests(ctx context.Context, who live.Principal, chat string, share int64, accept bool) error {
	link, err := s.chats.Links.AcceptRequests(ctx, who, chat, share, accept)
	if err != nil {
		return err
	}
	k := &s.writers
	k.mu.Lock()
	defer k.mu.Unlock()
	k.accepts[share] = accepts{accept, chat, who.Owner}
	k.endsWith(share, link.Expires)
	for _, w := range slices.Clone(k.writers) {
		if !accept && w.Share == share && w.State == WriterAsks {
			k.put(w, WriterRefused)
		}
	}
	k.notify(chat)
	return nil
}

// mayWrite authorizes who to write in the chat of its link.
func mayWrite(who live.Principal) error {
	if err := links.MayFollow(who); err != nil {
		return err
	}
	if owned.Authorize(who, access.ActionWrite, access.Object{Kind: access.KindChat, Owner: who.Share.Owner, ID: who.Share.Conversation}) != nil {
		return ErrNoKeyboard
	}
	return nil
}

// hold records that who uses write access, to write a message or otherwise, and returns who's name.
// The error of a message too many is a *TooSoonError.
func (k *writers) hold(who live.Principal, message bool) (name string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.writing(who)
	if w == nil {
		return "", ErrNoKeyboard
	}
	if wait := ratelimit.Wait(w.messages, k.now()); message && wait > 0 {
		return "", &TooSoonError{wait}
	}
	k.endIn(w, k.idle)
	return w.Name, nil
}

// wrote counts a message of who. Messages that were refused do not count: who sends one while an
// answer is being written shall not wait for longer than the answer takes.
func (k *writers) wrote(who live.Principal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.writing(who); w != nil {
		w.messages.AllowN(k.now(), 1)
		k.stopTyping(typist{w.chat, w.ID})
	}
}

// holds reports whether who has write access.
func (k *writers) holds(who live.Principal) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writing(who) != nil
}

// Write sends a message to the chat that who has a link and write access to, as the owner would with the
// settings of the chat, and begins the answer. The name of the writer is stored with the message;
// the model does not get it.
func (s *Service) Write(ctx context.Context, who live.Principal, text string) error {
	if err := mayWrite(who); err != nil {
		return err
	}
	if err := live.CheckText(text); err != nil {
		return err
	}
	name, err := s.writers.hold(who, true)
	if err != nil {
		return err
	}
	c, err := s.chats.Linked(ctx, who)
	if err != nil {
		return err
	}
	err = c.SendAs(ctx, who, name, text, func() error {
		if !s.writers.holds(who) { // it may have been taken back while this waited for the command before
			return ErrNoKeyboard
		}
		return nil
	})
	if err != nil {
		return links.NotShared(err)
	}
	s.writers.wrote(who)
	return nil
}

// StopOwn stops the answer to a message of who's.
func (s *Service) StopOwn(ctx context.Context, who live.Principal) error {
	if err := mayWrite(who); err != nil {
		return err
	}
	if _, err := s.writers.hold(who, false); err != nil {
		return err
	}
	c, err := s.chats.Linked(ctx, who)
	if err != nil {
		return err
	}
	return links.NotShared(c.StopAs(who, ErrNotYours))
}

// Typing says that who, a writer, is typing.
func (s *Service) Typing(who live.Principal) error {
	if err := mayWrite(who); err != nil {
		return err
	}
	if _, err := s.writers.hold(who, false); err != nil {
		return err
	}
	k := &s.writers
	k.mu.Lock()
	defer k.mu.Unlock()
	k.types(typist{who.Share.Conversation, who.Writer})
	return nil
}

// OwnerTypes says that the owner of a chat is typing, which is announced only if others write there.
func (s *Service) OwnerTypes(who live.Principal, c *live.Chat) error {
	if err := owned.Authorize(who, access.ActionChange, c.Object()); err != nil {
		return err
	}
	k := &s.writers
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.find(func(w *writer) bool { return w.chat == c.ID() && w.State == WriterWrites }) != nil {
		k.types(typist{c.ID(), 0})
	}
	return nil
}

// ownerSent says that the owner of a chat has sent what they typed.
func (k *writers) ownerSent(chat string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopTyping(typist{chat, 0})
}
