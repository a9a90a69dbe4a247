package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/store"
)

// byLink is the principal of a link.
func byLink(share int64) Principal {
	return Principal{Share: &store.Share{ID: share, Owner: me.Owner, Conversation: "chat", Requests: true}}
}

// asked has somebody ask who has the time to.
func asked(t *testing.T, k *keyboards, who Principal, name string) (w *writer, secret string) {
	t.Helper()
	time.Sleep(askEvery)
	secret, err := k.ask(who, name, "")
	must(t, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.by(who, secret), secret
}

func (k *keyboards) set(w *writer, state WriterState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(w, state)
}

func (k *keyboards) state(w *writer) WriterState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return w.State
}

func TestKeyboard_RequestsAndKeyboardsEndByThemselves(t *testing.T) {
	for _, tc := range []struct {
		name  string
		until func(k *keyboards, who Principal, w *writer)
		want  WriterState
	}{
		{"a request waits for nine minutes", func(*keyboards, Principal, *writer) { time.Sleep(9 * time.Minute) }, WriterAsks},
		{"a request that nobody answers for ten minutes ends", func(*keyboards, Principal, *writer) { time.Sleep(10 * time.Minute) }, WriterMissed},
		{"a keyboard waits for 29 minutes", func(k *keyboards, _ Principal, w *writer) {
			k.set(w, WriterWrites)
			time.Sleep(29 * time.Minute)
		}, WriterWrites},
		{"a keyboard with which nothing is written for 30 minutes goes back", func(k *keyboards, _ Principal, w *writer) {
			k.set(w, WriterWrites)
			time.Sleep(30 * time.Minute)
		}, WriterIdle},
		{"a keyboard that is used stays", func(k *keyboards, who Principal, w *writer) {
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
				k := newKeyboards(30*time.Minute, time.Now)
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
		k := newKeyboards(30*time.Minute, time.Now)
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
		k := newKeyboards(time.Hour, time.Now)
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
		k := newKeyboards(time.Hour, time.Now)
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
			if err == nil && !IsWriterName(got) {
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

// writing shares a chat with one answer, gives the keyboard to Ada, and returns her principal.
func writing(t *testing.T, s *Service, engine *script, n NewShare) (c *Chat, link Share, ada Principal) {
	t.Helper()
	c, a := start(t, s, engine, "Why?")
	a.write("Because.")
	a.finish()
	settle(c)
	link, err := s.Share(context.Background(), me, c.ID(), n)
	must(t, err)
	who, err := s.Follower(context.Background(), link.Token)
	must(t, err)
	secret, err := s.AskToWrite(context.Background(), who, "Ada", "")
	must(t, err)
	must(t, c.SetWriter(me, s.Asker(who, secret), WriterWrites))
	return c, link, s.Writing(who, secret)
}

func TestAWriterWritesAndNothingElse(t *testing.T) {
	ctx := context.Background()
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, _, ada := writing(t, s, engine, NewShare{Live: true})
	_, err := c.SetPanel(ctx, me, Panel{Settings: question("").Settings}, "Be brief.")
	must(t, err)
	must(t, s.Write(ctx, ada, "And snow?"))
	a := <-engine.asked
	if a.request.Client != me.Owner || strings.Contains(fmt.Sprint(a.request.Messages), "Ada") || a.request.Messages[0].Content != "Be brief." {
		t.Errorf("the engine is asked %+v for %q", a.request.Messages, a.request.Client)
	}
	a.write("Slow rain.")
	for range 2 * writeBurst { // these do not use up what she may write
		if err := s.Write(ctx, ada, "Now!"); err == nil || !strings.Contains(err.Error(), "while an answer is being written") {
			t.Errorf("while an answer is written: %v", err)
		}
	}
	must(t, s.StopOwn(ctx, ada))
	settle(c)
	list := snapshotOf(c).Messages
	if q := list[len(list)-2]; q.Author != "Ada" || q.Text != "And snow?" || list[0].Author != "" {
		t.Errorf("the question is %+v", q)
	}
	must(t, c.Send(ctx, me, question("And hail?")))
	own := <-engine.asked
	if err := s.StopOwn(ctx, ada); err != ErrNotYours {
		t.Errorf("stopping the answer to another's message: %v", err)
	}
	own.finish()
	settle(c)
	last := snapshotOf(c).Messages[len(list)+1]
	for name, err := range map[string]error{
		"open":       second(s.Chat(ctx, ada, c.ID())),
		"send":       c.Send(ctx, ada, question("x")),
		"edit":       c.Edit(ctx, ada, list[0].ID, question("x")),
		"regenerate": c.Regenerate(ctx, ada, last.ID, "", DefaultSettings()),
		"rewrite":    c.Rewrite(ctx, ada, last.ID, "x", ""),
		"continue":   c.Continue(ctx, ada, last.ID, DefaultSettings()),
		"past end":   c.ContinuePastEnd(ctx, ada, last.ID, DefaultSettings()),
		"rewind":     c.Rewind(ctx, ada, last.ID, 0, Next{}, DefaultSettings()),
		"select":     c.Select(ctx, ada, list[0].ID, 0),
		"stop":       c.Stop(ctx, ada, 0),
		"panel":      second(c.SetPanel(ctx, ada, Panel{Settings: DefaultSettings()}, "")),
		"fork":       second(s.Fork(ctx, ada, c, last.ID)),
		"share":      second(s.Share(ctx, ada, c.ID(), NewShare{})),
		"writers":    c.SetWriter(ada, ada.Writer, WriterWrites),
		"keyboard":   func() error { _, _, err := c.Keyboard(ada); return err }(),
		"requests":   s.AcceptRequests(ctx, ada, c.ID(), ada.Share.ID, true),
		"type":       c.Typing(ada),
		"rename":     s.Rename(ctx, ada, c.ID(), "x"),
		"model":      s.SetModel(ctx, ada, c.ID(), "x"),
		"delete":     s.Delete(ctx, ada, c.ID()),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s by a writer: %v", name, err)
		}
	}
	fork, err := s.Fork(ctx, me, c, last.ID)
	must(t, err)
	copied, err := s.Chat(ctx, me, fork)
	must(t, err)
	if m := snapshotOf(copied).Messages[2]; m.Author != "Ada" {
		t.Errorf("in a copy of the chat the question is %+v", m)
	}
	must(t, c.Edit(ctx, me, list[2].ID, question("And sleet?")))
	(<-engine.asked).finish()
	settle(c)
	if m := snapshotOf(c).Messages[2]; m.Author != "" {
		t.Errorf("what the owner asks in place of it is %+v", m)
	}
}

func TestTheKeyboardIsGone(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		end  func(t *testing.T, s *Service, c *Chat, link Share, ada Principal)
		want error
	}{
		{"when the owner takes it back", func(t *testing.T, _ *Service, c *Chat, _ Share, ada Principal) {
			must(t, c.SetWriter(me, ada.Writer, WriterEnded))
		}, ErrNoKeyboard},
		{"when the link ends", func(t *testing.T, s *Service, c *Chat, link Share, _ Principal) {
			must(t, s.EndShare(ctx, me, c.ID(), link.ID))
		}, ErrNoKeyboard},
		{"when the chat goes to the trash", func(t *testing.T, s *Service, c *Chat, _ Share, _ Principal) { must(t, s.Delete(ctx, me, c.ID())) }, ErrNoKeyboard},
		{"when the chat comes from the trash", func(t *testing.T, s *Service, c *Chat, _ Share, _ Principal) {
			must(t, s.Delete(ctx, me, c.ID()))
			must(t, s.Restore(ctx, me, c.ID()))
		}, ErrNoKeyboard},
		{"when nothing is written for long", func(t *testing.T, _ *Service, c *Chat, _ Share, _ Principal) {
			for writers := 1; writers > 0; {
				held, changed, err := c.Keyboard(me)
				must(t, err)
				if writers = len(held.Writers); writers > 0 {
					<-changed
				}
			}
		}, ErrNoKeyboard},
		{"when its owner is removed", func(_ *testing.T, s *Service, _ *Chat, _ Share, _ Principal) { s.Forget(me.Owner) }, ErrNoKeyboard},
		{"with another link to the chat", func(t *testing.T, s *Service, c *Chat, _ Share, ada Principal) {
			other, err := s.Share(ctx, me, c.ID(), NewShare{Live: true})
			must(t, err)
			who, err := s.Follower(ctx, other.Token)
			must(t, err)
			*ada.Share = *who.Share
		}, ErrNoKeyboard},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := Options{Store: openStore(t, storePath(t))}
			if tc.name == "when nothing is written for long" {
				options.WriterIdle = 2 * time.Second
			}
			s, engine := newService(t, options)
			c, link, ada := writing(t, s, engine, NewShare{Live: true})
			tc.end(t, s, c, link, ada)
			for name, err := range map[string]error{"write": s.Write(ctx, ada, "x"), "stop": s.StopOwn(ctx, ada), "type": s.Typing(ada)} {
				if !errors.Is(err, tc.want) {
					t.Errorf("%s: %v, want %v", name, err, tc.want)
				}
			}
		})
	}
}

func TestAWriterDoesNotWriteWhereTheLinkShowsNothing(t *testing.T) {
	ctx := context.Background()
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "Why?")
	a.finish()
	settle(c)
	must(t, c.Send(ctx, me, question("From here")))
	(<-engine.asked).finish()
	settle(c)
	list := snapshotOf(c).Messages
	link, err := s.Share(ctx, me, c.ID(), NewShare{Live: true, First: list[2].ID})
	must(t, err)
	frozen, err := s.Share(ctx, me, c.ID(), NewShare{})
	must(t, err)
	still, err := s.Follower(ctx, frozen.Token)
	must(t, err)
	if _, err := s.AskToWrite(ctx, still, "Ada", ""); err != ErrNoRequests {
		t.Errorf("asking by a link to the chat as it was: %v", err)
	}
	who, err := s.Follower(ctx, link.Token)
	must(t, err)
	secret, err := s.AskToWrite(ctx, who, "Ada", "")
	must(t, err)
	must(t, c.SetWriter(me, s.Asker(who, secret), WriterWrites))
	ada := s.Writing(who, secret)
	must(t, c.Edit(ctx, me, list[0].ID, question("Out of scope")))
	(<-engine.asked).finish()
	settle(c)
	if err := s.Write(ctx, ada, "x"); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("writing below messages that the link does not show: %v", err)
	}
	must(t, c.Select(ctx, me, list[2].ID, 0))
	must(t, s.Write(ctx, ada, "x"))
	(<-engine.asked).finish()
	settle(c)
}

func TestNoMoreRequestsOnALink(t *testing.T) {
	ctx := context.Background()
	path := storePath(t)
	kept := openStore(t, path)
	s, engine := newService(t, Options{Store: kept})
	c, link, ada := writing(t, s, engine, NewShare{Live: true})
	who, err := s.Follower(ctx, link.Token)
	must(t, err)
	secret, err := s.AskToWrite(ctx, who, "Ben", "")
	must(t, err)
	ben := s.Asker(who, secret)
	must(t, s.AcceptRequests(ctx, me, c.ID(), link.ID, false))
	if r, _ := s.ReaderKeyboard(who, ben); r.State != WriterRefused || r.Accepts {
		t.Errorf("who asked sees %+v", r)
	}
	if r, _ := s.ReaderKeyboard(who, ada.Writer); r.State != WriterWrites {
		t.Errorf("who writes sees %+v", r)
	}
	stored, err := s.Follower(ctx, link.Token)
	must(t, err)
	for name, who := range map[string]Principal{"who had the link before": who, "who gets it now": stored} {
		if _, err := s.AskToWrite(ctx, who, "Cem", ""); err != ErrNoRequests {
			t.Errorf("%s asks: %v", name, err)
		}
	}
	if stored.Share.Requests {
		t.Error("it is not stored")
	}
	must(t, s.AcceptRequests(ctx, me, c.ID(), link.ID, true))
	if _, err := s.AskToWrite(ctx, who, "Cem", ""); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another person":    s.AcceptRequests(ctx, Principal{Owner: "another"}, c.ID(), link.ID, false),
		"a link of nothing": s.AcceptRequests(ctx, me, c.ID(), 999, false),
	} {
		if err == nil {
			t.Errorf("%s sets it", name)
		}
	}
}
