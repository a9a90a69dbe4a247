package engine

import (
	"context"
	"sync"

	"m40-llm/infer"
)

// mailbox passes the events of one answer from the step loop to its consumer. put never waits:
// events that are not taken accumulate, bounded by the length of the answer.
type mailbox struct {
	mu     sync.Mutex
	events []infer.Event
	ended  bool
	err    error         // why it ended, nil after a done event
	ready  chan struct{} // one signal for everything since the last take
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

// put adds events. A queued or loading event replaces the last one if that is of its type and was
// not taken yet.
func (m *mailbox) put(events ...infer.Event) {
	m.mu.Lock()
	for _, e := range events {
		if n := len(m.events); n > 0 && m.events[n-1].Type == e.Type && (e.Type == infer.EventQueued || e.Type == infer.EventLoading) {
			m.events[n-1] = e
		} else {
			m.events = append(m.events, e)
		}
	}
	m.mu.Unlock()
	m.signal()
}

// end closes the mailbox; nothing may be put after it.
func (m *mailbox) end(err error) {
	m.mu.Lock()
	m.ended, m.err = true, err
	m.mu.Unlock()
	m.signal()
}

// take returns the events since the last take, and whether they were the last.
func (m *mailbox) take() (events []infer.Event, ended bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events, m.events = m.events, nil
	return events, m.ended, m.err
}

// wait takes events until the answer has ended, and returns why it failed.
func (m *mailbox) wait(ctx context.Context) error {
	for {
		if _, ended, err := m.take(); ended {
			return err
		}
		select {
		case <-m.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *mailbox) signal() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}
