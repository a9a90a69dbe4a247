package upstream

import "time"

// breaker keeps requests away from a server that fails: after maxFailures in a row for a second, which
// doubles with each further failure up to a minute. Then one request tries it; the others wait for how that
// ends. Its zero value lets everything through.
type breaker struct {
	failures int
	until    time.Time
	trying   bool
}

const (
	maxFailures = 3
	firstPause  = time.Second
	maxPause    = time.Minute
)

// open reports whether no request may go to the server now.
func (b *breaker) open(now time.Time) bool {
	return b.failures >= maxFailures && (b.trying || now.Before(b.until))
}

// begin notes that a request goes to the server.
func (b *breaker) begin() { b.trying = b.failures >= maxFailures }

// succeed notes that the server has answered.
func (b *breaker) succeed() { *b = breaker{} }

// giveUp notes that a request ended which says nothing about the server.
func (b *breaker) giveUp() { b.trying = false }

// fail notes a failure of the server.
func (b *breaker) fail(now time.Time) {
	b.failures++
	b.trying = false
	if over := b.failures - maxFailures; over >= 0 {
		b.until = now.Add(min(maxPause, firstPause<<min(over, 10)))
	}
}
