package people

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"m40-llm/handlers/ratelimit"
)

// attempts limits the rate of wrong keys. The right key is always accepted: other clients may
// share the address of one that guesses.
type attempts struct {
	mu     sync.Mutex
	failed limiters
}

// limiters are rate limiters by what they limit. If there are too many, all start anew.
type limiters map[attempt]*rate.Limiter

// attempt is one wrong secret sent from a network, or all from it if digest is zero.
type attempt struct {
	from   netip.Prefix
	digest [sha256.Size]byte
}

const (
	sameKeyBurst  = 5 // of one wrong key, as a program sends that still has an old key
	sameKeyEvery  = 12 * time.Second
	wrongKeyBurst = 20 // of any wrong keys
	wrongKeyEvery = 3 * time.Second
	maxLimiters   = 4096
)

// record counts a wrong key that was sent from a network. If too many were sent from it, it returns
// how long its clients must wait, and does not count this one.
func (a *attempts) record(from netip.Prefix, key string, now time.Time) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.failed.of(attempt{from: from}, wrongKeyEvery, wrongKeyBurst)
	if wait := ratelimit.Wait(all, now); wait > 0 {
		return wait
	}
	same := a.failed.of(attempt{from, sha256.Sum256([]byte(key))}, sameKeyEvery, sameKeyBurst)
	if wait := ratelimit.Wait(same, now); wait > 0 {
		return wait
	}
	all.AllowN(now, 1)
	same.AllowN(now, 1)
	return 0
}

// of returns the limiter of an attempt, which it creates if there is none.
func (l *limiters) of(a attempt, every time.Duration, burst int) *rate.Limiter {
	if known := (*l)[a]; known != nil {
		return known
	}
	if *l == nil || len(*l) >= maxLimiters {
		*l = limiters{}
	}
	(*l)[a] = rate.NewLimiter(rate.Every(every), burst)
	return (*l)[a]
}
