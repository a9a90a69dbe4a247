package engine

import (
	"sync"

	"m40-llm/infer"
)

// inbox takes requests from any goroutine to the step loop, and counts those that
// are inside the engine.
type inbox struct {
	limit int // requests inside at most, but for those of clients that have few

	mu     sync.Mutex
	inside int
	of     map[string]int // the same by client
	fresh  []*answer
	closed bool
	wake   chan struct{} // one signal for all that happened since the last take
}

func newInbox(limit int) *inbox {
	return &inbox{limit: limit, of: map[string]int{}, wake: make(chan struct{}, 1)}
}

var errClosed = &infer.Error{Code: infer.CodeClosed, Message: "the engine is shutting down"}

// A queue that one client has filled has places left for others: a quarter more than the
// limit, of which a client may take one that has none inside, or less than a 64th of the limit.
const (
	reservedPart = 4
	fewPart      = 64
)

// enter reserves a place in the engine for client; leave gives it back.
func (b *inbox) enter(client string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if b.inside >= b.limit && (b.of[client] >= max(1, b.limit/fewPart) || b.inside >= b.limit+b.limit/reservedPart) {
		return infer.Errorf(infer.CodeQueueFull, "the queue is full: %d requests are running or waiting; try again later", b.inside)
	}
	b.inside++
	b.of[client]++
	return nil
}

func (b *inbox) leave(client string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inside--
	if b.of[client]--; b.of[client] == 0 {
		delete(b.of, client)
	}
}

// add hands a to the loop, which lets it leave. After close it fails.
func (b *inbox) add(a *answer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	b.fresh = append(b.fresh, a)
	b.signal()
	return nil
}

func (b *inbox) take() (fresh []*answer, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh, b.fresh = b.fresh, nil
	return fresh, b.closed
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
