package people

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

// record counts a wrong key that client has sent. If the client has sent too many, it returns
// how long the client must wait, and does not count this one.
func (a *attempts) record(client netip.Addr, key string, now time.Time) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := networkOf(client)
	all := a.failed.of(attempt{from: from}, wrongKeyEvery, wrongKeyBurst)
	if wait := untilAllowed(all, now); wait > 0 {
		return wait
	}
	same := a.failed.of(attempt{from, sha256.Sum256([]byte(key))}, sameKeyEvery, sameKeyBurst)
	if wait := untilAllowed(same, now); wait > 0 {
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

// untilAllowed returns how long it takes until l allows one more attempt; 0 if it does now.
func untilAllowed(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}

// networkOf returns the network that one client can send from: its IPv4 address, or the /64 of its
// IPv6 address. All machines of a local network have the same /64, so there it is the address: one
// machine must not use up the tries of the others.
func networkOf(client netip.Addr) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() && !client.IsPrivate() && !client.IsLinkLocalUnicast() {
		bits = 64
	}
	network, _ := client.Prefix(bits)
	return network
}
