// Package handlers connects the packages that turn HTTP into calls of the engine and the chats:
//
//	gate      the middleware of every route: hosts, origins, keys, limits
//	api       the API for programs
//	page      the pages, their forms, and what their scripts ask for
//	stream    what keeps an open page up to date: a websocket, or events
//	live      the chats themselves, and models the downloads
//	chatlist  the list of a person's chats, links those to one chat, disk what chats take there
//	inspect   how an answer's tokens came about, and whether it can be made again
//	guest     what those who have the link to a chat can do there
//	presets   named settings, built in and of people
//	compare   answers to one question next to each other: contact sheets, blind pairs
//	metrics   what is counted for Prometheus
//	activity  the answers that are generated at this moment, and who asked for them
//	people    who may log in; account has their pages, access the one rule of who may do what
//	failure   the one table of errors
//	share     links to a chat, and the page that they open
//	growing   pages that grow while an answer is written, for browsers without scripts
//	markdown  rendering of what models write, as safe HTML
//	view      descriptions of engine, downloads and answers for the page
//	httpio    reading bodies, writing responses
//	commands  the program's commands, cli the terminal, certificate the TLS certificate,
//	          mdns the name in the local network
//
// # Contract
//
// A handler parses the request, makes one call and responds. It returns errors; only the gate
// turns them into responses, by the table in failure. Before a handler runs, the gate has checked
// the Host, the Origin, the credentials and the size of the request, on every route. docs/api.md
// describes the routes for programs.
package handlers

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/account"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/api"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/compare"
	"m40-llm/handlers/document"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/live"
	"m40-llm/handlers/metrics"
	"m40-llm/handlers/models"
	"m40-llm/handlers/page"
	"m40-llm/handlers/people"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/share"
	"m40-llm/handlers/stream"
	"m40-llm/handlers/visitors"
)

// Engine is the part of an engine that the routes use.
type Engine = api.Engine

// Config are the parts and settings of a server. Engine and Live must be set; who made them closes them.
type Config struct {
	Engine   Engine
	Activity *activity.Service // the answers of Engine and Live; default: none are listed
	Live     *live.Service     // the chats of the page
	Presets  *presets.Service  // default: those that are built in
	Compare  *compare.Service  // answers to the questions of Live that are compared; default: new ones, whose votes are not stored
	Guests   *guest.Service    // who has links to chats of Live; default: new ones. New and NewShared need the same
	Models   *models.Service   // default: those of Engine, and none can be downloaded
	Logger   *slog.Logger      // default: slog.Default
	Reach    *share.Reach      // where other machines reach shared chats; default: nowhere
	Metrics  *metrics.Service  // default: those of the status of Engine, and no answers are counted
	Version  string            // of this program, for system_fingerprint

	// FetchPicture returns the picture file at an address in a request of the API, of at most so many bytes; nil: none are fetched.
	FetchPicture func(ctx context.Context, address string, most int64) ([]byte, error)

	Documents *document.Reader // makes text of PDF and DOCX files; nil: they are refused

	People     *people.Service   // who may come in, with which credential; default: whoever reaches the server is its owner
	Visitors   *visitors.Service // with People, who is let in without a credential; nil: no one can be
	NoVisitors string            // why visitors cannot be let in, for the owner; empty: they can

	Asks  gate.Asks // with People, who must show a credential, on every route but the public ones
	Alone bool      // other machines do not reach the server

	OllamaPort int // connections to this port find "Ollama is running" at /; 0: none do

	Fingerprint string // of the self-signed certificate; empty: there is none

	AllowHosts  []string      // values of Host that are accepted, NAME or NAME:PORT, besides loopback names and the address connected to
	Announced   func() string // another such name, which the server has in the local network now; nil or empty: none
	CORSOrigins []string      // foreign origins that may call /v1, as browsers send them; files and sandboxed pages have "null"

	TrustedProxies []netip.Prefix // reverse proxies whose headers name the client
	BasePath       string         // under which a reverse proxy has the program, such as /llm; empty: it has it under /

	MemoryBudget int64        // bytes that all requests in progress may use together, default 512 MiB
	FreeMemory   func() int64 // bytes that this process can allocate; requests in progress use a quarter of them. 0, or nil: unknown

	PingInterval time.Duration // silence after which a stream gets a comment, default 10 s
	WriteTimeout time.Duration // longest wait for a client to take a write, default 5 s
	BodyTimeout  time.Duration // longest wait for a client to send more of its body, default 30 s
}

// Limits of bodies in bytes. Conversations are long; most else is not.
const (
	chatBodyLimit   = 8 << 20
	seenBodyLimit   = 64 << 20 // a conversation with pictures
	importBodyLimit = 64 << 20 // a chat with all its branches and tokens
)

// publicRoutes are the routes that require no key: probes, static files, and routes with a token
// of their own.
var publicRoutes = map[string]bool{
	"/health":          true,
	"/login":           true,
	"/logout":          true,
	"/s/:token":        true,
	"/s/:token/events": true,
	"/s/:token/write":  true,
	"/static/*":        true,

	"/s/:token/pictures/:hash": true,
}

// sharedRoutes are all of the listener for shared chats.
var sharedRoutes = map[string]bool{
	"/s/:token":        true,
	"/s/:token/events": true,
	"/s/:token/write":  true,
	"/static/*":        true,
	"/*":               true, // no page

	"/s/:token/pictures/:hash": true,
}

var bodyLimits = map[string]int64{
	"/v1/chat/completions": seenBodyLimit,
	"/chat/completions":    seenBodyLimit,
	"/v1/responses":        seenBodyLimit,
	"/responses":           seenBodyLimit,
	"/v1/messages":         seenBodyLimit,
	"/v1/generate":         seenBodyLimit,
	"/v1/render":           seenBodyLimit,
	"/v1/embed":            chatBodyLimit,
	"/v1/rank":             chatBodyLimit,
	"/v1/rerank":           chatBodyLimit,
	"/rerank":              chatBodyLimit,
	"/v1/reranking":        chatBodyLimit,
	"/reranking":           chatBodyLimit,
	"/v2/rerank":           chatBodyLimit,

	"/v1/messages/count_tokens":  seenBodyLimit,
	"/v1/responses/input_tokens": seenBodyLimit,
	"/v1/responses/compact":      chatBodyLimit,
	"/responses/input_tokens":    seenBodyLimit,
	"/responses/compact":         chatBodyLimit,

	"/apply-template": chatBodyLimit,
	"/api/chat":       seenBodyLimit,
	"/completion":     seenBodyLimit,
	"/v1/completions": seenBodyLimit,
	"/completions":    seenBodyLimit,
	"/infill":         chatBodyLimit,
	"/v1/embeddings":  chatBodyLimit,
	"/embeddings":     chatBodyLimit,
	"/embedding":      chatBodyLimit,
	"/api/embed":      chatBodyLimit,
	"/api/generate":   seenBodyLimit,
	"/import":         importBodyLimit,
	"/":               seenBodyLimit,
	"/c/:id":          seenBodyLimit,
	"/pictures":       attached.MaxBytes + 1,
	"/documents":      document.MaxBytes + 1,
	"/presets/import": chatBodyLimit,
	"/command":        stream.ReadLimit,
}

func (cfg *Config) setDefaults() {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Live == nil {
		panic("handlers: Config.Live is missing")
	}
	if cfg.Presets == nil {
		cfg.Presets = presets.New(cfg.Live, nil)
	}
	if cfg.Compare == nil {
		cfg.Compare = compare.New(cfg.Live, cfg.Presets, nil)
	}
	if cfg.Guests == nil {
		cfg.Guests = guest.New(cfg.Live, guest.Options{})
	}
	if cfg.Models == nil {
		cfg.Models = models.New(models.Options{Engine: cfg.Engine, Log: cfg.Logger})
	}
	if cfg.Activity == nil {
		cfg.Activity = activity.New(nil)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New(cfg.Engine)
	}
	if cfg.People == nil {
		cfg.Asks = gate.AsksNoOne
	}
	if cfg.Announced == nil {
		cfg.Announced = func() string { return "" }
	}
	if cfg.Reach == nil {
		cfg.Reach = share.Nowhere()
	}
	cfg.PingInterval = cmp.Or(cfg.PingInterval, 10*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 5*time.Second)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, 30*time.Second)
	cfg.MemoryBudget = cmp.Or(cfg.MemoryBudget, defaultBudget)
}

// left says what a person may still use today; it is empty if there is no limit.
func (cfg *Config) left(ctx context.Context, who access.Principal) string {
	if cfg.People == nil || who.Role == access.RoleOwner {
		return ""
	}
	if who.Role == access.RoleVisitor {
		return cfg.Visitors.Left(ctx, who)
	}
	text, err := cfg.People.Left(ctx, who)
	if err != nil && ctx.Err() == nil {
		cfg.Logger.Warn("failed to read what a person may still use today", "error", err)
	}
	return text
}

// New returns the server's routes.
func New(cfg Config) *echo.Echo {
	cfg.setDefaults()
	g := gate.New(gate.Options{
		Log:            cfg.Logger,
		Asks:           cfg.Asks,
		People:         cfg.People,
		Visitors:       cfg.Visitors,
		Public:         publicRoutes,
		AllowHosts:     cfg.AllowHosts,
		Announced:      cfg.Announced,
		CORSOrigins:    cfg.CORSOrigins,
		TrustedProxies: cfg.TrustedProxies,
		BasePath:       cfg.BasePath,
		BodyLimits:     bodyLimits,
		MemoryBudget:   cfg.MemoryBudget,
		FreeMemory:     cfg.FreeMemory,
		WriteTimeout:   cfg.WriteTimeout,
		BodyTimeout:    cfg.BodyTimeout,
	})
	programs := api.New(cfg.Engine, cfg.Models, cfg.Activity, g, cfg.FetchPicture, cfg.Version, cfg.PingInterval)
	looking := inspect.New(cfg.Live)
	people := &page.Handlers{Live: cfg.Live, Presets: cfg.Presets, Compare: cfg.Compare, Inspect: looking, Guests: cfg.Guests, Models: cfg.Models, Activity: cfg.Activity, Gate: g, Log: cfg.Logger, PingInterval: cfg.PingInterval,
		Version: cfg.Version, Alone: cfg.Alone, People: cfg.People != nil, Visitors: cfg.Visitors, NoVisitors: cfg.NoVisitors, Left: cfg.left, Documents: cfg.Documents}
	streams := &stream.Handlers{Live: cfg.Live, Left: cfg.left, Inspect: looking, Guests: cfg.Guests, Models: cfg.Models, Activity: cfg.Activity, Log: cfg.Logger, WriteTimeout: cfg.WriteTimeout}
	shared := cfg.shared()
	e := echo.New()
	g.Guard(e)
	e.Pre(cfg.ollamaRoot)
	e.GET("/login", g.Login)
	e.POST("/login", g.SubmitLogin)
	e.POST("/logout", g.LogOut)
	programs.Routes(e)
	people.Routes(e)
	streams.Routes(e)
	shared.Routes(e)
	if cfg.People != nil {
		accounts := &account.Handlers{People: cfg.People, Live: cfg.Live, Reach: cfg.Reach, Alone: cfg.Alone, Sender: g.Sender, Announced: cfg.Announced, Fingerprint: cfg.Fingerprint}
		accounts.Routes(e)
	}
	shared.ReaderRoutes(e)
	e.Match(getOrHead, "/static/*", page.Asset)
	e.Match(getOrHead, "/metrics", echo.WrapHandler(cfg.Metrics))
	e.Match(getOrHead, "/models", forPeople(people.ModelsPage, programs.Models))
	addStates(e)
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
		FreeMemory:   cfg.FreeMemory,
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
	return &share.Handlers{Live: cfg.Live, Guests: cfg.Guests, Reach: cfg.Reach, PingInterval: cfg.PingInterval}
}

// ollamaRoot rewrites requests for / that arrive at Ollama's own port.
func (cfg *Config) ollamaRoot(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if cfg.OllamaPort != 0 && local != nil && local.Port == cfg.OllamaPort && r.URL.Path == "/" {
			r.URL.Path = api.OllamaRoot
		}
		return next(c)
	}
}

var getOrHead = []string{http.MethodGet, http.MethodHead}

// defaultBudget is the default of Config.MemoryBudget. Most requests use some kilobytes, so only
// large ones are ever refused.
const defaultBudget = 512 << 20

// forPeople returns a handler that responds with page to a browser, and with list to a program
// whose base address lacks /v1.
func forPeople(page, list echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Add(echo.HeaderVary, echo.HeaderAccept)
		if gate.AsksForPage(c.Request()) {
			return page(c)
		}
		return list(c)
	}
}
