// Package api is the API for programs: OpenAI's completions with the fields of llama-server
// and vLLM, the tools of llama-server, Ollama's API, Anthropic's messages, and the engine's own. docs/api.md describes it.
//
// Each API is a pair of functions: one makes infer.Requests of a body, a sink writes infer.Events.
package api

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/activity"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/models"
	"m40-llm/infer"
)

// Engine is the part of an engine that the API uses.
type Engine interface {
	// Generate streams one answer. It ends with the first error: a *fault.Error, or the
	// error of ctx if that was cancelled.
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	// Models lists the models that requests can name, and broken files.
	Models(ctx context.Context) ([]infer.ModelInfo, error)
	// Status is a snapshot; it never waits for the engine.
	Status() infer.Status
	// Tokenize, Detokenize and Pieces use the tokenizer of the model called name, or of
	// the loaded one if name is empty.
	Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	Detokenize(ctx context.Context, name string, ids []int32) (string, error)
	// Pieces returns the bytes of each token.
	Pieces(ctx context.Context, name string, ids []int32) ([]string, error)
	// Embed returns the embeddings of texts.
	Embed(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error)
	// Rank returns the scores of documents for a query.
	Rank(ctx context.Context, r infer.RankRequest) (infer.Ranking, error)
	// Render returns the prompt that a request would lead to.
	Render(ctx context.Context, r infer.Request) (infer.Rendered, error)
}

// API serves the routes for programs.
type API struct {
	fetch    func(ctx context.Context, address string, most int64) ([]byte, error)
	engine   Engine
	list     *models.Service
	activity *activity.Service
	gate     *gate.Gate
	version  string        // of this program
	ping     time.Duration // silence after which a stream gets a comment
}

// New returns the API of engine. list has its models and current its answers; both are nil in a
// worker, whose server has them.
//
// fetch returns the picture file at an address, of at most so many bytes; nil: none are fetched.
func New(engine Engine, list *models.Service, current *activity.Service, g *gate.Gate, fetch func(ctx context.Context, address string, most int64) ([]byte, error), version string, ping time.Duration) *API {
	return &API{fetch: fetch, engine: engine, list: list, activity: current, gate: g, version: version, ping: ping}
}

// Routes adds the routes for programs to e, except GET /models, which also serves a page.
func (api *API) Routes(e *echo.Echo) {
	getOrHead := []string{http.MethodGet, http.MethodHead}
	e.Match(getOrHead, "/health", api.health)

	e.POST("/v1/generate", api.generateStream)
	e.POST("/v1/render", api.renderRequest)
	e.POST("/v1/embed", api.embedTexts)
	e.POST("/v1/rank", api.rankDocuments)
	for _, prefix := range []string{"/v1", ""} { // users forget the /v1 in their client's base address
		e.POST(prefix+"/chat/completions", api.chatCompletions)
		e.POST(prefix+"/completions", api.completions)
		e.POST(prefix+"/responses", api.responses)
		e.POST(prefix+"/responses/input_tokens", api.responseTokens)
		e.POST(prefix+"/responses/compact", api.compactResponse)
		e.POST(prefix+"/embeddings", api.embeddings)
		e.POST(prefix+"/rerank", api.rerank)
		e.POST(prefix+"/reranking", api.rerank)
		e.Match(getOrHead, prefix+"/models/*", api.model)
	}
	e.POST("/v2/rerank", api.cohereRerank)
	e.POST("/v1/messages", api.messages)
	e.POST("/v1/messages/count_tokens", api.countTokens)
	e.Match(getOrHead, "/v1/status", api.status)
	e.Match(getOrHead, "/v1/activity", api.listActivity)
	e.POST("/v1/activity/:answer/stop", api.stopAnswer)
	e.Match(getOrHead, "/v1/models", api.Models)
	e.POST("/v1/models/load", api.load)
	e.POST("/v1/models/unload", api.unload)
	e.POST("/v1/models/pin", api.pin)
	e.POST("/v1/models/unpin", api.unpin)

	// llama-server's.
	e.POST("/tokenize", api.tokenize)
	e.POST("/detokenize", api.detokenize)
	e.Match(getOrHead, "/tokenizer_info", api.tokenizerInfo)
	e.POST("/apply-template", api.applyTemplate)
	e.POST("/completion", api.llamaCompletion)
	e.POST("/infill", api.llamaInfill)
	e.POST("/embedding", api.llamaEmbedding)
	e.Match(getOrHead, "/props", api.llamaProps)
	e.Match(getOrHead, "/slots", api.llamaSlots)

	api.ollamaRoutes(e)
	e.Match(getOrHead, "/openapi.json", api.openAPI)
}

// EngineRoutes adds the engine's own routes to e, which a server uses to call its worker.
func (api *API) EngineRoutes(e *echo.Echo) {
	e.POST("/v1/generate", api.generateStream)
	e.POST("/v1/render", api.renderRequest)
	e.GET("/v1/status", api.status)
	e.GET("/v1/catalog", api.catalog)
	e.POST("/v1/reload", api.reload)
	e.POST("/v1/keep", api.keep)
	e.POST("/v1/embed", api.embedTexts)
	e.POST("/v1/rank", api.rankDocuments)
	e.POST("/tokenize", api.tokenize)
	e.POST("/detokenize", api.detokenize)
}
