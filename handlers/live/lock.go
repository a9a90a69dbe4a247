package live

import (
	"context"
	"sync"
)

// chatLock orders what happens in a chat. It has two parts, taken in this order:
//
//   - The command slot belongs to one command, or the end of one answer, from its first look at the chat
//     until its commit has ended. Who waits for it waits for this chat alone; package store
//     says what a commit waits for.
//   - mu guards the fields of Chat that follow the lock. It is held for a few
//     instructions, never while the store or the engine works: commit releases it. Meanwhile the
//     text of a running answer may grow and readers may come and go, but what commands change
//     stays as it is, for the command has the slot.
//
// Service.loading is taken before both; no other lock of a Service is taken with mu but that of
// a Subscription, of the Service's changes, hooks and uploads, and of the writers of package guest.
type chatLock struct {
	slot     chan struct{} // holds a value while it is taken
	mu       sync.Mutex
	changing bool // somebody has the slot and mu, or had mu before the commit
}

func newChatLock() chatLock { return chatLock{slot: make(chan struct{}, 1)} }

// takeSlot waits for the slot, without mu, and returns what gives it back.
func (l *chatLock) takeSlot(ctx context.Context) (release func(), err error) {
	select {
	case l.slot <- struct{}{}:
		return func() { <-l.slot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// trySlot is takeSlot for who does not wait; nil if another has the slot.
func (l *chatLock) trySlot() (release func()) {
	select {
	case l.slot <- struct{}{}:
		return func() { <-l.slot }
	default:
		return nil
	}
}

// exclude waits for the slot and takes mu; done gives both back.
func (l *chatLock) exclude(ctx context.Context) (done func(), err error) {
	release, err := l.takeSlot(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.changing = true
	return func() {
		l.changing = false
		l.mu.Unlock()
		release()
	}, nil
}

// mustExclude is exclude for what has to happen, however long the command before takes.
func (l *chatLock) mustExclude() (done func()) {
	done, _ = l.exclude(context.Background()) // cannot fail
	return done
}

// commit calls the store for who has the slot and mu, without mu. A call that has started is carried out,
// also if ctx ends meanwhile.
func (l *chatLock) commit(ctx context.Context, call func(context.Context) error) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	return call(context.WithoutCancel(ctx))
}
