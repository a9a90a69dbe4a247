package store

import (
	"context"
	"database/sql"
	"fmt"
)

// Import makes a conversation of messages that exist elsewhere, such as a branch that
// is forked or a file that was exported. Parents come before their children and are
// named by the ids that the messages have in the list; here they get ids of their own.
// leaf is the id, in the list, of the message that is shown last; 0 means the last one.
// An answer that runs is an interrupted one here. It fails as CreateConversation does.
func (s *Store) Import(ctx context.Context, owner string, n NewConversation, list []Message, leaf int64) (c Conversation, err error) {
	if err := s.checkFree(); err != nil {
		return Conversation{}, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		if err := s.createConversation(ctx, tx, owner, &n); err != nil {
			return err
		}
		if err := s.importMessages(ctx, tx, owner, n.ID, list, leaf); err != nil {
			return err
		}
		c, err = findConversation(ctx, tx, owner, n.ID)
		return err
	})
	return c, err
}

func (s *Store) importMessages(ctx context.Context, tx *sql.Tx, owner, conversation string, list []Message, leaf int64) error {
	ids, parents := map[int64]int64{0: 0}, map[int64]int64{}
	for _, m := range list {
		parent, known := ids[m.Parent]
		if _, twice := ids[m.ID]; !known || twice {
			return &InvalidError{"messages", fmt.Sprintf("have a message %d that comes twice or before its parent %d", m.ID, m.Parent)}
		}
		state := m.State
		if state == Running {
			state = Interrupted
		}
		added, err := s.addMessage(ctx, tx, owner, conversation, NewMessage{Parent: parent, Role: m.Role, Text: m.Text}, state)
		if err != nil {
			return err
		}
		if m.Answer != nil {
			if err := putAnswer(ctx, tx, added.ID, *m.Answer); err != nil {
				return err
			}
		}
		if !m.Created.IsZero() {
			if _, err := tx.ExecContext(ctx, `UPDATE messages SET created_at = ? WHERE id = ?`, m.Created.UnixMilli(), added.ID); err != nil {
				return err
			}
		}
		ids[m.ID], parents[m.ID] = added.ID, m.Parent
	}
	if leaf == 0 {
		return nil // the last one was shown when it was added
	}
	if ids[leaf] == 0 {
		return &InvalidError{"leaf", fmt.Sprintf("is message %d, which is not in the list", leaf)}
	}
	for id := leaf; id != 0; id = parents[id] {
		if err := show(ctx, tx, owner, conversation, ids[id], ids[leaf]); err != nil {
			return err
		}
	}
	return nil
}
