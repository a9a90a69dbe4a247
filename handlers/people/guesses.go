package people

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"m40-llm/handlers/ratelimit"
)

// guesses limits how many codes and passphrases are tried, right or wrong: 5 a minute from one
// network, and 30 a minute from all networks. When others have used up those of all, a network still
// has 3 tries of its own and gets another one every 20 minutes: an attacker with many addresses
// does not lock out the people who have others. That holds for maxReserved networks.
type guesses struct {
	mu       sync.Mutex
	all      *rate.Limiter
	from     limiters
	reserved map[netip.Prefix]*rate.Limiter // of networks that tried while all had none left
	swept    time.Time                      // when networks were last removed from reserved
}

const (
	guessEvery    = 12 * time.Second
	guessBurst    = 5
	allGuessEvery = 2 * time.Second
	allGuessBurst = 30
	reservedEvery = 20 * time.Minute
	reservedBurst = 3
	maxReserved   = 1024
	sweepEvery    = time.Minute
)

// wait returns how long it takes until a network may try once more; 0: it may now.
func (g *guesses) wait(from netip.Prefix, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, wait := g.limiters(from, now)
	return wait
}

// take counts one try. If none is allowed, it returns how long to wait.
func (g *guesses) take(from netip.Prefix, now time.Time) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	count, wait := g.limiters(from, now)
	if wait > 0 {
		return wait
	}
	for _, l := range count {
		l.AllowN(now, 1)
	}
	return 0
}

// limiters returns the limiters that count a try from a network, and how long it takes until one
// is allowed.
func (g *guesses) limiters(from netip.Prefix, now time.Time) (count []*rate.Limiter, wait time.Duration) {
	if g.all == nil {
		g.all, g.reserved = rate.NewLimiter(rate.Every(allGuessEvery), allGuessBurst), map[netip.Prefix]*rate.Limiter{}
	}
	own := g.from.of(attempt{from: from}, guessEvery, guessBurst)
	if wait := ratelimit.Wait(own, now); wait > 0 {
		return nil, wait
	}
	wait = ratelimit.Wait(g.all, now)
	if wait == 0 {
		return []*rate.Limiter{own, g.all}, 0
	}
	reserved := g.reservedFor(from, now)
	if reserved == nil {
		return nil, wait
	}
	if until := ratelimit.Wait(reserved, now); until > 0 {
		return nil, min(wait, until)
	}
	return []*rate.Limiter{own, reserved}, 0
}

// reservedFor returns the limiter of the tries that only this network has; nil if too many
// networks have one.
func (g *guesses) reservedFor(from netip.Prefix, now time.Time) *rate.Limiter {
	if known := g.reserved[from]; known != nil {
		return known
	}
	if len(g.reserved) >= maxReserved && now.Sub(g.swept) >= sweepEvery {
		g.swept = now
		for network, l := range g.reserved {
			if l.TokensAt(now) >= reservedBurst {
				delete(g.reserved, network)
			}
		}
	}
	if len(g.reserved) >= maxReserved {
		return nil
	}
	g.reserved[from] = rate.NewLimiter(rate.Every(reservedEvery), reservedBurst)
	return g.reserved[from]
}
