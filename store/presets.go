package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Preset is a named set of sampling settings with a system prompt.
type Preset struct {
	ID       int64
	Name     string // unique for its owner, whatever the case of its ASCII letters
	System   string
	Settings json.RawMessage
	Created  time.Time
	Updated  time.Time
}

// Presets lists the presets by name.
func (s *Store) Presets(ctx context.Context, owner string) (list []Preset, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectPreset+`
		WHERE owner = ?
		ORDER BY name`,
			owner)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			p, err := scanPreset(rows)
			if err != nil {
				return err
			}
			list = append(list, p)
		}
		return rows.Err()
	})
	return list, err
}

// Preset returns one preset.
func (s *Store) Preset(ctx context.Context, owner string, id int64) (p Preset, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		p, err = findPreset(ctx, tx, owner, id)
		return err
	})
	return p, err
}

// HasSystemPrompt reports whether a preset of owner has this system prompt.
func (s *Store) HasSystemPrompt(ctx context.Context, owner, system string) (found bool, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `
		SELECT EXISTS (
			SELECT 1
			FROM presets
			WHERE owner = ? AND system = ?
		)`,
			owner, system).Scan(&found)
	})
	return found, err
}

// CreatePreset adds a preset. It fails with ErrConflict if the name is taken.
func (s *Store) CreatePreset(ctx context.Context, owner string, p Preset) (Preset, error) {
	return s.putPreset(ctx, owner, p, func(tx *sql.Tx, _ string) (int64, error) {
		return insertPreset(ctx, tx, owner, s.newPreset(p))
	})
}

// newPreset is p as one that begins now, and gets its id when it is added.
func (s *Store) newPreset(p Preset) Preset {
	now := s.opt.Now()
	p.ID, p.Created, p.Updated = 0, now, now
	return p
}

// insertPreset adds p under its id, or under a new one if that is 0.
func insertPreset(ctx context.Context, tx *sql.Tx, owner string, p Preset) (id int64, err error) {
	settings, err := jsonText("settings", p.Settings)
	if err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, `
		INSERT INTO presets (
			id,
			owner,
			name,
			system,
			settings,
			created_at,
			updated_at
		)
		VALUES (NULLIF(?, 0), ?, ?, ?, ?, ?, ?)`,
		p.ID, owner, strings.TrimSpace(p.Name), p.System, settings, p.Created.UnixMilli(), p.Updated.UnixMilli())
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// UpdatePreset stores all fields of the preset p.ID anew, its name too. It fails with
// ErrConflict if another has the name.
func (s *Store) UpdatePreset(ctx context.Context, owner string, p Preset) (Preset, error) {
	return s.putPreset(ctx, owner, p, func(tx *sql.Tx, settings string) (int64, error) {
		return p.ID, changeOne(ctx, tx, fmt.Sprintf("preset %d", p.ID), `
			UPDATE presets
			SET
				name       = ?,
				system     = ?,
				settings   = ?,
				updated_at = ?
			WHERE id = ? AND owner = ?`,
			strings.TrimSpace(p.Name), p.System, settings, s.now(), p.ID, owner)
	})
}

func (s *Store) putPreset(ctx context.Context, owner string, p Preset, put func(tx *sql.Tx, settings string) (id int64, err error)) (saved Preset, err error) {
	settings, err := checkPreset(owner, p)
	if err != nil {
		return Preset{}, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		id, err := put(tx, settings)
		if isTaken(err) {
			return fmt.Errorf("%w: there is a preset %q already", ErrConflict, strings.TrimSpace(p.Name))
		}
		if err != nil {
			return err
		}
		saved, err = findPreset(ctx, tx, owner, id)
		return err
	})
	return saved, err
}

func checkPreset(owner string, p Preset) (settings string, err error) {
	settings, err = jsonText("settings", p.Settings)
	return settings, errors.Join(err, checkName("owner", owner), checkName("name", p.Name), checkText("system", p.System, MaxText))
}

// RenamePreset changes the name alone. It fails with ErrConflict if another has it.
func (s *Store) RenamePreset(ctx context.Context, owner string, id int64, name string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	name = strings.TrimSpace(name)
	return s.write(ctx, func(tx *sql.Tx) error {
		err := changeOne(ctx, tx, fmt.Sprintf("preset %d", id), `
			UPDATE presets
			SET
				name       = ?,
				updated_at = ?
			WHERE id = ? AND owner = ?`,
			name, s.now(), id, owner)
		if isTaken(err) {
			return fmt.Errorf("%w: there is a preset %q already", ErrConflict, name)
		}
		return err
	})
}

// DeletePreset removes a preset.
func (s *Store) DeletePreset(ctx context.Context, owner string, id int64) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		return changeOne(ctx, tx, fmt.Sprintf("preset %d", id), `
			DELETE FROM presets
			WHERE id = ? AND owner = ?`,
			id, owner)
	})
}

// RestorePreset adds a preset that was deleted, under the id that it had. It fails with
// ErrConflict if its name is taken, or if it exists.
func (s *Store) RestorePreset(ctx context.Context, owner string, p Preset) error {
	_, err := s.putPreset(ctx, owner, p, func(tx *sql.Tx, _ string) (int64, error) {
		return insertPreset(ctx, tx, owner, p)
	})
	return err
}

// ImportPresets adds all presets of a list, or none. One whose name is taken gets a
// number after it.
func (s *Store) ImportPresets(ctx context.Context, owner string, list []Preset) (added []Preset, err error) {
	for i, p := range list {
		if _, err := checkPreset(owner, p); err != nil {
			return nil, fmt.Errorf("preset %d: %w", i+1, err)
		}
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		added = nil
		next := map[string]int{}
		for _, p := range list {
			saved, err := s.addNumbered(ctx, tx, owner, p, next)
			if err != nil {
				return err
			}
			added = append(added, saved)
		}
		return nil
	})
	return added, err
}

// addNumbered adds a preset. next has the number with which the next one of a name is
// tried: many of one name must not each try them all. A long name is cut for its number,
// so that what is exported can be imported.
func (s *Store) addNumbered(ctx context.Context, tx *sql.Tx, owner string, p Preset, next map[string]int) (Preset, error) {
	const most = 90 // characters before a number
	name := strings.TrimSpace(p.Name)
	short := []rune(name)
	short = short[:min(len(short), most)]
	for n := max(1, next[name]); ; n++ {
		if n > 1 {
			p.Name = fmt.Sprintf("%s (%d)", string(short), n)
		}
		id, err := insertPreset(ctx, tx, owner, s.newPreset(p))
		if err == nil {
			next[name] = n + 1
			return findPreset(ctx, tx, owner, id)
		}
		if !isTaken(err) {
			return Preset{}, err
		}
	}
}

const selectPreset = `
		SELECT
			id,
			name,
			system,
			settings,
			created_at,
			updated_at
		FROM presets`

func findPreset(ctx context.Context, tx *sql.Tx, owner string, id int64) (Preset, error) {
	p, err := scanPreset(tx.QueryRowContext(ctx, selectPreset+`
		WHERE id = ? AND owner = ?`,
		id, owner))
	if errors.Is(err, sql.ErrNoRows) {
		return Preset{}, fmt.Errorf("preset %d: %w", id, ErrNotFound)
	}
	return p, err
}

func scanPreset(row interface{ Scan(...any) error }) (p Preset, err error) {
	var settings string
	var created, updated int64
	err = row.Scan(&p.ID, &p.Name, &p.System, &settings, &created, &updated)
	p.Settings = json.RawMessage(settings)
	p.Created, p.Updated = fromMillis(created), fromMillis(updated)
	return p, err
}
