// Package visitors is the open house: people in the local network who chat without a login, while the owner of the server
// lets them. It knows no HTTP.
//
// A visitor is a browser with a cookie that lasts as long as the browser's session. What they write is in temporary chats,
// which are in memory alone, and which end with the visitor: when nothing was heard of them for a while, and when the house is closed.
// Cookies can be thrown away, so what counts for the limits of a day is the address.
package visitors

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/quota"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Bounds of what visitors take.
const (
	maxVisitors  = 128            // at a time
	maxFrom      = 8              // of these from one address
	maxAddresses = 1024           // whose use of a day is counted apart
	atOnce       = 2              // answers of one address at the same time; more wait
	together     = 20             // all visitors together may use so many times the limits of one address
	dayPictures  = 100_000_000    // bytes of pictures from one address a day: they are in memory as long as their chats
	allPictures  = 500_000_000    // bytes of pictures of all visitors together a day
	idle         = 12 * time.Hour // a visitor ends after so long without a request
	replaceable  = time.Hour      // a visitor of whom nothing was heard for so long ends if there are too many
)

// setting is the setting of the owner of the server.
const setting = "visitors"

// Settings are whether the house is open, and the limits of one address. Both limits must be set.
type Settings struct {
	Open    bool `json:"open"`
	Answers int  `json:"answers"` // a day
	Tokens  int  `json:"tokens"`  // a day
}

// Default are the Settings until the owner sets others.
var Default = Settings{Answers: 30, Tokens: 20_000}

func (s Settings) limits() quota.Limits { return quota.Limits{Answers: s.Answers, Tokens: s.Tokens} }

// Check returns an error if there is not a limit of both.
func (s Settings) Check() error {
	for field, value := range map[string]int{"answers": s.Answers, "tokens": s.Tokens} {
		if value == 0 {
			return fault.Invalid(field, "visitors need a limit of %s a day, from 1 on", field)
		}
	}
	return s.limits().Check()
}

// Store has the Settings: *store.Store.
type Store interface {
	Setting(ctx context.Context, owner, name string) (json.RawMessage, error)
	SetSetting(ctx context.Context, owner, name string, value json.RawMessage) error
}

// Options are the parts of a Service. Store must be set.
type Options struct {
	Store Store
	Now   func() time.Time // default time.Now
	Log   *slog.Logger     // default: nothing is logged
}

// Service lets visitors in. It is safe for concurrent use.
type Service struct {
	opt   Options
	used  *quota.Counts // by address
	all   *quota.Counts // of all together
	slots quota.Slots   // by address

	mu       sync.Mutex
	settings Settings
	byCookie map[[sha256.Size]byte]*visitor
	byID     map[string]*visitor
	ended    func(id string)
}

// visitor is a browser. All fields but id and ctx are guarded by the Service's mu.
type visitor struct {
	who    access.Principal
	cookie [sha256.Size]byte // its hash
	from   netip.Addr        // of the last request
	seen   time.Time
	open   int // requests in progress

	ctx context.Context
	end context.CancelCauseFunc
}

// Errors of visitors.
var (
	ErrClosed  = fault.New(fault.CodeNotLoggedIn, "the owner of this server has ended the visit: log in with a code")
	ErrUnknown = fault.New(fault.CodeNotLoggedIn, "this visit has ended; open the page again")
)

// New returns a Service with the stored Settings.
func New(ctx context.Context, opt Options) (*Service, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		opt: opt, used: quota.NewCounts(opt.Now, maxAddresses), all: quota.NewCounts(opt.Now, 1), settings: Default,
		byCookie: map[[sha256.Size]byte]*visitor{}, byID: map[string]*visitor{}, ended: func(string) {},
	}
	value, err := opt.Store.Setting(ctx, store.OwnerID, setting)
	if errors.Is(err, store.ErrNotFound) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(value, &s.settings)
	}
	return s, err
}

// OnEnd has a function called with the id of each visitor who has ended.
func (s *Service) OnEnd(ended func(id string)) { s.ended = ended }

// Settings returns the Settings.
func (s *Service) Settings() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

// Number returns how many visitors there are.
func (s *Service) Number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// Set stores other Settings, which count at once: of a house that is closed all visitors end.
func (s *Service) Set(ctx context.Context, who access.Principal, to Settings) error {
	if err := access.Authorize(who, access.ActionManage, access.Object{Kind: access.KindPerson}); err != nil {
		return err
	}
	if err := to.Check(); err != nil {
		return err
	}
	value, _ := json.Marshal(to) // it is numbers
	if err := s.opt.Store.SetSetting(ctx, store.OwnerID, setting, value); err != nil {
		return err
	}
	s.mu.Lock()
	s.settings = to
	var out []*visitor
	if !to.Open {
		for _, v := range s.byID {
			out = append(out, s.remove(v, ErrClosed))
		}
	}
	s.mu.Unlock()
	s.tell(out)
	return nil
}

// remove takes a visitor out, whose requests end with an error; the caller has mu, and calls tell without it.
func (s *Service) remove(v *visitor, cause error) *visitor {
	delete(s.byCookie, v.cookie)
	delete(s.byID, v.who.Owner)
	v.end(cause)
	return v
}

// tell calls the function of OnEnd.
func (s *Service) tell(out []*visitor) {
	for _, v := range out {
		s.ended(v.who.Owner)
	}
}

// Enter returns the visitor with a cookie. If there is none and first is set, it lets a new one in and returns the cookie for
// them. ErrClosed: the house is not open.
func (s *Service) Enter(cookie string, from netip.Addr, first bool) (who access.Principal, set string, err error) {
	now := s.opt.Now()
	hash := sha256.Sum256([]byte(cookie))
	s.mu.Lock()
	if !s.settings.Open {
		s.mu.Unlock()
		return who, "", ErrClosed
	}
	if v := s.byCookie[hash]; v != nil {
		v.from, v.seen = from, now
		s.mu.Unlock()
		return v.who, "", nil
	}
	if !first {
		s.mu.Unlock()
		return who, "", ErrUnknown
	}
	out, err := s.makeRoom(from, now)
	if err == nil {
		set = rand.Text()
		v := &visitor{who: access.Visitor(), cookie: sha256.Sum256([]byte(set)), from: from, seen: now}
		v.ctx, v.end = context.WithCancelCause(context.Background())
		s.byCookie[v.cookie], s.byID[v.who.Owner] = v, v
		who = v.who
	}
	s.mu.Unlock()
	s.tell(out)
	return who, set, err
}

// makeRoom ends visitors until another one from an address fits: of that address the one of whom nothing was heard for longest, and
// of all only one who is replaceable. The caller has mu.
func (s *Service) makeRoom(from netip.Addr, now time.Time) (out []*visitor, err error) {
	var oldest, oldestFrom *visitor
	same := 0
	for _, v := range s.byID {
		if v.from == from {
			same++
		}
		if v.open > 0 {
			continue
		}
		if oldest == nil || v.seen.Before(oldest.seen) {
			oldest = v
		}
		if v.from == from && (oldestFrom == nil || v.seen.Before(oldestFrom.seen)) {
			oldestFrom = v
		}
	}
	switch {
	case same >= maxFrom && oldestFrom != nil:
		return []*visitor{s.remove(oldestFrom, ErrUnknown)}, nil
	case same >= maxFrom:
		return nil, &fault.Error{Code: fault.CodeTooManyVisitors, RetryAfter: 60, Message: fmt.Sprintf("%d browsers at your address have this page open already; close one of them", same)}
	case len(s.byID) < maxVisitors:
		return nil, nil
	case oldest != nil && now.Sub(oldest.seen) >= replaceable:
		return []*visitor{s.remove(oldest, ErrUnknown)}, nil
	}
	return nil, &fault.Error{Code: fault.CodeTooManyVisitors, RetryAfter: 600, Message: fmt.Sprintf("%d visitors are here, and more do not fit; try again later, or log in with a code", len(s.byID))}
}

// Watch returns a context for a request of a visitor, which is cancelled when the visitor ends. The caller calls done when the
// request has ended.
func (s *Service) Watch(ctx context.Context, id string) (watched context.Context, done func()) {
	watched, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byID[id]
	if v == nil { // between Enter and this call
		cancel(ErrClosed)
		return watched, func() {}
	}
	v.open++
	stop := context.AfterFunc(v.ctx, func() { cancel(context.Cause(v.ctx)) })
	return watched, func() {
		stop()
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		v.open--
		v.seen = s.opt.Now()
	}
}

// checkEvery is how often visitors are looked for who have left.
const checkEvery = time.Minute

// Run ends visitors of whom nothing was heard for long, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.endIdle()
		case <-ctx.Done():
			return
		}
	}
}

func (s *Service) endIdle() {
	now := s.opt.Now()
	s.mu.Lock()
	var out []*visitor
	for _, v := range s.byID {
		if v.open == 0 && now.Sub(v.seen) >= idle {
			out = append(out, s.remove(v, ErrUnknown))
		}
	}
	s.mu.Unlock()
	s.tell(out)
}

// of returns the address of a visitor and the limits; false if there is no such visitor.
func (s *Service) of(id string) (from string, l quota.Limits, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byID[id]
	if v == nil {
		return "", l, false
	}
	return v.from.String(), s.settings.limits(), true
}

// Left says what a visitor may still use today.
func (s *Service) Left(ctx context.Context, who access.Principal) string {
	from, l, ok := s.of(who.Owner)
	if !ok {
		return ""
	}
	return s.used.Left(from, l).Text(ctx)
}

// Limited returns a function like generate that generates no more answers of visitors than their limits allow. The request's Client
// is the id of the visitor; others have no limit here.
func (s *Service) Limited(generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]) func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
	return func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		if !access.IsVisitor(r.Client) {
			return generate(ctx, r)
		}
		return func(yield func(infer.Event, error) bool) {
			from, release, err := s.acquire(ctx, r.Client)
			if err != nil {
				yield(infer.Event{}, err)
				return
			}
			defer release()
			quota.Limited(generate(ctx, r), func() error { return s.begin(from) }, func() error { return s.token(from) })(yield)
		}
	}
}

// Picture counts a picture of so many bytes that a visitor uploads, and returns an error beyond the limits of a day. Others have
// no limit here.
func (s *Service) Picture(who access.Principal, bytes int) error {
	if !access.IsVisitor(who.Owner) {
		return nil
	}
	from, _, ok := s.of(who.Owner)
	if !ok {
		return ErrUnknown
	}
	if err := s.used.Picture(from, quota.Yours, bytes, quota.Limits{Pictures: dayPictures}); err != nil {
		return err
	}
	return s.all.Picture("", quota.OfVisitors, bytes, quota.Limits{Pictures: allPictures})
}

// acquire waits until another answer of a visitor's address may be generated, and returns the address.
func (s *Service) acquire(ctx context.Context, id string) (from string, release func(), err error) {
	for {
		from, _, ok := s.of(id)
		if !ok {
			return "", nil, ErrUnknown
		}
		freed, ok := s.slots.Take(from, atOnce)
		if ok {
			activity.AtLimit(ctx, 0)
			return from, func() { s.slots.Release(from) }, nil
		}
		activity.AtLimit(ctx, atOnce)
		select {
		case <-freed:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
}

// begin counts an answer of an address, and of all visitors.
func (s *Service) begin(from string) error {
	l := s.Settings().limits()
	if err := s.used.Begin(from, quota.Yours, l); err != nil {
		return err
	}
	return s.all.Begin("", quota.OfVisitors, l.Times(together))
}

// token counts a token of an answer.
func (s *Service) token(from string) error {
	l := s.Settings().limits()
	if err := s.used.Token(from, quota.Yours, l); err != nil {
		return err
	}
	return s.all.Token("", quota.OfVisitors, l.Times(together))
}
