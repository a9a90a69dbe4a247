package live

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// sharedChat is a chat with links, and their readers, to which its owner does what a test draws.
type sharedChat struct {
	*rapid.T
	s         *Service
	engine    *script
	c         *Chat
	links     []*testLink
	followers []*testFollower
	words     int // so far
	events    int // that followers got
}

type testLink struct {
	Share
	frozen []int64  // messages of a link to the chat as it is
	texts  []string // of these
}

type testFollower struct {
	*follower
	link *testLink
	seat *Seat
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

func (p *sharedChat) question() Question {
	q := question(p.word())
	q.System, q.Settings.Seed = hiddenSystem, hiddenSeed
	return q
}

// answer writes the answer that was asked for.
func (p *sharedChat) answer() {
	a := <-p.engine.asked
	a.think(p.word())
	for range rapid.IntRange(0, 3).Draw(p.T, "pieces") {
		a.write(p.word())
	}
	a.finish()
	for p.c.running() {
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

func (p *sharedChat) branch() []Message { return snapshotOf(p.c).Messages }

// message draws one of the branch with a role, mostly one near its end; false: there is none.
func (p *sharedChat) message(role Role) (m Message, ok bool) {
	list := slices.DeleteFunc(p.branch(), func(m Message) bool { return role != "" && m.Role != role })
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
	if m, ok := p.message(RoleUser); ok {
		p.must(p.c.Edit(context.Background(), me, m.ID, p.question()))
		p.answer()
	}
}

func (p *sharedChat) regenerate() {
	if m, ok := p.message(RoleModel); ok {
		p.must(p.c.Regenerate(context.Background(), me, m.ID, hiddenSystem, p.question().Settings))
		p.answer()
	}
}

func (p *sharedChat) rewrite() {
	if m, ok := p.message(RoleModel); ok {
		p.must(p.c.Rewrite(context.Background(), me, m.ID, p.word(), ""))
	}
}

func (p *sharedChat) resume() {
	if list := p.branch(); list[len(list)-1].Role == RoleModel {
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
	_, err := p.c.SetPanel(context.Background(), me, Panel{Settings: p.question().Settings}, hiddenSystem)
	p.must(err)
}

// another writes in a chat without links.
func (p *sharedChat) another() {
	c, err := p.s.Start(context.Background(), me, p.question(), true)
	p.must(err)
	(<-p.engine.asked).finish()
	settle(c)
}

func (p *sharedChat) share() {
	if len(p.links) >= maxLinks {
		return
	}
	n := NewShare{Live: rapid.Bool().Draw(p.T, "live"), System: rapid.Bool().Draw(p.T, "system"), Settings: rapid.Bool().Draw(p.T, "settings")}
	if m, ok := p.message(""); ok && rapid.Bool().Draw(p.T, "part") {
		n.First = m.ID
	}
	made, err := p.s.Share(context.Background(), me, p.c.ID(), n)
	p.must(err)
	link := &testLink{Share: made}
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
	who, err := p.s.Follower(context.Background(), link.Token)
	p.must(err)
	seat, err := p.s.Seat(context.Background(), who)
	p.must(err)
	following, shown, err := p.s.Follow(context.Background(), who, 0)
	p.must(err)
	f := &testFollower{&follower{Following: following, texts: map[int64]string{}}, link, seat}
	f.put(shown.Messages)
	p.followers = append(p.followers, f)
	text := shown.System
	for _, m := range shown.Messages {
		text += dump(Event{Message: &m})
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
	p.must(p.s.EndShare(context.Background(), me, p.c.ID(), link.ID))
	p.ended(link)
}

func (p *sharedChat) ended(link *testLink) {
	if _, err := p.s.Follower(context.Background(), link.Token); !errors.Is(err, ErrNotShared) {
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
		p.must(p.s.EndShare(context.Background(), me, p.c.ID(), link.ID))
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
func from(list []Message, first int64) []Message {
	if first == 0 {
		return list
	}
	at := slices.IndexFunc(list, func(m Message) bool { return m.ID == first })
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
