package live

import (
	"context"
	"slices"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer/record"
	"m40-llm/store"
)

// SharedChat is what a link shows of a chat.
type SharedChat struct {
	Title     string
	System    string // prompt of the last answer, if the link shows it
	Raw       bool
	Live      bool // more may follow
	Expires   time.Time
	Messages  []Message // at most a page
	More      bool      // the link shows messages before these
	Elsewhere bool      // the chat shows another branch now, in which the first message of the link is not
}

// Seat is a reader of a shared chat: it is counted, and learns when the link has ended.
type Seat struct {
	service *Service
	share   store.Share
	ended   chan struct{}
	ends    sync.Once
	expires *time.Timer
}

// Seat lists a reader of the chat that who has a link to, until Close.
func (s *Service) Seat(ctx context.Context, who Principal) (*Seat, error) {
	if err := mayFollow(who); err != nil {
		return nil, err
	}
	seat := &Seat{service: s, share: *who.Share, ended: make(chan struct{})}
	if err := s.shares.add(seat); err != nil {
		return nil, err
	}
	if expires := seat.share.Expires; !expires.IsZero() {
		seat.expires = time.AfterFunc(expires.Sub(s.opt.Now()), seat.end)
	}
	// A link that was ended after who got it, and before the reader was listed, has not ended it.
	if _, err := s.opt.Store.SharedBy(ctx, seat.share.ID); err != nil {
		seat.Close()
		return nil, notShared(StoreError(err))
	}
	return seat, nil
}

// Ended is closed when the link has expired or was ended, or its chat has gone to the trash.
func (s *Seat) Ended() <-chan struct{} { return s.ended }

func (s *Seat) end() { s.ends.Do(func() { close(s.ended) }) }

// Close lists the reader no more.
func (s *Seat) Close() {
	if s.expires != nil {
		s.expires.Stop()
	}
	s.service.shares.remove(s)
}

// mayFollow authorizes who to read what its link shows.
func mayFollow(who Principal) error {
	if who.Share == nil {
		return ErrNotShared
	}
	return notShared(Authorize(who, access.ActionFollow, access.Object{Kind: access.KindChat, Owner: who.Share.Owner, ID: who.Share.Conversation}))
}

// Following reads what a link shows: the events of its chat, without what the link does not show.
// It goes on when the link ends; a Seat says when. It is for one goroutine.
type Following struct {
	service *Service
	chat    *Chat
	share   store.Share
	sub     *Subscription // nil: the link does not follow the chat
	branch  []int64       // messages that the link shows, oldest first

	pictures []string // hashes of those in branch, when it was last taken whole
}

// Follow begins to read the chat that who has a link to, with the messages before one of them;
// 0: the last.
func (s *Service) Follow(ctx context.Context, who Principal, before int64) (*Following, *SharedChat, error) {
	if err := mayFollow(who); err != nil {
		return nil, nil, err
	}
	share := *who.Share
	c, err := s.load(ctx, share.Owner, share.Conversation)
	if err != nil {
		return nil, nil, notShared(err)
	}
	f := &Following{service: s, chat: c, share: share}
	shown, err := f.begin(ctx, before)
	if err != nil {
		return nil, nil, notShared(err)
	}
	return f, shown, nil
}

// notShared is what a reader learns of a chat that is gone: what it learns of a wrong link.
func notShared(err error) error {
	if err == ErrNotFound || err == ErrGone {
		return ErrNotShared
	}
	return err
}

// begin takes the messages as they are, and subscribes if the link follows the chat.
func (f *Following) begin(ctx context.Context, before int64) (*SharedChat, error) {
	var turns branch
	if f.share.Last != 0 {
		stored, err := f.service.opt.Store.BranchTo(ctx, f.share.Owner, f.share.Conversation, f.share.Last)
		if err != nil {
			return nil, StoreError(err)
		}
		f.cut(&stored[len(stored)-1])
		turns = storedBranch(stored)
	}
	c := f.chat
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return nil, ErrNotFound
	}
	if f.share.Last == 0 {
		turns = c.branch
		f.sub = c.subscription()
		c.readers.add(f.sub, 0)
	}
	return f.show(turns, before), nil
}

// cut removes of the last message that the link shows what it was continued with since the link was
// made.
func (f *Following) cut(m *store.Message) {
	if n := f.share.LastText; n >= 0 && n < len(m.Text) {
		m.Text = m.Text[:n]
	}
	if n := f.share.LastReasoning; n >= 0 && n < len(m.Reasoning) {
		m.Reasoning = m.Reasoning[:n]
	}
	if f.share.LastText >= 0 && m.State == store.Running {
		m.State = store.Done
	}
}

// show returns what the link shows of a branch, with the lock of the chat.
func (f *Following) show(turns branch, before int64) *SharedChat {
	shown := &SharedChat{
		Title: f.chat.metadata.Title, Raw: f.chat.metadata.Raw, Live: f.share.Last == 0, Expires: f.share.Expires,
		Elsewhere: f.share.First != 0,
	}
	at := 0
	if f.share.First != 0 {
		at = slices.IndexFunc(turns, func(t *turn) bool { return t.ID == f.share.First })
	}
	f.branch, f.pictures = nil, nil
	if at < 0 {
		return shown
	}
	shown.Elsewhere = false
	turns = turns[at:]
	for _, t := range turns {
		f.branch = append(f.branch, t.ID)
		for _, p := range t.Pictures {
			f.pictures = append(f.pictures, p.Hash)
		}
		if f.share.System && t.Answer != nil && !t.Answer.Rewritten {
			shown.System = t.Answer.System
		}
	}
	to := slices.Index(f.branch, before)
	if to < 0 {
		to = len(turns)
	}
	from := max(0, to-f.chat.service.opt.Page)
	for _, m := range turns[from:to].messages() {
		shown.Messages = append(shown.Messages, f.visible(m))
	}
	shown.More = from > 0
	return shown
}

// visible returns of a message what the link shows.
func (f *Following) visible(m Message) Message {
	m.Parent, m.Version, m.Versions = 0, 1, 1
	if m.Answer == nil {
		return m
	}
	a := m.Answer
	m.Answer = &Answer{
		State: a.State, Rewritten: a.Rewritten, Error: a.Error, Progress: a.Progress, Blocks: a.Blocks, Thinking: a.Thinking, Settings: DefaultSettings(),
		Answer: store.Answer{Context: a.Context, Edited: a.Edited, Call: a.Call, Answer: record.Answer{
			End: a.End, Usage: a.Usage, Timings: a.Timings, Receipt: record.Receipt{Model: a.Receipt.Model},
		}},
	}
	m.Answer.Settings.MaxTokens = a.Settings.MaxTokens // which may be why it ended
	if f.share.Settings {
		m.Answer.Settings, m.Answer.Receipt.Device = a.Settings, a.Receipt.Device
	}
	return m
}

// Ready is signalled when Take has something to say; never if the link does not follow the chat.
func (f *Following) Ready() <-chan struct{} {
	if f.sub == nil {
		return nil
	}
	return f.sub.Ready()
}

// Take returns the events since the last call: EventBranch, which stands for EventMessage too,
// EventProgress, EventText, EventBlock, EventEnd and EventTitle. They have no numbers. An EventBranch with ID 0
// and no messages says that the chat shows another branch now. Its error ends the reading: ErrSlow
// or ErrNotShared.
func (f *Following) Take() (list []Event, err error) {
	events, err := f.sub.Take()
	list, again := f.followAll(events)
	if again {
		shown, err := f.restart()
		return append(list, Event{Type: EventBranch, Messages: shown, More: len(shown) < len(f.branch)}), err
	}
	return list, notShared(err)
}

// Snapshot returns the events since the last call of Take or Snapshot, as Take does, and the chat as
// it is after them.
func (f *Following) Snapshot(ctx context.Context) (list []Event, shown *SharedChat, err error) {
	if f.sub == nil {
		shown, err = f.begin(ctx, 0)
		return nil, shown, notShared(err)
	}
	c := f.chat
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return nil, nil, ErrNotShared
	}
	events, err := f.sub.Take()
	if err != nil {
		return nil, nil, notShared(err)
	}
	list, again := f.followAll(events)
	if shown = f.show(c.branch, 0); again {
		list = append(list, Event{Type: EventBranch, Messages: shown.Messages, More: shown.More})
	}
	return list, shown, nil
}

// followAll returns what a reader gets of events. again says that what follows them is only told by
// the whole branch.
func (f *Following) followAll(events []Event) (list []Event, again bool) {
	for i := range events {
		e, again := f.follow(&events[i])
		if again {
			return list, true
		}
		if e != nil {
			e.First, e.Seq = 0, 0
			list = append(list, *e)
		}
	}
	return list, false
}

// follow returns what a reader gets of an event: nothing if it is about what the link does not
// show. again says that only the whole branch tells what the link shows now.
func (f *Following) follow(e *Event) (visible *Event, again bool) {
	switch e.Type {
	case EventTitle:
		return &Event{Type: e.Type, Text: e.Text}, false
	case EventProgress, EventText, EventBlock, EventEnd:
		if !slices.Contains(f.branch, e.ID) {
			return nil, false
		}
		out := *e
		out.Row = nil
		if e.Message != nil {
			m := f.visible(*e.Message)
			out.Message = &m
		}
		return &out, false
	case EventMessage:
		return f.followMessage(e.Message)
	case EventBranch:
		at := slices.Index(f.branch, e.ID)
		if at < 0 {
			return nil, true
		}
		f.branch = f.branch[: at+1 : at+1]
		out := &Event{Type: EventBranch, ID: e.ID}
		for _, m := range e.Messages {
			f.branch = append(f.branch, m.ID)
			out.Messages = append(out.Messages, f.visible(m))
		}
		return out, false
	}
	return nil, false
}

// followMessage returns what a reader gets of a message that begins, or is continued.
func (f *Following) followMessage(m *Message) (visible *Event, again bool) {
	shown := f.visible(*m)
	out := &Event{Type: EventBranch, Messages: []Message{shown}}
	at := slices.Index(f.branch, m.ID)
	switch {
	case at > 0:
		out.ID = f.branch[at-1]
		f.branch = f.branch[:at]
	case at == 0:
		f.branch = nil
	case slices.Contains(f.branch, m.Parent):
		out.ID = m.Parent
		f.branch = f.branch[:slices.Index(f.branch, m.Parent)+1]
	default:
		return nil, true
	}
	f.branch = append(f.branch[:len(f.branch):len(f.branch)], m.ID)
	return out, false
}

// restart subscribes anew, and returns the messages that the link shows now.
func (f *Following) restart() ([]Message, error) {
	f.sub.Close()
	shown, err := f.begin(f.service.ctx, 0)
	if err != nil {
		return nil, notShared(err)
	}
	return shown.Messages, nil
}

// Close ends the reading.
func (f *Following) Close() {
	if f.sub != nil {
		f.sub.Close()
	}
}
