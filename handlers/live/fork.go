package live

import (
	"context"

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
	copied, err := c.service.importInto(ctx, c.owner, c.messages, branch, func() (store.Metadata, int64) { return n, message })
	return copied.ID, err
}

// branchTo returns the messages of the branch up to one of them, and what a conversation with
// them begins with.
func (c *Chat) branchTo(message int64) (n store.Metadata, wanted map[int64]bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return n, nil, ErrNotFound
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
