package store

import (
	"context"
	"database/sql"
	"fmt"
)

// DeleteBranch deletes a message with all that follows it, in every branch. If it was shown, the version
// next to it that was added last is shown in its place, or its parent. It returns ErrNotFound if the
// conversation has no such message, ErrConflict if an answer below it is running, and an *InvalidError
// for the only first message: that is the whole conversation.
func (s *Store) DeleteBranch(ctx context.Context, owner, conversation string, message int64) error {
	return s.write(ctx, func(tx *sql.Tx) error { return s.deleteBranch(ctx, tx, owner, conversation, message) })
}

func (s *Store) deleteBranch(ctx context.Context, tx *sql.Tx, owner, conversation string, message int64) error {
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
}

// DeleteMessage deletes one message. If it is the only version, what follows it stays, and follows its parent then.
// Else what follows belongs to the version, and goes with it, as DeleteBranch does it. It returns an *InvalidError
// for the only message of a conversation, and else the errors of DeleteBranch.
func (s *Store) DeleteMessage(ctx context.Context, owner, conversation string, message int64) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, conversation); err != nil {
			return err
		}
		m, err := findMessage(ctx, tx, owner, conversation, message)
		switch {
		case err != nil:
			return err
		case m.Versions > 1:
			return s.deleteBranch(ctx, tx, owner, conversation, message)
		case m.State == Running:
			return fmt.Errorf("%w: answer %d is running", ErrConflict, message)
		case m.Parent == 0 && m.Children == 0:
			return &InvalidError{"message", "is the only one of the conversation; delete the conversation instead"}
		}
		return removeBetween(ctx, tx, conversation, m)
	})
}

// removeBetween deletes m, the only version of a message, and moves those below it to its parent.
func removeBetween(ctx context.Context, tx *sql.Tx, conversation string, m Message) error {
	for _, step := range []struct {
		query string
		args  []any
	}{
		{`UPDATE conversations SET leaf = nullif(?, 0) WHERE id = ? AND leaf = ?`, []any{m.Parent, conversation, m.ID}},
		{`UPDATE conversations SET roots = ? WHERE id = ? AND ? = 0`, []any{m.Children, conversation, m.Parent}},
		{`UPDATE messages SET children = ?, chosen = (SELECT chosen FROM messages WHERE id = ?) WHERE id = ?`, []any{m.Children, m.ID, m.Parent}},
		{`UPDATE messages SET version = version + ? WHERE id = ?`, []any{m.Children, m.ID}}, // versions of a parent are unique
		{`UPDATE messages SET parent = nullif(?, 0) WHERE parent = ?`, []any{m.Parent, m.ID}},
		{`DELETE FROM messages WHERE id = ?`, []any{m.ID}},
	} {
		if _, err := tx.ExecContext(ctx, step.query, step.args...); err != nil {
			return err
		}
	}
	return nil
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
	var sibling int64
	err := tx.QueryRowContext(ctx, `
		SELECT coalesce(max(id), 0)
		FROM messages
		WHERE parent IS nullif(?, 0) AND id <> ? AND conversation = (SELECT seq FROM conversations WHERE id = ?)`,
		m.Parent, m.ID, conversation).Scan(&sibling)
	if err != nil {
		return err
	}
	shown := false
	for _, id := range below {
		shown = shown || id == leaf
	}
	if !shown {
		_, err := tx.ExecContext(ctx, `UPDATE messages SET chosen = nullif(?, 0) WHERE id = ? AND chosen = ?`, sibling, m.Parent, m.ID)
		return err
	}
	if sibling == 0 {
		if _, err := tx.ExecContext(ctx, `UPDATE messages SET chosen = NULL WHERE id = ?`, m.Parent); err != nil {
			return err
		}
		return show(ctx, tx, owner, conversation, m.Parent, m.Parent)
	}
	end, err := leafBelow(ctx, tx, sibling)
	if err != nil {
		return err
	}
	return show(ctx, tx, owner, conversation, sibling, end)
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

// removeMessages deletes m and all below it, and numbers the versions next to it anew.
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
