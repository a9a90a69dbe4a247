package people

import (
	"context"
	"sync"
	"time"
)

type credentialKey struct{}

// WithCredential returns a context for a request that was authenticated by a credential.
func WithCredential(ctx context.Context, by Credential) context.Context {
	return context.WithValue(ctx, credentialKey{}, by)
}

// CredentialOf returns the credential that authenticated a request; the zero value: none did.
func CredentialOf(ctx context.Context) Credential {
	by, _ := ctx.Value(credentialKey{}).(Credential)
	return by
}

// watcher is a running request that is cancelled when its credential is revoked.
type watcher struct{ cancel context.CancelCauseFunc }

// Watch returns a context for a request that was authenticated by a credential. It is cancelled
// with the cause ErrRevoked when the credential is revoked. The caller calls done when the request
// has ended.
func (s *Service) Watch(ctx context.Context, by Credential) (watched context.Context, done func()) {
	watched, cancel := context.WithCancelCause(ctx)
	w := &watcher{cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked[by] || s.revoked[Credential{Person: by.Person}] { // between the authentication and this call
		cancel(ErrRevoked)
	}
	if s.watchers[by] == nil {
		s.watchers[by] = map[*watcher]bool{}
	}
	s.watchers[by][w] = true
	return watched, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers[by], w)
		if len(s.watchers[by]) == 0 {
			delete(s.watchers, by)
		}
	}
}

// end cancels the requests that a revoked credential authenticated. A credential with neither a
// device nor a key means all of the person's.
func (s *Service) end(revoked Credential) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked[revoked] = true // ids are not used again
	for by, watchers := range s.watchers {
		if by != revoked && (Credential{Person: by.Person}) != revoked {
			continue
		}
		for w := range watchers {
			w.cancel(ErrRevoked)
		}
	}
}

// lastSeen records when devices or API keys were last used, by id, until that is stored.
type lastSeen struct {
	mu   sync.Mutex
	byID map[int64]time.Time
}

func (l *lastSeen) note(id int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = map[int64]time.Time{}
	}
	l.byID[id] = now
}

// at returns when one was last used, given the time that is stored.
func (l *lastSeen) at(id int64, stored time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.byID[id]; ok {
		return at
	}
	return stored
}

// take returns what is to be stored.
func (l *lastSeen) take() map[int64]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.byID
	l.byID = nil
	return taken
}

// saveEvery is how often the times of last use are stored.
const saveEvery = time.Minute

// Run stores when devices and keys were last used, and what people have used of the day, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for more := true; more; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			more = false
		}
		if err := s.saveUsed(context.WithoutCancel(ctx)); err != nil {
			s.opt.Log.Warn("failed to store what people have used today", "error", err)
		}
		devices, keys := s.devicesSeen.take(), s.keysSeen.take()
		if len(devices)+len(keys) == 0 {
			continue
		}
		if err := s.opt.Store.Seen(context.WithoutCancel(ctx), devices, keys); err != nil {
			s.opt.Log.Warn("failed to store when devices were seen last", "error", err)
		}
	}
}
