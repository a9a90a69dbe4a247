// Package ratelimit tells how long a rate limiter makes its client wait.
package ratelimit

import (
	"time"

	"golang.org/x/time/rate"
)

// Wait returns how long it takes until l allows one more event; 0: it allows one now. It takes
// nothing from l, see rate.Limiter.AllowN.
func Wait(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}
