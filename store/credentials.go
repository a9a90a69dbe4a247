package store

import (
	"context"
	"database/sql"
	"time"
)

// Device is a browser that is logged in.
type Device struct {
	ID      int64
	Person  string
	KeyHash []byte // SHA-256 of the server's API key with which it logged in; nil: none
	Label   string // name of browser and system
	Created time.Time
	Seen    time.Time
}

// Key is an API key.
type Key struct {
	ID      int64
	Person  string
	Name    string
	Created time.Time
	Used    time.Time // zero: never
}

const selectDevice = `
		SELECT
			id,
			person,
			key_hash,
			label,
			created_at,
			seen_at
		FROM devices`

func scanDevice(row interface{ Scan(...any) error }) (d Device, err error) {
	var created, seen int64
	err = row.Scan(&d.ID, &d.Person, &d.KeyHash, &d.Label, &created, &seen)
	d.Created, d.Seen = fromMillis(created), fromMillis(seen)
	return d, err
}

// AddDevice stores a device of a person that has logged in, and returns it with its id. It returns
// ErrNotFound if there is no such person.
func (s *Store) AddDevice(ctx context.Context, d Device, token TokenHash) (Device, error) {
	d.Created = fromMillis(s.now())
	d.Seen = d.Created
	if err := checkText("label", d.Label, maxName); err != nil {
		return Device{}, err
	}
	err := s.write(ctx, func(tx *sql.Tx) (err error) {
		d.ID, err = insertFor(ctx, tx, `
			INSERT INTO devices (person, token_hash, key_hash, label, created_at, seen_at)
			SELECT id, ?, ?, ?, ?, ?
			FROM people
			WHERE id = ?`,
			token[:], d.KeyHash, d.Label, d.Created.UnixMilli(), d.Seen.UnixMilli(), d.Person)
		return err
	})
	return d, err
}

// insertFor adds a row for a person and returns its id.
func insertFor(ctx context.Context, tx *sql.Tx, query string, args ...any) (id int64, err error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return 0, missing(sql.ErrNoRows, "person")
	}
	return result.LastInsertId()
}

// DeviceWith returns the device with this token, and its person.
func (s *Store) DeviceWith(ctx context.Context, token TokenHash) (d Device, p Person, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if d, err = scanDevice(tx.QueryRowContext(ctx, selectDevice+` WHERE token_hash = ?`, token[:])); err != nil {
			return missing(err, "device")
		}
		p, err = scanPerson(tx.QueryRowContext(ctx, selectPerson+` WHERE id = ?`, d.Person))
		return err
	})
	return d, p, err
}

// Devices returns the devices of a person, most recently seen first.
func (s *Store) Devices(ctx context.Context, person string) (list []Device, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		list, err = scanAll(ctx, tx, scanDevice, selectDevice+` WHERE person = ? ORDER BY seen_at DESC, id DESC`, person)
		return err
	})
	return list, err
}

// RemoveDevice logs a device of a person out.
func (s *Store) RemoveDevice(ctx context.Context, person string, id int64) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		return changeOne(ctx, tx, "device", `DELETE FROM devices WHERE id = ? AND person = ?`, id, person)
	})
}

// RemoveDevicesUnseen logs out the devices that were last seen before a time, or logged in before
// another.
func (s *Store) RemoveDevicesUnseen(ctx context.Context, seen, created time.Time) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM devices WHERE seen_at < ? OR created_at < ?`, seen.UnixMilli(), created.UnixMilli())
		return err
	})
}

const selectKey = `
		SELECT
			id,
			person,
			name,
			created_at,
			coalesce(used_at, 0)
		FROM api_keys`

func scanKey(row interface{ Scan(...any) error }) (k Key, err error) {
	var created, used int64
	err = row.Scan(&k.ID, &k.Person, &k.Name, &created, &used)
	k.Created = fromMillis(created)
	if used != 0 {
		k.Used = fromMillis(used)
	}
	return k, err
}

// AddKey stores an API key of a person, and returns it with its id. ErrNotFound if there is no
// such person.
func (s *Store) AddKey(ctx context.Context, person, name string, token TokenHash) (Key, error) {
	k := Key{Person: person, Name: name, Created: fromMillis(s.now())}
	if err := checkName("name", name); err != nil {
		return Key{}, err
	}
	err := s.write(ctx, func(tx *sql.Tx) (err error) {
		k.ID, err = insertFor(ctx, tx, `
			INSERT INTO api_keys (person, token_hash, name, created_at)
			SELECT id, ?, ?, ?
			FROM people
			WHERE id = ?`,
			token[:], k.Name, k.Created.UnixMilli(), k.Person)
		return err
	})
	return k, err
}

// KeyWith returns the API key with this token, and its person.
func (s *Store) KeyWith(ctx context.Context, token TokenHash) (k Key, p Person, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if k, err = scanKey(tx.QueryRowContext(ctx, selectKey+` WHERE token_hash = ?`, token[:])); err != nil {
			return missing(err, "key")
		}
		p, err = scanPerson(tx.QueryRowContext(ctx, selectPerson+` WHERE id = ?`, k.Person))
		return err
	})
	return k, p, err
}

// Keys returns the API keys of a person, oldest first.
func (s *Store) Keys(ctx context.Context, person string) (list []Key, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		list, err = scanAll(ctx, tx, scanKey, selectKey+` WHERE person = ? ORDER BY id`, person)
		return err
	})
	return list, err
}

// RemoveKey removes an API key of a person.
func (s *Store) RemoveKey(ctx context.Context, person string, id int64) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		return changeOne(ctx, tx, "key", `DELETE FROM api_keys WHERE id = ? AND person = ?`, id, person)
	})
}

// Seen stores when devices and keys were last used, by id. Unknown ids are ignored.
func (s *Store) Seen(ctx context.Context, devices, keys map[int64]time.Time) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		for id, at := range devices {
			if _, err := tx.ExecContext(ctx, `UPDATE devices SET seen_at = ? WHERE id = ?`, at.UnixMilli(), id); err != nil {
				return err
			}
		}
		for id, at := range keys {
			if _, err := tx.ExecContext(ctx, `UPDATE api_keys SET used_at = ? WHERE id = ?`, at.UnixMilli(), id); err != nil {
				return err
			}
		}
		return nil
	})
}
