package store

import (
	"context"
	"database/sql"
	"fmt"
)

// DeleteBranch deletes a message with all that follows it, in every branch. If it was shown, the version
// beside it that was added last is shown in its place, or its parent. It returns ErrNotFound if the
// conversation has no such message, ErrConflict if an answer below it is running, and an *InvalidError
// for the only first message: that is the whole conversation.
func (s *Store) DeleteBranch(ctx context.Context, owner, conversation string, message int64) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		c, err := findConversation(ctx, tx, owner, conversation)
		if err != nil {
			return err
		}
		m, err := findMessage(ctx, tx, owner, conversation, message)
		if err != nil {
			return err
		}
		if m.Parent == 0 && m.Versions == 1 {
			return &InvalidError{"message", "is the first of the conversation, with all others below it; delete the conversation instead"}
		}
		below, err := ids(ctx, tx, subtree, message)
		if err != nil {
			return err
		}
		for _, id := range below {
			var running bool
			if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM progress WHERE message = ?)`, id).Scan(&running); err != nil {
				return err
			}
			if running {
				return fmt.Errorf("%w: answer %d is running", ErrConflict, id)
			}
		}
		if err := s.showInstead(ctx, tx, owner, conversation, c.Leaf, m, below); err != nil {
			return err
		}
		return removeMessages(ctx, tx, conversation, m, below)
	})
}

// subtree selects a message and all below it, the lowest first.
const subtree = `
	WITH RECURSIVE below (id) AS (
		SELECT ?
		UNION ALL
		SELECT m.id
		FROM below
		JOIN messages AS m ON m.parent = below.id
	)
	SELECT id FROM below ORDER BY id DESC`

// showInstead shows another branch if leaf is among the messages that are deleted.
func (s *Store) showInstead(ctx context.Context, tx *sql.Tx, owner, conversation string, leaf int64, m Message, below []int64) error {
	var beside int64
	err := tx.QueryRowContext(ctx, `
		SELECT coalesce(max(id), 0)
		FROM messages
		WHERE parent IS nullif(?, 0) AND id <> ? AND conversation = (SELECT seq FROM conversations WHERE id = ?)`,
		m.Parent, m.ID, conversation).Scan(&beside)
	if err != nil {
		return err
	}
	shown := false
	for _, id := range below {
		shown = shown || id == leaf
	}
	if !shown {
		_, err := tx.ExecContext(ctx, `UPDATE messages SET chosen = nullif(?, 0) WHERE id = ? AND chosen = ?`, beside, m.Parent, m.ID)
		return err
	}
	if beside == 0 {
		if _, err := tx.ExecContext(ctx, `UPDATE messages SET chosen = NULL WHERE id = ?`, m.Parent); err != nil {
			return err
		}
		return show(ctx, tx, owner, conversation, m.Parent, m.Parent)
	}
	end, err := leafBelow(ctx, tx, beside)
	if err != nil {
		return err
	}
	return show(ctx, tx, owner, conversation, beside, end)
}

// leafBelow returns the end of the branch that was shown last below a message.
func leafBelow(ctx context.Context, tx *sql.Tx, message int64) (leaf int64, err error) {
	err = tx.QueryRowContext(ctx, `
		WITH RECURSIVE down (id, place) AS (
			SELECT ?, 0
			UNION ALL
			SELECT m.chosen, down.place + 1
			FROM down
			JOIN messages AS m ON m.id = down.id
			WHERE m.chosen IS NOT NULL
		)
		SELECT id FROM down ORDER BY place DESC LIMIT 1`,
		message).Scan(&leaf)
	return leaf, err
}

// removeMessages deletes m and all below it, and numbers the versions beside it anew.
func removeMessages(ctx context.Context, tx *sql.Tx, conversation string, m Message, below []int64) error {
	for _, id := range below {
		if _, err := tx.ExecContext(ctx, `DELETE FROM messages WHERE id = ?`, id); err != nil {
			return err
		}
	}
	count := `UPDATE messages SET children = children - 1 WHERE id = ?`
	of := any(m.Parent)
	if m.Parent == 0 {
		count, of = `UPDATE conversations SET roots = roots - 1 WHERE id = ?`, conversation
	}
	if _, err := tx.ExecContext(ctx, count, of); err != nil {
		return err
	}
	later, err := ids(ctx, tx, `
		SELECT id
		FROM messages
		WHERE parent IS nullif(?, 0) AND version > ? AND conversation = (SELECT seq FROM conversations WHERE id = ?)
		ORDER BY version`,
		m.Parent, m.Version, conversation)
	if err != nil {
		return err
	}
	for _, id := range later { // one after the other, since versions are unique
		if _, err := tx.ExecContext(ctx, `UPDATE messages SET version = version - 1 WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return nil
}
