// Package handlers turns HTTP into calls of the engine and of the chats, and
// their results into responses. It is the only importer of echo; stream.go is the
// only importer of the websocket package.
//
// # Contract
//
// A handler parses, calls once and answers; it returns errors, and errors.go
// alone turns them into responses. Before any handler runs, security.go has
// checked the Host, the Origin, the credentials and the size of the request, on
// every route and in every mode. docs/api.md describes the routes for programs.
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
)

// Engine is what the routes need of the inference engine.
type Engine = api.Engine

// Config is what New needs. Only Engine must be set.
type Config struct {
	Engine  Engine
	Live    *live.Service   // the chats of the page; default: new ones on Engine
	Models  *models.Service // default: those of Engine, and none can be downloaded
	Logger  *slog.Logger    // default: slog.Default
	Version string          // of this program, for system_fingerprint

	APIKey      string   // asked for on every route but the public ones; empty: nobody is asked
	AllowHosts  []string // names, or name:port, that a request may be addressed to, beside loopback names and the address connected to
	CORSOrigins []string // foreign origins that may call /v1, as browsers write them; "null" is that of files and sandboxes

	TrustedProxies []netip.Prefix // reverse proxies that say who the client is

	MemoryBudget int64 // bytes that all requests in work may take together, default 512 MiB

	PingInterval time.Duration // silence after which a stream gets a comment, default 10 s
	WriteTimeout time.Duration // longest wait for a client to take a write, default 5 s
	BodyTimeout  time.Duration // longest wait for a client to send more of its body, default 30 s
}

// Handlers serves the routes.
type Handlers struct {
	Config
	log      *slog.Logger
	gate     *gate.Gate
	sessions sessions
	asked    onces
}

// Limits of bodies in bytes. Conversations are long; most else is not.
const (
	chatBodyLimit   = 8 << 20
	importBodyLimit = 64 << 20 // a chat with all its branches and tokens
)

// publicRoutes ask nobody for a key: probes, the page's own files, and what has a token of
// its own.
var publicRoutes = map[string]bool{
	"/health":   true,
	"/login":    true,
	"/s/:token": true,
	"/static/*": true,
}

var bodyLimits = map[string]int64{
	"/v1/chat/completions": chatBodyLimit,
	"/chat/completions":    chatBodyLimit,
	"/apply-template":      chatBodyLimit,
	"/import":              importBodyLimit,
	"/presets/import":      chatBodyLimit,
	"/command":             streamReadLimit,
}

// New returns the server's routes.
func New(cfg Config) *echo.Echo {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Live == nil {
		cfg.Live = live.New(cfg.Engine, live.Options{Log: cfg.Logger})
	}
	if cfg.Models == nil {
		cfg.Models = models.New(models.Options{Engine: cfg.Engine, Log: cfg.Logger})
	}
	cfg.PingInterval = cmp.Or(cfg.PingInterval, 10*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 5*time.Second)
	h := &Handlers{
		Config: cfg,
		log:    cfg.Logger,
		gate: gate.New(gate.Options{
			Log:            cfg.Logger,
			APIKey:         cfg.APIKey,
			Public:         publicRoutes,
			AllowHosts:     cfg.AllowHosts,
			CORSOrigins:    cfg.CORSOrigins,
			TrustedProxies: cfg.TrustedProxies,
			BodyLimits:     bodyLimits,
			MemoryBudget:   cmp.Or(cfg.MemoryBudget, defaultBudget),
			WriteTimeout:   cfg.WriteTimeout,
			BodyTimeout:    cmp.Or(cfg.BodyTimeout, 30*time.Second),
		}),
	}
	e := echo.New()
	h.gate.Guard(e)
	h.routes(e, api.New(cfg.Engine, cfg.Models, h.gate, cfg.Version, cfg.PingInterval))
	return e
}

// defaultBudget is what all requests in work may take together in bytes. Most take some
// kilobytes, so only large ones are ever refused.
const defaultBudget = 512 << 20

// routes is the whole route table.
func (h *Handlers) routes(e *echo.Echo, programs *api.API) {
	getOrHead := []string{http.MethodGet, http.MethodHead}

	// Operations.
	e.Match(getOrHead, "/health", programs.Health)

	// The page.
	e.Match(getOrHead, "/", h.newChatPage)
	e.Match(getOrHead, "/c/:id", h.chatPage)
	e.Match(getOrHead, "/rail", h.railFragment)
	e.POST("/", h.ask)
	e.POST("/c/:id", h.ask)
	e.POST("/c/:id/stop", h.stop)
	e.POST("/c/:id/answer", h.answerQuestion)
	e.POST("/c/:id/show", h.showMessage)
	e.POST("/c/:id/rename", changeChat(h.renameChat))
	e.POST("/c/:id/model", changeChat(h.setChatModel))
	e.POST("/c/:id/move", changeChat(h.moveChat))
	e.POST("/c/:id/pin", changeChat(h.pinChat))
	e.POST("/c/:id/archive", changeChat(h.archiveChat))
	e.POST("/c/:id/delete", h.deleteChat)
	e.POST("/c/:id/restore", h.restoreChat)
	e.GET("/c/:id/export.json", h.exportJSON)
	e.GET("/c/:id/export.md", h.exportMarkdown)
	e.GET("/c/:id/code/:answer", h.answerCode)
	e.POST("/folders/rename", h.renameFolder)
	e.POST("/import", h.importChat)
	e.POST("/count", h.countDraft)
	e.Match(getOrHead, "/models", forPeople(h.modelsPage, programs.Models))
	e.POST("/models/find", h.findModel)
	e.POST("/models/pull", h.pullModel)
	e.POST("/models/pause", h.pauseDownload)
	e.POST("/models/resume", h.resumeDownload)
	e.POST("/models/cancel", h.cancelDownload)
	e.POST("/models/delete", h.deleteModel)
	e.Match(getOrHead, "/presets", h.presetsPage)
	e.POST("/presets", h.createPreset)
	e.GET("/presets/export.json", h.exportPresets)
	e.POST("/presets/import", h.importPresets)
	e.POST("/presets/:id", h.savePreset)
	e.POST("/presets/:id/rename", h.renamePreset)
	e.POST("/presets/:id/use", h.usePreset)
	e.POST("/presets/:id/delete", h.deletePreset)
	e.POST("/presets/:id/restore", h.restorePreset)
	e.GET("/ws", h.socket)
	e.GET("/events", h.events)
	e.POST("/command", h.command)
	e.Match(getOrHead, "/static/*", h.asset)
	e.GET("/login", h.gate.Login)
	e.POST("/login", h.gate.SubmitLogin)

	// Generation. Users forget the /v1 in their client's base address.
	e.POST("/v1/generate", programs.Generate)
	for _, prefix := range []string{"/v1", ""} {
		e.POST(prefix+"/chat/completions", programs.ChatCompletions)
		e.POST(prefix+"/completions", programs.Completions)
		e.Match(getOrHead, prefix+"/models/*", programs.Model)
	}
	e.Match(getOrHead, "/v1/status", programs.Status)
	e.Match(getOrHead, "/v1/models", programs.Models)

	// Tools, named as llama-server has them.
	e.POST("/tokenize", programs.Tokenize)
	e.POST("/detokenize", programs.Detokenize)
	e.POST("/apply-template", programs.ApplyTemplate)
}

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
