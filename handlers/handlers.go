// Package handlers puts together what turns HTTP into calls of the engine and of the chats:
//
//	gate      what every request passes first: hosts, origins, keys, limits
//	api       the API for programs
//	page      the pages, their forms, and what their scripts ask for
//	stream    what keeps an open page up to date: a websocket, or events
//	live      the chats themselves, and models the downloads
//	failure   the one table of errors
//	markdown  what models write, as HTML that is safe to insert
//	view      the state of engine, downloads and answers in words
//	httpio    reading bodies, writing responses
//	commands  the program's commands, and cli the terminal
//
// # Contract
//
// A handler parses, calls once and answers; it returns errors, which the gate alone turns
// into responses, by the table in failure. Before any handler runs, the gate has checked the
// Host, the Origin, the credentials and the size of the request, on every route and in every
// mode. docs/api.md describes the routes for programs.
package handlers

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/api"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/handlers/page"
	"m40-llm/handlers/people"
	"m40-llm/handlers/share"
	"m40-llm/handlers/stream"
)

// Engine is what the routes need of the inference engine.
type Engine = api.Engine

// Config is what New needs. Only Engine must be set.
type Config struct {
	Engine  Engine
	Live    *live.Service   // the chats of the page; default: new ones on Engine
	Models  *models.Service // default: those of Engine, and none can be downloaded
	Logger  *slog.Logger    // default: slog.Default
	Reach   *share.Reach    // where other machines reach shared chats; default: nowhere
	Version string          // of this program, for system_fingerprint

	People *people.Service // who may come in, with which credential; default: whoever reaches the server is its owner
	Asks   gate.Asks       // with People, who must show a credential, on every route but the public ones

	AllowHosts  []string // names, or name:port, that a request may be addressed to, beside loopback names and the address connected to
	CORSOrigins []string // foreign origins that may call /v1, as browsers write them; "null" is that of files and sandboxes

	TrustedProxies []netip.Prefix // reverse proxies that say who the client is

	MemoryBudget int64 // bytes that all requests in work may take together, default 512 MiB

	PingInterval time.Duration // silence after which a stream gets a comment, default 10 s
	WriteTimeout time.Duration // longest wait for a client to take a write, default 5 s
	BodyTimeout  time.Duration // longest wait for a client to send more of its body, default 30 s
}

// Limits of bodies in bytes. Conversations are long; most else is not.
const (
	chatBodyLimit   = 8 << 20
	importBodyLimit = 64 << 20 // a chat with all its branches and tokens
)

// publicRoutes ask nobody for a key: probes, the page's own files, and what has a token of
// its own.
var publicRoutes = map[string]bool{
	"/health":          true,
	"/login":           true,
	"/s/:token":        true,
	"/s/:token/events": true,
	"/static/*":        true,
}

// sharedRoutes are all of the listener for shared chats.
var sharedRoutes = map[string]bool{
	"/s/:token":        true,
	"/s/:token/events": true,
	"/static/*":        true,
	"/*":               true, // nothing is there
}

var bodyLimits = map[string]int64{
	"/v1/chat/completions": chatBodyLimit,
	"/chat/completions":    chatBodyLimit,
	"/apply-template":      chatBodyLimit,
	"/import":              importBodyLimit,
	"/presets/import":      chatBodyLimit,
	"/command":             stream.ReadLimit,
}

func (cfg *Config) setDefaults() {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Live == nil {
		cfg.Live = live.New(cfg.Engine, live.Options{Log: cfg.Logger})
	}
	if cfg.Models == nil {
		cfg.Models = models.New(models.Options{Engine: cfg.Engine, Log: cfg.Logger})
	}
	if cfg.People == nil {
		cfg.Asks = gate.AsksNobody
	}
	if cfg.Reach == nil {
		cfg.Reach = share.Nowhere()
	}
	cfg.PingInterval = cmp.Or(cfg.PingInterval, 10*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 5*time.Second)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, 30*time.Second)
	cfg.MemoryBudget = cmp.Or(cfg.MemoryBudget, defaultBudget)
}

// New returns the server's routes.
func New(cfg Config) *echo.Echo {
	cfg.setDefaults()
	g := gate.New(gate.Options{
		Log:            cfg.Logger,
		Asks:           cfg.Asks,
		People:         cfg.People,
		Public:         publicRoutes,
		AllowHosts:     cfg.AllowHosts,
		CORSOrigins:    cfg.CORSOrigins,
		TrustedProxies: cfg.TrustedProxies,
		BodyLimits:     bodyLimits,
		MemoryBudget:   cfg.MemoryBudget,
		WriteTimeout:   cfg.WriteTimeout,
		BodyTimeout:    cfg.BodyTimeout,
	})
	programs := api.New(cfg.Engine, cfg.Models, g, cfg.Version, cfg.PingInterval)
	people := &page.Handlers{Live: cfg.Live, Models: cfg.Models, Gate: g, Log: cfg.Logger, PingInterval: cfg.PingInterval}
	streams := &stream.Handlers{Live: cfg.Live, Models: cfg.Models, Log: cfg.Logger, WriteTimeout: cfg.WriteTimeout}
	shared := cfg.shared()
	e := echo.New()
	g.Guard(e)
	e.GET("/login", g.Login)
	e.POST("/login", g.SubmitLogin)
	programs.Routes(e)
	people.Routes(e)
	streams.Routes(e)
	shared.Routes(e)
	shared.ReaderRoutes(e)
	e.Match(getOrHead, "/static/*", page.Asset)
	e.Match(getOrHead, "/models", forPeople(people.ModelsPage, programs.Models))
	return e
}

// NewShared returns the routes of a listener that serves shared chats and nothing else.
func NewShared(cfg Config) *echo.Echo {
	cfg.setDefaults()
	g := gate.New(gate.Options{
		Log:          cfg.Logger,
		Public:       sharedRoutes,
		AllowHosts:   cfg.AllowHosts,
		MemoryBudget: cfg.MemoryBudget,
		WriteTimeout: cfg.WriteTimeout,
		BodyTimeout:  cfg.BodyTimeout,
	})
	e := echo.New()
	g.Guard(e)
	cfg.shared().ReaderRoutes(e)
	e.Match(getOrHead, "/static/*", page.Asset)
	e.RouteNotFound("/*", share.NotShared)
	return e
}

func (cfg *Config) shared() *share.Handlers {
	return &share.Handlers{Live: cfg.Live, Reach: cfg.Reach, PingInterval: cfg.PingInterval}
}

var getOrHead = []string{http.MethodGet, http.MethodHead}

// defaultBudget is what all requests in work may take together in bytes. Most take some
// kilobytes, so only large ones are ever refused.
const defaultBudget = 512 << 20

// forPeople is a route that answers a browser with page, and a program whose base address
// lacks the /v1 with list.
func forPeople(page, list echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Add(echo.HeaderVary, echo.HeaderAccept)
		if gate.AsksForPage(c.Request()) {
			return page(c)
		}
		return list(c)
	}
}
