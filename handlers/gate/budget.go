package gate

import (
	"sync"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/infer/units"
)

// What requests in work take of the memory, in bytes for each byte that was sent. These are
// upper bounds, as measured.
const (
	BodyCost = 4   // a body, and what is decoded from it
	TextCost = 12  // a text that is being split into tokens
	FormCost = 256 // a grammar or schema, and the automaton made of it
)

// budget bounds the memory of all requests in work, those that wait for the engine
// included.
type budget struct {
	total int64

	mu   sync.Mutex
	used int64
}

// account is what one request has of the budget.
type account struct {
	budget *budget
	taken  int64
}

const accountKey = "account"

// keepAccount gives each request an account, and its bytes back when it has ended.
func (g *Gate) keepAccount(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		a := &account{budget: &g.budget}
		defer a.close()
		c.Set(accountKey, a)
		return next(c)
	}
}

// accountOf returns the account of a request; nil, which has no bound, for those of the
// server that the engine works for: it has counted them.
func accountOf(c echo.Context) *account {
	a, _ := c.Get(accountKey).(*account)
	return a
}

// Take takes n bytes of the memory of all requests for the request of c, until that has
// ended. The error says that others have too many.
func Take(c echo.Context, n int64) error { return accountOf(c).take(n) }

// take takes n bytes. The error says that others have too many; a request that is alone
// may take any number, for its size has bounds of its own.
func (a *account) take(n int64) error {
	if a == nil {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if others := b.used - a.taken; others > 0 && b.used+n > b.total {
		return failure.New(failure.TooLargeForNow,
			"the requests in work take %s of %s, which leaves too little for this one; try again in %d seconds",
			units.ByteSize(b.used), units.ByteSize(b.total), failure.RetryAfter)
	}
	b.used += n
	a.taken += n
	return nil
}

func (a *account) close() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.used -= a.taken
	a.taken = 0
}
