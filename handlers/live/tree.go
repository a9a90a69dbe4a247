package live

import (
	"context"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/tree"
	"m40-llm/store"
)

// Tree returns the messages of all branches, parents before their children, and whether there are more.
func (c *Chat) Tree(ctx context.Context, who Principal) (nodes []tree.Node, more bool, err error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, false, err
	}
	shown := map[int64]bool{}
	c.mu.Lock()
	for _, t := range c.branch {
		shown[t.ID] = true
	}
	c.mu.Unlock()
	if nodes, more, err = tree.Nodes(c.tree(ctx), shown); err != nil {
		return nil, false, owned.StoreError(err)
	}
	return nodes, more, nil
}

// Prune deletes a version of a message with all that follows it. If it was shown, another version of it
// is shown then, else what precedes it.
func (c *Chat) Prune(ctx context.Context, who Principal, message int64) error {
	return c.remove(ctx, who, "delete a branch", message, c.messages.DeleteBranch)
}

// Delete deletes one message. What follows the only version of a message stays; what follows one of several goes with
// it, and another version is shown then.
func (c *Chat) Delete(ctx context.Context, who Principal, message int64) error {
	return c.remove(ctx, who, "delete a message", message, c.messages.DeleteMessage)
}

func (c *Chat) remove(ctx context.Context, who Principal, name string, message int64, remove func(ctx context.Context, owner, conversation string, message int64) error) error {
	done, err := c.command(ctx, who, access.ActionChange, name)
	if err != nil {
		return err
	}
	defer done()
	var stored []store.Message
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		if err := remove(ctx, c.owner, c.id, message); err != nil {
			return c.absent(err, "message")
		}
		if stored, err = c.messages.Branch(ctx, c.owner, c.id); err != nil {
			return owned.StoreError(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.service.callWith(c.id, func(h Hooks) func(string) { return h.DropCaches })
	c.service.Disk.DropKVFile(c.id) // it may hold what was deleted
	same := c.branch.common(stored)
	for i := range same {
		if stored[i].Versions != c.branch[i].Versions || stored[i].Version != c.branch[i].Version {
			same = i
			break
		}
	}
	c.showFrom(stored, same)
	c.changed()
	return nil
}
