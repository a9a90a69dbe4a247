package guest

import (
	"context"
	"slices"
	"time"

	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
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
	Messages  []live.Message // at most a page
	More      bool           // the link shows messages before these
	Elsewhere bool           // the chat shows another branch now, in which the first message of the link is not
}

// Following reads what a link shows: the events of its chat, without what the link does not show.
// It goes on when the link ends; a Seat says when. It is for one goroutine.
type Following struct {
	chats  *live.Service
	chat   *live.Chat
	who    live.Principal
	share  *store.Share
	sub    *live.Subscription // nil: the link does not follow the chat
	branch []int64            // messages that the link shows, oldest first

	pictures []string // hashes of those in branch, when it was last taken whole
}

// Follow begins to read the chat that who has a link to, with the messages before one of them;
// 0: the last.
func (s *Service) Follow(ctx context.Context, who live.Principal, before int64) (*Following, *SharedChat, error) {
	c, err := s.chats.Linked(ctx, who)
	if err != nil {
		return nil, nil, err
	}
	share := *who.Share
	f := &Following{chats: s.chats, chat: c, who: who, share: &share}
	shown, err := f.begin(ctx, before)
	if err != nil {
		return nil, nil, links.NotShared(err)
	}
	return f, shown, nil
}

// Picture returns a picture of a message that the link of who shows.
func (s *Service) Picture(ctx context.Context, who live.Principal, hash string) (store.Picture, error) {
	f, _, err := s.Follow(ctx, who, 0)
	if err != nil {
		return store.Picture{}, err
	}
	defer f.Close()
	if !slices.Contains(f.pictures, hash) {
		return store.Picture{}, live.ErrNoPicture
	}
	return f.chat.LinkedPicture(ctx, who, hash)
}

// begin takes the messages as they are, and subscribes if the link follows the chat.
func (f *Following) begin(ctx context.Context, before int64) (shown *SharedChat, err error) {
	if f.share.Last == 0 {
		f.sub, err = f.chat.Watch(f.who, func(b live.Branch, about store.Metadata) { shown = f.show(b, about, before) })
		return shown, err
	}
	b, err := f.chats.LinkedBranch(ctx, f.who)
	if err != nil {
		return nil, err
	}
	err = f.chat.Look(f.who, func(_ live.Branch, about store.Metadata) { shown = f.show(b, about, before) })
	return shown, err
}

// show returns what the link shows of a branch.
func (f *Following) show(b live.Branch, about store.Metadata, before int64) *SharedChat {
	shown := &SharedChat{
		Title: about.Title, Raw: about.Raw, Live: f.share.Last == 0, Expires: f.share.Expires,
		Elsewhere: f.share.First != 0,
	}
	var all []int64
	for i := range b.Len() {
		all = append(all, b.ID(i))
	}
	at := 0
	if f.share.First != 0 {
		at = slices.Index(all, f.share.First)
	}
	f.branch, f.pictures = nil, nil
	if at < 0 {
		return shown
	}
	shown.Elsewhere = false
	f.branch = all[at:]
	for i := range f.branch {
		f.pictures = append(f.pictures, b.Pictures(at+i)...)
	}
	if f.share.System {
		shown.System = lastSystem(b, at)
	}
	to := slices.Index(f.branch, before)
	if to < 0 {
		to = len(f.branch)
	}
	from := max(0, to-f.chats.PageSize())
	for _, m := range b.Messages(at+from, at+to) {
		shown.Messages = append(shown.Messages, f.visible(m))
	}
	shown.More = from > 0
	return shown
}

// lastSystem returns the system prompt of the last answer that a model wrote, of message from on.
func lastSystem(b live.Branch, from int) string {
	for i := b.Len() - 1; i >= from; i-- {
		if a := b.Messages(i, i+1)[0].Answer; a != nil && !a.Rewritten {
			return a.System
		}
	}
	return ""
}

// visible returns of a message what the link shows.
func (f *Following) visible(m live.Message) live.Message {
	m.Parent, m.Version, m.Versions = 0, 1, 1
	if m.Answer == nil {
		return m
	}
	a := m.Answer
	m.Answer = &live.Answer{
		State: a.State, Rewritten: a.Rewritten, Error: a.Error, Progress: a.Progress, Blocks: a.Blocks, Thinking: a.Thinking, Settings: setting.Default(),
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

// Take returns the events since the last call: EventBranch, which replaces EventMessage too,
// EventProgress, EventText, EventBlock, EventEnd and EventTitle. They have no numbers. An EventBranch with ID 0
// and no messages says that the chat shows another branch now. Its error ends the reading: ErrSlow
// or ErrNotShared.
func (f *Following) Take() (list []live.Event, err error) {
	events, err := f.sub.Take()
	list, again := f.followAll(events)
	if again {
		shown, err := f.restart()
		return append(list, live.Event{Type: live.EventBranch, Messages: shown, More: len(shown) < len(f.branch)}), err
	}
	return list, links.NotShared(err)
}

// Snapshot returns the events since the last call of Take or Snapshot, as Take does, and the chat as
// it is after them.
func (f *Following) Snapshot(ctx context.Context) (list []live.Event, shown *SharedChat, err error) {
	if f.sub == nil {
		shown, err = f.begin(ctx, 0)
		return nil, shown, links.NotShared(err)
	}
	missing := f.chat.Look(f.who, func(b live.Branch, about store.Metadata) {
		var events []live.Event
		if events, err = f.sub.Take(); err != nil {
			return
		}
		var again bool
		list, again = f.followAll(events)
		if shown = f.show(b, about, 0); again {
			list = append(list, live.Event{Type: live.EventBranch, Messages: shown.Messages, More: shown.More})
		}
	})
	if missing != nil {
		err = missing
	}
	return list, shown, links.NotShared(err)
}

// followAll returns what a reader gets of events. again says that what follows them is only told by
// the whole branch.
func (f *Following) followAll(events []live.Event) (list []live.Event, again bool) {
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
func (f *Following) follow(e *live.Event) (visible *live.Event, again bool) {
	switch e.Type {
	case live.EventTitle:
		return &live.Event{Type: e.Type, Text: e.Text}, false
	case live.EventProgress, live.EventText, live.EventBlock, live.EventEnd:
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
	case live.EventMessage:
		return f.followMessage(e.Message)
	case live.EventBranch:
		at := slices.Index(f.branch, e.ID)
		if at < 0 {
			return nil, true
		}
		f.branch = f.branch[: at+1 : at+1]
		out := &live.Event{Type: live.EventBranch, ID: e.ID}
		for _, m := range e.Messages {
			f.branch = append(f.branch, m.ID)
			out.Messages = append(out.Messages, f.visible(m))
		}
		return out, false
	}
	return nil, false
}

// followMessage returns what a reader gets of a message that begins, or is continued.
func (f *Following) followMessage(m *live.Message) (visible *live.Event, again bool) {
	shown := f.visible(*m)
	out := &live.Event{Type: live.EventBranch, Messages: []live.Message{shown}}
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
func (f *Following) restart() ([]live.Message, error) {
	f.sub.Close()
	shown, err := f.begin(f.chats.Context(), 0)
	if err != nil {
		return nil, links.NotShared(err)
	}
	return shown.Messages, nil
}

// Close ends the reading.
func (f *Following) Close() {
	if f.sub != nil {
		f.sub.Close()
	}
}
