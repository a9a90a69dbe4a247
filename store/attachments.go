package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"m40-llm/infer/fault"
)

// Picture is a picture of a message. The store has one file for all messages with the same picture, and deletes it with the
// last of them.
type Picture struct {
	Hash   string `json:"hash"` // SHA-256 of the file, in hexadecimal digits
	Type   string `json:"type"` // media type of the file, such as image/png
	Width  int    `json:"width"`
	Height int    `json:"height"` // pixels, as the picture is shown
	Bytes  int    `json:"bytes"`  // of the file

	Detail string `json:"detail,omitempty"` // in which a model reads it, as chat.Detail; each message has its own

	Data []byte `json:"-"` // the file, to add one that the store may lack; nil in what the store returns
}

// PictureHash returns the Hash of a file.
func PictureHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// QuotaError says that the pictures of a person would take more room than they may.
type QuotaError struct {
	Used, More, Limit int64 // bytes
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("your pictures take %d MiB, and with %d MiB more they would take more than the limit of %d MiB; delete chats with pictures, also from the trash",
		e.Used>>20, (e.More+1<<20-1)>>20, e.Limit>>20)
}

func (e *QuotaError) Unwrap() error {
	return &fault.Error{Code: fault.CodePicturesFull, Param: "pictures", Message: e.Error()}
}

// pictureColumn is the list of the pictures of a message m as JSON; empty: it has none.
const pictureColumn = `
			coalesce((
				SELECT nullif(json_group_array(json_object('hash', f.hash, 'type', f.type, 'width', f.width, 'height', f.height, 'bytes', f.bytes, 'detail', l.detail) ORDER BY l.place), '[]')
				FROM message_attachments AS l
				JOIN attachments AS f ON f.id = l.attachment
				WHERE l.message = m.id
			), '')`

func readPictures(list string) (pictures []Picture, err error) {
	if list == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(list), &pictures)
	return pictures, err
}

// putPictures gives a message its pictures. A picture without Data must be in the store.
func (s *Store) putPictures(ctx context.Context, tx *sql.Tx, message int64, pictures []Picture) error {
	for place, p := range pictures {
		if p.Data != nil {
			if p.Hash != PictureHash(p.Data) || p.Bytes != len(p.Data) {
				return &InvalidError{"pictures", "have a file that does not match its hash or size"}
			}
			_, err := tx.ExecContext(ctx, `
				INSERT INTO attachments (hash, type, width, height, bytes, created_at, data)
				VALUES (?, ?, ?, ?, ?, ?, ?)
				ON CONFLICT (hash) DO NOTHING`,
				p.Hash, p.Type, p.Width, p.Height, len(p.Data), s.now(), p.Data)
			if err != nil {
				return err
			}
		}
		result, err := tx.ExecContext(ctx, `
			INSERT INTO message_attachments (message, place, attachment, detail)
			SELECT ?, ?, id, ?
			FROM attachments
			WHERE hash = ?`,
			message, place, p.Detail, p.Hash)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, fmt.Errorf("picture %s: %w", p.Hash, ErrNotFound))
		}
	}
	return nil
}

// filesOf returns how many bytes the files that come with pictures have.
func filesOf(pictures []Picture) (bytes int64) {
	for _, p := range pictures {
		bytes += int64(len(p.Data))
	}
	return bytes
}

// checkQuota returns a *QuotaError if the pictures of the owner take more than they may. It is called after a change that
// added so many bytes, in its transaction.
func (s *Store) checkQuota(ctx context.Context, tx *sql.Tx, owner string, more int64) error {
	if more == 0 {
		return nil
	}
	used, err := pictureBytes(ctx, tx, owner)
	if err != nil || used <= s.opt.PictureBytes {
		return err
	}
	return &QuotaError{Used: max(0, used-more), More: more, Limit: s.opt.PictureBytes}
}

// pictureBytes returns how many bytes the pictures in the conversations of an owner take, each counted once.
func pictureBytes(ctx context.Context, tx *sql.Tx, owner string) (used int64, err error) {
	err = tx.QueryRowContext(ctx, `
		SELECT coalesce(sum(f.bytes), 0)
		FROM attachments AS f
		WHERE EXISTS (
			SELECT 1
			FROM message_attachments AS l
			JOIN messages AS m ON m.id = l.message
			JOIN conversations AS c ON c.seq = m.conversation
			WHERE l.attachment = f.id AND c.owner = ?
		)`,
		owner).Scan(&used)
	return used, err
}

// AllPictureBytes returns how many bytes the pictures of all owners take, each counted once.
func (s *Store) AllPictureBytes(ctx context.Context) (used int64, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `
			SELECT coalesce(sum(bytes), 0)
			FROM attachments`).Scan(&used)
	})
	return used, err
}

// PictureBytes returns how many bytes the pictures of an owner take, and how many they may.
func (s *Store) PictureBytes(ctx context.Context, owner string) (used, limit int64, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		used, err = pictureBytes(ctx, tx, owner)
		return err
	})
	return used, s.opt.PictureBytes, err
}

// Pictures returns the files of pictures of a conversation, in the order of their hashes in the list. ErrNotFound if the
// conversation has no message with one of them.
func (s *Store) Pictures(ctx context.Context, owner, conversation string, hashes []string) (files [][]byte, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		files = make([][]byte, len(hashes))
		for i, hash := range hashes {
			err := tx.QueryRowContext(ctx, `
				SELECT f.data
				FROM attachments AS f
				WHERE f.hash = ? AND EXISTS (
					SELECT 1
					FROM message_attachments AS l
					JOIN messages AS m ON m.id = l.message
					JOIN conversations AS c ON c.seq = m.conversation
					WHERE l.attachment = f.id AND c.id = ? AND c.owner = ?
				)`,
				hash, conversation, owner).Scan(&files[i])
			if err != nil {
				return missing(err, "picture "+hash)
			}
		}
		return nil
	})
	return files, err
}

// FillPictures puts the files into the pictures of messages of a conversation in from.
func FillPictures(ctx context.Context, from interface {
	Pictures(ctx context.Context, owner, conversation string, hashes []string) ([][]byte, error)
}, owner, conversation string, list []Message) error {
	for i := range list {
		list[i].Pictures = slices.Clone(list[i].Pictures)
		for k := range list[i].Pictures {
			p := &list[i].Pictures[k]
			files, err := from.Pictures(ctx, owner, conversation, []string{p.Hash})
			if err != nil {
				return err
			}
			p.Data = files[0]
		}
	}
	return nil
}

func checkPictures(list []Picture) error {
	for _, p := range list {
		if len(p.Hash) != 2*sha256.Size || p.Data != nil && (!strings.HasPrefix(p.Type, "image/") || p.Width < 1 || p.Height < 1) {
			return &InvalidError{"pictures", "have one without a hash, a type or a size"}
		}
		if p.Detail != "" && p.Detail != "low" && p.Detail != "medium" {
			return &InvalidError{"pictures", "have one whose detail is neither low nor medium"}
		}
	}
	return nil
}
