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
	Answers int    // that are written at once; 0: as many as there is room for
	Created time.Time
}

// nameKey returns a key that is equal for names that differ only in case or Unicode normalization.
func nameKey(name string) string { return cases.Fold().String(norm.NFKC.String(name)) }

const selectPerson = `
		SELECT
			id,
			name,
			role = 'owner',
			answers,
			created_at
		FROM people`

func scanPerson(row interface{ Scan(...any) error }) (p Person, err error) {
	var created int64
	err = row.Scan(&p.ID, &p.Name, &p.IsOwner, &p.Answers, &created)
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

// LimitAnswers sets how many answers of a person may be generated at once; 0: no limit.
func (s *Store) LimitAnswers(ctx context.Context, id string, answers int) error {
	if answers < 0 {
		return &InvalidError{"answers", "is negative"}
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		return changeOne(ctx, tx, "person", `UPDATE people SET answers = ? WHERE id = ?`, answers, id)
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
