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
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/infer"
)

// Engine is what the routes need of the inference engine.
type Engine interface {
	// Generate streams one answer. A failure is an *infer.Error, or the
	// context's own error after a cancel; nothing follows it.
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	// Models lists what can be asked for.
	Models(ctx context.Context) ([]infer.ModelInfo, error)
	// Status is a snapshot; it never waits for the engine.
	Status() infer.Status
	// Tokenize, Detokenize and Pieces use the tokenizer of the model called name, or of
	// the resident one if name is empty.
	Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	Detokenize(ctx context.Context, name string, ids []int32) (string, error)
	// Pieces returns what each token spells.
	Pieces(ctx context.Context, name string, ids []int32) ([]string, error)
	// Render shows a request as the model would get it.
	Render(ctx context.Context, r infer.Request) (infer.Rendered, error)
}

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
	h.routes(e)
	return e
}

// defaultBudget is what all requests in work may take together in bytes. Most take some
// kilobytes, so only large ones are ever refused.
const defaultBudget = 512 << 20

// routes is the whole route table.
func (h *Handlers) routes(e *echo.Echo) {
	getOrHead := []string{http.MethodGet, http.MethodHead}

	// Operations.
	e.Match(getOrHead, "/health", h.health)

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
	e.Match(getOrHead, "/models", h.modelsPageOrList)
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
	e.POST("/v1/generate", h.generateStream)
	for _, prefix := range []string{"/v1", ""} {
		e.POST(prefix+"/chat/completions", h.chatCompletions)
		e.POST(prefix+"/completions", h.completions)
		e.Match(getOrHead, prefix+"/models/*", h.model)
	}
	e.Match(getOrHead, "/v1/status", h.status)
	e.Match(getOrHead, "/v1/models", h.models)

	// Tools, named as llama-server has them.
	e.POST("/tokenize", h.tokenize)
	e.POST("/detokenize", h.detokenize)
	e.POST("/apply-template", h.applyTemplate)
}
