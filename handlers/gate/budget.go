package gate

import (
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
)

// Memory that a request in progress needs, in bytes for each byte that was sent. These are
// measured upper bounds.
const (
	BodyCost = 4   // a body, and the texts that are decoded from it
	TextCost = 12  // a text that is being split into tokens
	FormCost = 256 // a grammar or schema, and the automaton compiled from it
)

// Memory that the values of a JSON body need apart from their texts, in bytes: a message of 31 bytes takes 700.
const (
	objectCost  = 768
	elementCost = 32
)

// budget bounds the memory of all requests in progress, including those that wait for the
// engine.
type budget struct {
	most int64        // bytes
	free func() int64 // bytes that this process can allocate; 0, or a nil function: unknown

	mu    sync.Mutex
	used  int64
	first *account  // of the requests in progress that were charged the one that was first; nil: none
	left  int64     // what free returned
	asked time.Time // when that was
	since int64     // bytes that were charged after that
}

// Of the memory that is free for it, and used by it, requests may use a quarter together: what they are charged is
// not all allocated yet, and the garbage collector lets a heap grow to twice its size.
const freePart = 4

// smallRequest is how many bytes a request may use however short memory is.
const smallRequest = 1 << 20

// free is asked again after so long, or when so much was charged.
const (
	askFreeAfter = 100 * time.Millisecond
	askFreeBytes = 1 << 20
)

// total returns how many bytes all requests may use now, with mu held.
func (b *budget) total() int64 {
	if b.free == nil {
		return b.most
	}
	if now := time.Now(); now.Sub(b.asked) > askFreeAfter || b.since >= askFreeBytes {
		b.left, b.asked, b.since = b.free(), now, 0
	}
	if b.left == 0 {
		return b.most
	}
	return min(b.most, (b.left+b.used)/freePart)
}

// account is the share of the budget that one request has been charged.
type account struct {
	budget  *budget
	charged int64 // bytes
}

const accountKey = "account"

// openAccount gives each request an account, and returns its bytes to the budget when the
// request has ended.
func (g *Gate) openAccount(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		a := &account{budget: &g.budget}
		defer a.close()
		c.Set(accountKey, a)
		return next(c)
	}
}

// accountOf returns the account of a request. In a worker it returns nil, which has no
// bound: the worker's server has charged the request already.
func accountOf(c echo.Context) *account {
	a, _ := c.Get(accountKey).(*account)
	return a
}

// Charge reserves n bytes of the budget for the request of c, until that has ended. It
// returns an error if other requests have left less than that.
func Charge(c echo.Context, n int64) error { return accountOf(c).charge(n) }

// charge reserves n bytes. It returns an error if other requests have left less than that.
// Small requests are bounded by the fixed limit alone. The first of the requests in progress may reserve more than that
// part, so that one of them ends, but not more than half of the free memory: its body has a limit of its own.
func (a *account) charge(n int64) error {
	if a == nil {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil {
		b.first = a
	}
	total := b.total()
	ahead := b.first == a && (b.left == 0 || a.charged+n <= b.left/2)
	small := a.charged+n <= smallRequest && b.used+n <= b.most
	if b.used+n > total && !ahead && !small {
		return fault.Errorf(fault.CodeTooLargeForNow,
			"the requests in progress use %s of %s, which leaves too little memory for this one; try again in %d seconds",
			units.ByteSize(b.used), units.ByteSize(total), failure.RetryAfter)
	}
	b.used += n
	b.since += n
	a.charged += n
	return nil
}

func (a *account) close() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.used -= a.charged
	a.charged = 0
	if a.budget.first == a {
		a.budget.first = nil
	}
}
