package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// OwnerID is the id of the owner of the server, who always exists.
const OwnerID = "local"

// Person is a user of the server. Rows that belong to a person have ID as their owner.
type Person struct {
	ID      string
	Name    string // unique, whatever its case
	IsOwner bool   // of the server
	Limits  PersonLimits
	Created time.Time

	HasPassphrase bool
}

// PersonLimits are what the owner of the server allows a person; 0: there is no limit.
type PersonLimits struct {
	AtOnce  int // answers that are written at the same time
	Answers int // a day
	Tokens  int // a day, that are written in these
}

// nameKey returns a key that is equal for names that differ only in case or Unicode normalization.
func nameKey(name string) string { return cases.Fold().String(norm.NFKC.String(name)) }

const selectPerson = `
		SELECT
			id,
			name,
			role = 'owner',
			answers,
			answers_a_day,
			tokens_a_day,
			created_at,
			passphrase <> ''
		FROM people`

func scanPerson(row interface{ Scan(...any) error }) (p Person, err error) {
	var created int64
	err = row.Scan(&p.ID, &p.Name, &p.IsOwner, &p.Limits.AtOnce, &p.Limits.Answers, &p.Limits.Tokens, &created, &p.HasPassphrase)
	p.Created = fromMillis(created)
	return p, err
}

// People returns all people, the owner first and the others by name.
func (s *Store) People(ctx context.Context) (list []Person, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		list, err = scanAll(ctx, tx, scanPerson, selectPerson+` ORDER BY role <> 'owner', name_key`)
		return err
	})
	return list, err
}

// Person returns the person with this id.
func (s *Store) Person(ctx context.Context, id string) (p Person, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		p, err = scanPerson(tx.QueryRowContext(ctx, selectPerson+` WHERE id = ?`, id))
		return missing(err, "person")
	})
	return p, err
}

// AddPerson adds a person. ErrConflict if the name is taken.
func (s *Store) AddPerson(ctx context.Context, name string) (p Person, err error) {
	name = strings.TrimSpace(name)
	if err := checkName("name", name); err != nil {
		return Person{}, err
	}
	p = Person{ID: NewID(), Name: name, Created: fromMillis(s.now())}
	err = s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO people (id, name, name_key, role, answers, created_at)
			VALUES (?, ?, ?, 'person', 0, ?)`,
			p.ID, p.Name, nameKey(p.Name), p.Created.UnixMilli())
		return taken(err, name)
	})
	return p, err
}

// RenamePerson changes the name of a person. ErrConflict if it is taken.
func (s *Store) RenamePerson(ctx context.Context, id, name string) error {
	name = strings.TrimSpace(name)
	if err := checkName("name", name); err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		return taken(changeOne(ctx, tx, "person", `UPDATE people SET name = ?, name_key = ? WHERE id = ?`, name, nameKey(name), id), name)
	})
}

// PersonNamed returns the person with this name, whatever its case.
func (s *Store) PersonNamed(ctx context.Context, name string) (p Person, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		p, err = scanPerson(tx.QueryRowContext(ctx, selectPerson+` WHERE name_key = ?`, nameKey(strings.TrimSpace(name))))
		return missing(err, "person")
	})
	return p, err
}

// Passphrase returns the hash of a person's passphrase; empty: there is none.
func (s *Store) Passphrase(ctx context.Context, id string) (hash string, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		return missing(tx.QueryRowContext(ctx, `SELECT passphrase FROM people WHERE id = ?`, id).Scan(&hash), "person")
	})
	return hash, err
}

// HasPassphrases reports whether anybody has a passphrase.
func (s *Store) HasPassphrases(ctx context.Context) (some bool, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM people WHERE passphrase <> '')`).Scan(&some)
	})
	return some, err
}

// SetPassphrase stores the hash of a person's passphrase; empty removes it.
func (s *Store) SetPassphrase(ctx context.Context, id, hash string) error {
	return s.write(ctx, func(tx *sql.Tx) error { return setPassphrase(ctx, tx, id, hash) })
}

func setPassphrase(ctx context.Context, tx *sql.Tx, id, hash string) error {
	return changeOne(ctx, tx, "person", `UPDATE people SET passphrase = ? WHERE id = ?`, hash, id)
}

// SetPassphraseAndLogOut also removes all devices of the person but one, in the same transaction,
// and returns the ids of those that it removed. keep 0: all are removed.
func (s *Store) SetPassphraseAndLogOut(ctx context.Context, id, hash string, keep int64) (removed []int64, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		if err := setPassphrase(ctx, tx, id, hash); err != nil {
			return err
		}
		removed, err = ids(ctx, tx, `DELETE FROM devices WHERE person = ? AND id <> ? RETURNING id`, id, keep)
		return err
	})
	return removed, err
}

// LimitPerson sets the limits of a person.
func (s *Store) LimitPerson(ctx context.Context, id string, l PersonLimits) error {
	if min(l.AtOnce, l.Answers, l.Tokens) < 0 {
		return &InvalidError{"limits", "must not be negative"}
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		return changeOne(ctx, tx, "person", `UPDATE people SET answers = ?, answers_a_day = ?, tokens_a_day = ? WHERE id = ?`, l.AtOnce, l.Answers, l.Tokens, id)
	})
}

// ErasePerson erases a person and everything of theirs in one transaction, see Erase. The owner of
// the server cannot be erased.
func (s *Store) ErasePerson(ctx context.Context, id string) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		chosen, err := ids(ctx, tx, `SELECT seq FROM conversations WHERE owner = ?`, id)
		if err != nil {
			return err
		}
		if err := eraseConversations(ctx, tx, chosen); err != nil {
			return err
		}
		for _, statement := range []string{`DELETE FROM presets WHERE owner = ?`, `DELETE FROM settings WHERE owner = ?`} {
			if _, err := tx.ExecContext(ctx, statement, id); err != nil {
				return err
			}
		}
		return changeOne(ctx, tx, "person", `DELETE FROM people WHERE id = ? AND role <> 'owner'`, id)
	})
	if err != nil {
		return err
	}
	return s.emptyLog(ctx)
}

// taken turns the error of a name that exists into ErrConflict.
func taken(err error, name string) error {
	if isTaken(err) {
		return fmt.Errorf("person %q: %w", name, ErrConflict)
	}
	return err
}

// missing turns the error of a row that is not there into ErrNotFound.
func missing(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return err
}

// scanAll returns the rows of a query.
func scanAll[T any](ctx context.Context, tx *sql.Tx, scan func(interface{ Scan(...any) error }) (T, error), query string, args ...any) (list []T, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, rows.Err()
}
