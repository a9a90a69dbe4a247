package infer

import "sync"

// inbox takes requests from any goroutine to the step loop, and counts those that
// are inside the engine.
type inbox struct {
	limit int // requests inside at most

	mu     sync.Mutex
	inside int
	fresh  []*answer
	closed bool
	wake   chan struct{} // one signal for all that happened since the last take
}

func newInbox(limit int) *inbox { return &inbox{limit: limit, wake: make(chan struct{}, 1)} }

var errClosed = &Error{Code: CodeClosed, Message: "the engine is shutting down"}

// enter reserves a place in the engine; leave gives it back.
func (b *inbox) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if b.inside >= b.limit {
		return errorf(CodeQueueFull, "the queue is full: %d requests are running or waiting; try again later", b.inside)
	}
	b.inside++
	return nil
}

func (b *inbox) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inside--
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
