package live

import (
	"errors"
	"sync"
)

// ErrSlow ends a subscription whose reader fell too far behind. Nothing is lost:
// it subscribes again from the last event it has.
var ErrSlow = errors.New("reader fell too far behind")

// Subscription is one reader's bounded queue of events. The writer never waits
// for it.
type Subscription struct {
	chat      *Chat
	ready     chan struct{}
	maxEvents int
	maxBytes  int

	mu    sync.Mutex
	queue []Event
	bytes int
	err   error
}

// Ready is signalled when Take has something to return.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take returns the events that came since the last call. Its error, ErrSlow or
// owned.ErrGone, ends the subscription.
func (s *Subscription) Take() ([]Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.queue
	s.queue, s.bytes = nil, 0
	return events, s.err
}

// Close ends the subscription. It may be called more than once.
func (s *Subscription) Close() { s.chat.unsubscribe(s) }

// put adds an event and reports whether the reader still keeps up.
func (s *Subscription) put(e Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	n := len(s.queue)
	if n == 0 { // it may be larger than all that follow may be
		s.queue, s.bytes = append(s.queue, e), e.size()
	} else {
		last := &s.queue[n-1]
		s.bytes -= last.size()
		if last.merge(&e) {
			s.bytes += last.size()
		} else {
			s.queue = append(s.queue, e)
			s.bytes += s.queue[n-1].size() + e.size()
		}
	}
	if len(s.queue) > s.maxEvents || s.bytes > s.maxBytes && n > 0 {
		s.queue, s.bytes, s.err = nil, 0, ErrSlow
	}
	s.signal()
	return s.err == nil
}

func (s *Subscription) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
