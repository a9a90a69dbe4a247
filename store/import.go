package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Limits of an import.
const (
	MaxImport     = 20_000  // messages
	maxImportText = 4 << 20 // bytes of one message
)

// importing is the owner of a conversation until it is complete, so that no person sees a part of one.
const importing = "(importing)"

// What is written of an import at once: others who write wait for no more.
const (
	batchMessages = 128
	batchBytes    = 128 << 10 // of text, by which a batch may be too large
)

// importer is an import that is being written.
type importer struct {
	store    *Store
	seq      int64           // of the conversation
	ids      map[int64]int64 // of the messages here, by those in the list
	parents  map[int64]int64 // in the list
	below    map[int64]int   // messages below a message of the list; 0: those without a parent
	batch    []Message
	bytes    int
	pictures int64 // bytes of the files of all pictures
	last     int64 // in the list
}

// Import makes a conversation of messages that exist elsewhere, such as a branch that
// is forked or a file that was exported. Parents come before their children and are
// named by the ids that the messages have in the list; here they get ids of their own.
// An answer that runs is an interrupted one here. about is called after the last message
// and returns what the conversation begins with and the id, in the list, of the message
// that is shown last; 0 means the last one.
//
// The messages are written as they come, in batches between which others write. No reader
// sees any before all are stored; what an error leaves is removed, and what a crash
// leaves by the next Open. Import fails as CreateConversation does, with the error of the
// list, and with an *InvalidError beyond MaxImport messages.
func (s *Store) Import(ctx context.Context, owner string, list iter.Seq2[Message, error], about func() (Metadata, int64)) (c Conversation, err error) {
	if err := s.checkFree(); err != nil {
		return Conversation{}, err
	}
	i := &importer{store: s, ids: map[int64]int64{0: 0}, parents: map[int64]int64{}, below: map[int64]int{}}
	hidden := Metadata{}
	if err := s.write(ctx, func(tx *sql.Tx) error {
		hidden.ID = ""
		if err := s.createConversation(ctx, tx, importing, &hidden); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT seq FROM conversations WHERE id = ?`, hidden.ID).Scan(&i.seq)
	}); err != nil {
		return Conversation{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discardImport(context.WithoutCancel(ctx), i.seq))
		}
	}()
	for m, err := range list {
		if err == nil {
			err = i.add(ctx, m)
		}
		if err != nil {
			return Conversation{}, err
		}
	}
	if err := i.flush(ctx); err != nil {
		return Conversation{}, err
	}
	n, leaf := about()
	if leaf == 0 {
		leaf = i.last
	}
	if err := i.show(ctx, leaf); err != nil {
		return Conversation{}, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		if err := i.publish(ctx, tx, owner, &n, leaf); err != nil {
			return err
		}
		if err := s.checkQuota(ctx, tx, owner, i.pictures); err != nil {
			return err
		}
		c, err = findConversation(ctx, tx, owner, n.ID)
		return err
	})
	return c, err
}

// add takes a message of the list, and writes a batch if that is full.
func (i *importer) add(ctx context.Context, m Message) error {
	_, known := i.below[m.Parent]
	_, twice := i.parents[m.ID]
	switch {
	case m.Parent != 0 && !known || twice || m.ID == 0:
		return &InvalidError{"messages", fmt.Sprintf("have a message %d that comes twice or before its parent %d", m.ID, m.Parent)}
	case len(i.parents) == MaxImport:
		return &InvalidError{"messages", fmt.Sprintf("are more than %d, the most that a chat can be imported or copied with", MaxImport)}
	}
	if err := errors.Join(checkRole(m.Role), checkText("text", m.Text, maxImportText), checkText("reasoning", m.Reasoning, maxImportText), checkText("author", m.Author, maxName), checkPictures(m.Pictures)); err != nil {
		return err
	}
	if m.State == Running {
		m.State = Interrupted
	}
	i.below[m.Parent]++
	i.below[m.ID] = 0
	m.Version = i.below[m.Parent]
	i.parents[m.ID], i.last = m.Parent, m.ID
	i.batch, i.bytes = append(i.batch, m), i.bytes+len(m.Text)+len(m.Reasoning)
	more := filesOf(m.Pictures)
	i.bytes, i.pictures = i.bytes+int(more), i.pictures+more
	if limit := i.store.opt.PictureBytes; i.pictures > limit {
		return &QuotaError{More: i.pictures, Limit: limit}
	}
	if len(i.batch) < batchMessages && i.bytes < batchBytes {
		return nil
	}
	return i.flush(ctx)
}

// flush writes the batch.
func (i *importer) flush(ctx context.Context) error {
	err := i.store.write(ctx, func(tx *sql.Tx) error {
		for _, m := range i.batch {
			if err := i.insert(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	})
	i.batch, i.bytes = i.batch[:0], 0
	return err
}

func (i *importer) insert(ctx context.Context, tx *sql.Tx, m Message) error {
	created := i.store.now()
	if !m.Created.IsZero() {
		created = m.Created.UnixMilli()
	}
	var parent *int64
	if m.Parent != 0 {
		id := i.ids[m.Parent]
		parent = &id
	}
	result, err := tx.ExecContext(ctx, `
		INSERT INTO messages (
			conversation,
			parent,
			version,
			role,
			state,
			text,
			reasoning,
			author,
			created_at
		)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		i.seq, parent, m.Version, m.Role, m.State, m.Text, m.Reasoning, m.Author, created)
	if err != nil {
		return err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return err
	}
	i.ids[m.ID] = id
	if m.Answer != nil {
		if err := putAnswer(ctx, tx, id, *m.Answer); err != nil {
			return err
		}
	}
	if err := i.store.putPictures(ctx, tx, id, m.Pictures); err != nil {
		return err
	}
	if parent == nil {
		return nil
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE messages
		SET
			children = children + 1,
			chosen   = ?
		WHERE id = ?`,
		id, *parent)
	return err
}

// show makes the branch down to leaf, which is an id of the list, the one that was shown
// last everywhere.
func (i *importer) show(ctx context.Context, leaf int64) error {
	if i.ids[leaf] == 0 && len(i.parents) > 0 {
		return &InvalidError{"leaf", fmt.Sprintf("is message %d, which is not in the list", leaf)}
	}
	var branch []int64
	for id := leaf; id != 0; id = i.parents[id] {
		branch = append(branch, i.ids[id])
	}
	for part := range slices.Chunk(branch, 4*batchMessages) {
		err := i.store.write(ctx, func(tx *sql.Tx) error {
			for _, id := range part {
				if err := choose(ctx, tx, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var publishImport = `
		UPDATE conversations
		SET
			` + metadata.set + `,
			owner      = ?,
			leaf       = ?,
			roots      = ?,
			activity   = (SELECT max(activity) + 1 FROM conversations),
			created_at = ?,
			updated_at = ?
		WHERE seq = ?`

// publish gives the conversation to its owner.
func (i *importer) publish(ctx context.Context, tx *sql.Tx, owner string, n *Metadata, leaf int64) error {
	if err := checkName("owner", owner); err != nil {
		return err
	}
	if err := n.prepare(); err != nil {
		return err
	}
	var shown *int64
	if id := i.ids[leaf]; id != 0 {
		shown = &id
	}
	now := i.store.now()
	return n.conflict(changeOne(ctx, tx, "imported conversation", publishImport,
		append(n.values(), owner, shown, i.below[0], now, now, i.seq)...))
}

// discardImport removes what is stored of an import that will not end.
func (s *Store) discardImport(ctx context.Context, seq int64) error {
	for more := true; more; {
		err := s.write(ctx, func(tx *sql.Tx) error {
			// The newest first: nothing may refer to what is removed.
			last, err := ids(ctx, tx, `
				SELECT id
				FROM messages
				WHERE conversation = ?
				ORDER BY id DESC
				LIMIT ?`,
				seq, batchMessages)
			if err != nil {
				return err
			}
			for _, id := range last {
				if _, err := tx.ExecContext(ctx, `DELETE FROM messages WHERE id = ?`, id); err != nil {
					return err
				}
			}
			if more = len(last) > 0; more {
				return nil
			}
			_, err = tx.ExecContext(ctx, `DELETE FROM conversations WHERE seq = ?`, seq)
			return err
		})
		if err != nil {
			return fmt.Errorf("what was written of the import could not be removed; the next start removes it: %w", err)
		}
	}
	return nil
}

// discardImports removes what imports have left that a crash has ended.
func (s *Store) discardImports(ctx context.Context) error {
	var left []int64
	err := s.write(ctx, func(tx *sql.Tx) (err error) {
		left, err = ids(ctx, tx, `SELECT seq FROM conversations WHERE owner = ?`, importing)
		return err
	})
	if err != nil {
		return err
	}
	for _, seq := range left {
		if err := s.discardImport(ctx, seq); err != nil {
			return err
		}
		s.opt.Log.Info("removed what was there of an import that the last stop interrupted")
	}
	return nil
}
