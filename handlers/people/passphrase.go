package people

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"m40-llm/handlers/access"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Errors of passphrases.
var (
	// ErrWrongLogin does not say which of both is wrong, so that nobody learns the names of people.
	ErrWrongLogin      = fault.New(fault.CodeInvalidLogin, "the name or the passphrase is wrong")
	ErrWrongPassphrase = &fault.Error{Code: fault.CodeWrongPassphrase, Param: "old", Message: "nothing was changed: the present passphrase is another one"}
)

// The length of passphrases, in characters. There is no upper limit that people would notice.
const (
	MinPassphrase = 12
	maxPassphrase = 1024
)

// standardCost makes a hash take about 0.3 s on a small machine, and 63 MB while it is computed.
var standardCost = argon2id.Params{Memory: 60 << 10, Iterations: 4, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// How many hashes are computed at once, how many more may wait for that, and for how long.
const (
	maxHashes   = 2
	maxWaiting  = 16
	hashTimeout = 10 * time.Second
	busyWait    = 5 * time.Second // what those are told to wait that find too many waiting
)

// passphrases computes and compares hashes of passphrases. It bounds the processors and memory that
// logins take.
type passphrases struct {
	cost     argon2id.Params
	decoy    string        // a hash that no passphrase has, to compare with where there is none
	running  chan struct{} // holds an element for each hash that is being computed
	inside   atomic.Int32  // those that compute a hash or wait for it
	computed atomic.Int64  // hashes so far

	change sync.Mutex // held while a passphrase is replaced, or while a device is added because of one
}

func newPassphrases(cost argon2id.Params) *passphrases {
	random := func(n uint32) string {
		b := make([]byte, n)
		_, _ = rand.Read(b) // never fails
		return base64.RawStdEncoding.EncodeToString(b)
	}
	return &passphrases{
		cost: cost,
		decoy: fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
			cost.Memory, cost.Iterations, cost.Parallelism, random(cost.SaltLength), random(cost.KeyLength)),
		running: make(chan struct{}, maxHashes),
	}
}

// begin waits until another hash may be computed. The caller calls end when it has been. The error
// is a *TooManyError if too many wait.
func (p *passphrases) begin(ctx context.Context) (end func(), err error) {
	if p.inside.Add(1) > maxHashes+maxWaiting {
		p.inside.Add(-1)
		return nil, &TooManyError{busyWait, true}
	}
	timeout := time.NewTimer(hashTimeout)
	defer timeout.Stop()
	select {
	case p.running <- struct{}{}:
		return func() { <-p.running; p.inside.Add(-1) }, nil
	case <-timeout.C:
		err = &TooManyError{busyWait, true}
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.inside.Add(-1)
	return nil, err
}

// hash returns the hash of a passphrase.
func (p *passphrases) hash(passphrase string) (string, error) {
	p.computed.Add(1)
	return argon2id.CreateHash(normalized(passphrase), &p.cost)
}

// match reports whether a passphrase has this hash. It takes as long if the hash is empty.
func (p *passphrases) match(passphrase, hash string) (bool, error) {
	if hash == "" {
		hash = p.decoy
	}
	p.computed.Add(1)
	return argon2id.ComparePasswordAndHash(normalized(passphrase), hash)
}

// normalized returns one form of texts that look the same: keyboards differ in what they type for é.
func normalized(passphrase string) string { return norm.NFC.String(passphrase) }

// CheckPassphrase returns an *InvalidError if a passphrase is too short to be chosen.
func CheckPassphrase(passphrase string) error {
	n := utf8.RuneCountInString(normalized(passphrase))
	switch {
	case !utf8.ValidString(passphrase) || strings.ContainsAny(passphrase, "\n\r\x00"):
		return fault.Invalid("passphrase", "the passphrase must be one line of text")
	case n < MinPassphrase:
		return fault.Invalid("passphrase", "the passphrase has %d characters and needs at least %d; four or five words that only you put together are easy to remember", n, MinPassphrase)
	case n > maxPassphrase:
		return fault.Invalid("passphrase", "the passphrase has %d characters and may have %d", n, maxPassphrase)
	}
	return nil
}

// HashPassphrase returns the hash that the store has of a passphrase.
func HashPassphrase(passphrase string) (string, error) {
	if err := CheckPassphrase(passphrase); err != nil {
		return "", err
	}
	return newPassphrases(standardCost).hash(passphrase)
}

// HasPassphrases reports whether anybody can log in with a passphrase.
func (s *Service) HasPassphrases(ctx context.Context) (bool, error) {
	return s.opt.Store.HasPassphrases(ctx)
}

// EnterByName logs a device in with the name and the passphrase of a person, and returns the value
// of its login cookie. Without a name it is the owner's. Errors are ErrWrongLogin and *TooManyError.
func (s *Service) EnterByName(ctx context.Context, name, passphrase string, client Client) (cookie string, err error) {
	p, hash, err := s.passphraseOf(ctx, name)
	if err != nil {
		return "", err
	}
	right, err := s.check(ctx, passphrase, hash, client)
	if err != nil {
		return "", err
	}
	if !right {
		return "", ErrWrongLogin
	}
	s.passphrases.change.Lock()
	defer s.passphrases.change.Unlock()
	now, err := s.opt.Store.Passphrase(ctx, p.ID)
	if err != nil {
		return "", gone(err)
	}
	if now != hash { // it has been changed meanwhile
		return "", ErrWrongLogin
	}
	return s.addDevice(ctx, store.Device{Person: p.ID}, client)
}

// passphraseOf returns the person with a name and the hash of their passphrase; both are empty if
// there is no such person.
func (s *Service) passphraseOf(ctx context.Context, name string) (p store.Person, hash string, err error) {
	if strings.TrimSpace(name) == "" {
		p, err = s.opt.Store.Person(ctx, store.OwnerID)
	} else {
		p, err = s.opt.Store.PersonNamed(ctx, name)
	}
	missing := errors.Is(err, store.ErrNotFound)
	if err != nil && !missing {
		return store.Person{}, "", err
	}
	hash, err = s.opt.Store.Passphrase(ctx, p.ID) // for unknown names too, so that the time does not reveal them
	if missing && errors.Is(err, store.ErrNotFound) {
		return store.Person{}, "", nil
	}
	return p, hash, err
}

// check reports whether a passphrase has this hash, within the limits of guesses and of hashes that
// are computed at once.
func (s *Service) check(ctx context.Context, passphrase, hash string, client Client) (right bool, err error) {
	from := s.networks.of(client.Addr, s.opt.Now())
	if wait := s.guesses.wait(from, s.opt.Now()); wait > 0 { // before waiting for nothing
		return false, &TooManyError{wait, true}
	}
	end, err := s.passphrases.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	if wait := s.guesses.take(from, s.opt.Now()); wait > 0 {
		return false, &TooManyError{wait, true}
	}
	return s.passphrases.match(passphrase, hash)
}

// PassphraseChange replaces the passphrase of a person.
type PassphraseChange struct {
	Old    string // the present one; needed if who changes it is the person and has one
	New    string // empty: it is removed
	LogOut bool   // also log out the person's other devices
	By     Credential
	Client Client
}

// ChangePassphrase sets, changes or removes a passphrase. A person changes their own one; the owner
// of the server can remove those of others. Errors are ErrWrongPassphrase, *InvalidError and
// *TooManyError.
func (s *Service) ChangePassphrase(ctx context.Context, who access.Principal, person string, change PassphraseChange) error {
	action, own := access.ActionChange, who.Owner == person
	if !own && change.New == "" {
		action = access.ActionManage
	}
	if err := access.Authorize(who, action, access.Object{Kind: access.KindPassphrase, Owner: person}); err != nil {
		return err
	}
	if change.New != "" {
		if err := CheckPassphrase(change.New); err != nil {
			return err
		}
	}
	old, err := s.opt.Store.Passphrase(ctx, person)
	if err != nil {
		return gone(err)
	}
	if own && old != "" {
		right, err := s.check(ctx, change.Old, old, change.Client)
		if err != nil {
			return err
		}
		if !right {
			return ErrWrongPassphrase
		}
	}
	hash := ""
	if change.New != "" {
		if hash, err = s.newHash(ctx, change.New); err != nil {
			return err
		}
	}
	return s.setPassphrase(ctx, person, hash, change)
}

// newHash returns the hash of a passphrase that is to be set.
func (s *Service) newHash(ctx context.Context, passphrase string) (string, error) {
	end, err := s.passphrases.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	return s.passphrases.hash(passphrase)
}

// setPassphrase stores a hash, and ends what the change is to end.
func (s *Service) setPassphrase(ctx context.Context, person, hash string, change PassphraseChange) error {
	s.passphrases.change.Lock()
	defer s.passphrases.change.Unlock()
	if !change.LogOut {
		return gone(s.opt.Store.SetPassphrase(ctx, person, hash))
	}
	keep := int64(0)
	if change.By.Person == person {
		keep = change.By.Device
	}
	removed, err := s.opt.Store.SetPassphraseAndLogOut(ctx, person, hash, keep)
	if err != nil {
		return gone(err)
	}
	s.invited.forget(person)
	for _, id := range removed {
		s.end(Credential{Person: person, Device: id})
	}
	return nil
}
