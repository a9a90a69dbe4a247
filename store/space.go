package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// freeSpace returns the bytes that an ordinary user may still write below dir.
func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("failed to ask for the free space of %q: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// Free returns the free bytes of the disk, and whether they suffice for new
// conversations.
func (s *Store) Free() (bytes int64, enough bool, err error) {
	bytes, err = s.opt.free(filepath.Dir(s.opt.Path))
	return bytes, bytes >= s.opt.MinFree, err
}

// checkFree returns a *SpaceError if a new conversation should not begin: it would
// be started and then fail where it hurts, in the middle of an answer.
func (s *Store) checkFree() error {
	free, enough, err := s.Free()
	if err != nil {
		return err
	}
	if !enough {
		return &SpaceError{Path: s.opt.Path, Free: free, Need: s.opt.MinFree}
	}
	s.ballast.fill(free)
	return nil
}

// ballast is a file that takes up room until the disk is full. Dropping it lets the
// answers that are being written come to their end.
type ballast struct {
	mu      sync.Mutex
	path    string
	size    int64
	reserve int64 // free bytes that filling must leave
	filled  bool
	log     *slog.Logger
}

func newBallast(opt Options) *ballast {
	b := &ballast{path: opt.Path + ".ballast", size: opt.Ballast, reserve: opt.MinFree, log: opt.Log}
	if info, err := os.Stat(b.path); err == nil && info.Size() == b.size {
		b.filled = true
	}
	if free, err := opt.free(filepath.Dir(opt.Path)); err == nil {
		b.fill(free)
	}
	return b
}

// fill writes the ballast if there is room for it. Without ballast the store works
// until the disk is full, so a failure is only logged.
func (b *ballast) fill(free int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filled || b.size <= 0 || free < b.reserve+b.size {
		return
	}
	// Not zeros, which some file systems store as nothing.
	if err := os.WriteFile(b.path, bytes.Repeat([]byte("ballast\n"), int(b.size/8)), 0o600); err != nil {
		b.log.Warn("failed to set disk space aside", "error", err)
		os.Remove(b.path)
		return
	}
	b.filled = true
}

// drop frees the room and reports whether it did.
func (b *ballast) drop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.filled {
		return false
	}
	if err := os.Remove(b.path); err != nil {
		b.log.Error("failed to free the disk space set aside", "error", err)
		return false
	}
	b.filled = false
	b.log.Warn("the disk is full; the space set aside is in use now", "bytes", b.size)
	return true
}
