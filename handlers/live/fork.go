package live

import (
	"context"

	"m40-llm/handlers/chatlist"
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// fork copies the branch up to a message into a new conversation. The chat, and others, go on
// meanwhile.
func (c *Chat) fork(ctx context.Context, message int64) (string, error) {
	n, wanted, err := c.branchTo(message)
	if err != nil {
		return "", err
	}
	branch := func(yield func(store.Message, error) bool) {
		for m, err := range c.tree(ctx) {
			if (err != nil || wanted[m.ID]) && !yield(m, err) {
				return
			}
		}
	}
	copied, err := c.service.List.Write(ctx, c.owner, c.messages, branch, func() (store.Metadata, int64) { return n, message })
	return copied.ID, err
}

// branchTo returns the messages of the branch up to one of them, and what a conversation with
// them begins with.
func (c *Chat) branchTo(message int64) (n store.Metadata, wanted map[int64]bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return n, nil, owned.ErrNotFound
	}
	at, err := c.branch.find("message", message, "")
	if err != nil {
		return n, nil, err
	}
	if r := c.answer.run; r != nil && r.turn.ID == message {
		return n, nil, r.conflict("copy this answer")
	}
	wanted = map[int64]bool{}
	for _, t := range c.branch[:at+1] {
		wanted[t.ID] = true
	}
	n = c.metadata.Fork()
	n.Settings = c.panel.record()
	return n, wanted, nil
}

// copyAll copies the messages of all branches into a new conversation.
func (c *Chat) copyAll(ctx context.Context) (string, error) {
	c.mu.Lock()
	var err error
	switch r := c.answer.run; {
	case c.dropped:
		err = owned.ErrNotFound
	case r != nil:
		err = r.conflict("copy this chat")
	case len(c.branch) == 0:
		err = fault.Invalid("chat", "a chat without a message cannot be copied")
	}
	n, leaf := c.metadata.Fork(), c.branch.leaf()
	n.Settings = c.panel.record()
	c.mu.Unlock()
	if err != nil {
		return "", err
	}
	n.Title = chatlist.TitleOfCopy(n.Title)
	copied, err := c.service.List.Write(ctx, c.owner, c.messages, c.tree(ctx), func() (store.Metadata, int64) { return n, leaf })
	return copied.ID, err
}
