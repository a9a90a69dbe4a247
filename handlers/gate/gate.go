// Package gate stands before every route: it checks the Host, the Origin, the credentials and
// the size of a request, bounds the time and the memory that it takes, compresses and logs
// its response, and answers it where a handler failed.
package gate

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// Options are those of a gate; each must be set but the lists and the key.
type Options struct {
	Log *slog.Logger

	APIKey         string           // asked for on every route but the public ones; empty: nobody is asked
	Public         map[string]bool  // routes that ask nobody for the key
	AllowHosts     []string         // names, or name:port, that a request may be addressed to, beside loopback names and the address connected to
	CORSOrigins    []string         // foreign origins that may call /v1, as browsers write them; "null" is that of files and sandboxes
	TrustedProxies []netip.Prefix   // reverse proxies that say who the client is
	BodyLimits     map[string]int64 // bytes, by path; others take 1 MiB

	MemoryBudget int64         // bytes that all requests in work may take together
	WriteTimeout time.Duration // longest wait for a client to take a write
	BodyTimeout  time.Duration // longest wait for a client to send more of its body
}

// Gate checks requests before they reach their routes.
type Gate struct {
	opt     Options
	log     *slog.Logger
	host    hostPolicy
	keys    *keyring
	proxies proxies
	budget  budget
	trusted bool // the only client is the server whose engine this is

	programRoutes func() string // for the answer to a request for another route
}

// New returns the gate of a server.
func New(opt Options) *Gate {
	return &Gate{
		opt:     opt,
		log:     opt.Log,
		host:    newHostPolicy(opt.AllowHosts),
		keys:    newKeyring(opt.APIKey),
		proxies: opt.TrustedProxies,
		budget:  budget{total: opt.MemoryBudget},
	}
}

// NewTrusted returns the gate of an engine whose only client is its server, which has
// checked all requests: nothing is refused, and nothing is kept from the client.
func NewTrusted(log *slog.Logger) *Gate { return &Gate{log: log, trusted: true} }

// Trusted reports whether the only client is the server whose engine this is.
func (g *Gate) Trusted() bool { return g.trusted }

// AsksForKey reports whether requests must bring a key.
func (g *Gate) AsksForKey() bool { return g.keys != nil }

// Guard puts the gate before the routes of e.
func (g *Gate) Guard(e *echo.Echo) {
	e.HTTPErrorHandler = g.handleError
	if g.trusted {
		e.Pre(g.observe)
		return
	}
	e.IPExtractor = func(r *http.Request) string { return g.proxies.client(r).String() }
	e.Pre(g.observe, g.boundWrites, g.compress, g.setHeaders, g.normalizePath, g.checkHost, g.checkOrigin, g.keepAccount, g.boundBody)
	e.Use(g.checkKey)
	g.programRoutes = sync.OnceValue(func() string { return apiRoutes(e) })
}
