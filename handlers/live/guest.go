package live

import (
	"context"

	"m40-llm/handlers/access"
	"m40-llm/handlers/links"
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// What packages links and guest need of a chat.

// MayShare authorizes who to share a chat, and reports whether that is stored.
func (s *Service) MayShare(ctx context.Context, who Principal, chat string) (stored bool, err error) {
	c, err := s.Chat(ctx, who, chat)
	if err != nil {
		return false, err
	}
	return !c.temporary, c.may(who, access.ActionShare)
}

// ShareEnd checks which messages a link shall show, and returns the last; 0 if it follows the
// chat.
func (s *Service) ShareEnd(ctx context.Context, who Principal, chat string, w links.Wanted) (last int64, err error) {
	c, err := s.Chat(ctx, who, chat)
	if err != nil {
		return 0, err
	}
	if err := c.may(who, access.ActionShare); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.First != 0 {
		if _, err := c.branch.find("first", w.First, ""); err != nil {
			return 0, err
		}
	}
	switch {
	case w.Live:
		return 0, nil
	case c.answer.run != nil:
		return 0, &owned.Conflict{Command: "share the chat as it is", State: string(c.answer.run.turn.Answer.State), Answer: c.answer.run.turn.ID}
	case len(c.branch) == 0:
		return 0, fault.Invalid("", "this chat has no message yet")
	}
	return c.branch.leaf(), nil
}

// Linked returns the chat that who has a link to.
func (s *Service) Linked(ctx context.Context, who Principal) (*Chat, error) {
	if err := links.MayFollow(who); err != nil {
		return nil, err
	}
	c, err := s.load(ctx, who.Share.Owner, who.Share.Conversation)
	if err != nil {
		return nil, links.NotShared(err)
	}
	return c, nil
}

// Branch are the messages of a branch, the oldest first.
type Branch struct{ turns branch }

// Len returns how many there are.
func (b Branch) Len() int { return len(b.turns) }

// ID returns the id of message i.
func (b Branch) ID(i int) int64 { return b.turns[i].ID }

// Messages returns messages from to to, without the latter.
func (b Branch) Messages(from, to int) []Message { return b.turns[from:to].messages() }

// Pictures returns the hashes of the pictures of message i.
func (b Branch) Pictures(i int) (list []string) {
	for _, p := range b.turns[i].Pictures {
		list = append(list, p.Hash)
	}
	return list
}

// LinkedBranch returns what who's link shows at most, if that does not follow the chat: the branch up to the
// last message of then, without what that was continued with since.
func (s *Service) LinkedBranch(ctx context.Context, who Principal) (Branch, error) {
	if err := links.MayFollow(who); err != nil {
		return Branch{}, err
	}
	link := who.Share
	stored, err := s.opt.Store.BranchTo(ctx, link.Owner, link.Conversation, link.Last)
	if err != nil {
		return Branch{}, owned.StoreError(err)
	}
	cut(&stored[len(stored)-1], link)
	return Branch{storedBranch(stored)}, nil
}

// cut removes of the last message that a link shows what it was continued with since the link was
// made.
func cut(m *store.Message, link *store.Share) {
	if n := link.LastText; n >= 0 && n < len(m.Text) {
		m.Text = m.Text[:n]
	}
	if n := link.LastReasoning; n >= 0 && n < len(m.Reasoning) {
		m.Reasoning = m.Reasoning[:n]
	}
	if link.LastText >= 0 && m.State == store.Running {
		m.State = store.Done
	}
}

// Look calls look with the branch that is shown and what is known of the chat, while both stay as they are.
// look may not call a method of the chat.
func (c *Chat) Look(who Principal, look func(Branch, store.Metadata)) error {
	return c.look(who, func() { look(Branch{c.branch}, c.metadata) })
}

// Watch is Look, and begins to read what follows.
func (c *Chat) Watch(who Principal, look func(Branch, store.Metadata)) (sub *Subscription, err error) {
	err = c.look(who, func() {
		look(Branch{c.branch}, c.metadata)
		sub = c.subscription()
		c.readers.add(sub, 0)
	})
	return sub, err
}

func (c *Chat) look(who Principal, look func()) error {
	if err := c.may(who, access.ActionFollow); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return owned.ErrNotFound
	}
	look()
	return nil
}

// LinkedPicture returns a picture of the chat for a guest, whose link shows it as the caller knows.
func (c *Chat) LinkedPicture(ctx context.Context, who Principal, hash string) (store.Picture, error) {
	if err := c.may(who, access.ActionFollow); err != nil {
		return store.Picture{}, err
	}
	return c.picture(ctx, hash)
}

// SendAs is Send for a guest who has write access, with the settings of the panel. name is stored with the
// message; the model does not get it. still is called when no other command runs: its error refuses the
// message.
func (c *Chat) SendAs(ctx context.Context, who Principal, name, text string, still func() error) error {
	if err := CheckText(text); err != nil {
		return err
	}
	done, err := c.command(ctx, who, access.ActionWrite, "send")
	if err != nil {
		return err
	}
	defer done()
	if err := still(); err != nil {
		return err
	}
	if first := who.Share.First; first != 0 && c.branch.upTo(first) == 0 {
		return fault.Invalid("", "the chat shows another version now, in which the shared messages do not occur; write when it shows them again")
	}
	q := Question{Text: text, System: c.metadata.System, Settings: c.panel.Settings, author: name}
	if err := c.ask(ctx, c.branch.leaf(), q); err != nil {
		return err
	}
	c.answer.run.writer = who.Writer
	return nil
}

// StopAs stops the answer to a message of a guest, or returns other if it is the answer to the message of
// somebody else.
func (c *Chat) StopAs(who Principal, other error) error {
	if err := c.may(who, access.ActionWrite); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r := c.answer.run; {
	case r == nil:
		return &owned.Conflict{Command: "stop", State: owned.Idle}
	case r.writer != who.Writer:
		return other
	default:
		r.stop()
	}
	return nil
}
