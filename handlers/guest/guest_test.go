package guest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"m40-llm/handlers/access"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var me = access.Local

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// visited are stored chats with guests, and the engine that answers.
type visited struct {
	*live.Service
	guests *guest.Service
	engine *handlerstest.Script
}

func visit(db *store.Store, opt live.Options, guests guest.Options) *visited {
	engine := handlerstest.NewScript()
	opt.Store, opt.Log = db, slog.New(slog.DiscardHandler)
	chats := live.New(engine, opt)
	return &visited{chats, guest.New(chats, guests), engine}
}

func newVisited(t testing.TB, guests guest.Options) *visited {
	t.Helper()
	v := visit(handlerstest.OpenStoreAt(t, filepath.Join(t.TempDir(), "data", "chats.db")), live.Options{}, guests)
	t.Cleanup(v.Close)
	return v
}

func question(text string) live.Question {
	return live.Question{Text: text, Settings: setting.Default()}
}

// start begins a chat whose answer is still to be written.
func (v *visited) start(t testing.TB, text string) (*live.Chat, *handlerstest.ScriptedAnswer) {
	t.Helper()
	c, err := v.Start(context.Background(), me, question(text), false)
	must(t, err)
	return c, v.engine.Next(t)
}

func snapshotOf(c *live.Chat) *live.Snapshot {
	s, err := c.Snapshot(context.Background(), me, 0)
	if err != nil {
		panic(err)
	}
	return s
}

// running reports whether an answer of the chat is being written.
func (v *visited) running(c *live.Chat) bool { return v.Running(me, c.ID()) }

// settle waits until no answer of the chat runs.
func (v *visited) settle(c *live.Chat) {
	for v.running(c) {
		time.Sleep(20 * time.Microsecond)
	}
}

func second[T any](_ T, err error) error { return err }

// follower is what a follower has read.
type follower struct {
	*guest.Following
	ids   []int64
	texts map[int64]string
}

func follow(t *testing.T, s *visited, token string) *follower {
	t.Helper()
	who, err := s.Links.Follower(context.Background(), token)
	must(t, err)
	f, shown, err := s.guests.Follow(context.Background(), who, 0)
	must(t, err)
	t.Cleanup(f.Close)
	r := &follower{Following: f, texts: map[int64]string{}}
	r.put(shown.Messages)
	return r
}

func (r *follower) put(list []live.Message) {
	for _, m := range list {
		r.ids, r.texts[m.ID] = append(r.ids, m.ID), m.Reasoning+"|"+m.Text
	}
}

// dump spells an event with all that it points to.
func dump(e live.Event) string {
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
func (r *follower) apply(e live.Event) {
	switch e.Type {
	case live.EventBranch:
		r.ids = r.ids[:slices.Index(r.ids, e.ID)+1]
		r.put(e.Messages)
	case live.EventText:
		reasoning, text, _ := strings.Cut(r.texts[e.ID], "|")
		r.texts[e.ID] = reasoning + e.Reasoning + "|" + text + e.Text
	case live.EventEnd:
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
	db := handlerstest.OpenStoreAt(t, filepath.Join(t.TempDir(), "data", "chats.db"))
	total, events := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := &sharedChat{T: t, s: visit(db, live.Options{QueueEvents: 1 << 20, QueueBytes: 1 << 30}, guest.Options{})}
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
	s := newVisited(t, guest.Options{})
	q := question("Why?")
	q.System, q.Settings.Seed = "Be brief.", 4711
	c, err := s.Start(context.Background(), me, q, false)
	must(t, err)
	a := s.engine.Next(t)
	a.Write("Because.")
	a.Finish()
	s.settle(c)
	for _, system := range []bool{false, true} {
		for _, settings := range []bool{false, true} {
			share, err := s.Links.Add(context.Background(), me, c.ID(), links.Wanted{Live: true, System: system, Settings: settings})
			must(t, err)
			who, err := s.Links.Follower(context.Background(), share.Token)
			must(t, err)
			f, shown, err := s.guests.Follow(context.Background(), who, 0)
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
		end  func(t *testing.T, s *visited, c *live.Chat, share links.Link)
	}{
		{"when its owner ends it", 0, func(t *testing.T, s *visited, c *live.Chat, share links.Link) {
			must(t, s.Links.End(context.Background(), me, c.ID(), share.ID))
		}},
		{"when its chat goes to the trash", 0, func(t *testing.T, s *visited, c *live.Chat, _ links.Link) {
			must(t, s.Delete(context.Background(), me, c.ID()))
		}},
		{"when its time is over", time.Hour, func(_ *testing.T, _ *visited, _ *live.Chat, share links.Link) {
			time.Sleep(time.Until(share.Expires) + 10*time.Millisecond)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newVisited(t, guest.Options{})
				c, a := s.start(t, "Why?")
				a.Write("Because.")
				a.Finish()
				s.settle(c)
				share, err := s.Links.Add(context.Background(), me, c.ID(), links.Wanted{Live: true, Life: tc.life})
				must(t, err)
				f := follow(t, s, share.Token)
				who, err := s.Links.Follower(context.Background(), share.Token)
				must(t, err)
				seat, err := s.Links.Seat(context.Background(), who)
				must(t, err)
				defer seat.Close()
				changed := s.Links.Changed()
				tc.end(t, s, c, share)
				for ended := false; !ended; {
					select {
					case <-seat.Ended():
						ended = true
					case <-f.Ready():
						_, err := f.Take()
						ended = errors.Is(err, links.ErrNotShared)
					}
				}
				if _, err := s.Links.Follower(context.Background(), share.Token); !errors.Is(err, links.ErrNotShared) {
					t.Errorf("the link still works: %v", err)
				}
				if any, _, err := s.Links.Any(context.Background()); any || err != nil {
					t.Errorf("something is still shared: %v", err)
				}
				if tc.life == 0 {
					<-changed // else the test hangs
				}
			})
		})
	}
}

// writing shares a chat with one answer, gives the keyboard to Ada, and returns her principal.
func writing(t *testing.T, s *visited, n links.Wanted) (c *live.Chat, link links.Link, ada live.Principal) {
	t.Helper()
	c, a := s.start(t, "Why?")
	a.Write("Because.")
	a.Finish()
	s.settle(c)
	link, err := s.Links.Add(context.Background(), me, c.ID(), n)
	must(t, err)
	who, err := s.Links.Follower(context.Background(), link.Token)
	must(t, err)
	secret, err := s.guests.AskToWrite(context.Background(), who, "Ada", "")
	must(t, err)
	must(t, s.guests.SetWriter(me, c, s.guests.Asker(who, secret), guest.WriterWrites))
	return c, link, s.guests.Writing(who, secret)
}

func TestAWriterWritesAndNothingElse(t *testing.T) {
	ctx := context.Background()
	s := newVisited(t, guest.Options{})
	c, _, ada := writing(t, s, links.Wanted{Live: true})
	_, err := c.SetPanel(ctx, me, live.Panel{Settings: question("").Settings}, "Be brief.")
	must(t, err)
	must(t, s.guests.Write(ctx, ada, "And snow?"))
	a := s.engine.Next(t)
	if a.Request.Client != me.Owner || strings.Contains(fmt.Sprint(a.Request.Messages), "Ada") || a.Request.Messages[0].Content != "Be brief." {
		t.Errorf("the engine is asked %+v for %q", a.Request.Messages, a.Request.Client)
	}
	a.Write("Slow rain.")
	for range 10 { // these do not use up what she may write
		if err := s.guests.Write(ctx, ada, "Now!"); err == nil || !strings.Contains(err.Error(), "while an answer is being written") {
			t.Errorf("while an answer is written: %v", err)
		}
	}
	must(t, s.guests.StopOwn(ctx, ada))
	s.settle(c)
	list := snapshotOf(c).Messages
	if q := list[len(list)-2]; q.Author != "Ada" || q.Text != "And snow?" || list[0].Author != "" {
		t.Errorf("the question is %+v", q)
	}
	must(t, c.Send(ctx, me, question("And hail?")))
	own := s.engine.Next(t)
	if err := s.guests.StopOwn(ctx, ada); err != guest.ErrNotYours {
		t.Errorf("stopping the answer to another's message: %v", err)
	}
	own.Finish()
	s.settle(c)
	last := snapshotOf(c).Messages[len(list)+1]
	for name, err := range map[string]error{
		"open":       second(s.Chat(ctx, ada, c.ID())),
		"send":       c.Send(ctx, ada, question("x")),
		"edit":       c.Edit(ctx, ada, list[0].ID, question("x")),
		"regenerate": c.Regenerate(ctx, ada, last.ID, "", setting.Default()),
		"rewrite":    c.Rewrite(ctx, ada, last.ID, "x", ""),
		"continue":   c.Continue(ctx, ada, last.ID, setting.Default()),
		"past end":   c.ContinuePastEnd(ctx, ada, last.ID, setting.Default()),
		"rewind":     c.Rewind(ctx, ada, last.ID, 0, live.Next{}, setting.Default()),
		"select":     c.Select(ctx, ada, list[0].ID, 0),
		"stop":       c.Stop(ctx, ada, 0),
		"panel":      second(c.SetPanel(ctx, ada, live.Panel{Settings: setting.Default()}, "")),
		"fork":       second(s.Fork(ctx, ada, c, last.ID)),
		"share":      second(s.Links.Add(ctx, ada, c.ID(), links.Wanted{})),
		"writers":    s.guests.SetWriter(ada, c, ada.Writer, guest.WriterWrites),
		"keyboard":   func() error { _, _, err := s.guests.WriteAccess(t.Context(), ada, c); return err }(),
		"requests":   s.guests.AcceptRequests(ctx, ada, c.ID(), ada.Share.ID, true),
		"type":       s.guests.OwnerTypes(ada, c),
		"rename":     s.Rename(ctx, ada, c.ID(), "x"),
		"model":      s.SetModel(ctx, ada, c.ID(), "x"),
		"delete":     s.Delete(ctx, ada, c.ID()),
	} {
		if !errors.Is(err, owned.ErrNotFound) {
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
	s.engine.Next(t).Finish()
	s.settle(c)
	if m := snapshotOf(c).Messages[2]; m.Author != "" {
		t.Errorf("what the owner asks in place of it is %+v", m)
	}
}

func TestTheKeyboardIsGone(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		end  func(t *testing.T, s *visited, c *live.Chat, link links.Link, ada live.Principal)
		want error
	}{
		{"when the owner takes it back", func(t *testing.T, s *visited, c *live.Chat, _ links.Link, ada live.Principal) {
			must(t, s.guests.SetWriter(me, c, ada.Writer, guest.WriterEnded))
		}, guest.ErrNoKeyboard},
		{"when the link ends", func(t *testing.T, s *visited, c *live.Chat, link links.Link, _ live.Principal) {
			must(t, s.Links.End(ctx, me, c.ID(), link.ID))
		}, guest.ErrNoKeyboard},
		{"when the chat goes to the trash", func(t *testing.T, s *visited, c *live.Chat, _ links.Link, _ live.Principal) {
			must(t, s.Delete(ctx, me, c.ID()))
		}, guest.ErrNoKeyboard},
		{"when the chat comes from the trash", func(t *testing.T, s *visited, c *live.Chat, _ links.Link, _ live.Principal) {
			must(t, s.Delete(ctx, me, c.ID()))
			must(t, s.Restore(ctx, me, c.ID()))
		}, guest.ErrNoKeyboard},
		{"when nothing is written for long", func(t *testing.T, s *visited, c *live.Chat, _ links.Link, _ live.Principal) {
			for writers := 1; writers > 0; {
				held, changed, err := s.guests.WriteAccess(t.Context(), me, c)
				must(t, err)
				if writers = len(held.Writers); writers > 0 {
					<-changed
				}
			}
		}, guest.ErrNoKeyboard},
		{"when its owner is removed", func(_ *testing.T, s *visited, _ *live.Chat, _ links.Link, _ live.Principal) { s.Forget(me.Owner) }, guest.ErrNoKeyboard},
		{"with another link to the chat", func(t *testing.T, s *visited, c *live.Chat, _ links.Link, ada live.Principal) {
			other, err := s.Links.Add(ctx, me, c.ID(), links.Wanted{Live: true})
			must(t, err)
			who, err := s.Links.Follower(ctx, other.Token)
			must(t, err)
			*ada.Share = *who.Share
		}, guest.ErrNoKeyboard},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := guest.Options{}
			if tc.name == "when nothing is written for long" {
				options.Idle = 2 * time.Second
			}
			s := newVisited(t, options)
			c, link, ada := writing(t, s, links.Wanted{Live: true})
			tc.end(t, s, c, link, ada)
			for name, err := range map[string]error{"write": s.guests.Write(ctx, ada, "x"), "stop": s.guests.StopOwn(ctx, ada), "type": s.guests.Typing(ada)} {
				if !errors.Is(err, tc.want) {
					t.Errorf("%s: %v, want %v", name, err, tc.want)
				}
			}
		})
	}
}

func TestAWriterDoesNotWriteWhereTheLinkShowsNothing(t *testing.T) {
	ctx := context.Background()
	s := newVisited(t, guest.Options{})
	c, a := s.start(t, "Why?")
	a.Finish()
	s.settle(c)
	must(t, c.Send(ctx, me, question("From here")))
	s.engine.Next(t).Finish()
	s.settle(c)
	list := snapshotOf(c).Messages
	link, err := s.Links.Add(ctx, me, c.ID(), links.Wanted{Live: true, First: list[2].ID})
	must(t, err)
	frozen, err := s.Links.Add(ctx, me, c.ID(), links.Wanted{})
	must(t, err)
	still, err := s.Links.Follower(ctx, frozen.Token)
	must(t, err)
	if _, err := s.guests.AskToWrite(ctx, still, "Ada", ""); err != guest.ErrNoRequests {
		t.Errorf("asking by a link to the chat as it was: %v", err)
	}
	who, err := s.Links.Follower(ctx, link.Token)
	must(t, err)
	secret, err := s.guests.AskToWrite(ctx, who, "Ada", "")
	must(t, err)
	must(t, s.guests.SetWriter(me, c, s.guests.Asker(who, secret), guest.WriterWrites))
	ada := s.guests.Writing(who, secret)
	must(t, c.Edit(ctx, me, list[0].ID, question("Out of scope")))
	s.engine.Next(t).Finish()
	s.settle(c)
	if err := s.guests.Write(ctx, ada, "x"); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("writing below messages that the link does not show: %v", err)
	}
	must(t, c.Select(ctx, me, list[2].ID, 0))
	must(t, s.guests.Write(ctx, ada, "x"))
	s.engine.Next(t).Finish()
	s.settle(c)
}

func TestNoMoreRequestsOnALink(t *testing.T) {
	ctx := context.Background()
	s := newVisited(t, guest.Options{})
	c, link, ada := writing(t, s, links.Wanted{Live: true})
	who, err := s.Links.Follower(ctx, link.Token)
	must(t, err)
	secret, err := s.guests.AskToWrite(ctx, who, "Ben", "")
	must(t, err)
	ben := s.guests.Asker(who, secret)
	must(t, s.guests.AcceptRequests(ctx, me, c.ID(), link.ID, false))
	if r, _ := s.guests.ReaderAccess(who, ben); r.State != guest.WriterRefused || r.Accepts {
		t.Errorf("who asked sees %+v", r)
	}
	if r, _ := s.guests.ReaderAccess(who, ada.Writer); r.State != guest.WriterWrites {
		t.Errorf("who writes sees %+v", r)
	}
	stored, err := s.Links.Follower(ctx, link.Token)
	must(t, err)
	for name, who := range map[string]live.Principal{"who had the link before": who, "who gets it now": stored} {
		if _, err := s.guests.AskToWrite(ctx, who, "Cem", ""); err != guest.ErrNoRequests {
			t.Errorf("%s asks: %v", name, err)
		}
	}
	if stored.Share.Requests {
		t.Error("it is not stored")
	}
	must(t, s.guests.AcceptRequests(ctx, me, c.ID(), link.ID, true))
	if _, err := s.guests.AskToWrite(ctx, who, "Cem", ""); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another person":    s.guests.AcceptRequests(ctx, live.Principal{Owner: "another"}, c.ID(), link.ID, false),
		"a link of nothing": s.guests.AcceptRequests(ctx, me, c.ID(), 999, false),
	} {
		if err == nil {
			t.Errorf("%s sets it", name)
		}
	}
}

// sharedChat is a chat with links, and their readers, to which its owner does what a test draws.
type sharedChat struct {
	*rapid.T
	s         *visited
	c         *live.Chat
	links     []*testLink
	followers []*testFollower
	words     int // so far
	events    int // that followers got
}

type testLink struct {
	links.Link
	frozen []int64  // messages of a link to the chat as it is
	texts  []string // of these
}

type testFollower struct {
	*follower
	link *testLink
	seat *links.Seat
}

const (
	hiddenSystem = "hiddenprompt"
	hiddenSeed   = 987654321
	maxLinks     = 4
	maxReading   = 6
	maxBranch    = 24 // messages
)

func (p *sharedChat) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// word returns a text that no other message has.
func (p *sharedChat) word() string {
	p.words++
	return fmt.Sprintf("w%dw ", p.words)
}

var words = regexp.MustCompile(`w\d+w`)

func (p *sharedChat) question() live.Question {
	q := question(p.word())
	q.System, q.Settings.Seed = hiddenSystem, hiddenSeed
	return q
}

// answer writes the answer that was asked for.
func (p *sharedChat) answer() {
	a := <-p.s.engine.Answers
	a.Think(p.word())
	for range rapid.IntRange(0, 3).Draw(p.T, "pieces") {
		a.Write(p.word())
	}
	a.Finish()
	for p.s.running(p.c) {
		time.Sleep(20 * time.Microsecond)
	}
}

func (p *sharedChat) begin() {
	c, err := p.s.Start(context.Background(), me, p.question(), false)
	p.must(err)
	p.c = c
	p.answer()
	p.send()
}

func (p *sharedChat) close() {
	for _, f := range p.followers {
		f.close()
	}
	p.s.Close()
}

func (f *testFollower) close() {
	f.Close()
	f.seat.Close()
}

func (p *sharedChat) branch() []live.Message { return snapshotOf(p.c).Messages }

// message draws one of the branch with a role, mostly one near its end; false: there is none.
func (p *sharedChat) message(role live.Role) (m live.Message, ok bool) {
	list := slices.DeleteFunc(p.branch(), func(m live.Message) bool { return role != "" && m.Role != role })
	if len(list) == 0 {
		return m, false
	}
	back := rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3, 5, 100}).Draw(p.T, "from the end")
	return list[max(0, len(list)-1-back)], true
}

func (p *sharedChat) send() {
	if list := p.branch(); len(list) > maxBranch { // begin anew, with another first message
		p.must(p.c.Edit(context.Background(), me, list[0].ID, p.question()))
	} else {
		p.must(p.c.Send(context.Background(), me, p.question()))
	}
	p.answer()
}

func (p *sharedChat) edit() {
	if m, ok := p.message(live.RoleUser); ok {
		p.must(p.c.Edit(context.Background(), me, m.ID, p.question()))
		p.answer()
	}
}

func (p *sharedChat) regenerate() {
	if m, ok := p.message(live.RoleModel); ok {
		p.must(p.c.Regenerate(context.Background(), me, m.ID, hiddenSystem, p.question().Settings))
		p.answer()
	}
}

func (p *sharedChat) rewrite() {
	if m, ok := p.message(live.RoleModel); ok {
		p.must(p.c.Rewrite(context.Background(), me, m.ID, p.word(), ""))
	}
}

func (p *sharedChat) resume() {
	if list := p.branch(); list[len(list)-1].Role == live.RoleModel {
		p.must(p.c.Continue(context.Background(), me, list[len(list)-1].ID, p.question().Settings))
		p.answer()
	}
}

func (p *sharedChat) selectVersion() {
	if m, ok := p.message(""); ok {
		p.must(p.c.Select(context.Background(), me, m.ID, rapid.IntRange(1, m.Versions).Draw(p.T, "version")))
	}
}

// setSystem changes what the next answers are sampled with.
func (p *sharedChat) setSystem() {
	_, err := p.c.SetPanel(context.Background(), me, live.Panel{Settings: p.question().Settings}, hiddenSystem)
	p.must(err)
}

// another writes in a chat without links.
func (p *sharedChat) another() {
	c, err := p.s.Start(context.Background(), me, p.question(), true)
	p.must(err)
	(<-p.s.engine.Answers).Finish()
	p.s.settle(c)
}

func (p *sharedChat) share() {
	if len(p.links) >= maxLinks {
		return
	}
	n := links.Wanted{Live: rapid.Bool().Draw(p.T, "live"), System: rapid.Bool().Draw(p.T, "system"), Settings: rapid.Bool().Draw(p.T, "settings")}
	if m, ok := p.message(""); ok && rapid.Bool().Draw(p.T, "part") {
		n.First = m.ID
	}
	made, err := p.s.Links.Add(context.Background(), me, p.c.ID(), n)
	p.must(err)
	link := &testLink{Link: made}
	if !n.Live {
		for _, m := range from(p.branch(), n.First) {
			link.frozen = append(link.frozen, m.ID)
			link.texts = append(link.texts, m.Reasoning+"|"+m.Text)
		}
	}
	p.links = append(p.links, link)
	p.followLink(link)
}

func (p *sharedChat) follow() {
	if len(p.links) > 0 {
		p.followLink(rapid.SampledFrom(p.links).Draw(p.T, "link"))
	}
}

func (p *sharedChat) followLink(link *testLink) {
	if len(p.followers) >= maxReading {
		return
	}
	who, err := p.s.Links.Follower(context.Background(), link.Token)
	p.must(err)
	seat, err := p.s.Links.Seat(context.Background(), who)
	p.must(err)
	following, shown, err := p.s.guests.Follow(context.Background(), who, 0)
	p.must(err)
	f := &testFollower{&follower{Following: following, texts: map[int64]string{}}, link, seat}
	f.put(shown.Messages)
	p.followers = append(p.followers, f)
	text := shown.System
	for _, m := range shown.Messages {
		text += dump(live.Event{Message: &m})
	}
	p.within(f, text)
	for i, id := range link.frozen {
		if !slices.Equal(f.ids, link.frozen) || f.texts[id] != link.texts[i] {
			p.Fatalf("a reader of the chat as it was has messages %v, %q, want %v, %q", f.ids, fmt.Sprint(f.texts), link.frozen, link.texts)
		}
	}
}

func (p *sharedChat) leave() {
	if len(p.followers) > 0 {
		i := rapid.IntRange(0, len(p.followers)-1).Draw(p.T, "reader")
		p.followers[i].close()
		p.followers = slices.Delete(p.followers, i, i+1)
	}
}

// endLink ends a link: its readers are told so, and nobody follows it any more.
func (p *sharedChat) endLink() {
	if len(p.links) == 0 {
		return
	}
	link := rapid.SampledFrom(p.links).Draw(p.T, "link")
	p.must(p.s.Links.End(context.Background(), me, p.c.ID(), link.ID))
	p.ended(link)
}

func (p *sharedChat) ended(link *testLink) {
	if _, err := p.s.Links.Follower(context.Background(), link.Token); !errors.Is(err, links.ErrNotShared) {
		p.Fatalf("a link that has ended still leads somewhere: %v", err)
	}
	p.followers = slices.DeleteFunc(p.followers, func(f *testFollower) bool {
		if f.link != link {
			return false
		}
		select {
		case <-f.seat.Ended():
		default:
			p.Fatal("a reader of a link that has ended was not told so")
		}
		f.close()
		return true
	})
	p.links = slices.DeleteFunc(p.links, func(other *testLink) bool { return other == link })
}

// throwAway moves the chat to the trash, where no link leads to it, and back.
func (p *sharedChat) throwAway() {
	if !rapid.Bool().Draw(p.T, "sure") {
		return
	}
	for _, link := range p.links { // those that are restored with the chat are another test's
		p.must(p.s.Links.End(context.Background(), me, p.c.ID(), link.ID))
	}
	p.must(p.s.Delete(context.Background(), me, p.c.ID()))
	for len(p.links) > 0 {
		p.ended(p.links[0])
	}
	p.must(p.s.Restore(context.Background(), me, p.c.ID()))
	c, err := p.s.Chat(context.Background(), me, p.c.ID())
	p.must(err)
	p.c = c
}

// from returns the messages from the one with an id on; all if first is 0, none if it is not among them.
func from(list []live.Message, first int64) []live.Message {
	if first == 0 {
		return list
	}
	at := slices.IndexFunc(list, func(m live.Message) bool { return m.ID == first })
	if at < 0 {
		return nil
	}
	return list[at:]
}

// check has all readers read, and compares.
func (p *sharedChat) check() {
	for _, f := range p.followers {
		if f.link.frozen != nil { // nothing follows
			continue
		}
		events, err := f.Take()
		p.must(err)
		for _, e := range events {
			p.events++
			f.apply(e)
			p.within(f, dump(e))
		}
		var want, got []string
		for _, m := range from(p.branch(), f.link.First) {
			want = append(want, m.Reasoning+"|"+m.Text)
		}
		for _, id := range f.ids {
			got = append(got, f.texts[id])
		}
		if !slices.Equal(got, want) {
			p.Fatalf("a reader from message %d on shows\n%q\nwant\n%q", f.link.First, got, want)
		}
	}
}

// within fails if something that a reader was sent has more than its link shows.
func (p *sharedChat) within(f *testFollower, sent string) {
	if !f.link.System && strings.Contains(sent, hiddenSystem) {
		p.Fatalf("a reader got the system prompt: %s", sent)
	}
	if !f.link.Settings && strings.Contains(sent, fmt.Sprint(hiddenSeed)) {
		p.Fatalf("a reader got the settings: %s", sent)
	}
	shown := map[string]bool{}
	branch := p.branch()
	if f.link.frozen != nil {
		branch = nil
	}
	for _, m := range from(branch, f.link.First) {
		for _, word := range words.FindAllString(m.Reasoning+m.Text, -1) {
			shown[word] = true
		}
	}
	for _, text := range f.link.texts {
		for _, word := range words.FindAllString(text, -1) {
			shown[word] = true
		}
	}
	for _, word := range words.FindAllString(sent, -1) {
		if !shown[word] {
			p.Fatalf("a reader from message %d on got %s, which is out of what the link shows: %s", f.link.First, word, sent)
		}
	}
}
