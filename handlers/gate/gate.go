// Package gate is the middleware of every route. It checks a request's Host, Origin,
// credentials and size, bounds the time and memory that the request takes, compresses and
// logs its response, and responds where a handler returned an error.
package gate

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/people"
	"m40-llm/handlers/visitors"
)

// Options are the settings of a gate. All but the lists and People must be set.
type Options struct {
	Log *slog.Logger

	Asks           Asks              // who must show a credential, on every route but the public ones
	People         *people.Service   // who may come in with which; nil: no one may
	Visitors       *visitors.Service // who may come in without a credential; nil: no one
	Public         map[string]bool   // paths of the routes that require no credential, and run without a principal
	AllowHosts     []string          // values of Host that are accepted, NAME or NAME:PORT, besides loopback names and the address connected to
	Announced      func() string     // another such name, which the server has in the local network now; nil or empty: none
	CORSOrigins    []string          // foreign origins that may call /v1, as browsers send them; files and sandboxed pages have "null"
	TrustedProxies []netip.Prefix    // reverse proxies whose headers name the client
	BasePath       string            // under which a reverse proxy has the program, such as /llm; see CheckBasePath
	BodyLimits     map[string]int64  // largest body in bytes, by path or route; 1 MiB on other paths

	MemoryBudget int64         // bytes that all requests in progress may use together
	FreeMemory   func() int64  // bytes that this process can allocate, of which they use a part; 0, or nil: unknown
	WriteTimeout time.Duration // longest wait for a client to receive a write
	BodyTimeout  time.Duration // longest wait for a client to send more of its body
}

// Gate checks requests before they reach their routes.
type Gate struct {
	opt     Options
	log     *slog.Logger
	host    hostPolicy
	proxies proxies
	budget  budget
	trusted bool // this process is a worker, and the only client is its server

	programRoutes func() string // the list of API routes, for errors about unknown routes
}

// New returns the gate of a server.
func New(opt Options) *Gate {
	return &Gate{
		opt:     opt,
		log:     opt.Log,
		host:    newHostPolicy(opt.AllowHosts, opt.Announced),
		proxies: opt.TrustedProxies,
		budget:  budget{most: opt.MemoryBudget, free: opt.FreeMemory},
	}
}

// NewTrusted returns the gate of a worker. Its only client is its server, which has checked
// all requests: the gate refuses nothing and reports errors in full.
func NewTrusted(log *slog.Logger) *Gate { return &Gate{log: log, trusted: true} }

// Trusted reports whether this process is a worker, whose only client is its server.
func (g *Gate) Trusted() bool { return g.trusted }

// RequiresKey reports whether requests of programs on other machines must carry an API key.
func (g *Gate) RequiresKey() bool { return g.opt.Asks != AsksNoOne }

// Guard installs the gate's middleware and error handler in e.
func (g *Gate) Guard(e *echo.Echo) {
	e.HTTPErrorHandler = g.handleError
	if g.trusted {
		e.Pre(g.observe)
		return
	}
	e.IPExtractor = func(r *http.Request) string { return g.proxies.client(r).String() }
	e.Pre(g.observe, g.limitWrites, g.compress, g.mount, g.setHeaders, g.normalizePath, g.speak, g.checkHost, g.checkOrigin, g.noteEncryption, g.openAccount, g.limitBody)
	e.Use(g.identify)
	g.programRoutes = sync.OnceValue(func() string { return apiRoutes(e) })
}
