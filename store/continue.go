package store

import (
	"context"
	"database/sql"
	"fmt"
)

// ContinueAnswer lets an answer that has ended run again, from the text and the tokens
// that it has. a is how it goes on being made. It fails with ErrConflict if the answer
// runs.
func (s *Store) ContinueAnswer(ctx context.Context, owner, conversation string, message int64, a NewAnswer) error {
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
			SELECT
				m.id,
				m.text,
				m.reasoning,
				coalesce(a.tokens, x'')
			FROM messages AS m
			LEFT JOIN answers AS a ON a.message = m.id
			WHERE m.id = ?`,
			message)
		if err != nil {
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
