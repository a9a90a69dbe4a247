package compare

import (
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
)

// groups are the groups of one kind by owner: everybody has one at a time.
type groups[T interface{ base() *group }] struct {
	mu      sync.Mutex
	byOwner map[string]T
}

// maxGroups is how many groups of a kind are in memory, of all people together.
const maxGroups = 16

// maxVisitorsGroups is how many of these are of visitors.
const maxVisitorsGroups = 4

// errTooManyGroups is returned while the groups of others fill the memory for them.
var errTooManyGroups = fault.Errorf(fault.CodeQueueFull, "%d others are comparing answers, and more do not fit; try again when one of them has ended", maxGroups)

func (g *group) base() *group { return g }

// put makes t the group of its owner in l and begins to write it, unless another one of theirs is being written.
// command names that in the error.
func put[T interface{ base() *group }](s *Service, l *groups[T], t T, command string) error {
	g := t.base()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.chats.Context().Err() != nil {
		return owned.ErrClosed
	}
	old, replaces := l.byOwner[g.owner]
	if replaces && old.base().busy() {
		return &owned.Conflict{Command: command, State: owned.WritingGroup}
	}
	if l.byOwner == nil {
		l.byOwner = map[string]T{}
	}
	if !replaces && !l.makeRoom(g.owner) {
		return errTooManyGroups
	}
	l.byOwner[g.owner] = t
	g.start(s)
	return nil
}

// makeRoom drops a group if the one of an owner is too many; the caller has mu. It returns false if all that can be dropped for it
// are being written or read.
func (l *groups[T]) makeRoom(owner string) bool {
	visitors := 0
	for other := range l.byOwner {
		if access.IsVisitor(other) {
			visitors++
		}
	}
	switch {
	case access.IsVisitor(owner) && visitors >= maxVisitorsGroups:
		return l.dropOldest(access.IsVisitor)
	case len(l.byOwner) >= maxGroups:
		return l.dropOldest(func(string) bool { return true })
	}
	return true
}

// dropOldest drops the group without a reader for the longest time, of the owners that match; the caller has mu. It returns false if
// all are being written or read.
func (l *groups[T]) dropOldest(meant func(owner string) bool) bool {
	oldest, since := "", time.Time{}
	for owner, t := range l.byOwner {
		if used, idle := t.base().idle(); idle && meant(owner) && (oldest == "" || used.Before(since)) {
			oldest, since = owner, used
		}
	}
	delete(l.byOwner, oldest)
	return oldest != ""
}

// of returns the group of a person; false if there is none.
func (l *groups[T]) of(owner string) (t T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok = l.byOwner[owner]
	return t, ok
}

// end drops the groups that match, and stops their answers.
func (l *groups[T]) end(meant func(*group) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for owner, t := range l.byOwner {
		if g := t.base(); meant(g) {
			g.stopAll()
			delete(l.byOwner, owner)
		}
	}
}

// end drops the groups of all kinds that match, and stops their answers.
func (s *Service) end(meant func(*group) bool) {
	s.sheets.end(meant)
	s.pairs.end(meant)
}

// groupLife is how long a group stays in memory after its answers have ended.
const groupLife = time.Hour

// unload drops the groups that have ended and had no reader for groupLife.
func (s *Service) unload() {
	now := s.chats.Now()
	s.end(func(g *group) bool {
		used, idle := g.idle()
		return idle && now.Sub(used) >= groupLife
	})
}
