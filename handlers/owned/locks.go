package owned

import "sync"

// Locks are one for each name that is in use.
type Locks struct {
	mu   sync.Mutex
	used map[string]*namedLock
}

type namedLock struct {
	sync.Mutex
	users int // who has it or waits for it
}

// Lock waits for the lock of a name, and returns what gives it back.
func (l *Locks) Lock(name string) (unlock func()) {
	l.mu.Lock()
	if l.used == nil {
		l.used = map[string]*namedLock{}
	}
	n := l.used[name]
	if n == nil {
		n = &namedLock{}
		l.used[name] = n
	}
	n.users++
	l.mu.Unlock()
	n.Lock()
	return func() {
		n.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if n.users--; n.users == 0 {
			delete(l.used, name)
		}
	}
}
