package disk

import (
	"errors"
	"sync"
	"time"

	"m40-llm/store"
)

// Space is the state of the disk where chats are stored.
type Space struct {
	Free    int64 // bytes
	Scarce  bool  // too few for a new chat
	Missing error // the file of the chats is not there any more
}

// space is looked at again after spaceAge: every page that is open asks for it. One of them looks, which may take as
// long as the disk does; the others get what is known.
type space struct {
	mu      sync.Mutex
	known   Space
	at      time.Time
	looking bool
}

const spaceAge = 2 * time.Second

// Space returns the room on the disk of the stored chats. Where that cannot be known, it
// is not called scarce: the write that fails will say so.
func (s *Service) Space() Space {
	if s.store == nil {
		return Space{}
	}
	if known, fresh := s.space.look(s.now()); fresh {
		return known
	}
	free, enough, err := s.store.Free()
	known := Space{Free: free, Scarce: err == nil && !enough}
	if missing, is := errors.AsType[*store.MissingError](s.store.Present()); is {
		known.Missing = missing
	}
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	s.space.known, s.space.looking = known, false
	return known
}

// look returns what is known, and whether the caller can use that. If not, the caller has to look.
func (s *space) look(now time.Time) (known Space, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looking || !s.at.IsZero() && now.Sub(s.at) < spaceAge {
		return s.known, true
	}
	s.at, s.looking = now, true
	return s.known, false
}
