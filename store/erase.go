package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// EraseDeleted erases all that has been in the trash since before, of every owner,
// and returns how many conversations that were.
//
// Erased means that the words are in no page of the database, its index or its log:
// freed pages are overwritten, the index is rewritten without them, and the log is
// emptied. Backups made earlier keep them. Rewriting takes a second for every few
// hundred MiB of text and holds up other writers, so call it while no answer runs.
func (s *Store) EraseDeleted(ctx context.Context, before time.Time) (erased int, err error) {
	return s.erase(ctx, `
			SELECT seq
			FROM conversations
			WHERE deleted_at IS NOT NULL AND deleted_at < ?`, before.UnixMilli())
}

// Erase erases one conversation, in the trash or not, as EraseDeleted does.
func (s *Store) Erase(ctx context.Context, owner, id string) error {
	erased, err := s.erase(ctx, `
			SELECT seq
			FROM conversations
			WHERE id = ? AND owner = ?`, id, owner)
	if err == nil && erased == 0 {
		return fmt.Errorf("conversation %q: %w", id, ErrNotFound)
	}
	return err
}

// erase erases the conversations whose seq the query selects.
func (s *Store) erase(ctx context.Context, query string, args ...any) (erased int, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		chosen, err := ids(ctx, tx, query, args...)
		if err != nil {
			return err
		}
		erased = len(chosen)
		return eraseConversations(ctx, tx, chosen)
	})
	if err != nil || erased == 0 {
		return 0, err
	}
	return erased, s.emptyLog(ctx)
}

// eraseConversations deletes the conversations with these seqs, and their words from the index.
func eraseConversations(ctx context.Context, tx *sql.Tx, chosen []int64) error {
	for _, seq := range chosen {
		for _, statement := range []string{
			`UPDATE conversations SET leaf = NULL WHERE seq = ?`,
			`DELETE FROM messages WHERE conversation = ?`,
			`DELETE FROM conversations WHERE seq = ?`,
		} {
			if _, err := tx.ExecContext(ctx, statement, seq); err != nil {
				return err
			}
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	// The index only notes that a document is gone until its parts are merged.
	for _, statement := range []string{
		`INSERT INTO title_search (title_search) VALUES ('optimize')`,
		`INSERT INTO message_search (message_search) VALUES ('optimize')`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// emptyLog moves the log into the database and cuts it to nothing. It waits for calls
// that read from the log.
func (s *Store) emptyLog(ctx context.Context) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil // closing has emptied it
	}
	var busy, frames, moved int
	err := s.writer.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	if err == nil && busy != 0 {
		err = errors.New("readers were in the way for too long; its log keeps the texts until the store is closed")
	}
	if err != nil {
		return fmt.Errorf("erased from the database, but failed to empty its log: %w", explain(err, s.opt.Path))
	}
	return nil
}

func ids(ctx context.Context, tx *sql.Tx, query string, args ...any) (list []int64, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		list = append(list, id)
	}
	return list, rows.Err()
}
