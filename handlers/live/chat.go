package live

import (
	"context"
	"time"

	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/store"
)

// Chat is one conversation: the branch of it that is shown, and the answer that runs in
// it, if one does.
type Chat struct {
	service   *Service
	messages  messages
	id        string
	owner     string
	temporary bool

	chatLock // guards what follows

	started  bool // it has its first question, and is stored
	dropped  bool // it is in memory no more
	used     time.Time
	metadata store.Metadata // as it is stored, without Settings, which panel has, and Placement
	panel    Panel
	branch   branch
	answer   runningAnswer
	replays  replays
	readers  readers
	written  int // bytes that a visitor has written, in all branches
}

func (s *Service) newChat(owner, id string, temporary bool) *Chat {
	now := s.opt.Now()
	c := &Chat{
		service: s, messages: s.opt.Store, id: id, owner: owner, temporary: temporary, chatLock: newChatLock(),
		used: now, metadata: store.Metadata{ID: id}, panel: Panel{Settings: setting.Default()},
		readers: readers{subs: map[*Subscription]bool{}, most: s.opt.History,
			// A chat is loaded many times. None makes a million events a second, so none
			// reaches the numbers of the next.
			seq: now.UnixMicro()},
	}
	return c
}

// ID names the chat.
func (c *Chat) ID() string { return c.id }

// load reads the branch that is shown.
func (c *Chat) load(ctx context.Context) error {
	conversation, err := c.messages.Conversation(ctx, c.owner, c.id)
	if err != nil {
		return err
	}
	stored, err := c.messages.Branch(ctx, c.owner, c.id)
	if err != nil {
		return err
	}
	c.started, c.metadata, c.branch = true, conversation.Metadata, storedBranch(stored)
	c.loadPanel()
	c.metadata.Settings, c.metadata.Placement = nil, store.Placement{}
	if c.metadata.Model == "" {
		c.metadata.Model = c.branch.firstModel()
	}
	return nil
}

// rename gives the chat a title that is stored, and publishes it.
func (c *Chat) rename(title string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setTitle(title)
}

func (c *Chat) setTitle(title string) {
	c.metadata.Title = title
	c.publish(Event{Type: EventTitle, Text: title})
}

// use makes model the one that answers from now on, and publishes that it is.
func (c *Chat) use(model string) {
	defer c.mustExclude()()
	c.setModel(model)
}

func (c *Chat) setModel(model string) {
	c.metadata.Model = model
	c.publish(Event{Type: EventModel, Text: model})
}

// idle reports when the chat was last used, whether it has something to do, and
// whether somebody reads it.
func (c *Chat) idle() (used time.Time, busy, read bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, c.busy(), len(c.readers.subs) > 0
}

// busy reports whether the chat has something to do.
func (c *Chat) busy() bool {
	return c.changing || c.answer.run != nil || c.answer.unsaved != nil || c.replays.running != nil
}

// unwatched reports whether an answer is being written without a reader.
func (c *Chat) unwatched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer.run != nil && len(c.readers.subs) == 0
}

// touch counts as a use of the chat, so that it stays in memory. It reports whether the chat
// is still there.
func (c *Chat) touch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.service.opt.Now()
	return !c.dropped
}

// running reports whether an answer is being written.
func (c *Chat) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer.run != nil
}

// dropIdle drops the chat unless it has something to do, and reports whether it did.
func (c *Chat) dropIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy() {
		return false
	}
	c.end()
	return true
}

// drop ends every subscription to a chat that is no longer listed, and its answer. It
// returns what is closed when the answer has ended; nil if none runs.
func (c *Chat) drop() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	if r := c.replays.running; r != nil {
		r.cancel()
		return r.done
	}
	if r := c.answer.run; r != nil {
		r.stop()
		return r.done
	}
	return nil
}

// end ends every subscription.
func (c *Chat) end() {
	c.dropped = true
	c.readers.end(owned.ErrGone)
}
