package store

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// TokenRow is what the samplers got for one token of an answer, in the format of sample.ParseRow.
type TokenRow struct {
	Row     []byte // of the model
	Changed []byte // after mask, bias and penalties; nil: they changed nothing
}

// TokenRows are the rows of consecutive tokens of an answer.
type TokenRows struct {
	First int // which token of the answer the first row is of, from 0
	Rows  []TokenRow
}

// maxRowBytes bounds what one token has: twice what 256 candidates need.
const maxRowBytes = 4 << 10

// putTokenRows stores rows of an answer, in place of those that begin at the same token.
func (s *Store) putTokenRows(ctx context.Context, tx *sql.Tx, message int64, list []TokenRows) error {
	for _, rows := range list {
		packed, err := rows.pack()
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			REPLACE INTO token_rows (message, first, tokens, bytes, packed, created_at)
			VALUES (?, ?, ?, ?, ?, ?)`,
			message, rows.First, len(rows.Rows), len(packed), packed, s.now())
		if err != nil {
			return err
		}
	}
	return nil
}

// RowLimits are how long, and up to which size, the rows of all tokens are stored.
type RowLimits struct {
	Days      int `json:"days"`      // 1 to 3650
	Megabytes int `json:"megabytes"` // of 2^20 bytes, 0 to 1048576
}

// rowLimits is the name of the setting, which is the server's.
const rowLimits = "token_rows"

func (l RowLimits) validate() error {
	switch {
	case l.Days < 1 || l.Days > 3650:
		return &InvalidError{"days", fmt.Sprintf("must be from 1 to 3650, not %d", l.Days)}
	case l.Megabytes < 0 || l.Megabytes > 1<<20:
		return &InvalidError{"megabytes", fmt.Sprintf("must be from 0 to %d, not %d", 1<<20, l.Megabytes)}
	}
	return nil
}

// readRowLimits returns those that were set, else those of Options.
func (s *Store) readRowLimits(ctx context.Context, tx *sql.Tx) (age time.Duration, size int64, err error) {
	var text string
	err = tx.QueryRowContext(ctx, `SELECT value FROM settings WHERE owner = ? AND name = ?`, OwnerID, rowLimits).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return s.opt.RowsAge, s.opt.RowsBytes, nil
	}
	var l RowLimits
	if err == nil {
		if err = json.Unmarshal([]byte(text), &l); err == nil {
			err = l.validate()
		}
	}
	return time.Duration(l.Days) * 24 * time.Hour, int64(l.Megabytes) << 20, err
}

// RowLimits returns the limits, and how many bytes the rows of all answers take.
func (s *Store) RowLimits(ctx context.Context) (l RowLimits, used int64, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		age, size, err := s.readRowLimits(ctx, tx)
		if err != nil {
			return err
		}
		l = RowLimits{Days: int(age / (24 * time.Hour)), Megabytes: int(size >> 20)}
		return tx.QueryRowContext(ctx, `SELECT coalesce(sum(bytes), 0) FROM token_rows`).Scan(&used)
	})
	return l, used, err
}

// SetRowLimits sets the limits, and deletes the rows that exceed them.
func (s *Store) SetRowLimits(ctx context.Context, l RowLimits) error {
	if err := l.validate(); err != nil {
		return err
	}
	value, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `REPLACE INTO settings (owner, name, value) VALUES (?, ?, ?)`, OwnerID, rowLimits, string(value)); err != nil {
			return err
		}
		return s.evictTokenRows(ctx, tx)
	})
}

// evictTokenRows deletes the oldest rows, of all answers, that exceed the limits.
func (s *Store) evictTokenRows(ctx context.Context, tx *sql.Tx) error {
	age, size, err := s.readRowLimits(ctx, tx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		DELETE FROM token_rows
		WHERE created_at < ? OR seq <= (
			SELECT max(seq)
			FROM (SELECT seq, sum(bytes) OVER (ORDER BY seq DESC) AS total FROM token_rows)
			WHERE total > ?
		)`,
		s.opt.Now().Add(-age).UnixMilli(), size)
	return err
}

// TokenRows returns the stored rows of an answer, by First; none if they are deleted, or the answer was
// written before rows were stored.
func (s *Store) TokenRows(ctx context.Context, owner, conversation string, message int64) (list []TokenRows, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if _, err := findConversation(ctx, tx, owner, conversation); err != nil {
			return err
		}
		if _, err := findMessage(ctx, tx, owner, conversation, message); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `
			SELECT first, tokens, packed
			FROM token_rows
			WHERE message = ?
			ORDER BY first`,
			message)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var chunk TokenRows
			var tokens int
			var packed []byte
			if err := rows.Scan(&chunk.First, &tokens, &packed); err != nil {
				return err
			}
			if chunk.Rows, err = unpackRows(packed, tokens); err != nil {
				return fmt.Errorf("rows of message %d from token %d: %w", message, chunk.First, err)
			}
			list = append(list, chunk)
		}
		return rows.Err()
	})
	return list, err
}

// checkRows returns an *InvalidError if a row is too long.
func checkRows(list []TokenRows) error {
	for _, rows := range list {
		for _, r := range rows.Rows {
			if n := max(len(r.Row), len(r.Changed)); n > maxRowBytes {
				return &InvalidError{"row of a token", fmt.Sprintf("has %d bytes, and at most %d can be stored", n, maxRowBytes)}
			}
		}
	}
	return nil
}

// pack returns the rows compressed: each row and each changed row after its length, an unsigned varint.
func (t TokenRows) pack() ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	var plain []byte
	for _, r := range t.Rows {
		for _, part := range [][]byte{r.Row, r.Changed} {
			plain = append(binary.AppendUvarint(plain, uint64(len(part))), part...)
		}
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpackRows(packed []byte, tokens int) ([]TokenRow, error) {
	most := int64(tokens) * 2 * (maxRowBytes + 2)
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), most))
	if err != nil {
		return nil, err
	}
	next := func() ([]byte, error) {
		n, size := binary.Uvarint(plain)
		if size <= 0 || n > uint64(len(plain)-size) {
			return nil, errors.New("the packed rows are damaged")
		}
		part := plain[size : size+int(n) : size+int(n)]
		plain = plain[size+int(n):]
		if n == 0 {
			part = nil
		}
		return part, nil
	}
	list := make([]TokenRow, 0, min(tokens, len(plain)))
	for range tokens {
		var r TokenRow
		if r.Row, err = next(); err != nil {
			return nil, err
		}
		if r.Changed, err = next(); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}
