package people

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/alexedwards/argon2id"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newService(t testing.TB, key string) (*Service, *clock) {
	t.Helper()
	c := &clock{time.UnixMilli(1_800_000_000_000)}
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := New(t.Context(), Options{Store: db, OwnerKey: key, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	s.passphrases = newPassphrases(argon2id.Params{Memory: 8, Iterations: 1, Parallelism: 1, SaltLength: 16, KeyLength: 32}) // fast
	return s, c
}

var phone = Client{Addr: netip.MustParseAddr("192.168.1.20"), UserAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Version/19.0 Mobile/15E148 Safari/604.1"}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestInvite_LetsOneDeviceInOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		secret func(Invitation) string
		after  time.Duration
		in     bool
	}{
		{"the code as it is shown", func(i Invitation) string { return i.Code }, 0, true},
		{"the code as people write it", func(i Invitation) string { return " " + i.Code[:4] + i.Code[5:] + " " }, 0, true},
		{"the link", func(i Invitation) string { return i.Link }, 0, true},
		{"just before it ends", func(i Invitation) string { return i.Code }, InvitationLife - time.Second, true},
		{"the code when it has ended", func(i Invitation) string { return i.Code }, InvitationLife, false},
		{"the link when it has ended", func(i Invitation) string { return i.Link }, InvitationLife, false},
		{"another code", func(Invitation) string { return "0000-0000" }, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, now := newService(t, "")
			anna := must[store.Person](t)(s.Add(t.Context(), access.Local, "Anna"))
			made := must[Invitation](t)(s.Invite(t.Context(), access.Local, anna.ID))
			now.now = now.now.Add(tc.after)
			cookie, err := s.Enter(t.Context(), tc.secret(made), phone)
			if (err == nil) != tc.in {
				t.Fatalf("got %v", err)
			}
			if !tc.in {
				return
			}
			known := must[Known](t)(s.ByDevice(t.Context(), cookie))
			if known.Principal != (access.Principal{Owner: anna.ID}) || known.Credential.Device == 0 {
				t.Errorf("the device is known as %+v", known)
			}
			for _, secret := range []string{made.Code, made.Link} {
				if _, err := s.Enter(t.Context(), secret, phone); err == nil {
					t.Errorf("%s worked again", secret)
				}
			}
			account := must[Account](t)(s.Account(t.Context(), access.Local, anna.ID))
			if len(account.Devices) != 1 || account.Devices[0].Label != "Safari on iPhone" {
				t.Errorf("the devices are %+v", account.Devices)
			}
		})
	}
}

// Nobody guesses a code or a passphrase, however many addresses they have, and nobody is locked out
// by that: who has an address of their own has 3 tries at any time. The attack lasts 100 seconds.
func TestEnter_TenThousandWrongTries(t *testing.T) {
	for _, tc := range []struct {
		name      string
		addresses int
		most      int // tries that are looked at
	}{
		{"from one address", 1, guessBurst + 100/12 + 1},
		{"from five addresses", 5, 5 * (guessBurst + 100/12 + 1)},
		{"from a thousand addresses", 1000, allGuessBurst + 50 + 1000*reservedBurst},
	} {
		for what, attack := range map[string]func(*Service, Client) error{
			"codes": func(s *Service, from Client) error { return second(s.Enter(t.Context(), newCode(), from)) },
			"passphrases": func(s *Service, from Client) error {
				return second(s.EnterByName(t.Context(), "Owner", newCode()+" is wrong", from))
			},
		} {
			t.Run(what+" "+tc.name, func(t *testing.T) {
				s, now := newService(t, "")
				setPassphrase(t, s, store.OwnerID, "the right passphrase")
				made := must[Invitation](t)(s.Invite(t.Context(), access.Local, store.OwnerID))
				hashes := s.passphrases.computed.Load()
				looked := 0
				for i := range 10_000 {
					if i%100 == 0 {
						now.now = now.now.Add(time.Second)
					}
					err := attack(s, Client{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i % tc.addresses >> 8), byte(i % tc.addresses)})})
					_, tooMany := errors.AsType[*TooManyError](err)
					switch {
					case err == nil:
						t.Fatal("a wrong try was right")
					case !tooMany:
						looked++
					}
				}
				if looked > tc.most || looked < guessBurst {
					t.Errorf("%d tries were looked at in 100 seconds, want at most %d", looked, tc.most)
				}
				if computed := s.passphrases.computed.Load() - hashes; computed > int64(looked) || what == "passphrases" && computed == 0 {
					t.Errorf("%d hashes were computed for %d tries", computed, looked)
				}
				if _, err := s.EnterByName(t.Context(), "owner", "the right passphrase, mistyped", phone); !errors.Is(err, ErrWrongLogin) {
					t.Errorf("who mistypes the passphrase got %v", err)
				}
				if _, err := s.EnterByName(t.Context(), "owner", "the right passphrase", phone); err != nil {
					t.Errorf("who has the passphrase got %v", err)
				}
				if _, err := s.Enter(t.Context(), made.Code, phone); err != nil {
					t.Errorf("who has the code got %v", err)
				}
			})
		}
	}
}

// More addresses than are counted one by one can lock out new devices that log in with a code or a
// passphrase, but not who has a link, a key or a device; and the number of tries stays bounded.
func TestEnter_MoreAddressesThanAreCounted(t *testing.T) {
	s, now := newService(t, "")
	setPassphrase(t, s, store.OwnerID, "the right passphrase")
	made := must[Invitation](t)(s.Invite(t.Context(), access.Local, store.OwnerID))
	looked := 0
	for i := range 10_000 {
		_, err := s.Enter(t.Context(), "0000-0000", Client{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
		if errors.Is(err, ErrWrongCode) {
			looked++
		}
	}
	if most := allGuessBurst + maxReserved; looked != most {
		t.Errorf("%d codes were looked at, want %d", looked, most)
	}
	locked, _ := errors.AsType[*TooManyError](second(s.EnterByName(t.Context(), "", "the right passphrase", phone)))
	if locked == nil || !locked.Unchecked {
		t.Errorf("who has the passphrase got %v", locked)
	}
	if _, err := s.Enter(t.Context(), made.Link, phone); err != nil {
		t.Errorf("who has the link got %v", err)
	}
	now.now = now.now.Add(locked.Wait)
	if _, err := s.EnterByName(t.Context(), "", "the right passphrase", phone); err != nil {
		t.Errorf("%v after the attack who has the passphrase got %v", locked.Wait, err)
	}
	now.now = now.now.Add(reservedEvery * reservedBurst)
	if s.guesses.reservedFor(netip.MustParsePrefix("192.0.2.1/32"), now.now) == nil || len(s.guesses.reserved) != 1 {
		t.Errorf("%d networks are still remembered", len(s.guesses.reserved))
	}
}

func TestByDevice_EndsWithIdleness(t *testing.T) {
	s, now := newService(t, "a key of the owner")
	cookie := must[string](t)(s.Enter(t.Context(), "a key of the owner", phone))
	for _, step := range []struct {
		after time.Duration
		in    bool
	}{{0, true}, {DeviceIdle - time.Second, true}, {DeviceIdle - time.Second, true}, {DeviceIdle - time.Second, true}, {24 * time.Hour, false}} {
		now.now = now.now.Add(step.after)
		if _, err := s.ByDevice(t.Context(), cookie); (err == nil) != step.in {
			t.Errorf("after another %v got %v", step.after, err)
		}
	}
}

func TestRevoke_EndsRequestsAtOnce(t *testing.T) {
	s, _ := newService(t, "")
	ctx := t.Context()
	anna := must[store.Person](t)(s.Add(ctx, access.Local, "Anna"))
	enter := func() Known {
		made := must[Invitation](t)(s.Invite(ctx, access.Local, anna.ID))
		return must[Known](t)(s.ByDevice(ctx, must[string](t)(s.Enter(ctx, made.Link, phone))))
	}
	phone, laptop := enter(), enter()
	key := must[string](t)(s.CreateKey(ctx, access.Local, anna.ID, "script"))
	byKey := must[Known](t)(s.ByKey(ctx, key, Client{}))
	requests := map[string]context.Context{}
	for name, known := range map[string]Known{"phone": phone, "laptop": laptop, "script": byKey} {
		watched, done := s.Watch(ctx, known.Credential)
		defer done()
		requests[name] = watched
	}
	expect := func(when string, ended ...string) {
		t.Helper()
		for name, request := range requests {
			want := error(nil)
			for _, e := range ended {
				if e == name {
					want = ErrRevoked
				}
			}
			if got := context.Cause(request); got != want {
				t.Errorf("%s, the request of the %s has ended with %v, want %v", when, name, got, want)
			}
		}
	}
	if err := s.RevokeDevice(ctx, phone.Principal, anna.ID, phone.Credential.Device); err != nil {
		t.Fatal(err)
	}
	expect("when the phone is revoked", "phone")
	if err := s.RevokeKey(ctx, phone.Principal, anna.ID, byKey.Credential.Key); err != nil {
		t.Fatal(err)
	}
	expect("when the key is revoked too", "phone", "script")
	if _, err := s.ByKey(ctx, key, Client{}); !errors.Is(err, ErrWrongKey) {
		t.Errorf("the revoked key: %v", err)
	}
	for i, secret := range []string{"1234", "a text that is longer than any code", key} { // who logs in may have meant a code
		from := Client{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
		if _, err := s.Enter(ctx, secret, from); !errors.Is(err, ErrWrongSecret) {
			t.Errorf("with %q one logs in with %v", secret, err)
		}
	}
	if err := s.Remove(ctx, access.Local, anna.ID, "Anna"); err != nil {
		t.Fatal(err)
	}
	expect("when the person is removed", "phone", "script", "laptop")
	for name, known := range map[string]Known{"phone": phone, "laptop": laptop, "script": byKey} {
		late, done := s.Watch(ctx, known.Credential) // it was let in just before
		defer done()
		if got := context.Cause(late); got != ErrRevoked {
			t.Errorf("a request of the %s that is let in while it is revoked goes on: %v", name, got)
		}
	}
}

// People manage their own devices and keys, and the owner those of all.
func TestManage_IsForWhoMay(t *testing.T) {
	s, _ := newService(t, "")
	ctx := t.Context()
	anna := must[store.Person](t)(s.Add(ctx, access.Local, "Anna"))
	ben := must[store.Person](t)(s.Add(ctx, access.Local, "Ben"))
	made := must[Invitation](t)(s.Invite(ctx, access.Local, anna.ID))
	known := must[Known](t)(s.ByDevice(ctx, must[string](t)(s.Enter(ctx, made.Link, phone))))
	for who, principal := range map[string]access.Principal{"another person": access.Of(ben), "nobody": {}} {
		for name, err := range map[string]error{
			"list":   second(s.People(ctx, principal)),
			"read":   second(s.Account(ctx, principal, anna.ID)),
			"add":    second(s.Add(ctx, principal, "Carl")),
			"invite": second(s.Invite(ctx, principal, anna.ID)),
			"limit":  s.Limit(ctx, principal, anna.ID, store.PersonLimits{AtOnce: 1}),
			"rename": s.Rename(ctx, principal, anna.ID, "Carl"),
			"change": s.ChangePassphrase(ctx, principal, anna.ID, PassphraseChange{New: "carl was here before"}),
			"unset":  s.ChangePassphrase(ctx, principal, anna.ID, PassphraseChange{}),
			"revoke": s.RevokeDevice(ctx, principal, anna.ID, known.Credential.Device),
			"key":    second(s.CreateKey(ctx, principal, anna.ID, "x")),
			"no key": s.RevokeKey(ctx, principal, anna.ID, 1),
			"remove": s.Remove(ctx, principal, anna.ID, "Anna"),
		} {
			if !errors.Is(err, access.ErrDenied) {
				t.Errorf("%s by %s: %v", name, who, err)
			}
		}
	}
	if err := s.Limit(ctx, access.Of(anna), anna.ID, store.PersonLimits{AtOnce: 9}); !errors.Is(err, access.ErrDenied) {
		t.Errorf("a person sets their own limit: %v", err)
	}
	if _, err := s.CreateKey(ctx, access.Of(anna), anna.ID, "mine"); err != nil {
		t.Errorf("a person makes a key of their own: %v", err)
	}
	if err := s.ChangePassphrase(ctx, access.Local, anna.ID, PassphraseChange{New: "the owner was here"}); !errors.Is(err, access.ErrDenied) {
		t.Errorf("the owner sets the passphrase of a person: %v", err)
	}
	for _, who := range []access.Principal{access.Of(anna), access.Local} {
		if err := s.Rename(ctx, who, anna.ID, "Anna B."); err != nil {
			t.Errorf("a person is renamed by %+v: %v", who, err)
		}
	}
	if err := s.Rename(ctx, access.Local, store.OwnerID, "Olga"); err != nil {
		t.Errorf("the owner is renamed: %v", err)
	}
	if invalid, _ := errors.AsType[*fault.Error](s.Rename(ctx, access.Local, anna.ID, "  ")); invalid == nil || invalid.Code != fault.CodeInvalid || invalid.Param != "name" {
		t.Errorf("an empty name: %v", invalid)
	}
	for name, err := range map[string]error{
		"a name of another":            s.Rename(ctx, access.Of(ben), ben.ID, "ANNA B."),
		"a name that is taken":         second(s.Add(ctx, access.Local, "ANNA B.")),
		"a person who is not there":    second(s.Account(ctx, access.Local, "nobody")),
		"a device that is not there":   s.RevokeDevice(ctx, access.Local, anna.ID, 99),
		"a device of somebody else":    s.RevokeDevice(ctx, access.Of(ben), ben.ID, known.Credential.Device),
		"the owner, who is not erased": s.Remove(ctx, access.Local, store.OwnerID, "Olga"),
	} {
		if !errors.Is(err, ErrNoPerson) && !errors.Is(err, ErrNameTaken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A person with a limit has so many answers written at once, and the rest wait; nobody else does.
func TestLimited_AnswersAboveTheLimitWaitForOneOfTheirOwn(t *testing.T) {
	s, _ := newService(t, "")
	ctx := t.Context()
	anna := must[store.Person](t)(s.Add(ctx, access.Local, "Anna"))
	if err := s.Limit(ctx, access.Local, anna.ID, store.PersonLimits{AtOnce: 2}); err != nil {
		t.Fatal(err)
	}
	started, end := make(chan string, 9), make(chan struct{})
	listed := activity.New(nil)
	generate := listed.Observe(s.Limited(func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		return func(func(infer.Event, error) bool) {
			started <- r.Client
			<-end
		}
	}))
	var running sync.WaitGroup
	ask := func(ctx context.Context, client string) {
		running.Go(func() {
			for _, err := range generate(ctx, infer.Request{Client: client}) {
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	gone, leave := context.WithCancel(ctx)
	for range 2 {
		ask(ctx, anna.ID)
		<-started
	}
	ask(gone, anna.ID) // waits, and leaves
	ask(ctx, anna.ID)  // waits
	atLimit := func() (n int) {
		list, err := listed.List(ctx, access.Local)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list.Answers {
			if a.Limit == 2 {
				n++
			}
		}
		return n
	}
	for atLimit() != 2 { // else the test hangs
	}
	for range 3 {
		ask(ctx, "at 127.0.0.1")
		if client := <-started; client == anna.ID {
			t.Fatal("a third answer of a person with the limit 2 has begun")
		}
	}
	leave()
	for atLimit() != 1 {
	}
	end <- struct{}{} // ends one of those that run, maybe another's
	for range 4 {
		end <- struct{}{}
	}
	if client := <-started; client != anna.ID {
		t.Errorf("%s began next", client)
	}
	end <- struct{}{}
	running.Wait()
	if _, ok := s.slots.Take(anna.ID, 1); len(started) != 0 || !ok {
		t.Errorf("%d more began, and one of the person runs at the end: %v", len(started), !ok)
	}
}

// answer generates one answer of a client with so many tokens, and returns how many came and its error.
func answer(t *testing.T, s *Service, client string, tokens int) (n int, err error) {
	t.Helper()
	generate := s.Limited(func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			for range tokens {
				if !yield(infer.Event{Token: &infer.Token{}}, nil) {
					return
				}
			}
		}
	})
	for e, failed := range generate(t.Context(), infer.Request{Client: client}) {
		if err = failed; e.Token != nil {
			n++
		}
	}
	return n, err
}

// A day's answers and tokens of a person end with a clear refusal, for them alone, until midnight.
func TestLimited_ADayHasSoManyAnswersAndTokens(t *testing.T) {
	s, clock := newService(t, "")
	clock.now = time.Date(2026, 11, 29, 23, 0, 0, 0, time.UTC)
	ctx := t.Context()
	anna := must[store.Person](t)(s.Add(ctx, access.Local, "Anna"))
	if err := s.Limit(ctx, access.Local, anna.ID, store.PersonLimits{Answers: 2, Tokens: 5}); err != nil {
		t.Fatal(err)
	}
	left := func() string { return must[string](t)(s.Left(ctx, access.Of(anna))) }
	for _, step := range []struct {
		name, client string
		at           time.Duration // after the first
		tokens, come int
		refused      bool
		left         string
	}{
		{"the first", anna.ID, 0, 3, 3, false, "1 of 2 answers and 2 of 5 tokens left today"},
		{"one whose tokens do not last", anna.ID, 0, 3, 2, true, "0 of 2 answers and 0 of 5 tokens left today"},
		{"a third", anna.ID, 0, 1, 0, true, "0 of 2 answers and 0 of 5 tokens left today"},
		{"one of a program of the owner", "at 127.0.0.1", 0, 9, 9, false, "0 of 2 answers and 0 of 5 tokens left today"},
		{"one after midnight", anna.ID, time.Hour, 1, 1, false, "1 of 2 answers and 4 of 5 tokens left today"},
	} {
		clock.now = time.Date(2026, 11, 29, 23, 0, 0, 0, time.UTC).Add(step.at)
		n, err := answer(t, s, step.client, step.tokens)
		f, _ := errors.AsType[*fault.Error](err)
		if n != step.come || (f != nil && f.Code == fault.CodeDayUsed) != step.refused || step.refused && f.RetryAfter != 3600 {
			t.Errorf("%s: got %d tokens and %v, want %d", step.name, n, err, step.come)
		}
		if got := left(); got != step.left {
			t.Errorf("after %s: got %q, want %q", step.name, got, step.left)
		}
	}
}

// What was used of a day is known after a restart.
func TestLimited_ADayGoesOnAfterARestart(t *testing.T) {
	s, clock := newService(t, "")
	ctx := t.Context()
	anna := must[store.Person](t)(s.Add(ctx, access.Local, "Anna"))
	if err := s.Limit(ctx, access.Local, anna.ID, store.PersonLimits{Answers: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(t, s, anna.ID, 1); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	s.Run(stopped)
	again := must[*Service](t)(New(ctx, Options{Store: s.opt.Store, Now: clock.Now}))
	if _, err := answer(t, again, anna.ID, 1); err == nil {
		t.Error("a restart gives a person another day")
	}
}
