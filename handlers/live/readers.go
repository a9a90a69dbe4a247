package live

import (
	"context"
	"slices"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
)

// readers are the subscriptions to a chat, and the last events for those that come back.
type readers struct {
	seq    int64   // number of the last event
	recent []Event // the last events, consecutive, the newest being seq
	most   int     // events that are remembered at least, once there were so many and they have at most bytes
	bytes  int     // of recent
	subs   map[*Subscription]bool
}

// maxRecent is how many bytes of events a chat remembers. Messages of versions that are not shown any more have no
// other place in memory.
const maxRecent = 4 << 20

// publish numbers an event, remembers it and hands it to every subscription.
func (r *readers) publish(e Event) {
	r.seq++
	e.First, e.Seq = r.seq, r.seq
	if len(r.recent) >= 2*r.most {
		for i := range r.recent[:len(r.recent)-r.most] {
			r.bytes -= r.recent[i].size()
		}
		r.recent = slices.Delete(r.recent, 0, len(r.recent)-r.most)
	}
	if n := len(r.recent); n > 0 {
		r.recent[n-1].Row = nil // who comes back needs the last one
	}
	r.recent = append(r.recent, e)
	r.bytes += e.size()
	forgotten := 0
	for ; r.bytes > maxRecent; forgotten++ { // a page that comes back for these gets a snapshot
		r.bytes -= r.recent[forgotten].size()
	}
	r.recent = slices.Delete(r.recent, 0, forgotten)
	for sub := range r.subs {
		if !sub.put(e) {
			delete(r.subs, sub)
		}
	}
}

// add adds a subscription, with the events after since if all of them are remembered. Without
// them the subscriber needs a snapshot.
func (r *readers) add(sub *Subscription, since int64) (resumes bool) {
	missed := r.seq - since
	resumes = since > 0 && missed >= 0 && missed <= int64(len(r.recent))
	if resumes {
		for _, e := range r.recent[len(r.recent)-int(missed):] {
			resumes = resumes && sub.put(e)
		}
	}
	if !resumes {
		sub.queue, sub.bytes, sub.err = nil, 0, nil
	}
	r.subs[sub] = true
	return resumes
}

// clearPanels removes the content of the panel events that are remembered: who comes back needs
// only the last panel, and system prompts are long.
func (r *readers) clearPanels() {
	for i := range r.recent {
		if e := &r.recent[i]; e.Type == EventPanel {
			r.bytes -= e.size()
			e.Panel, e.Text = nil, ""
			r.bytes += e.size()
		}
	}
}

// end ends every subscription with err.
func (r *readers) end(err error) {
	for sub := range r.subs {
		sub.fail(err)
	}
	clear(r.subs)
}

// publish hands an event to the readers of the chat; the caller holds mu.
func (c *Chat) publish(e Event) {
	c.used = c.service.opt.Now()
	c.readers.publish(e)
}

// Subscribe begins to read after event since. The snapshot is nil if everything
// that followed since is still known and will be sent.
func (c *Chat) Subscribe(ctx context.Context, who Principal, since int64) (*Subscription, *Snapshot, error) {
	return c.subscribe(ctx, who, since, 0)
}

// SubscribeAt begins to read with a snapshot around a message; with the end of the branch
// if the message is not in it.
func (c *Chat) SubscribeAt(ctx context.Context, who Principal, message int64) (*Subscription, *Snapshot, error) {
	return c.subscribe(ctx, who, 0, message)
}

func (c *Chat) subscribe(ctx context.Context, who Principal, since, message int64) (*Subscription, *Snapshot, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, nil, err
	}
	sub, snapshot, err := c.register(since, message)
	if snapshot != nil {
		c.nameOrigin(ctx, snapshot)
	}
	return sub, snapshot, err
}

// Snapshot returns the chat as it is, around a message; at the end of the branch if the message is not in
// it, or 0.
func (c *Chat) Snapshot(ctx context.Context, who Principal, message int64) (*Snapshot, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, err
	}
	c.mu.Lock()
	gone := c.dropped
	snapshot := c.snapshot(message)
	c.mu.Unlock()
	if gone {
		return nil, owned.ErrNotFound
	}
	c.nameOrigin(ctx, snapshot)
	return snapshot, nil
}

// nameOrigin adds the title of the chat that this one was forked from, or removes it if that is gone.
func (c *Chat) nameOrigin(ctx context.Context, s *Snapshot) {
	if s.Origin == "" {
		return
	}
	origin, missing := c.messages.Conversation(ctx, c.owner, s.Origin)
	if s.OriginTitle = origin.Title; missing != nil {
		s.Origin = ""
	}
}

func (c *Chat) register(since, message int64) (*Subscription, *Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return nil, nil, owned.ErrNotFound
	}
	sub := c.subscription()
	if c.readers.add(sub, since) {
		return sub, nil, nil
	}
	return sub, c.snapshot(message), nil
}

// subscription returns a queue that gets no events yet.
func (c *Chat) subscription() *Subscription {
	opt := c.service.opt
	return &Subscription{chat: c, ready: make(chan struct{}, 1), maxEvents: opt.QueueEvents, maxBytes: opt.QueueBytes}
}

func (c *Chat) unsubscribe(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.readers.subs, s)
}

// snapshot has a page of messages: those around one of the branch, else the last.
func (c *Chat) snapshot(message int64) *Snapshot {
	page, to := c.service.opt.Page, len(c.branch)
	if n := c.branch.upTo(message); n > 0 {
		to = min(to, max(page, n+page/2))
	}
	from := max(0, to-page)
	return &Snapshot{
		Metadata: c.metadata, Seq: c.readers.seq, Panel: c.panel, Temporary: c.temporary, Replay: c.replays.state(),
		Messages: c.branch[from:to].messages(), More: from > 0, Later: to < len(c.branch),
	}
}

// Older returns the messages of the branch before one of them, at most a page, and
// whether there are more.
func (c *Chat) Older(_ context.Context, who Principal, before int64) (list []Message, more bool, err error) {
	err = c.read(who, "before", before, func(at int) {
		from := max(0, at-c.service.opt.Page)
		list, more = c.branch[from:at].messages(), from > 0
	})
	return list, more, err
}

// Newer returns the messages of the branch after one of them, at most a page, and
// whether there are more.
func (c *Chat) Newer(_ context.Context, who Principal, after int64) (list []Message, more bool, err error) {
	err = c.read(who, "after", after, func(at int) {
		end := min(len(c.branch), at+1+c.service.opt.Page)
		list, more = c.branch[at+1:end].messages(), end < len(c.branch)
	})
	return list, more, err
}

// read calls do, with mu, with the place of a message in the branch.
func (c *Chat) read(who Principal, param string, message int64, do func(at int)) error {
	if err := c.may(who, access.ActionRead); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := c.branch.find(param, message, "")
	if err == nil {
		do(at)
	}
	return err
}
