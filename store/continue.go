package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ContinueAnswer lets an answer that has ended run again, from the text and the tokens of a. It fails
// with ErrConflict if the answer runs.
func (s *Store) ContinueAnswer(ctx context.Context, owner, conversation string, message int64, a NewAnswer) error {
	if err := errors.Join(checkText("text", a.Text, MaxText), checkText("reasoning", a.Reasoning, MaxText)); err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, conversation); err != nil {
			return err
		}
		m, err := findMessage(ctx, tx, owner, conversation, message)
		switch {
		case err != nil:
			return err
		case m.Role != RoleAssistant:
			return &InvalidError{"message", fmt.Sprintf("is %d, which is no answer", message)}
		case m.State == Running:
			return fmt.Errorf("%w: answer %d runs already", ErrConflict, message)
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO progress (message, text, reasoning, tokens)
			VALUES (?, ?, ?, ?)`,
			message, a.Text, a.Reasoning, packTokens(a.Tokens))
		if err != nil {
			return err
		}
		// The rows of tokens that the answer does not have any more.
		if _, err := tx.ExecContext(ctx, `DELETE FROM token_rows WHERE message = ? AND first >= ?`, message, len(a.Tokens)); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			UPDATE messages
			SET
				state     = ?,
				text      = '',
				reasoning = ''
			WHERE id = ?`,
			Running, message)
		if err != nil {
			return err
		}
		if a.Change != nil {
			if _, err := a.Change.apply(ctx, tx, owner, conversation); err != nil {
				return err
			}
		}
		a.Tokens = nil
		return putAnswer(ctx, tx, message, a.Answer)
	})
}
