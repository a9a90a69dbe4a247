package people

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// setPassphrase sets the first passphrase of a person.
func setPassphrase(t testing.TB, s *Service, person, passphrase string) {
	t.Helper()
	err := s.ChangePassphrase(t.Context(), access.Principal{Owner: person}, person, PassphraseChange{New: passphrase})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEnterByName(t *testing.T) {
	s, _ := newService(t, "")
	anna := must[store.Person](t)(s.Add(t.Context(), access.Local, "Anna"))
	must[store.Person](t)(s.Add(t.Context(), access.Local, "Ben"))
	setPassphrase(t, s, store.OwnerID, "four words that fit")
	setPassphrase(t, s, anna.ID, "caf\u00e9 au lait for two")
	if some := must[bool](t)(s.HasPassphrases(t.Context())); !some {
		t.Error("nobody is said to have a passphrase")
	}
	for i, tc := range []struct {
		name, typed, passphrase string
		person                  string // empty: nobody is let in
	}{
		{"a name and its passphrase", "Anna", "caf\u00e9 au lait for two", anna.ID},
		{"the name in another case", " ANNA ", "caf\u00e9 au lait for two", anna.ID},
		{"the passphrase with accents as another keyboard types them", "Anna", "cafe\u0301 au lait for two", anna.ID},
		{"no name is the owner's", "", "four words that fit", store.OwnerID},
		{"the name of the owner", "owner", "four words that fit", store.OwnerID},
		{"the passphrase of another", "Anna", "four words that fit", ""},
		{"the passphrase in another case", "owner", "Four Words That Fit", ""},
		{"a passphrase with a space more", "owner", "four words that fit ", ""},
		{"a part of the passphrase", "owner", "four words that", ""},
		{"an empty passphrase", "owner", "", ""},
		{"an empty passphrase of somebody without one", "Ben", "", ""},
		{"somebody who is not there", "Carl", "four words that fit", ""},
		{"the hash instead of the passphrase", "owner", must[string](t)(s.opt.Store.Passphrase(t.Context(), store.OwnerID)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from := Client{Addr: phone.Addr.Next(), UserAgent: phone.UserAgent}
			for range i {
				from.Addr = from.Addr.Next() // each with tries of their own
			}
			counted := &countingStore{Store: s.opt.Store}
			s.opt.Store = counted
			defer func() { s.opt.Store = counted.Store }()
			before := s.passphrases.computed.Load()
			cookie, err := s.EnterByName(t.Context(), tc.typed, tc.passphrase, from)
			if n := s.passphrases.computed.Load() - before; n != 1 {
				t.Errorf("%d hashes were computed, want 1 for every try, so that all take the same time", n)
			}
			if tc.person == "" {
				if counted.reads != 2 {
					t.Errorf("%d reads of the database, want 2 for every wrong try, so that all take the same time", counted.reads)
				}
				if err != ErrWrongLogin {
					t.Errorf("got %v, want the one answer for all wrong tries", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if known := must[Known](t)(s.ByDevice(t.Context(), cookie)); known.Credential.Person != tc.person {
				t.Errorf("the device is known as %+v", known)
			}
		})
	}
}

// countingStore counts the reads that a login takes.
type countingStore struct {
	Store
	reads int
}

func (s *countingStore) Person(ctx context.Context, id string) (store.Person, error) {
	s.reads++
	return s.Store.Person(ctx, id)
}

func (s *countingStore) PersonNamed(ctx context.Context, name string) (store.Person, error) {
	s.reads++
	return s.Store.PersonNamed(ctx, name)
}

func (s *countingStore) Passphrase(ctx context.Context, id string) (string, error) {
	s.reads++
	return s.Store.Passphrase(ctx, id)
}

func TestChangePassphrase(t *testing.T) {
	const first, next = "the first passphrase", "the next passphrase"
	for _, tc := range []struct {
		name    string
		who     access.Principal // default: Anna
		change  PassphraseChange
		wrong   error // that errors.Is finds; nil: it is changed
		invalid string
		want    string // the passphrase afterwards; empty: none
	}{
		{name: "a person changes it", change: PassphraseChange{Old: first, New: next}, want: next},
		{name: "a person removes it", change: PassphraseChange{Old: first}},
		{name: "the present one is needed to change it", change: PassphraseChange{New: next}, wrong: ErrWrongPassphrase, want: first},
		{name: "the present one is needed to remove it", change: PassphraseChange{Old: next}, wrong: ErrWrongPassphrase, want: first},
		{name: "a short one is refused", change: PassphraseChange{Old: first, New: "hunter2"}, invalid: "has 7 characters and needs at least 12", want: first},
		{name: "characters are counted, not bytes", change: PassphraseChange{Old: first, New: "äöüäöüäöüäö"}, invalid: "has 11 characters", want: first},
		{name: "an endless one is refused", change: PassphraseChange{Old: first, New: strings.Repeat("long ", 300)}, invalid: "may have 1024", want: first},
		{name: "two lines are refused", change: PassphraseChange{Old: first, New: "two lines\nof a passphrase"}, invalid: "one line", want: first},
		{name: "the owner removes it", who: access.Local, change: PassphraseChange{}},
		{name: "the owner does not change it", who: access.Local, change: PassphraseChange{Old: first, New: next}, wrong: access.ErrDenied, want: first},
		{name: "another person does not remove it", who: access.Principal{Owner: "ben"}, wrong: access.ErrDenied, want: first},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, _ := newService(t, "")
			anna := must[store.Person](t)(s.Add(t.Context(), access.Local, "Anna"))
			setPassphrase(t, s, anna.ID, first)
			if tc.who == (access.Principal{}) {
				tc.who = access.Of(anna)
			}
			err := s.ChangePassphrase(t.Context(), tc.who, anna.ID, tc.change)
			known, _ := errors.AsType[*fault.Error](err)
			switch {
			case tc.invalid != "":
				if known == nil || known.Code != fault.CodeInvalid || !strings.Contains(known.Message, tc.invalid) {
					t.Errorf("got %v, want %q", err, tc.invalid)
				}
			case !errors.Is(err, tc.wrong) || tc.wrong == nil && err != nil:
				t.Errorf("got %v, want %v", err, tc.wrong)
			}
			for _, passphrase := range []string{first, next} {
				_, err := s.EnterByName(t.Context(), "Anna", passphrase, Client{Addr: phone.Addr.Next()})
				if (err == nil) != (passphrase == tc.want) {
					t.Errorf("logging in with %q: %v", passphrase, err)
				}
			}
		})
	}
}

func TestChangePassphrase_EndsTheOtherDevices(t *testing.T) {
	for name, logOut := range map[string]bool{"if that is asked for": true, "not otherwise": false} {
		t.Run(name, func(t *testing.T) {
			s, _ := newService(t, "")
			ctx := t.Context()
			setPassphrase(t, s, store.OwnerID, "the first passphrase")
			enter := func() (string, Known, context.Context) {
				cookie := must[string](t)(s.EnterByName(ctx, "", "the first passphrase", phone))
				known := must[Known](t)(s.ByDevice(ctx, cookie))
				watched, done := s.Watch(ctx, known.Credential)
				t.Cleanup(done)
				return cookie, known, watched
			}
			here, known, hereRequest := enter()
			there, _, thereRequest := enter()
			made := must[Invitation](t)(s.Invite(ctx, access.Local, store.OwnerID))
			key := must[string](t)(s.CreateKey(ctx, access.Local, store.OwnerID, "script"))
			change := PassphraseChange{Old: "the first passphrase", New: "the next passphrase", LogOut: logOut, By: known.Credential, Client: phone}
			if err := s.ChangePassphrase(ctx, known.Principal, store.OwnerID, change); err != nil {
				t.Fatal(err)
			}
			if _, err := s.ByDevice(ctx, here); err != nil || hereRequest.Err() != nil {
				t.Errorf("the device that changed it: %v, its request: %v", err, hereRequest.Err())
			}
			if _, err := s.ByDevice(ctx, there); (err != nil) != logOut || (context.Cause(thereRequest) == ErrRevoked) != logOut {
				t.Errorf("another device: %v, its request: %v", err, context.Cause(thereRequest))
			}
			if _, err := s.Enter(ctx, made.Link, Client{Addr: phone.Addr.Next()}); (err != nil) != logOut {
				t.Errorf("an invitation of before: %v", err)
			}
			if _, err := s.ByKey(ctx, key, Client{}); err != nil {
				t.Errorf("an API key: %v", err)
			}
		})
	}
}

// Two hashes are computed at once. Some more wait, and the rest are told to come back.
func TestPassphrases_FewHashesAtOnce(t *testing.T) {
	p := newPassphrases(standardCost)
	var ends []func()
	for range maxHashes {
		end, err := p.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	var waiting sync.WaitGroup
	started := make(chan func(), maxWaiting)
	for range maxWaiting {
		waiting.Go(func() {
			end, err := p.begin(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			started <- end
		})
	}
	for p.inside.Load() < maxHashes+maxWaiting {
		time.Sleep(time.Millisecond)
	}
	if len(started) != 0 {
		t.Errorf("%d more than %d hashes are computed at once", len(started), maxHashes)
	}
	_, err := p.begin(t.Context())
	if tooMany, _ := errors.AsType[*TooManyError](err); tooMany == nil || tooMany.Wait != busyWait || !tooMany.Unchecked {
		t.Errorf("who finds %d waiting got %v", maxWaiting, err)
	}
	for _, end := range ends {
		end()
	}
	for range maxWaiting {
		(<-started)()
	}
	waiting.Wait()
	if n := p.inside.Load(); n != 0 || len(p.running) != 0 {
		t.Errorf("at the end %d are counted, and %d are computed", n, len(p.running))
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	p.running <- struct{}{}
	p.running <- struct{}{}
	if _, err := p.begin(gone); !errors.Is(err, context.Canceled) || p.inside.Load() != 0 {
		t.Errorf("who has gone got %v", err)
	}
}

// A device does not slip in with the passphrase of before while that is changed.
func TestEnterByName_NotWithAPassphraseThatChangesMeanwhile(t *testing.T) {
	s, _ := newService(t, "")
	setPassphrase(t, s, store.OwnerID, "the first passphrase")
	changing := &changingStore{Store: s.opt.Store, change: func() {
		hash := must[string](t)(s.passphrases.hash("the next passphrase"))
		if err := s.opt.Store.(*changingStore).Store.SetPassphrase(t.Context(), store.OwnerID, hash); err != nil {
			t.Fatal(err)
		}
	}}
	s.opt.Store = changing
	if _, err := s.EnterByName(t.Context(), "", "the first passphrase", phone); !errors.Is(err, ErrWrongLogin) {
		t.Errorf("got %v", err)
	}
	if list := must[[]store.Device](t)(s.opt.Store.Devices(t.Context(), store.OwnerID)); len(list) != 0 {
		t.Errorf("%d devices are logged in", len(list))
	}
}

// changingStore changes a passphrase just after it has been read first.
type changingStore struct {
	Store
	once   sync.Once
	change func()
}

func (s *changingStore) Passphrase(ctx context.Context, id string) (string, error) {
	hash, err := s.Store.Passphrase(ctx, id)
	s.once.Do(s.change)
	return hash, err
}

// The standard cost takes long enough to make guessing expensive, and no more memory than stated.
func TestStandardCost(t *testing.T) {
	if got := standardCost.Memory * standardCost.Iterations; standardCost.Memory<<10 > 64e6 || got < 3*(46<<10) || standardCost.Parallelism != 1 {
		t.Errorf("the cost is %+v", standardCost)
	}
	p := newPassphrases(standardCost)
	hash := must[string](t)(p.hash("the right passphrase"))
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=61440,t=") || len(hash) != len(p.decoy) {
		t.Errorf("the hash is %q, and that of nobody %q", hash, p.decoy)
	}
	for passphrase, want := range map[string]bool{"the right passphrase": true, "the wrong passphrase": false} {
		start := time.Now()
		if got := must[bool](t)(p.match(passphrase, hash)); got != want {
			t.Errorf("%q matches: %t", passphrase, got)
		}
		t.Logf("one hash took %v", time.Since(start).Round(time.Millisecond))
	}
	if must[bool](t)(p.match("", "")) {
		t.Error("an empty passphrase matches where there is none")
	}
}
