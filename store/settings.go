package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// Setting returns a value that the owner chose for the program, such as the theme or
// the last model. ErrNotFound if it was never set.
func (s *Store) Setting(ctx context.Context, owner, name string) (value json.RawMessage, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		var text string
		err := tx.QueryRowContext(ctx, `
			SELECT value
			FROM settings
			WHERE owner = ? AND name = ?`,
			owner, name).Scan(&text)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("setting %q: %w", name, ErrNotFound)
		}
		value = json.RawMessage(text)
		return err
	})
	return value, err
}

// Settings returns all values of the owner by name.
func (s *Store) Settings(ctx context.Context, owner string) (values map[string]json.RawMessage, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `
			SELECT
				name,
				value
			FROM settings
			WHERE owner = ?`,
			owner)
		if err != nil {
			return err
		}
		defer rows.Close()
		values = map[string]json.RawMessage{}
		for rows.Next() {
			var name, text string
			if err := rows.Scan(&name, &text); err != nil {
				return err
			}
			values[name] = json.RawMessage(text)
		}
		return rows.Err()
	})
	return values, err
}

// SetSetting stores a value; nil removes it.
func (s *Store) SetSetting(ctx context.Context, owner, name string, value json.RawMessage) error {
	text, err := jsonText("value", value)
	if err := errors.Join(err, checkName("owner", owner), checkName("name", name)); err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		if value == nil {
			_, err := tx.ExecContext(ctx, `
				DELETE FROM settings
				WHERE owner = ? AND name = ?`,
				owner, name)
			return err
		}
		_, err := tx.ExecContext(ctx, `
			REPLACE INTO settings (owner, name, value)
			VALUES (?, ?, ?)`,
			owner, name, text)
		return err
	})
}
