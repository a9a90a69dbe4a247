package live

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/fixtures"

	"pgregory.net/rapid"
)

// follower is what a follower has read.
type follower struct {
	*Following
	ids   []int64
	texts map[int64]string
}

func follow(t *testing.T, s *Service, token string) *follower {
	t.Helper()
	who, err := s.Follower(context.Background(), token)
	must(t, err)
	f, shown, err := s.Follow(context.Background(), who, 0)
	must(t, err)
	t.Cleanup(f.Close)
	r := &follower{Following: f, texts: map[int64]string{}}
	r.put(shown.Messages)
	return r
}

func (r *follower) put(list []Message) {
	for _, m := range list {
		r.ids, r.texts[m.ID] = append(r.ids, m.ID), m.Reasoning+"|"+m.Text
	}
}

// dump spells an event with all that it points to.
func dump(e Event) string {
	text := fmt.Sprintf("%s %d %q %q %q %+v", e.Type, e.ID, e.Text, e.Reasoning, e.Row, e.Panel)
	if e.Message != nil {
		e.Messages = append(e.Messages, *e.Message)
	}
	for _, m := range e.Messages {
		text += fmt.Sprintf(" message %+v", m)
		if m.Answer != nil {
			text += fmt.Sprintf(" %+v", *m.Answer)
		}
	}
	return text
}

// apply changes what is shown, as a page does.
func (r *follower) apply(e Event) {
	switch e.Type {
	case EventBranch:
		r.ids = r.ids[:slices.Index(r.ids, e.ID)+1]
		r.put(e.Messages)
	case EventText:
		reasoning, text, _ := strings.Cut(r.texts[e.ID], "|")
		r.texts[e.ID] = reasoning + e.Reasoning + "|" + text + e.Text
	case EventEnd:
		r.texts[e.ID] = e.Message.Reasoning + "|" + e.Message.Text
	}
}

// A link shows its part of the chat and nothing else, whatever the owner of the chat does, and nothing at all
// once it has ended. Each word is unique, so a word that a reader gets tells which message it is from.
func TestFollowersReadWhatTheirLinkShowsWhateverTheOwnerDoes(t *testing.T) {
	walks, steps := "10", "60"
	if fixtures.Torture() {
		walks, steps = "240", "500" // more than 100,000 steps
	}
	setFlag(t, "rapid.checks", walks)
	setFlag(t, "rapid.steps", steps)
	db := openStore(t, storePath(t))
	total, events := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		engine := newScript()
		p := &sharedChat{T: t, engine: engine, s: New(engine, Options{Store: db, QueueEvents: 1 << 20, QueueBytes: 1 << 30})}
		defer p.close()
		p.begin()
		t.Repeat(map[string]func(*rapid.T){
			"":              func(t *rapid.T) { p.T = t; p.check(); total++ },
			"send":          func(t *rapid.T) { p.T = t; p.send() },
			"send again":    func(t *rapid.T) { p.T = t; p.send() },
			"edit":          func(t *rapid.T) { p.T = t; p.edit() },
			"regenerate":    func(t *rapid.T) { p.T = t; p.regenerate() },
			"rewrite":       func(t *rapid.T) { p.T = t; p.rewrite() },
			"continue":      func(t *rapid.T) { p.T = t; p.resume() },
			"select":        func(t *rapid.T) { p.T = t; p.selectVersion() },
			"share":         func(t *rapid.T) { p.T = t; p.share() },
			"end the link":  func(t *rapid.T) { p.T = t; p.endLink() },
			"follow":        func(t *rapid.T) { p.T = t; p.follow() },
			"leave":         func(t *rapid.T) { p.T = t; p.leave() },
			"throw away":    func(t *rapid.T) { p.T = t; p.throwAway() },
			"another chat":  func(t *rapid.T) { p.T = t; p.another() },
			"system prompt": func(t *rapid.T) { p.T = t; p.setSystem() },
		})
		events += p.events
	})
	t.Logf("%d steps; readers got %d events, and nothing that their link does not show", total, events)
	if events == 0 {
		t.Error("the readers got no events")
	}
}

// setFlag sets a flag of the test's process until the test ends.
func setFlag(t *testing.T, name, value string) {
	t.Helper()
	before := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, before) })
}

func TestALinkShowsTheSystemPromptAndSettingsIfItSaysSo(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	q := question("Why?")
	q.System, q.Settings.Seed = "Be brief.", 4711
	c, err := s.Start(context.Background(), me, q, false)
	must(t, err)
	a := <-engine.asked
	a.write("Because.")
	a.finish()
	settle(c)
	for _, system := range []bool{false, true} {
		for _, settings := range []bool{false, true} {
			share, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true, System: system, Settings: settings})
			must(t, err)
			who, err := s.Follower(context.Background(), share.Token)
			must(t, err)
			f, shown, err := s.Follow(context.Background(), who, 0)
			must(t, err)
			f.Close()
			got := shown.Messages[1].Answer
			if (shown.System == "Be brief.") != system || got.System != "" || (got.Settings.Seed == 4711) != settings {
				t.Errorf("system %t, settings %t: shows %q, %q, seed %d", system, settings, shown.System, got.System, got.Settings.Seed)
			}
		}
	}
}

func TestALinkEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		life time.Duration // 0: longer than a test takes
		end  func(t *testing.T, s *Service, c *Chat, share Share)
	}{
		{"when its owner ends it", 0, func(t *testing.T, s *Service, c *Chat, share Share) {
			must(t, s.EndShare(context.Background(), me, c.ID(), share.ID))
		}},
		{"when its chat goes to the trash", 0, func(t *testing.T, s *Service, c *Chat, _ Share) {
			must(t, s.Delete(context.Background(), me, c.ID()))
		}},
		{"when its time is over", 3 * time.Second, func(_ *testing.T, _ *Service, _ *Chat, share Share) {
			time.Sleep(time.Until(share.Expires) + 10*time.Millisecond)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
			c, a := start(t, s, engine, "Why?")
			a.write("Because.")
			a.finish()
			settle(c)
			share, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true, Life: tc.life})
			must(t, err)
			f := follow(t, s, share.Token)
			who, err := s.Follower(context.Background(), share.Token)
			must(t, err)
			seat, err := s.Seat(context.Background(), who)
			must(t, err)
			defer seat.Close()
			changed := s.SharesChanged()
			tc.end(t, s, c, share)
			for ended := false; !ended; {
				select {
				case <-seat.Ended():
					ended = true
				case <-f.Ready():
					_, err := f.Take()
					ended = errors.Is(err, ErrNotShared)
				}
			}
			if _, err := s.Follower(context.Background(), share.Token); !errors.Is(err, ErrNotShared) {
				t.Errorf("the link still works: %v", err)
			}
			if any, _, err := s.Shared(context.Background()); any || err != nil {
				t.Errorf("something is still shared: %v", err)
			}
			if tc.life == 0 {
				<-changed // else the test hangs
			}
		})
	}
}

func TestShare_RefusesWhatCannotBeShared(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "Why?")
	temporary, err := s.Start(context.Background(), me, question("Hush"), true)
	must(t, err)
	hushed := <-engine.asked
	for _, tc := range []struct {
		name string
		who  Principal
		chat string
		n    NewShare
		want string
	}{
		{"a temporary chat", me, temporary.ID(), NewShare{Live: true}, "a temporary chat is never stored"},
		{"a chat as it is, while it is being answered", me, c.ID(), NewShare{}, "cannot share the chat as it is while an answer is being written"},
		{"from a message that it does not have", me, c.ID(), NewShare{Live: true, First: 99}, "no message 99"},
		{"a chat of somebody else", Principal{Owner: "other"}, c.ID(), NewShare{Live: true}, ErrNotFound.Error()},
		{"on behalf of nobody", Principal{}, c.ID(), NewShare{Live: true}, ErrNotFound.Error()},
	} {
		if _, err := s.Share(context.Background(), tc.who, tc.chat, tc.n); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
	share, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true})
	must(t, err)
	if err := s.EndShare(context.Background(), Principal{Owner: "other"}, c.ID(), share.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("somebody else ended a link: %v", err)
	}
	for range maxShares - 1 {
		_, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true})
		must(t, err)
	}
	if _, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true}); err == nil || !strings.Contains(err.Error(), "20 links already") {
		t.Errorf("a link too many: %v", err)
	}
	a.finish()
	hushed.finish()
	settle(c)
	settle(temporary)
}

func TestAFollowerMayDoNothingElse(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "Why?")
	a.finish()
	settle(c)
	other, b := start(t, s, engine, "What else?")
	b.finish()
	settle(other)
	share, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true})
	must(t, err)
	ctx := context.Background()
	who, err := s.Follower(ctx, share.Token)
	must(t, err)
	if _, err := s.Follower(ctx, share.Token[:20]); !errors.Is(err, ErrNotShared) {
		t.Errorf("a part of a link: %v", err)
	}
	question := question("Mine?")
	for name, do := range map[string]func() error{
		"read the chat":       func() error { _, err := s.Chat(ctx, who, c.ID()); return err },
		"subscribe":           func() error { _, _, err := c.Subscribe(ctx, who, 0); return err },
		"read a snapshot":     func() error { _, err := c.Snapshot(ctx, who, 0); return err },
		"read older messages": func() error { _, _, err := c.Older(ctx, who, 2); return err },
		"ask":                 func() error { return c.Send(ctx, who, question) },
		"begin a chat":        func() error { _, err := s.Start(ctx, who, question, false); return err },
		"stop":                func() error { return c.Stop(ctx, who, 0) },
		"list the chats":      func() error { _, err := s.Folders(ctx, who); return err },
		"list the presets":    func() error { _, err := s.Presets(ctx, who); return err },
		"list the links":      func() error { _, err := s.Shares(ctx, who, c.ID()); return err },
		"share on":            func() error { _, err := s.Share(ctx, who, c.ID(), NewShare{Live: true}); return err },
		"end the link":        func() error { return s.EndShare(ctx, who, c.ID(), share.ID) },
		"delete the chat":     func() error { return s.Delete(ctx, who, c.ID()) },
		"read another chat":   func() error { _, err := s.Chat(ctx, who, other.ID()); return err },
	} {
		if err := do(); !errors.Is(err, ErrNotFound) {
			t.Errorf("a follower may %s: %v", name, err)
		}
	}
	if _, _, err := s.Follow(ctx, me, 0); !errors.Is(err, ErrNotShared) {
		t.Errorf("who has no link follows: %v", err)
	}
	if _, err := s.Seat(ctx, me); !errors.Is(err, ErrNotShared) {
		t.Errorf("who has no link takes a seat: %v", err)
	}
}
