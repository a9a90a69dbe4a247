package upstream

import "time"

// breaker has requests go to another server, if there is one, while this one fails: after maxFailures in a row for a
// second, which doubles with each further failure up to a minute. Then one request tries it; the others go elsewhere
// until the server has accepted that. Its zero value lets everything through.
type breaker struct {
	failures int           // in a row
	pause    time.Duration // the last one; 0: there was none since an answer was complete
	until    time.Time     // its end
	requests int64         // sent; each is known by its number
	counted  int64         // requests when the last failure was counted
	trial    int64         // number of the request that tries the server; 0: none does
}

const (
	maxFailures = 3
	firstPause  = time.Second
	maxPause    = time.Minute
)

// open reports whether no request may go to the server now.
func (b *breaker) open(now time.Time) bool {
	return b.failures >= maxFailures && (b.trial != 0 || now.Before(b.until))
}

// begin notes that a request goes to the server, and returns its number.
func (b *breaker) begin() int64 {
	b.requests++
	if b.failures >= maxFailures {
		b.trial = b.requests
	}
	return b.requests
}

// accept notes that the server has started to answer a request: others may go there too. The next failure is one too
// many again until an answer is complete, because a server can accept all requests and complete none.
func (b *breaker) accept() {
	b.trial, b.failures = 0, min(b.failures, maxFailures-1)
}

// succeed notes that the server has completed an answer.
func (b *breaker) succeed() { b.trial, b.failures, b.pause = 0, 0, 0 }

// giveUp notes that a request ended which says nothing about the server.
func (b *breaker) giveUp(number int64) {
	if b.trial == number {
		b.trial = 0
	}
}

// fail notes a failure of the server. Of requests that were there together, which one event can end, it counts one.
func (b *breaker) fail(number int64, now time.Time) {
	b.giveUp(number)
	if number <= b.counted {
		return
	}
	b.counted = b.requests
	if b.failures++; b.failures >= maxFailures {
		b.pause = min(maxPause, max(firstPause, 2*b.pause))
		b.until = now.Add(b.pause)
	}
}
