package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Vote is a person's choice between two answers that they saw without names.
type Vote struct {
	First, Second string     // names of what wrote the answers, in the order in which they were chosen
	Result        VoteResult // which answer is better
	Created       time.Time
}

// VoteResult is the result of a Vote.
type VoteResult string

const (
	VoteFirst  VoteResult = "first"
	VoteSecond VoteResult = "second"
	VoteTie    VoteResult = "tie"
	VoteBad    VoteResult = "bad" // neither is good
)

// AddVote stores a vote of a person. Created is ignored.
func (s *Store) AddVote(ctx context.Context, person string, v Vote) error {
	if err := errors.Join(checkName("first", v.First), checkName("second", v.Second)); err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO votes (person, first, second, result, created_at)
			VALUES (?, ?, ?, ?, ?)`,
			person, v.First, v.Second, v.Result, s.now())
		return err
	})
}

// Votes returns the votes of a person, oldest first.
func (s *Store) Votes(ctx context.Context, person string) (list []Vote, err error) {
	scan := func(row interface{ Scan(...any) error }) (v Vote, err error) {
		var created int64
		err = row.Scan(&v.First, &v.Second, &v.Result, &created)
		v.Created = time.UnixMilli(created)
		return v, err
	}
	err = s.read(ctx, func(tx *sql.Tx) error {
		list, err = scanAll(ctx, tx, scan, `
			SELECT first, second, result, created_at
			FROM votes
			WHERE person = ?
			ORDER BY id`, person)
		return err
	})
	return list, err
}

// DeleteVotes deletes the votes of a person.
func (s *Store) DeleteVotes(ctx context.Context, person string) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM votes WHERE person = ?`, person)
		return err
	})
}
