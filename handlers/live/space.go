package live

import (
	"sync"
	"time"
)

// Space is the room on the disk where chats are kept.
type Space struct {
	Free   int64 // bytes
	Scarce bool  // too few for a new chat
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
	}
	return s.space.known
}
