package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// maxBackups is how many backups there are at most; the oldest goes.
const maxBackups = 7

// Backup is a whole, checked copy of the database: a file that Restore puts back.
// Backups keep what was erased after they were made.
type Backup struct {
	Path    string
	Number  int // rises with every backup
	Version int // of the database
	Size    int64
	Made    time.Time
}

var backupName = regexp.MustCompile(`^([0-9]{6,})-v([0-9]+)\.db$`)

func backupDir(path string) string { return path + ".backups" }

// Backup copies the database while others read and write it. The copy has been
// checked and synced when Backup returns.
func (s *Store) Backup(ctx context.Context) (Backup, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return Backup{}, ErrClosed
	}
	if err := s.checkPresent(); err != nil {
		return Backup{}, err
	}
	b, err := s.backup(ctx)
	return b, explain(err, s.opt.Path)
}

// KeepBackups backs up whenever the newest backup is older than every, until ctx ends.
// A backup that fails is logged, and tried again after a twelfth of that time.
func (s *Store) KeepBackups(ctx context.Context, every time.Duration) {
	for {
		wait := s.untilBackup(every)
		if wait <= 0 {
			wait = every
			if _, err := s.Backup(ctx); ctx.Err() == nil && err != nil {
				s.opt.Log.Error("the chats were not backed up", "error", err)
				wait = every / 12
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// untilBackup returns how long the newest backup will do. One from the future, which a
// clock that was set back leaves, does for no longer than any other.
func (s *Store) untilBackup(every time.Duration) time.Duration {
	backups, err := Backups(s.opt.Path)
	if err != nil || len(backups) == 0 {
		return 0
	}
	return min(every, every-s.opt.Now().Sub(backups[0].Made))
}

// Backups lists the backups of the database path, newest first. It need not be open.
func Backups(path string) ([]Backup, error) {
	dir := backupDir(path)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to list the backups: %w", err)
	}
	var found []Backup
	for _, e := range entries {
		match := backupName.FindStringSubmatch(e.Name())
		if match == nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("failed to list the backups: %w", err)
		}
		b := Backup{Path: filepath.Join(dir, e.Name()), Size: info.Size(), Made: info.ModTime().UTC()}
		b.Number, err = strconv.Atoi(match[1])
		if err != nil {
			continue
		}
		b.Version, err = strconv.Atoi(match[2])
		if err != nil {
			continue
		}
		found = append(found, b)
	}
	slices.SortFunc(found, func(a, b Backup) int { return b.Number - a.Number })
	return found, nil
}

func newestBackup(path string) string {
	backups, err := Backups(path)
	if err != nil || len(backups) == 0 {
		return ""
	}
	return backups[0].Path
}

func (s *Store) backup(ctx context.Context) (Backup, error) {
	db := s.pool(dsn(s.opt.Path, "mode", "rw", "_busy_timeout", "5000"), 1)
	defer db.Close()
	return s.backupOf(ctx, db)
}

// backupOf backs up what a connection reads.
func (s *Store) backupOf(ctx context.Context, db *sql.DB) (Backup, error) {
	s.copying.Lock()
	defer s.copying.Unlock()
	dir := backupDir(s.opt.Path)
	if err := os.Mkdir(dir, 0o700); err == nil {
		if err := syncDir(filepath.Dir(dir)); err != nil {
			return Backup{}, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return Backup{}, fmt.Errorf("failed to make the folder of backups: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "unfinished"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return Backup{}, fmt.Errorf("failed to make a backup: %w", err)
	}
	defer func() {
		f.Close()
		os.Remove(f.Name()) // not there any more once it has a name of its own
	}()
	version, err := copyInto(ctx, db, f.Name())
	if err != nil {
		return Backup{}, fmt.Errorf("failed to make a backup: %w", err)
	}
	if err := s.verify(ctx, f.Name(), version); err != nil {
		return Backup{}, err
	}
	if err := f.Sync(); err != nil {
		return Backup{}, fmt.Errorf("failed to sync the backup: %w", err)
	}
	return s.file(f.Name(), version)
}

// copyInto writes a snapshot of the database into the empty file path.
func copyInto(ctx context.Context, db *sql.DB, path string) (version int, err error) {
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", path); err != nil {
		return 0, err
	}
	return version, db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
}

// verify reads a copy back and checks every row and index of it.
func (s *Store) verify(ctx context.Context, path string, version int) error {
	db := s.pool(dsn(path, "immutable", "1", "_query_only", "on"), 1)
	defer db.Close()
	found, err := s.identify(ctx, db, path)
	if err != nil {
		return fmt.Errorf("the backup %q cannot be used: %w", path, err)
	}
	if version != found {
		return fmt.Errorf("the backup %q has version %d instead of %d", path, found, version)
	}
	detail, err := check(ctx, db)
	if err != nil {
		return fmt.Errorf("failed to check the backup %q: %w", path, err)
	}
	if detail != "" {
		return fmt.Errorf("the backup %q is damaged: %s", path, detail)
	}
	return nil
}

// file gives a finished copy its name, and removes the oldest backups.
func (s *Store) file(temporary string, version int) (Backup, error) {
	older, err := Backups(s.opt.Path)
	if err != nil {
		return Backup{}, err
	}
	number := 1
	if len(older) > 0 {
		number = older[0].Number + 1
	}
	dir := backupDir(s.opt.Path)
	name := filepath.Join(dir, fmt.Sprintf("%06d-v%d.db", number, version))
	if err := os.Rename(temporary, name); err != nil {
		return Backup{}, fmt.Errorf("failed to name the backup: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return Backup{}, err
	}
	for i, b := range older {
		if i < maxBackups-1 {
			continue
		}
		if err := os.Remove(b.Path); err != nil {
			s.opt.Log.Warn("failed to remove an old backup", "error", err)
		}
	}
	info, err := os.Stat(name)
	if err != nil {
		return Backup{}, fmt.Errorf("failed to look at the backup: %w", err)
	}
	return Backup{Path: name, Number: number, Version: version, Size: info.Size(), Made: info.ModTime().UTC()}, nil
}

// Restore puts a backup in the place of the database of opt, which must not be open.
// What was there is not overwritten: it gets the first free name that ends in .replaced-N,
// together with its log. The backup is checked first. Links to its conversations are not put
// back.
func Restore(ctx context.Context, opt Options, backup string) (replaced string, err error) {
	if err := opt.setDefaults(); err != nil {
		return "", err
	}
	if err := prepareDir(filepath.Dir(opt.Path)); err != nil {
		return "", err
	}
	l, err := acquire(opt.Path + ".lock")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.abandon())
			return
		}
		err = l.release() // what is in place now was checked
	}()
	s := &Store{opt: opt, lock: l}
	temporary := opt.Path + ".restoring"
	defer os.Remove(temporary)
	if err := copyFile(temporary, backup); err != nil {
		return "", fmt.Errorf("failed to copy the backup: %w", err)
	}
	db := s.pool(dsn(temporary, "immutable", "1", "_query_only", "on"), 1)
	version, err := s.identify(ctx, db, backup)
	if err := errors.Join(err, db.Close()); err != nil {
		return "", explain(err, backup)
	}
	if version == 0 {
		return "", fmt.Errorf("the backup %q is empty", backup)
	}
	if err := s.verify(ctx, temporary, version); err != nil {
		return "", err
	}
	if err := s.endShares(ctx, temporary); err != nil {
		return "", err
	}
	if replaced, err = setAside(opt.Path); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, opt.Path); err != nil {
		return replaced, fmt.Errorf("failed to put the backup in place: %w", err)
	}
	return replaced, syncDir(filepath.Dir(opt.Path))
}

// endShares removes all links from the copy of a backup: those that were ended since it was made
// must not work again.
func (s *Store) endShares(ctx context.Context, path string) error {
	db := s.pool(dsn(path), 1)
	var tables int
	err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name = 'shares'`).Scan(&tables)
	if err == nil && tables > 0 {
		_, err = db.ExecContext(ctx, `DELETE FROM shares`)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("failed to end the links of the backup: %w", err)
	}
	return nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// setAside renames a database and its logs, and returns the new name, empty if there
// was nothing.
func setAside(path string) (string, error) {
	name := ""
	for i := 1; name == ""; i++ {
		candidate := fmt.Sprintf("%s.replaced-%d", path, i)
		if _, err := os.Lstat(candidate); errors.Is(err, fs.ErrNotExist) {
			name = candidate
		} else if err != nil {
			return "", fmt.Errorf("failed to keep the old database: %w", err)
		}
	}
	// The logs go first: alongside another database they would be played into it.
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		err := os.Rename(path+suffix, name+suffix)
		if errors.Is(err, fs.ErrNotExist) && suffix == "" {
			return "", nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("failed to keep the old database: %w", err)
		}
	}
	return name, nil
}
