package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Share is a link under which whoever has it can read a conversation.
type Share struct {
	ID            int64
	Owner         string // of the conversation
	Conversation  string
	First         int64     // message that it begins with; 0: the first of the conversation
	Last          int64     // message that it ends with; 0: it follows the branch that is shown, as that grows
	LastText      int       // bytes of the text of Last that it shows; negative: all. AddShare sets both,
	LastReasoning int       // as an answer can be continued
	System        bool      // shows the system prompt
	Settings      bool      // shows how each answer was sampled
	Requests      bool      // its readers can ask to write; AddShare sets it
	Created       time.Time // set by AddShare
	Expires       time.Time // zero: when it is ended
}

// TokenHash is the SHA-256 of the secret part of a link, which itself is never stored.
type TokenHash [sha256.Size]byte

// AddShare stores a link to a conversation of the owner, and returns it with its id.
func (s *Store) AddShare(ctx context.Context, owner string, share Share, token TokenHash) (Share, error) {
	share.Owner, share.Created, share.Requests = owner, s.opt.Now(), true
	var expires any
	if !share.Expires.IsZero() {
		expires = share.Expires.UnixMilli()
	}
	err := s.write(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, share.Conversation); err != nil {
			return err
		}
		for _, message := range []int64{share.First, share.Last} {
			if message == 0 {
				continue
			}
			m, err := findMessage(ctx, tx, owner, share.Conversation, message)
			if err != nil {
				return err
			}
			share.LastText, share.LastReasoning = len(m.Text), len(m.Reasoning)
		}
		if share.Last == 0 {
			share.LastText, share.LastReasoning = -1, -1
		}
		result, err := tx.ExecContext(ctx, `
			INSERT INTO shares (
				conversation,
				token_hash,
				first,
				last,
				last_text,
				last_reasoning,
				system,
				settings,
				created_at,
				expires_at
			)
			SELECT seq, ?, ?, ?, nullif(?, -1), nullif(?, -1), ?, ?, ?, ?
			FROM conversations
			WHERE id = ? AND owner = ?`,
			token[:], share.First, share.Last, share.LastText, share.LastReasoning, share.System, share.Settings, share.Created.UnixMilli(), expires,
			share.Conversation, owner)
		if err != nil {
			return err
		}
		share.ID, err = result.LastInsertId()
		return err
	})
	return share, err
}

// selectShare finds the links that work: they have not expired, and their conversation is not
// in the trash. Its first parameter is the time.
const selectShare = `
		SELECT
			s.id,
			c.owner,
			c.id,
			s.first,
			s.last,
			coalesce(s.last_text, -1),
			coalesce(s.last_reasoning, -1),
			s.system,
			s.settings,
			s.requests,
			s.created_at,
			coalesce(s.expires_at, 0)
		FROM shares AS s
		JOIN conversations AS c ON c.seq = s.conversation
		WHERE coalesce(s.expires_at > ?, 1) AND c.deleted_at IS NULL`

func scanShare(row interface{ Scan(...any) error }) (share Share, err error) {
	var created, expires int64
	err = row.Scan(&share.ID, &share.Owner, &share.Conversation, &share.First, &share.Last, &share.LastText, &share.LastReasoning, &share.System, &share.Settings, &share.Requests, &created, &expires)
	share.Created = fromMillis(created)
	if expires != 0 {
		share.Expires = fromMillis(expires)
	}
	return share, err
}

// SharedAs returns the link with this token. ErrNotFound if there is none, it has expired or
// been ended, or its conversation is in the trash.
func (s *Store) SharedAs(ctx context.Context, token TokenHash) (Share, error) {
	return s.findShare(ctx, ` AND s.token_hash = ?`, token[:])
}

// SharedBy returns the link with this id, as SharedAs does.
func (s *Store) SharedBy(ctx context.Context, id int64) (Share, error) {
	return s.findShare(ctx, ` AND s.id = ?`, id)
}

func (s *Store) findShare(ctx context.Context, where string, arg any) (share Share, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		share, err = scanShare(tx.QueryRowContext(ctx, selectShare+where, s.now(), arg))
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("share: %w", ErrNotFound)
		}
		return err
	})
	return share, err
}

// Shares returns the links that work, of all conversations of all owners, oldest first.
func (s *Store) Shares(ctx context.Context) (list []Share, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectShare+` ORDER BY s.id`, s.now())
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			share, err := scanShare(rows)
			if err != nil {
				return err
			}
			list = append(list, share)
		}
		return rows.Err()
	})
	return list, err
}

// EndShare removes a link to a conversation of the owner, and all that have expired.
func (s *Store) EndShare(ctx context.Context, owner string, id int64) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM shares WHERE expires_at <= ?`, s.now()); err != nil {
			return err
		}
		return changeOne(ctx, tx, fmt.Sprintf("share %d", id), `
			DELETE FROM shares
			WHERE id = ? AND conversation IN (SELECT seq FROM conversations WHERE owner = ?)`, id, owner)
	})
}

// AcceptRequests sets whether the readers of a link to a conversation of the owner can ask to write.
func (s *Store) AcceptRequests(ctx context.Context, owner string, id int64, accept bool) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		return changeOne(ctx, tx, fmt.Sprintf("share %d", id), `
			UPDATE shares
			SET requests = ?
			WHERE id = ? AND conversation IN (SELECT seq FROM conversations WHERE owner = ?)`, accept, id, owner)
	})
}
