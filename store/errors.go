package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"m40-llm/infer/fault"

	"github.com/mattn/go-sqlite3"
)

var (
	// ErrNotFound says that the owner has no such thing.
	ErrNotFound = errors.New("not found in the store")
	// ErrConflict says that a name or id is taken, or that an answer has ended already.
	ErrConflict = errors.New("conflict in the store")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// InvalidError is an argument that cannot be stored.
type InvalidError struct {
	Field   string
	Problem string
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Problem }

// Unwrap returns what clients are told.
func (e *InvalidError) Unwrap() error {
	return fault.Invalid(e.Field, "%s", "the "+e.Error())
}

// LockedError says that another process has the database.
type LockedError struct {
	Path string // of the lock file
	PID  int    // 0: unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another process is using the data folder (%q is locked)", e.Path)
	}
	return fmt.Sprintf("process %d is using the data folder (%q is locked); stop it first", e.PID, e.Path)
}

// CorruptError says that the database is damaged. Nothing was changed.
type CorruptError struct {
	Path   string
	Detail string // what SQLite found
	Backup string // newest backup, or empty
}

func (e *CorruptError) Error() string {
	advice := "there is no backup of it"
	if e.Backup != "" {
		advice = fmt.Sprintf("the newest backup is %q", e.Backup)
	}
	return fmt.Sprintf("the database %q is damaged (%s) and was left as it is; %s", e.Path, e.Detail, advice)
}

// NewerError says that a newer program made the database. Nothing was changed.
type NewerError struct {
	Path      string
	Version   int // of the database
	Supported int // of this program
	Backups   []Backup
}

func (e *NewerError) Error() string {
	text := fmt.Sprintf("the database %q has version %d, and this program knows versions up to %d; use the newer program", e.Path, e.Version, e.Supported)
	for _, b := range e.Backups {
		if b.Version <= e.Supported {
			return fmt.Sprintf("%s, or restore the backup %q of version %d", text, b.Path, b.Version)
		}
	}
	return text
}

// SpaceError says that the disk is full, or too full to begin something new.
type SpaceError struct {
	Path string
	Free int64 // bytes
	Need int64 // bytes; 0: a write failed for want of space
}

func (e *SpaceError) Error() string {
	if e.Need == 0 {
		return fmt.Sprintf("the disk of %q is full; free some space and try again", e.Path)
	}
	return fmt.Sprintf("the disk of %q has %d MiB free, and a new conversation needs %d MiB; free some space first", e.Path, e.Free>>20, e.Need>>20)
}

func (e *SpaceError) Unwrap() error {
	return fault.New(fault.CodeDiskFull, "nothing was changed: the disk of the data folder is full; free some space and try again")
}

// BusyError says that another program has locked the database for longer than is waited.
type BusyError struct{ Path string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another program, such as a browser of databases or a backup, has locked the database %q; close it there and try again", e.Path)
}

func (e *BusyError) Unwrap() error {
	return fault.Errorf(fault.CodeChatsLocked, "nothing was changed: %s", e)
}

// explain turns what the driver says into errors of this package.
func explain(err error, path string) error {
	var low sqlite3.Error
	if err == nil || !errors.As(err, &low) {
		return err
	}
	switch {
	case isFull(err):
		return &SpaceError{Path: path}
	case low.Code == sqlite3.ErrBusy, low.Code == sqlite3.ErrLocked:
		return &BusyError{Path: path}
	case low.Code == sqlite3.ErrCorrupt, low.Code == sqlite3.ErrNotADB:
		return &CorruptError{Path: path, Detail: low.Error(), Backup: newestBackup(path)}
	}
	return err
}

// isFull reports whether there was no room for the database, its log or the log's
// index.
func isFull(err error) bool {
	var low sqlite3.Error
	return errors.As(err, &low) && (low.Code == sqlite3.ErrFull || low.ExtendedCode == sqlite3.ErrIoErrSHMSize)
}

// isTaken reports whether a write failed because a name or id exists.
func isTaken(err error) bool {
	var low sqlite3.Error
	return errors.As(err, &low) &&
		(low.ExtendedCode == sqlite3.ErrConstraintUnique || low.ExtendedCode == sqlite3.ErrConstraintPrimaryKey)
}

// Limits of what is stored, far above what the page or a model makes. MaxText counts the bytes of a message or a system prompt.
const (
	maxName  = 1 << 10 // bytes of a title, folder, name or owner
	MaxText  = 16 << 20
	maxValue = 1 << 20 // bytes of JSON
)

func checkText(field, text string, max int) error {
	if !utf8.ValidString(text) {
		return &InvalidError{field, "is not valid UTF-8"}
	}
	if len(text) > max {
		return &InvalidError{field, fmt.Sprintf("is %d bytes long, and at most %d are stored", len(text), max)}
	}
	return nil
}

func checkName(field, name string) error {
	if strings.TrimSpace(name) == "" {
		return &InvalidError{field, "is empty"}
	}
	return checkText(field, name, maxName)
}

// jsonText returns value as it is stored; nothing is stored as null.
func jsonText(field string, value json.RawMessage) (string, error) {
	if len(value) == 0 {
		return "null", nil
	}
	if len(value) > maxValue {
		return "", &InvalidError{field, fmt.Sprintf("is %d bytes long, and at most %d are stored", len(value), maxValue)}
	}
	if !json.Valid(value) || !utf8.Valid(value) {
		return "", &InvalidError{field, "is not valid JSON"}
	}
	return string(value), nil
}
