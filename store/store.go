// Package store stores conversations, their messages, presets and settings in one
// SQLite file, and finds words in them. OpenMemory has the same in memory, without a file.
//
// What a method has returned without error survives the end of the process and of
// the power: it was synced. Every method that names an owner finds and changes only
// what belongs to that owner; a thing of another is ErrNotFound, as one that never
// was. Methods may be called from any goroutine. A context that ends makes the call
// fail and change nothing; who must not lose a write, such as the end of an answer,
// calls with context.WithoutCancel.
//
// The store opens the file twice. One connection writes, so that writers queue for it
// instead of meeting a locked database, and a few read, each call from one snapshot.
// Only one process has the file: Open fails with a *LockedError in a second one.
//
// # What waits for what
//
// A call that reads waits for no writer, however long its commit takes: it sees what was
// committed before. SQLite has one writer, and a commit ends with a sync of the log: on a disk
// that takes two seconds for a sync, nothing can be stored sooner. What holds is that a call that
// writes waits at most for the commit in flight and its own, not for each of those before
// it: calls that wait are committed together, up to 64. One that fails changes nothing and
// fails alone. Imports write in batches of at most 128 messages or 128 KiB, so that others
// write in between; a backup copies from a snapshot and blocks nothing. Erasing alone takes long, as
// it rewrites the index of the search: it is for a time when no answer runs.
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mattn/go-sqlite3"

	"m40-llm/migrations"
)

// Options say where the store lies. The zero value of each field but Path means the
// default.
type Options struct {
	Path    string           // of the database; its folder is made if missing and holds backups and the lock too
	Now     func() time.Time // default time.Now
	Log     *slog.Logger     // default: nothing is logged
	MinFree int64            // free bytes on the disk that a new conversation needs; default 256 MiB
	Ballast int64            // bytes that are reserved for when the disk is full; default 16 MiB, negative: none

	RowsBytes int64         // bytes that the rows of all tokens may take; the oldest are deleted; default 128 MiB, which is some 100,000 tokens
	RowsAge   time.Duration // age at which rows are deleted; default 30 days

	PictureBytes int64 // bytes that the pictures of one person may take; default 2 GiB

	memory     bool // there is no file
	free       func(dir string) (int64, error)
	migrations []migrations.Migration
	connected  func(*sqlite3.SQLiteConn) error
}

// Store is the open database.
type Store struct {
	opt      Options
	lock     *lock
	anew     bool
	ballast  *ballast
	presence presence
	writer   writer
	readers  *sql.DB

	mu      sync.RWMutex // held for reading by every call
	closed  bool
	copying sync.Mutex // one backup at a time
}

// readerConnections is how many calls read at once; more wait.
const readerConnections = 4

// Open opens the database, and makes it if there is none. Answers that were running
// when the last process ended are marked interrupted.
//
// A database that is locked, broken, or newer than this program is left as it is, and
// the error is a *LockedError, *CorruptError or *NewerError. An older one is backed
// up, then migrated.
func Open(ctx context.Context, opt Options) (*Store, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	if err := prepareDir(filepath.Dir(opt.Path)); err != nil {
		return nil, err
	}
	l, err := acquire(opt.Path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Store{opt: opt, lock: l, anew: isMissing(opt.Path, l), writer: writer{busy: make(chan struct{}, 1)}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(explain(err, opt.Path), s.shutPools(), l.abandon())
	}
	return s, nil
}

// isMissing reports whether there is no database at path although there was one: its lock file
// or a backup of it exists.
func isMissing(path string, l *lock) bool {
	_, err := os.Stat(path)
	backups, _ := Backups(path)
	return errors.Is(err, fs.ErrNotExist) && (l.known || len(backups) > 0)
}

// BeginsAnew reports whether Open made a database where there had been one.
func (s *Store) BeginsAnew() bool { return s.anew }

func (o *Options) setDefaults() error {
	if o.Path == "" {
		return &InvalidError{"path", "is empty"}
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return fmt.Errorf("failed to find %q: %w", o.Path, err)
	}
	o.Path = path
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MinFree == 0 {
		o.MinFree = 256 << 20
	}
	if o.RowsBytes == 0 {
		o.RowsBytes = 128 << 20
	}
	if o.RowsAge == 0 {
		o.RowsAge = 30 * 24 * time.Hour
	}
	if o.PictureBytes == 0 {
		o.PictureBytes = 2 << 30
	}
	if o.Ballast == 0 {
		o.Ballast = 16 << 20
	}
	if o.free == nil {
		o.free = freeSpace
	}
	if o.migrations == nil {
		if o.migrations, err = migrations.All(); err != nil {
			return err
		}
	}
	return nil
}

// open does the work of Open under the lock.
func (s *Store) open(ctx context.Context) error {
	found, err := s.inspect(ctx)
	if err != nil {
		return err
	}
	if err := createFile(s.opt.Path); err != nil {
		return err
	}
	if err := s.migrate(ctx, found); err != nil {
		return err
	}
	s.writer.db = s.pool(writerDSN(s.opt.Path), 1)
	interrupted, err := s.markInterrupted(ctx)
	if err != nil {
		return fmt.Errorf("failed to mark the answers that a stop interrupted: %w", err)
	}
	if interrupted > 0 {
		s.opt.Log.Info("answers were interrupted by the last stop", "answers", interrupted)
	}
	s.readers = s.pool(readerDSN(s.opt.Path), readerConnections)
	if err := connectAll(ctx, s.readers); err != nil {
		return fmt.Errorf("failed to open %q for reading: %w", s.opt.Path, err)
	}
	if err := s.presence.remember(s.opt.Path); err != nil {
		return err
	}
	s.ballast = newBallast(s.opt)
	return s.discardImports(ctx)
}

// Close waits for running calls, writes the log back into the database and gives up
// the lock. Later calls fail with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	missing := s.saveLast()
	if s.lock == nil {
		return s.shutPools()
	}
	return errors.Join(missing, s.shutPools(), s.lock.release())
}

// connectAll makes all connections that readers will use: later there may be another file at
// the path.
func connectAll(ctx context.Context, readers *sql.DB) error {
	for range readerConnections {
		c, err := readers.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close() // gives it back
	}
	return nil
}

func (s *Store) shutPools() error {
	var errs []error
	for _, db := range []*sql.DB{s.readers, s.writer.db} { // the last to close empties the log
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// The driver sets the pragmas of a DSN on each connection it makes, before the first
// statement; the others come from connector.
func writerDSN(path string) string {
	return dsn(path, "mode", "rw", "_journal_mode", "WAL", "_synchronous", "FULL", "_busy_timeout", "5000", "_txlock", "immediate",
		"_foreign_keys", "on", "_secure_delete", "on", "_stmt_cache_size", "64")
}

func readerDSN(path string) string {
	return dsn(path, "mode", "rw", "_query_only", "on", "_synchronous", "FULL", "_busy_timeout", "5000", "_txlock", "deferred",
		"_foreign_keys", "on", "_secure_delete", "on", "_stmt_cache_size", "64")
}

func dsn(path string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + values.Encode()
}

func (s *Store) pool(dsn string, connections int) *sql.DB {
	if s.opt.memory {
		dsn = inMemory(dsn)
	}
	db := sql.OpenDB(connector{dsn: dsn, driver: &sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		if err := setPragmas(c); err != nil || s.opt.connected == nil {
			return err
		}
		return s.opt.connected(c)
	}}})
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// connector makes connections of a driver that is not registered under a name.
type connector struct {
	dsn    string
	driver *sqlite3.SQLiteDriver
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.driver }

// setPragmas sets what the driver has no DSN key for: functions and tables named in
// the file's schema are not trusted, a damaged page is noticed when it is read, texts
// never spill into files elsewhere, a large log is cut after its checkpoint, and the
// file is not mapped, where a disk error would be a signal.
func setPragmas(c *sqlite3.SQLiteConn) error {
	for _, pragma := range []string{
		"trusted_schema = off",
		"cell_size_check = on",
		"temp_store = memory",
		"journal_size_limit = 67108864",
		"mmap_size = 0",
	} {
		if _, err := c.Exec("PRAGMA "+pragma, nil); err != nil {
			return fmt.Errorf("failed to set %q: %w", pragma, err)
		}
	}
	return nil
}

// write runs do in a transaction of the writer. Where the disk is full it gives the
// ballast up and runs do again, and so may the writer: do must not add to what it has returned.
func (s *Store) write(ctx context.Context, do func(tx *sql.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.checkPresent(); err != nil {
		return err
	}
	return s.commit(ctx, do)
}

// commit hands do to the writer.
func (s *Store) commit(ctx context.Context, do func(tx *sql.Tx) error) error {
	err := s.writer.write(ctx, do, func(err error) bool { return isFull(err) && s.ballast.drop() })
	return explain(err, s.opt.Path)
}

// read runs do on one snapshot of the database.
func (s *Store) read(ctx context.Context, do func(tx *sql.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return explain(transact(ctx, s.readers, do), s.opt.Path)
}

// prepareDir makes the folder of the database, or refuses one in which others could
// replace its files.
func prepareDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeDir(dir)
	case err != nil:
		return fmt.Errorf("failed to look at the data folder %q: %w", dir, err)
	case !info.IsDir():
		return fmt.Errorf("the data folder %q is not a folder", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write in the data folder %q (mode %04o); run chmod go-w on it", dir, info.Mode().Perm())
	}
	return nil
}

// makeDir makes a folder with its parents such that they are there after a power cut.
func makeDir(dir string) error {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("failed to make the data folder %q: %w", dir, err)
	}
	return syncDir(parent)
}

// createFile makes an empty database that only its owner may read. SQLite gives the
// files next to it the same mode.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("failed to open the database: %w", err)
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return fmt.Errorf("failed to make the database %q private: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("failed to sync the folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("failed to sync the folder %q: %w", dir, err)
	}
	return nil
}

func (s *Store) now() int64 { return s.opt.Now().UnixMilli() }

// lastMillis is the end of the year 9999: later times cannot be written as text.
const lastMillis = 253402300799999

func fromMillis(ms int64) time.Time { return time.UnixMilli(min(ms, lastMillis)).UTC() }
