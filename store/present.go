package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"m40-llm/infer/fault"
)

// MissingError says that a file of the database was removed or replaced while the store had
// it open. What was stored until then is in Backup, and what still can be is there when the
// store is closed.
type MissingError struct {
	Path   string
	Backup Backup // zero if none could be made
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("the file %q was removed or replaced while the server runs, so nothing new is stored", e.Path)
	if e.Backup.Path == "" {
		return text + "; stop the server, which tries to save what it has again"
	}
	return fmt.Sprintf("%s; what was stored before is in backup %d: stop the server and run m40-llm restore %d", text, e.Backup.Number, e.Backup.Number)
}

func (e *MissingError) Unwrap() error {
	return fault.Errorf(fault.CodeChatsMissing, "nothing was changed: %s", e)
}

// presence knows the files that the store has open.
type presence struct {
	files map[string]fs.FileInfo // by path

	mu      sync.Mutex
	missing *MissingError // once it was noticed
}

// remember takes note of the files that are open now.
func (p *presence) remember(path string) error {
	p.files = map[string]fs.FileInfo{}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("failed to look at the database: %w", err)
		}
		if err == nil {
			p.files[name] = info
		}
	}
	return nil
}

// lost returns the path at which another file is than the one that is open, or none.
func (p *presence) lost() string {
	for name, open := range p.files {
		if now, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, open) {
			return name
		}
	}
	return ""
}

// Present returns a *MissingError if the files of the database are not those that are open
// any more. The first time it backs up what the open ones hold.
func (s *Store) Present() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return s.checkPresent()
}

func (s *Store) checkPresent() error {
	p := &s.presence
	path := p.lost()
	p.mu.Lock()
	defer p.mu.Unlock()
	if path == "" && p.missing == nil {
		return nil
	}
	if p.missing == nil {
		p.missing = s.rescue(path)
		s.opt.Log.Error("the chats cannot be stored any more", "error", p.missing)
	}
	return p.missing
}

// rescue backs up what the open files hold.
func (s *Store) rescue(path string) *MissingError {
	missing := &MissingError{Path: path}
	b, err := s.backupOf(context.Background(), s.writer.db)
	if err != nil {
		s.opt.Log.Error("what was stored could not be saved", "error", err)
		return missing
	}
	missing.Backup = b
	return missing
}

// saveLast backs up again, as answers may have ended since. It returns what a person must
// know, if files are missing.
func (s *Store) saveLast() error {
	p := &s.presence
	path := p.lost()
	p.mu.Lock()
	defer p.mu.Unlock()
	if path == "" && p.missing == nil {
		return nil
	}
	if p.missing != nil {
		path = p.missing.Path
	}
	p.missing = s.rescue(path)
	return p.missing
}

// save is write for what belongs to an answer that runs: where files are missing it goes
// into the open ones, of which Close makes a backup.
func (s *Store) save(ctx context.Context, do func(tx *sql.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return s.commit(ctx, do)
}
