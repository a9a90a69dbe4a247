package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
)

// writer is the one connection that writes. Calls that wait for it are committed together, in
// the order in which they came: on a disk that syncs slowly none waits for more than the commit
// in flight and its own.
type writer struct {
	db   *sql.DB
	busy chan struct{} // holds a value while somebody writes

	mu      sync.Mutex
	waiting []*call
}

// maxGroup is how many calls are committed together at most.
const maxGroup = 64

// call is one call that changes the database.
type call struct {
	ctx  context.Context
	do   func(tx *sql.Tx) error
	err  error         // the result, once done is closed
	done chan struct{} // closed when the call has ended
}

// errUnfinished is the result of a call that was to be committed together with one that panicked.
var errUnfinished = errors.New("the change was not stored: another one failed inside; try again")

// write runs do in a transaction of its own, or in one with others. Where that fails as a whole do
// runs again, so it must not add to what it has returned.
func (w *writer) write(ctx context.Context, do func(tx *sql.Tx) error, retry func(error) bool) error {
	c := &call{ctx: ctx, do: do, err: errUnfinished, done: make(chan struct{})}
	w.mu.Lock()
	w.waiting = append(w.waiting, c)
	w.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if w.withdraw(c) {
			return ctx.Err()
		}
		<-c.done
		return c.err
	case w.busy <- struct{}{}:
	}
	defer func() { <-w.busy }()
	for {
		select {
		case <-c.done:
			return c.err
		default:
			w.run(w.next(), retry)
		}
	}
}

// withdraw takes a call back, and reports whether it had not started.
func (w *writer) withdraw(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Index(w.waiting, c)
	if at >= 0 {
		w.waiting = slices.Delete(w.waiting, at, at+1)
	}
	return at >= 0
}

// next takes the calls that have waited longest.
func (w *writer) next() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	group := slices.Clone(w.waiting[:min(len(w.waiting), maxGroup)])
	w.waiting = slices.Delete(w.waiting, 0, len(group))
	return group
}

// run carries out calls and ends them.
func (w *writer) run(group []*call, retry func(error) bool) {
	defer func() {
		for _, c := range group {
			close(c.done)
		}
	}()
	if len(group) > 1 {
		if errs, ok := w.together(group); ok {
			for i, c := range group {
				c.err = errs[i]
			}
			return
		}
	}
	for _, c := range group {
		if c.err = transact(c.ctx, w.db, c.do); retry(c.err) {
			c.err = transact(c.ctx, w.db, c.do)
		}
	}
}

// together carries out calls in one transaction, in which one that fails changes nothing, and
// returns their errors. ok is false, and nothing is changed, if an error ended the whole
// transaction: the disk is full, or a statement was interrupted.
func (w *writer) together(group []*call) (errs []error, ok bool) {
	tx, err := w.db.Begin()
	if err != nil {
		return nil, false
	}
	defer tx.Rollback() // does nothing after Commit
	errs = make([]error, len(group))
	for i, c := range group {
		if _, err := tx.Exec("SAVEPOINT call"); err != nil {
			return nil, false
		}
		if errs[i] = c.do(tx); errs[i] != nil {
			if _, err := tx.Exec("ROLLBACK TO call"); err != nil || isFull(errs[i]) {
				return nil, false
			}
		}
		if _, err := tx.Exec("RELEASE call"); err != nil {
			return nil, false
		}
	}
	if err = tx.Commit(); isFull(err) {
		return nil, false
	}
	for i := range errs {
		errs[i] = cmp.Or(errs[i], err)
	}
	return errs, true
}

func transact(ctx context.Context, db *sql.DB, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
