package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Conversation is a tree of messages of which one branch is shown.
type Conversation struct {
	Metadata
	Leaf     int64 // last message of the branch that is shown; 0: no messages
	Activity int64 // place in the order of the last message of each conversation
	Created  time.Time
	Updated  time.Time // when the last message was added
	Deleted  time.Time // zero unless in the trash
}

// Cursor is the place of the conversation in a list.
func (c Conversation) Cursor() Cursor { return Cursor{Pinned: c.Pinned, Activity: c.Activity} }

// NewID returns 130 random bits in lower case.
func NewID() string { return strings.ToLower(rand.Text()) }

// CreateConversation adds an empty conversation. It fails with ErrConflict if the id
// is taken, and with a *SpaceError if the disk is nearly full.
func (s *Store) CreateConversation(ctx context.Context, owner string, m Metadata) (c Conversation, err error) {
	if err := s.checkFree(); err != nil {
		return Conversation{}, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		if err := s.createConversation(ctx, tx, owner, &m); err != nil {
			return err
		}
		c, err = findConversation(ctx, tx, owner, m.ID)
		return err
	})
	return c, err
}

var insertConversation = `
		INSERT INTO conversations (
			` + metadata.names + `,
			owner,
			activity,
			created_at,
			updated_at
		)
		VALUES (` + metadata.marks + `, ?, (SELECT coalesce(max(activity), 0) + 1 FROM conversations), ?, ?)`

func (s *Store) createConversation(ctx context.Context, tx *sql.Tx, owner string, m *Metadata) error {
	if err := checkName("owner", owner); err != nil {
		return err
	}
	if err := m.prepare(); err != nil {
		return err
	}
	now := s.now()
	_, err := tx.ExecContext(ctx, insertConversation, append(m.values(), owner, now, now)...)
	return m.conflict(err)
}

// conflict returns an ErrConflict for the error of a statement that met another conversation
// with the id of m, and any other error as it is.
func (m *Metadata) conflict(err error) error {
	if isTaken(err) {
		return fmt.Errorf("%w: there is a conversation %q already", ErrConflict, m.ID)
	}
	return err
}

var selectConversation = `
		SELECT
			` + metadata.names + `,
			coalesce(leaf, 0),
			activity,
			created_at,
			updated_at,
			coalesce(deleted_at, 0)
		FROM conversations`

func scanConversation(row interface{ Scan(...any) error }) (c Conversation, err error) {
	var created, updated, deleted int64
	err = row.Scan(append(c.pointers(), &c.Leaf, &c.Activity, &created, &updated, &deleted)...)
	c.Created, c.Updated = fromMillis(created), fromMillis(updated)
	if deleted != 0 {
		c.Deleted = fromMillis(deleted)
	}
	return c, err
}

// Conversation returns one conversation that is not in the trash.
func (s *Store) Conversation(ctx context.Context, owner, id string) (c Conversation, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		c, err = findConversation(ctx, tx, owner, id)
		return err
	})
	return c, err
}

func findConversation(ctx context.Context, tx *sql.Tx, owner, id string) (Conversation, error) {
	c, err := scanConversation(tx.QueryRowContext(ctx, selectConversation+`
		WHERE id = ? AND owner = ? AND deleted_at IS NULL`,
		id, owner))
	if errors.Is(err, sql.ErrNoRows) {
		return Conversation{}, fmt.Errorf("conversation %q: %w", id, ErrNotFound)
	}
	return c, err
}

// ConversationIDs returns the ids of all conversations of everybody that are not in the trash.
func (s *Store) ConversationIDs(ctx context.Context) (ids []string, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT id FROM conversations WHERE deleted_at IS NULL`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return rows.Err()
	})
	return ids, err
}

// Cursor is a place in a list of conversations: what follows it is older, or not
// pinned. The zero value is before the first.
type Cursor struct {
	Pinned   bool
	Activity int64
}

// Filter chooses conversations. The zero value means all but those in the archive
// and the trash.
type Filter struct {
	Folder   *string // only this folder; "" is no folder
	Archived bool    // those in the archive instead
	Deleted  bool    // those in the trash instead, whatever the other fields say
	After    Cursor
	Limit    int // default 50, at most 500
}

// Conversations lists a page: pinned ones first, then by their last message.
func (s *Store) Conversations(ctx context.Context, owner string, f Filter) (list []Conversation, err error) {
	query, args := f.query(owner)
	err = s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			c, err := scanConversation(rows)
			if err != nil {
				return err
			}
			list = append(list, c)
		}
		return rows.Err()
	})
	return list, err
}

// query gives each kind of list a statement that one index answers in order.
func (f Filter) query(owner string) (query string, args []any) {
	where := `
		WHERE owner = ? AND deleted_at IS NULL AND archived = ?`
	args = []any{owner, f.Archived}
	if f.Folder != nil {
		where += ` AND folder = ?`
		args = append(args, *f.Folder)
	}
	if f.Deleted {
		where = `
		WHERE owner = ? AND deleted_at IS NOT NULL`
		args = []any{owner}
	}
	pinned, activity := 2, int64(0) // before everything
	if f.After != (Cursor{}) {
		pinned, activity = 0, f.After.Activity
		if f.After.Pinned {
			pinned = 1
		}
	}
	return selectConversation + where + ` AND (pinned, activity) < (?, ?)
		ORDER BY
			pinned DESC,
			activity DESC
		LIMIT ?`, append(args, pinned, activity, limit(f.Limit, 50, 500))
}

// limit returns n, or its default, or the most that is allowed.
func limit(n, standard, most int) int {
	if n <= 0 {
		return standard
	}
	return min(n, most)
}

// Folder is a name that conversations share.
type Folder struct {
	Name          string
	Conversations int // those in the archive and the trash not counted
}

// Folders lists the folders in use by name.
func (s *Store) Folders(ctx context.Context, owner string) (list []Folder, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `
			SELECT
				folder,
				count(*)
			FROM conversations
			WHERE owner = ? AND deleted_at IS NULL AND archived = 0 AND folder > ''
			GROUP BY folder
			ORDER BY folder`,
			owner)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var f Folder
			if err := rows.Scan(&f.Name, &f.Conversations); err != nil {
				return err
			}
			list = append(list, f)
		}
		return rows.Err()
	})
	return list, err
}

// RenameFolder gives all conversations of a folder another one, those in the archive and
// the trash included. It fails with ErrConflict if that is in use, and with ErrNotFound if
// the folder is empty.
func (s *Store) RenameFolder(ctx context.Context, owner, name, to string) error {
	if err := errors.Join(checkName("folder", name), checkName("name", to)); err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		var taken bool
		err := tx.QueryRowContext(ctx, `
			SELECT EXISTS (
				SELECT 1
				FROM conversations
				WHERE owner = ? AND deleted_at IS NULL AND archived = 0 AND folder = ? AND folder <> ?)`,
			owner, to, name).Scan(&taken)
		if err != nil {
			return err
		}
		if taken {
			return fmt.Errorf("%w: there is a folder %q already", ErrConflict, to)
		}
		return changeOne(ctx, tx, fmt.Sprintf("folder %q", name), `
			UPDATE conversations
			SET folder = ?
			WHERE owner = ? AND folder = ?`,
			to, owner, name)
	})
}

// Change sets fields of the metadata of a conversation, all but its id. It may be called twice.
type Change func(m *Metadata)

// UpdateConversation changes a conversation that is not in the trash. Its place in
// the list changes only by pinning: that follows the last message.
func (s *Store) UpdateConversation(ctx context.Context, owner, id string, change Change) (c Conversation, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		c, err = change.apply(ctx, tx, owner, id)
		return err
	})
	return c, err
}

// apply makes the change within a transaction and returns the conversation after it.
func (change Change) apply(ctx context.Context, tx *sql.Tx, owner, id string) (Conversation, error) {
	c, err := findConversation(ctx, tx, owner, id)
	if err != nil {
		return Conversation{}, err
	}
	before := c.Metadata
	change(&c.Metadata)
	if err := c.prepare(); err != nil {
		return Conversation{}, err
	}
	set, args := c.differences(&before)
	if set == "" {
		return c, nil
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE conversations
		SET `+set+`
		WHERE id = ? AND owner = ? AND deleted_at IS NULL`,
		append(args, id, owner)...)
	return c, err
}

// DeleteConversation puts a conversation in the trash. Nothing finds it there but
// Restore, Erase and a Filter with Deleted; an answer that runs in it can still be
// saved and finished.
func (s *Store) DeleteConversation(ctx context.Context, owner, id string) error {
	return s.setDeleted(ctx, owner, id, `
			UPDATE conversations
			SET deleted_at = ?
			WHERE id = ? AND owner = ? AND deleted_at IS NULL`, s.now())
}

// RestoreConversation takes a conversation out of the trash, back to its old place.
func (s *Store) RestoreConversation(ctx context.Context, owner, id string) error {
	return s.setDeleted(ctx, owner, id, `
			UPDATE conversations
			SET deleted_at = ?
			WHERE id = ? AND owner = ? AND deleted_at IS NOT NULL`, nil)
}

func (s *Store) setDeleted(ctx context.Context, owner, id, query string, at any) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		return changeOne(ctx, tx, fmt.Sprintf("conversation %q", id), query, at, id, owner)
	})
}

// changeOne runs a statement that must change a row; ErrNotFound if there is none.
func changeOne(ctx context.Context, tx *sql.Tx, what, query string, args ...any) error {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return err
}
