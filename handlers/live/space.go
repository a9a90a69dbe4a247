package live

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

// space is looked at again after spaceAge: every page that is open asks for it.
type space struct {
	mu    sync.Mutex
	known Space
	at    time.Time
}

const spaceAge = 2 * time.Second

// Space returns the room on the disk of the stored chats. Where that cannot be known, it
// is not called scarce: the write that fails will say so.
func (s *Service) Space() Space {
	if s.opt.Store == nil {
		return Space{}
	}
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	now := s.opt.Now()
	if s.space.at.IsZero() || now.Sub(s.space.at) >= spaceAge {
		free, enough, err := s.opt.Store.Free()
		s.space.known, s.space.at = Space{Free: free, Scarce: err == nil && !enough}, now
		if missing, is := errors.AsType[*store.MissingError](s.opt.Store.Present()); is {
			s.space.known.Missing = missing
		}
	}
	return s.space.known
}
