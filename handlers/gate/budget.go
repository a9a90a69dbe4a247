package gate

import (
	"sync"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/infer/units"
)

// Memory that a request in progress needs, in bytes for each byte that was sent. These are
// measured upper bounds.
const (
	BodyCost = 4   // a body, and what is decoded from it
	TextCost = 12  // a text that is being split into tokens
	FormCost = 256 // a grammar or schema, and the automaton compiled from it
)

// budget bounds the memory of all requests in progress, including those that wait for the
// engine.
type budget struct {
	total int64 // bytes

	mu   sync.Mutex
	used int64
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
// The only request in progress may reserve any number: its body has a limit of its own.
func (a *account) charge(n int64) error {
	if a == nil {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if others := b.used - a.charged; others > 0 && b.used+n > b.total {
		return failure.New(failure.TooLargeForNow,
			"the requests in progress use %s of %s, which leaves too little memory for this one; try again in %d seconds",
			units.ByteSize(b.used), units.ByteSize(b.total), failure.RetryAfter)
	}
	b.used += n
	a.charged += n
	return nil
}

func (a *account) close() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.used -= a.charged
	a.charged = 0
}
