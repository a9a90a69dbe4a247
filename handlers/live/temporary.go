package live

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"m40-llm/store"
)

// temporaries are the messages of temporary chats: a store in memory, which is opened with the first of them and
// ends with the server. A chat is erased there when it leaves the memory.
type temporaries struct {
	mu     sync.Mutex
	db     *store.Store // nil: no temporary chat has begun
	closed bool
}

// open returns the store.
func (t *temporaries) open(ctx context.Context, opt *Options) (*store.Store, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	if t.db != nil {
		return t.db, nil
	}
	db, err := store.OpenMemory(context.WithoutCancel(ctx), store.Options{Now: opt.Now, Log: opt.Log, PictureBytes: maxTemporary})
	if err != nil {
		return nil, fmt.Errorf("no temporary chat can begin: %w", err)
	}
	t.db = db
	return db, nil
}

// opened returns the store; nil: no temporary chat has begun, or the server has stopped.
func (t *temporaries) opened() *store.Store {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	return t.db
}

// has returns the store if a chat is there; else nil.
func (t *temporaries) has(ctx context.Context, owner, id string) *store.Store {
	db := t.opened()
	if db == nil {
		return nil
	}
	if _, err := db.Conversation(ctx, owner, id); err != nil {
		return nil
	}
	return db
}

// forget erases a chat, if it is there.
func (t *temporaries) forget(owner, id string) error {
	db := t.opened()
	if db == nil {
		return nil
	}
	err := db.Erase(context.Background(), owner, id)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrClosed) {
		return nil
	}
	return err
}

// pictureBytes returns how many bytes the pictures of all temporary chats have.
func (t *temporaries) pictureBytes(ctx context.Context) (int64, error) {
	db := t.opened()
	if db == nil {
		return 0, nil
	}
	return db.AllPictureBytes(ctx)
}

// close ends the store, and with it all temporary chats.
func (t *temporaries) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.db == nil {
		return nil
	}
	return t.db.Close()
}
