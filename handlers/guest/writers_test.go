package guest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
	"m40-llm/store"
)

// byLink is the principal of a link.
func byLink(share int64) live.Principal {
	return live.Principal{Share: &store.Share{ID: share, Owner: access.Local.Owner, Conversation: "chat", Requests: true}}
}

// asked has somebody ask who has the time to.
func asked(t *testing.T, k *writers, who live.Principal, name string) (w *writer, secret string) {
	t.Helper()
	time.Sleep(askEvery)
	secret, err := k.ask(who, name, "")
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.by(who, secret), secret
}

func (k *writers) set(w *writer, state WriterState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(w, state)
}

func (k *writers) state(w *writer) WriterState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return w.State
}

func TestKeyboard_RequestsAndKeyboardsEndByThemselves(t *testing.T) {
	for _, tc := range []struct {
		name  string
		until func(k *writers, who live.Principal, w *writer)
		want  WriterState
	}{
		{"a request waits for nine minutes", func(*writers, live.Principal, *writer) { time.Sleep(9 * time.Minute) }, WriterAsks},
		{"a request that nobody answers for ten minutes ends", func(*writers, live.Principal, *writer) { time.Sleep(10 * time.Minute) }, WriterMissed},
		{"a keyboard waits for 29 minutes", func(k *writers, _ live.Principal, w *writer) {
			k.set(w, WriterWrites)
			time.Sleep(29 * time.Minute)
		}, WriterWrites},
		{"a keyboard with which nothing is written for 30 minutes goes back", func(k *writers, _ live.Principal, w *writer) {
			k.set(w, WriterWrites)
			time.Sleep(30 * time.Minute)
		}, WriterIdle},
		{"a keyboard that is used stays", func(k *writers, who live.Principal, w *writer) {
			k.set(w, WriterWrites)
			who.Writer = w.ID
			for range 10 {
				time.Sleep(20 * time.Minute)
				_, _ = k.hold(who, true)
			}
		}, WriterWrites},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newWriters(30*time.Minute, time.Now)
				who := byLink(1)
				w, _ := asked(t, &k, who, "Ada")
				tc.until(&k, who, w)
				synctest.Wait()
				if got := k.state(w); got != tc.want {
					t.Errorf("it is %q, want %q", got, tc.want)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				k.mu.Lock()
				if len(k.writers) > 0 {
					t.Errorf("two hours later %d writers are remembered", len(k.writers))
				}
				k.mu.Unlock()
				k.remove(func(*writer) bool { return true })
			})
		})
	}
}

func TestKeyboard_EndsWithTheTimeOfTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWriters(30*time.Minute, time.Now)
		who := byLink(1)
		who.Share.Expires = time.Now().Add(time.Minute)
		w, _ := asked(t, &k, who, "Ada")
		k.set(w, WriterWrites)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := k.state(w); got == WriterWrites {
			t.Error("the keyboard outlives its link")
		}
	})
}

func TestKeyboard_SomebodyTypesForFiveSecondsAfterAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWriters(time.Hour, time.Now)
		ada, _ := asked(t, &k, byLink(1), "Ada")
		ben, _ := asked(t, &k, byLink(1), "Ben")
		key := func(writer int64) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.types(typist{"chat", writer})
		}
		sees := func(who int64, want ...string) {
			t.Helper()
			synctest.Wait()
			k.mu.Lock()
			defer k.mu.Unlock()
			var got []string
			for _, typist := range k.typists("chat", who) {
				if typist.Owner {
					typist.Name = "the owner"
				}
				got = append(got, typist.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("writer %d sees that %q type, want %q", who, got, want)
			}
		}
		key(ada.ID)
		key(0)
		sees(0, "Ada")
		sees(ada.ID, "the owner")
		sees(ben.ID, "the owner", "Ada")
		time.Sleep(3 * time.Second)
		key(ada.ID)
		time.Sleep(3 * time.Second)
		sees(ben.ID, "Ada")
		k.set(ada, WriterEnded)
		sees(ben.ID)

		changed := func() <-chan struct{} {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.watch(byLink(1).Share.Conversation)
		}
		changes, seen := 0, changed()
		for range 50 { // five seconds of a key every 100 ms
			key(ben.ID)
			if now := changed(); now != seen {
				changes, seen = changes+1, now
			}
			time.Sleep(100 * time.Millisecond)
		}
		if changes != 1 {
			t.Errorf("50 keys caused %d changes, want 1", changes)
		}
		time.Sleep(typingFor)
		sees(0)
		k.remove(func(*writer) bool { return true })
	})
}

func TestKeyboard_LimitsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWriters(time.Hour, time.Now)
		who := byLink(1)
		w, secret := asked(t, &k, who, "Ada")
		for name, tc := range map[string]struct {
			name, secret string
			want         string // part of the error; empty: none
		}{
			"a second click":      {"Ada", secret, ""},
			"a name that is used": {"ADA", "", "already"},
		} {
			if _, err := k.ask(who, tc.name, tc.secret); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		k.set(w, WriterRefused)
		if _, err := k.ask(who, "Ada", secret); err == nil {
			t.Error("who was refused asks again at once")
		}
		time.Sleep(askAgain)
		again, err := k.ask(who, "Ada", secret)
		if err != nil || again == secret || again == "" {
			t.Errorf("who was refused asks again later: %v", err)
		}
		k.mu.Lock()
		if k.by(who, secret) != nil || k.by(who, again) != w {
			t.Error("the secret of the first request is valid for the second")
		}
		k.mu.Unlock()
		accepted := 0
		for i := range 1000 {
			if _, err := k.ask(who, fmt.Sprint("somebody ", i), ""); err == nil {
				accepted++
			} else if soon, ok := errors.AsType[*TooSoonError](err); !ok && err != ErrManyAsk || ok && soon.Seconds() > 10 {
				t.Fatalf("request %d: %v", i, err)
			}
			time.Sleep(time.Second)
		}
		// Each waits ten minutes for an answer, and five wait at once.
		if accepted < maxAsks-1 || accepted > 3*maxAsks {
			t.Errorf("of 1,000 requests in 1,000 s %d were accepted", accepted)
		}
		if n := len(k.writers); n > maxAsks+maxWriters+maxFormer {
			t.Errorf("%d writers are remembered", n)
		}
		k.remove(func(*writer) bool { return true })
		time.Sleep(askBurst * askEvery)
		for i := range 100 {
			if secret, err := k.ask(who, "Eve", ""); err == nil {
				k.mu.Lock()
				w := k.by(who, secret)
				k.mu.Unlock()
				k.set(w, WriterLeft)
				if i >= askBurst {
					t.Fatalf("request %d of one moment was accepted", i)
				}
			} else if i < askBurst {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		k.endLink(1)
		if len(k.writers)+len(k.asked)+len(k.typing)+len(k.accepts) > 0 {
			t.Errorf("after the link %d writers are remembered", len(k.writers))
		}
	})
}

func TestKeyboard_LimitsTheMessagesOfAWriterAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWriters(time.Hour, time.Now)
		who := byLink(1)
		w, _ := asked(t, &k, who, "Ada")
		k.set(w, WriterWrites)
		who.Writer = w.ID
		for sent := range writeBurst {
			if _, err := k.hold(who, true); err != nil {
				t.Fatalf("after %d messages: %v", sent, err)
			}
			k.wrote(who)
		}
		if _, err := k.hold(who, true); !errors.As(err, new(*TooSoonError)) {
			t.Errorf("a message after %d got %v, want to be told to wait", writeBurst, err)
		}
		if _, err := k.hold(who, false); err != nil {
			t.Errorf("stopping an answer or typing after %d messages: %v", writeBurst, err)
		}
		time.Sleep(writeEvery)
		if _, err := k.hold(who, true); err != nil {
			t.Errorf("a message after %v: %v", writeEvery, err)
		}
		k.remove(func(*writer) bool { return true })
	})
}

func TestWriterName(t *testing.T) {
	for _, tc := range []struct{ name, given, want string }{
		{"a name", "Ada", "Ada"},
		{"white space is joined", "  Ada \n\t Lovelace ", "Ada Lovelace"},
		{"other scripts", "عائشة ナオミ", "عائشة ナオミ"},
		{"emoji with joiners", "👩‍🚀", "👩‍🚀"},
		{"HTML is text", "<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"},
		{"overrides of the direction go", "Ada\u202egnp", "Adagnp"},
		{"control characters go", "A\x00d\x1ba", "Ada"},
		{"invisible letters go", "A\u3164d\u200ba", "Ada"},
		{"forty characters", strings.Repeat("ö", 40), strings.Repeat("ö", 40)},
		{"more than forty", strings.Repeat("x", 41), ""},
		{"a million", strings.Repeat("x", 1e6), ""},
		{"nothing", "", ""},
		{"spaces", " \t ", ""},
		{"nothing that is seen", "\u200b\u200d\u2060", ""},
		{"points alone", "...", ""},
		{"not UTF-8", "\xff", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := writerName(tc.given)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %q, %v", got, err)
			}
			if err == nil && !IsName(got) {
				t.Error("the name cannot stand at a message")
			}
		})
	}
}

func FuzzWriterName(f *testing.F) {
	f.Add("Ada \u202e\u200d\u0301")
	f.Fuzz(func(t *testing.T, given string) {
		name, err := writerName(given)
		if err != nil {
			return
		}
		if again, err := writerName(name); err != nil || again != name {
			t.Errorf("%q becomes %q, and that %q, %v", given, name, again, err)
		}
	})
}

func TestLinksThatExpireLeaveNothingInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWriters(30*time.Minute, time.Now)
		for link := range int64(10) {
			who := byLink(link)
			who.Share.Expires = time.Now().Add(time.Hour)
			asked(t, &k, who, fmt.Sprint("reader ", link))
			k.mu.Lock()
			k.accepts[link] = accepts{true, "chat", access.Local.Owner}
			k.mu.Unlock()
		}
		forever := byLink(99)
		asked(t, &k, forever, "another")
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		k.mu.Lock()
		if n := len(k.asked) + len(k.accepts) + len(k.ends) + len(k.writers); n > 0 {
			t.Errorf("%d limits, %d settings, %d timers and %d writers are left", len(k.asked), len(k.accepts), len(k.ends), len(k.writers))
		}
		k.mu.Unlock()

		k.mu.Lock()
		k.accepts[1], k.accepts[2] = accepts{true, "one", "anna"}, accepts{true, "two", "anna"}
		for link := range k.accepts {
			k.endsWith(link, time.Now().Add(time.Hour))
		}
		k.mu.Unlock()
		k.remove(func(w *writer) bool { return w.chat == "one" })
		if len(k.accepts) != 1 || len(k.ends) != 1 {
			t.Errorf("when a chat is deleted, settings of %d links and timers of %d are left, want 1 each", len(k.accepts), len(k.ends))
		}
	})
}

func TestKeyboard_OneWhoTypesWakesThePagesOfOneChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWriters(time.Hour, time.Now)
		ada, _ := asked(t, &k, byLink(1), "Ada")
		k.set(ada, WriterWrites)
		k.mu.Lock()
		here, elsewhere := k.watch("chat"), k.watch("another chat")
		k.types(typist{"chat", ada.ID})
		woken := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		if !woken(here) || woken(elsewhere) {
			t.Errorf("the pages of the chat wake: %v, those of another: %v", woken(here), woken(elsewhere))
		}
		for i := range 3 * maxWatched {
			k.watch(fmt.Sprint(i))
		}
		if len(k.changed) > maxWatched || !woken(elsewhere) {
			t.Errorf("%d chats are watched, and those that are forgotten were told: %v", len(k.changed), woken(elsewhere))
		}
		k.mu.Unlock()
		k.remove(func(*writer) bool { return true })
	})
}

func TestKeyboard_UsesItsClock(t *testing.T) {
	now := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	k := newWriters(time.Hour, func() time.Time { return now })
	who := byLink(1)
	if _, err := k.ask(who, "Ada", ""); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	w := k.writers[0]
	if !w.since.Equal(now) || !w.ends.Equal(now.Add(askLife)) {
		t.Errorf("asked at %v until %v, at %v", w.since, w.ends, now)
	}
	k.mu.Unlock()
	now = now.Add(askLife)
	k.end(w)
	if got := k.state(w); got != WriterMissed {
		t.Errorf("after ten minutes of its clock it is %q", got)
	}
	k.remove(func(*writer) bool { return true })
}
