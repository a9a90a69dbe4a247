// Package people authenticates requests: it knows the people of a server, their devices and API
// keys, and how a new device logs in. It knows no HTTP.
//
// Secrets are stored as hashes only. Cookies, API keys and login links have at least 128 random
// bits, so SHA-256 suffices. Passphrases are hashed with argon2id. The codes that people type are
// short: they are kept in memory for five minutes and log in one device. The number of codes and
// passphrases that can be tried is limited, see guesses.
package people

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/quota"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Store stores people: *store.Store.
type Store interface {
	People(ctx context.Context) ([]store.Person, error)
	Person(ctx context.Context, id string) (store.Person, error)
	PersonNamed(ctx context.Context, name string) (store.Person, error)
	AddPerson(ctx context.Context, name string) (store.Person, error)
	RenamePerson(ctx context.Context, id, name string) error
	HasPassphrases(ctx context.Context) (bool, error)
	Passphrase(ctx context.Context, id string) (hash string, err error)
	SetPassphrase(ctx context.Context, id, hash string) error
	SetPassphraseAndLogOut(ctx context.Context, id, hash string, keep int64) (removed []int64, err error)
	LimitPerson(ctx context.Context, id string, l store.PersonLimits) error
	ErasePerson(ctx context.Context, id string) error
	AddDevice(ctx context.Context, d store.Device, token store.TokenHash) (store.Device, error)
	DeviceWith(ctx context.Context, token store.TokenHash) (store.Device, store.Person, error)
	Devices(ctx context.Context, person string) ([]store.Device, error)
	RemoveDevice(ctx context.Context, person string, id int64) error
	RemoveDevicesUnseen(ctx context.Context, seen, created time.Time) error
	AddKey(ctx context.Context, person, name string, token store.TokenHash) (store.Key, error)
	KeyWith(ctx context.Context, token store.TokenHash) (store.Key, store.Person, error)
	Keys(ctx context.Context, person string) ([]store.Key, error)
	RemoveKey(ctx context.Context, person string, id int64) error
	Seen(ctx context.Context, devices, keys map[int64]time.Time) error
	Setting(ctx context.Context, owner, name string) (json.RawMessage, error)
	SetSetting(ctx context.Context, owner, name string, value json.RawMessage) error
}

// Options are the settings of a Service. Store must be set.
type Options struct {
	Store    Store
	OwnerKey string           // API key of the owner that is not stored; empty: there is none
	Now      func() time.Time // default time.Now
	Log      *slog.Logger     // default: nothing is logged
}

// Service manages the people of a server. It is safe for concurrent use.
type Service struct {
	opt    Options
	cookie string
	key    store.TokenHash // of the owner's key

	networks    networks
	wrongKeys   attempts
	guesses     guesses
	passphrases *passphrases
	devicesSeen lastSeen
	keysSeen    lastSeen

	mu       sync.Mutex
	watchers map[Credential]map[*watcher]bool
	revoked  map[Credential]bool // since the server started, as in end
	invited  invitations
	slots    quota.Slots
	used     *quota.Counts // by person
}

// Credential identifies the device or API key that authenticated a request. The zero value is none:
// the request came from this machine.
type Credential struct {
	Person string
	Device int64 // 0: not a device
	Key    int64 // 0: not a stored API key
}

// Known is the sender of an authenticated request.
type Known struct {
	Principal  access.Principal
	Credential Credential
	KeyName    string // of the stored API key; empty: none
	Renew      bool   // the cookie should be sent again, so that the browser keeps it for longer
}

// Errors of failed authentication.
var (
	ErrNotLoggedIn = fault.New(fault.CodeNotLoggedIn, "this device is not logged in, or was logged out")
	ErrWrongKey    = fault.New(fault.CodeInvalidKey, "the API key is wrong")
	ErrWrongSecret = fault.New(fault.CodeInvalidKey, "this is neither a code that is valid now nor an API key")
	ErrRevoked     = fault.New(fault.CodeNotLoggedIn, "the device or API key was revoked")
)

// TooManyError is returned after too many tries of secrets.
type TooManyError struct {
	Wait      time.Duration
	Unchecked bool // the secret was not looked at, and may be right
}

func (e *TooManyError) Error() string {
	if e.Unchecked {
		return fmt.Sprintf("too many codes and passphrases are being tried; wait %d seconds before the next try", e.Seconds())
	}
	return fmt.Sprintf("that is wrong, as were too many tries before it; wait %d seconds before the next one", e.Seconds())
}

func (e *TooManyError) Unwrap() error {
	return &fault.Error{Code: fault.CodeTooManyAttempts, Message: e.Error(), RetryAfter: e.Seconds()}
}

// Seconds returns the wait in seconds, rounded up.
func (e *TooManyError) Seconds() int { return int(math.Ceil(e.Wait.Seconds())) }

// How long a device stays logged in: since it was last seen, and since it logged in.
const (
	DeviceIdle = 30 * 24 * time.Hour
	deviceLife = 90 * 24 * time.Hour
	renewAfter = 24 * time.Hour
)

// New returns a Service for the people of a store, and removes devices whose login has expired.
func New(ctx context.Context, opt Options) (*Service, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{opt: opt, key: hashOf(opt.OwnerKey), watchers: map[Credential]map[*watcher]bool{}, revoked: map[Credential]bool{}}
	s.used = quota.NewCounts(opt.Now, maxCounted)
	s.invited.byPerson = map[string]invitation{}
	s.passphrases = newPassphrases(standardCost)
	var err error
	if s.cookie, err = cookieName(ctx, opt.Store); err != nil {
		return nil, err
	}
	if err := s.loadUsed(ctx); err != nil {
		return nil, err
	}
	now := opt.Now()
	return s, opt.Store.RemoveDevicesUnseen(ctx, now.Add(-DeviceIdle), now.Add(-deviceLife))
}

// cookieName returns the name of the login cookie. It is random and stored, because browsers send
// the cookies of one server to all servers on the same machine.
func cookieName(ctx context.Context, db Store) (name string, err error) {
	const setting = "session_cookie"
	value, err := db.Setting(ctx, store.OwnerID, setting)
	if err == nil {
		err = json.Unmarshal(value, &name)
	}
	if errors.Is(err, store.ErrNotFound) {
		name = "m40_" + strings.ToLower(rand.Text()[:8])
		value, _ = json.Marshal(name) // it is a text
		err = db.SetSetting(ctx, store.OwnerID, setting, value)
	}
	return name, err
}

// Cookie returns the name of the login cookie.
func (s *Service) Cookie() string { return s.cookie }

// HasOwnerKey reports whether Options.OwnerKey is set.
func (s *Service) HasOwnerKey() bool { return s.opt.OwnerKey != "" }

func hashOf(secret string) store.TokenHash { return sha256.Sum256([]byte(secret)) }

// opens reports whether key is Options.OwnerKey. It compares digests, so the time it takes reveals
// nothing about the key.
func (s *Service) opens(key string) bool {
	digest := hashOf(key)
	return s.HasOwnerKey() && subtle.ConstantTimeCompare(digest[:], s.key[:]) == 1
}

// ByDevice returns the person whose device has this cookie, or ErrNotLoggedIn.
func (s *Service) ByDevice(ctx context.Context, cookie string) (Known, error) {
	d, p, err := s.opt.Store.DeviceWith(ctx, hashOf(cookie))
	if errors.Is(err, store.ErrNotFound) {
		return Known{}, ErrNotLoggedIn
	}
	if err != nil {
		return Known{}, err
	}
	now := s.opt.Now()
	seen := s.devicesSeen.at(d.ID, d.Seen)
	byKey := d.KeyHash == nil || s.HasOwnerKey() && subtle.ConstantTimeCompare(d.KeyHash, s.key[:]) == 1
	if !byKey || now.Sub(seen) >= DeviceIdle || now.Sub(d.Created) >= deviceLife {
		return Known{}, ErrNotLoggedIn
	}
	s.devicesSeen.note(d.ID, now)
	return Known{Principal: access.Of(p), Credential: Credential{Person: p.ID, Device: d.ID}, Renew: now.Sub(d.Seen) >= renewAfter}, nil
}

// ByKey returns the person with this API key. For a wrong key it returns ErrWrongKey, and after too
// many of them from one network a *TooManyError; a right key is always accepted.
func (s *Service) ByKey(ctx context.Context, key string, client Client) (Known, error) {
	if s.opens(key) {
		return Known{Principal: access.Local, Credential: Credential{Person: store.OwnerID}}, nil
	}
	k, p, err := s.opt.Store.KeyWith(ctx, hashOf(key))
	if errors.Is(err, store.ErrNotFound) {
		return Known{}, s.wrongKey(key, client)
	}
	if err != nil {
		return Known{}, err
	}
	s.keysSeen.note(k.ID, s.opt.Now())
	return Known{Principal: access.Of(p), Credential: Credential{Person: p.ID, Key: k.ID}, KeyName: k.Name}, nil
}

// Enter logs a device in with the owner's key or an invitation, and returns the value of its login
// cookie. Errors are ErrWrongSecret, ErrWrongCode and *TooManyError.
func (s *Service) Enter(ctx context.Context, secret string, client Client) (cookie string, err error) {
	if s.opens(secret) {
		return s.addDevice(ctx, store.Device{Person: store.OwnerID, KeyHash: s.key[:]}, client)
	}
	now := s.opt.Now()
	person, ok := s.invited.byLink(secret, now)
	if code, isCode := asCode(secret); !ok && isCode {
		if wait := s.guesses.take(s.networks.of(client.Addr, now), now); wait > 0 {
			return "", &TooManyError{wait, true}
		}
		if person, ok = s.invited.byCode(code, now); !ok {
			return "", ErrWrongCode
		}
	}
	if !ok {
		err := s.wrongKey(secret, client)
		if err == ErrWrongKey { // it may have been meant as a code
			err = ErrWrongSecret
		}
		return "", err
	}
	return s.addDevice(ctx, store.Device{Person: person}, client)
}

// wrongKey records that a client sent a wrong key, and returns the error for it.
func (s *Service) wrongKey(key string, client Client) error {
	now := s.opt.Now()
	if wait := s.wrongKeys.record(s.networks.of(client.Addr, now), key, now); wait > 0 {
		return &TooManyError{Wait: wait}
	}
	return ErrWrongKey
}

// addDevice stores a device that has logged in, and returns the value of its cookie.
func (s *Service) addDevice(ctx context.Context, d store.Device, client Client) (cookie string, err error) {
	d.Label = client.label()
	cookie = rand.Text()
	_, err = s.opt.Store.AddDevice(ctx, d, hashOf(cookie))
	return cookie, err
}
