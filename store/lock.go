package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lock keeps other processes from the database. The kernel gives it back when the
// process ends, however it ends; the process id stays in the file after a crash, and
// so tells the next Open of it.
type lock struct {
	file    *os.File
	known   bool // there was a last holder
	unclean bool // it did not release
}

func acquire(path string) (*lock, error) {
	_, err := os.Stat(path)
	known := err == nil
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failed to open the lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Path: path, PID: readPID(f)}
		}
		return nil, fmt.Errorf("failed to lock %q: %w", path, err)
	}
	l := &lock{file: f, known: known, unclean: readPID(f) != 0}
	if err := l.write(strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to write the lock file %q: %w", path, err), f.Close())
	}
	return l, nil
}

func readPID(f *os.File) int {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

func (l *lock) write(text string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(text), 0)
	return err
}

// release gives the lock back after a clean stop.
func (l *lock) release() error {
	return errors.Join(l.write(""), l.file.Close())
}

// abandon gives the lock back with nothing done: a crash that was noticed stays noted.
func (l *lock) abandon() error {
	if l.unclean {
		return l.file.Close()
	}
	return l.release()
}
