package live

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// follower is what a follower has read.
type follower struct {
	*Following
	ids   []int64
	texts map[int64]string
	read  []string // of the last call of take, as JSON
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

// take applies what came since, as a page does.
func (r *follower) take(t *testing.T) {
	t.Helper()
	events, err := r.Take()
	must(t, err)
	r.read = nil
	for _, e := range events {
		r.read = append(r.read, dump(e))
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
}

// shows compares with the branch of the chat from message first on.
func (r *follower) shows(t *testing.T, c *Chat, first int64) {
	t.Helper()
	list := snapshotOf(c).Messages
	at := 0
	if first != 0 {
		at = slices.IndexFunc(list, func(m Message) bool { return m.ID == first })
	}
	var want, got []string
	if at >= 0 {
		for _, m := range list[at:] {
			want = append(want, m.Reasoning+"|"+m.Text)
		}
	} else if len(r.read) > 1 || len(r.read) == 1 && strings.Contains(r.read[0], "message") {
		t.Fatalf("while message %d is not shown, a follower read %q", first, r.read)
	}
	for _, id := range r.ids {
		got = append(got, r.texts[id])
	}
	if !slices.Equal(got, want) {
		t.Fatalf("a follower from message %d on shows\n%q\nwant\n%q", first, got, want)
	}
}

// steps is how many commands an owner gives while others follow.
func steps() int {
	if os.Getenv("M40_LLM_TORTURE") != "" {
		return 20_000
	}
	return 250
}

func TestFollowersReadWhatTheirLinkShowsWhateverTheOwnerDoes(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t)), QueueEvents: 1 << 20, QueueBytes: 1 << 30})
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	secret := func(text string) Question {
		q := question(text)
		q.System, q.Settings.Seed, q.Settings.TopK = "secret system", 987654321, 77
		return q
	}
	answer := func(c *Chat) {
		a := <-engine.asked
		a.think("hm ")
		for range random.IntN(4) {
			a.write(fmt.Sprintf("word%d ", random.IntN(1000)))
		}
		a.finish()
		settle(c)
	}
	c, err := s.Start(context.Background(), me, secret("out of scope"), false)
	must(t, err)
	answer(c)
	must(t, c.Send(context.Background(), me, secret("from here")))
	answer(c)
	list := snapshotOf(c).Messages
	from := list[2].ID
	all, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true, System: true, Settings: true})
	must(t, err)
	some, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true, First: from})
	must(t, err)
	still, err := s.Share(context.Background(), me, c.ID(), NewShare{First: from})
	must(t, err)
	everything, part := follow(t, s, all.Token), follow(t, s, some.Token)
	frozen := follow(t, s, still.Token)

	ctx := context.Background()
	for range steps() {
		list := snapshotOf(c).Messages
		m := list[random.IntN(len(list))]
		if random.IntN(3) > 0 { // mostly near the end
			m = list[len(list)-1-random.IntN(min(3, len(list)))]
		}
		begins := true
		switch command := random.IntN(7); {
		case len(list) > 40:
			err = c.Edit(ctx, me, list[0].ID, secret("out of scope"))
		case command == 0 && m.Role == RoleUser:
			err = c.Edit(ctx, me, m.ID, secret(fmt.Sprintf("edit%d", random.IntN(1000))))
		case command == 1 && m.Role == RoleModel:
			err = c.Regenerate(ctx, me, m.ID, "secret system", secret("").Settings)
		case command == 2 && m.Role == RoleModel:
			err, begins = c.Rewrite(ctx, me, m.ID, fmt.Sprintf("by hand %d", random.IntN(1000)), ""), false
		case command == 3:
			err, begins = c.Select(ctx, me, m.ID, 1+random.IntN(m.Versions)), false
		case command == 4:
			err, begins = c.Select(ctx, me, from, 0), false
		case command == 5 && list[len(list)-1].Role == RoleModel:
			err = c.Continue(ctx, me, list[len(list)-1].ID, secret("").Settings)
		default:
			err = c.Send(ctx, me, secret(fmt.Sprintf("send%d", random.IntN(1000))))
		}
		must(t, err)
		if begins {
			answer(c)
		}
		everything.take(t)
		everything.shows(t, c, 0)
		part.take(t)
		part.shows(t, c, from)
		for _, event := range part.read {
			for _, hidden := range []string{"secret", "987654321", "out of scope", "TopK:77"} {
				if strings.Contains(event, hidden) {
					t.Fatalf("a follower read %q: %s", hidden, event)
				}
			}
		}
	}
	now := follow(t, s, still.Token)
	if !slices.Equal(now.ids, frozen.ids) {
		t.Errorf("a link to the chat as it was shows messages %v, then %v", frozen.ids, now.ids)
	}
	for id, text := range frozen.texts {
		reasoning, said, _ := strings.Cut(text, "|")
		nowReasoning, nowSaid, _ := strings.Cut(now.texts[id], "|")
		if !strings.HasPrefix(nowReasoning, reasoning) || !strings.HasPrefix(nowSaid, said) { // the answer may have been continued
			t.Errorf("a link to the chat as it was shows %q, then %q", text, now.texts[id])
		}
	}
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
		end  func(t *testing.T, s *Service, c *Chat, share Share)
	}{
		{"when its owner ends it", func(t *testing.T, s *Service, c *Chat, share Share) {
			must(t, s.EndShare(context.Background(), me, c.ID(), share.ID))
		}},
		{"when its chat goes to the trash", func(t *testing.T, s *Service, c *Chat, _ Share) {
			must(t, s.Delete(context.Background(), me, c.ID()))
		}},
		{"when its time is over", func(_ *testing.T, _ *Service, _ *Chat, share Share) {
			time.Sleep(time.Until(share.Expires) + 10*time.Millisecond)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
			c, a := start(t, s, engine, "Why?")
			a.write("Because.")
			a.finish()
			settle(c)
			share, err := s.Share(context.Background(), me, c.ID(), NewShare{Live: true, Life: 300 * time.Millisecond})
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
			if tc.name != "when its time is over" {
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
