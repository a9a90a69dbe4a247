package engine

import (
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// inbox passes requests from any goroutine to the step loop, and counts those inside the engine:
// running, waiting or on their way.
type inbox struct {
	limit int // of count; clients with few requests may exceed it, see reservedPart

	mu       sync.Mutex
	count    int            // requests inside
	byClient map[string]int // the same for each client
	fresh    []*answer
	setup    *infer.Setup   // to reload the model with; nil: none
	keep     *time.Duration // that the loaded model stays without a request; nil: as before
	jobs     []*towerJob
	closed   bool
	wake     chan struct{} // one signal for everything since the last take
}

func newInbox(limit int) *inbox {
	return &inbox{limit: limit, byClient: map[string]int{}, wake: make(chan struct{}, 1)}
}

var errClosed = &fault.Error{Code: fault.CodeClosed, Message: "the engine is shutting down"}

// Beyond the limit, a quarter more places are reserved for clients with few requests: none, or
// fewer than a 64th of the limit.
const (
	reservedPart = 4
	fewPart      = 64
)

// enter reserves a place in the engine for client; leave frees it.
func (b *inbox) enter(client string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if b.count >= b.limit && (b.byClient[client] >= max(1, b.limit/fewPart) || b.count >= b.limit+b.limit/reservedPart) {
		return fault.Errorf(fault.CodeQueueFull, "the queue is full: %d requests are running or waiting; try again later", b.count)
	}
	b.count++
	b.byClient[client]++
	return nil
}

func (b *inbox) leave(client string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count--
	if b.byClient[client]--; b.byClient[client] == 0 {
		delete(b.byClient, client)
	}
}

// add hands answers to the loop, which calls leave when one ends; of texts to embed, when the
// last one ends. It fails after close.
func (b *inbox) add(answers ...*answer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	b.fresh = append(b.fresh, answers...)
	b.signal()
	return nil
}

// setUp hands the loop a setup to reload the model with, and calls accepted before the loop gets it. It fails after
// close.
func (b *inbox) setUp(s infer.Setup, accepted func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	b.setup = &s
	accepted()
	b.signal()
	return nil
}

// keepFor tells the loop how long the loaded model stays without a request; 0: always. It fails after close.
func (b *inbox) keepFor(d time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	b.keep = &d
	b.signal()
	return nil
}

// addJob hands the loop a job. It fails after close.
func (b *inbox) addJob(job *towerJob) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	b.jobs = append(b.jobs, job)
	b.signal()
	return nil
}

func (b *inbox) take() (fresh []*answer, setup *infer.Setup, keep *time.Duration, jobs []*towerJob, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh, b.fresh, setup, b.setup, keep, b.keep, jobs, b.jobs = b.fresh, nil, b.setup, nil, b.keep, nil, b.jobs, nil
	return fresh, setup, keep, jobs, b.closed
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

// signal wakes the step loop.
func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
