package live

import "sync"

// locks are one for each name that is in use.
type locks struct {
	mu   sync.Mutex
	held map[string]*namedLock
}

type namedLock struct {
	sync.Mutex
	users int // who has it or waits for it
}

// lock waits for the lock of a name, and returns what gives it back.
func (l *locks) lock(name string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*namedLock{}
	}
	n := l.held[name]
	if n == nil {
		n = &namedLock{}
		l.held[name] = n
	}
	n.users++
	l.mu.Unlock()
	n.Lock()
	return func() {
		n.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if n.users--; n.users == 0 {
			delete(l.held, name)
		}
	}
}
