package live

import (
	"context"
	"strings"
	"unicode/utf8"

	"m40-llm/handlers/access"
	"m40-llm/store"
)

// maxNodes is how many messages a tree has at most.
const maxNodes = 2000

// Node is a message of a chat's tree, in few words.
type Node struct {
	ID      int64
	Parent  int64 // 0: none
	Version int   // among those of its parent, from 1
	Role    Role
	State   AnswerState // of an answer
	Text    string      // the beginning of it; of a version, from where it differs from the one before
	Tokens  int         // of an answer
	LogProb float64     // sum of the log probabilities of Scored of them
	Scored  int
	Shown   bool // it is on the branch that is shown
}

// Tree returns the messages of all branches, parents before their children, and whether there are more.
func (c *Chat) Tree(ctx context.Context, who Principal) (nodes []Node, more bool, err error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	shown := map[int64]bool{}
	for _, t := range c.branch {
		shown[t.ID] = true
	}
	c.mu.Unlock()
	last := map[int64]string{} // text of the version read last, by parent
	for m, err := range c.tree(ctx) {
		if err != nil {
			return nil, false, StoreError(err)
		}
		if len(nodes) == maxNodes {
			return nodes, true, nil
		}
		n := Node{ID: m.ID, Parent: m.Parent, Version: m.Version, Role: RoleUser, Text: beginning(m.Text, last[m.Parent]), Shown: shown[m.ID]}
		last[m.Parent] = m.Text
		if m.Role == store.RoleAssistant {
			n.Role, n.State = RoleModel, AnswerState(m.State)
		}
		if m.Answer != nil {
			n.Tokens, n.LogProb, n.Scored = m.Answer.Usage.CompletionTokens, m.Answer.LogProb, m.Answer.Scored
		}
		nodes = append(nodes, n)
	}
	return nodes, false, nil
}

// beginning returns the first words of a text, from where it differs from another version.
func beginning(text, other string) string {
	const most = 90 // characters
	same := 0
	for same < min(len(text), len(other)) && text[same] == other[same] {
		same++
	}
	if same == len(text) {
		same = 0
	}
	from := strings.LastIndexAny(text[:same], " \n") + 1
	if before := strings.LastIndexAny(text[:max(0, from-1)], " \n") + 1; before > 0 {
		from = before // one word that both have
	}
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	short := []rune(strings.Join(strings.Fields(text[from:min(len(text), from+8*most)]), " "))
	if from > 0 {
		short = append([]rune("… "), short...)
	}
	if len(short) > most {
		short = append(short[:most], '…')
	}
	return strings.ToValidUTF8(string(short), "")
}

// Prune deletes a version of a message with all that follows it. If it was shown, another version of it
// is shown then, else what precedes it.
func (c *Chat) Prune(ctx context.Context, who Principal, message int64) error {
	done, err := c.command(ctx, who, access.ActionChange, "delete a branch")
	if err != nil {
		return err
	}
	defer done()
	var stored []store.Message
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		if err := c.messages.DeleteBranch(ctx, c.owner, c.id, message); err != nil {
			return c.absent(err, "message")
		}
		if stored, err = c.messages.Branch(ctx, c.owner, c.id); err != nil {
			return StoreError(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.service.callWith(c.id, func(h Hooks) func(string) { return h.DropCaches })
	c.service.dropKVFile(c.id) // it may hold what was deleted
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
