// Package temporary holds the messages of temporary chats: a store in memory, which is opened with the first of them and
// ends with the server.
package temporary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
	"m40-llm/store"
)

const maxPictures = 256 << 20 // bytes of the pictures of all temporary chats

// Chats are the temporary chats of a server. The owner of one erases it when it leaves the memory.
type Chats struct {
	now func() time.Time
	log *slog.Logger

	mu     sync.Mutex
	db     *store.Store // nil: no temporary chat has started
	closed bool
}

// New returns Chats without a chat.
func New(now func() time.Time, log *slog.Logger) *Chats { return &Chats{now: now, log: log} }

// Open returns the store.
func (t *Chats) Open(ctx context.Context) (*store.Store, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, owned.ErrClosed
	}
	if t.db != nil {
		return t.db, nil
	}
	db, err := store.OpenMemory(context.WithoutCancel(ctx), store.Options{Now: t.now, Log: t.log, PictureBytes: maxPictures})
	if err != nil {
		return nil, fmt.Errorf("no temporary chat can begin: %w", err)
	}
	t.db = db
	return db, nil
}

// Opened returns the store; nil: no temporary chat has started, or the server has stopped.
func (t *Chats) Opened() *store.Store {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	return t.db
}

// Has returns the store if it has a chat; else nil.
func (t *Chats) Has(ctx context.Context, owner, id string) *store.Store {
	db := t.Opened()
	if db == nil {
		return nil
	}
	if _, err := db.Conversation(ctx, owner, id); err != nil {
		return nil
	}
	return db
}

// Erase erases a chat, if it exists.
func (t *Chats) Erase(owner, id string) error {
	db := t.Opened()
	if db == nil {
		return nil
	}
	err := db.Erase(context.Background(), owner, id)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrClosed) {
		return nil
	}
	return err
}

// CheckPictures returns an error if pictures with so many more bytes do not fit.
func (t *Chats) CheckPictures(ctx context.Context, more int) error {
	db := t.Opened()
	if db == nil {
		return nil
	}
	used, err := db.AllPictureBytes(ctx)
	if err != nil {
		return owned.StoreError(err)
	}
	if used+int64(more) > maxPictures {
		return fault.Invalid("pictures", "the pictures of all temporary chats have %s, and with these more than the limit of %s; close temporary chats, or use one that is stored", units.ByteSize(used), units.ByteSize(maxPictures))
	}
	return nil
}

// Close ends the store, and with it all temporary chats.
func (t *Chats) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.db == nil {
		return nil
	}
	return t.db.Close()
}
