package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/gate"
	"m40-llm/infer"
)

// operation is a route of the API for programs, as /openapi.json describes it. Requests and responses
// are values of the types that the handlers decode and encode.
type operation struct {
	method, path string // the path as echo has it
	summary      string
	request      any    // nil: no body
	response     any    // nil: none; a string: text of that content type
	stream       string // content type of a streamed response; empty: it is never streamed
	event        any    // what a line or an event of the stream has; nil: the events are named, and docs/api.md lists them
	alias        bool   // the route exists without /v1 too
}

const (
	sseType   = "text/event-stream"
	linesType = "application/x-ndjson"
)

// operations are all routes of the API for programs.
var operations = []operation{
	{"POST", "/v1/chat/completions", "OpenAI chat completion", chatRequest{}, ChatResponse{}, sseType, ChatChunk{}, true},
	{"POST", "/v1/completions", "OpenAI text completion", completionRequest{}, Completion{}, sseType, Completion{}, true},
	{"POST", "/v1/responses", "OpenAI response", ResponsesRequest{}, Response{}, sseType, nil, true},
	{"POST", "/v1/responses/input_tokens", "the length of a response's prompt in tokens", ResponsesRequest{}, ResponseTokens{}, "", nil, true},
	{"POST", "/v1/responses/compact", "a conversation as a summary", ResponsesRequest{}, CompactedResponse{}, "", nil, true},
	{"POST", "/v1/embeddings", "OpenAI embeddings", EmbeddingsRequest{}, anyOf{EmbeddingList{}, []LlamaEmbedding{}}, "", nil, true},
	{"POST", "/v1/rerank", "documents in the order in which they fit a query", RerankRequest{}, anyOf{Reranked{}, []TEIRank{}}, "", nil, true},
	{"POST", "/v1/reranking", "the same, by llama-server's other name", RerankRequest{}, anyOf{Reranked{}, []TEIRank{}}, "", nil, true},
	{"POST", "/v2/rerank", "the same, as Cohere has it: long documents are cut", RerankRequest{}, anyOf{Reranked{}, []TEIRank{}}, "", nil, false},
	{"GET", "/v1/models", "the models that requests can name", nil, anyOf{modelList{}, AnthropicModels{}}, "", nil, false},
	{"GET", "/v1/models/*", "a model", nil, anyOf{modelBody{}, AnthropicModel{}}, "", nil, true},
	{"POST", "/v1/models/load", "load a model", NamedModel{}, modelBody{}, "", nil, false},
	{"POST", "/v1/models/unload", "unload a model when its answers have ended", NamedModel{}, modelBody{}, "", nil, false},
	{"POST", "/v1/models/pin", "keep a loaded model in memory", NamedModel{}, modelBody{}, "", nil, false},
	{"POST", "/v1/models/unpin", "let a model be unloaded for others again", NamedModel{}, modelBody{}, "", nil, false},
	{"POST", "/v1/messages", "Anthropic message", AnthropicRequest{}, AnthropicMessage{}, sseType, nil, false},
	{"POST", "/v1/messages/count_tokens", "the length of a prompt in tokens", AnthropicConversation{}, AnthropicCount{}, "", nil, false},
	{"POST", "/v1/generate", "the engine's own API: an infer.Event per line", infer.Request{}, nil, linesType, infer.Event{}, false},
	{"POST", "/v1/render", "the prompt of a request, and its tokens", infer.Request{}, renderedBody{}, "", nil, false},
	{"POST", "/v1/embed", "the engine's own API: embeddings as the model computes them", infer.EmbedRequest{}, infer.Embeddings{}, "", nil, false},
	{"POST", "/v1/rank", "the engine's own API: scores of documents as the model computes them", infer.RankRequest{}, infer.Ranking{}, "", nil, false},
	{"GET", "/v1/status", "what the engine does", nil, infer.Status{}, "", nil, false},
	{"GET", "/v1/activity", "the answers that are generated or wait", nil, activityBody{}, "", nil, false},
	{"POST", "/v1/activity/:answer/stop", "stop an answer", nil, nil, "", nil, false},
	{"GET", "/health", "200 when a model is ready, else 503", nil, healthBody{}, "", nil, false},
	{"POST", "/tokenize", "text to tokens", tokenizeRequest{}, anyOf{tokenList{}, tokenPieces{}, VLLMTokens{}}, "", nil, false},
	{"POST", "/detokenize", "tokens to text", detokenizeRequest{}, detokenizeBody{}, "", nil, false},
	{"GET", "/tokenizer_info", "the tokenizer of the loaded model, as vLLM describes it", nil, TokenizerInfo{}, "", nil, false},
	{"POST", "/apply-template", "messages to prompt", templateRequest{}, RenderedTemplate{}, "", nil, false},
	{"POST", "/completion", "llama-server's completion", LlamaCompletion{}, anyOf{LlamaChunk{}, LlamaFields{}}, sseType, anyOf{LlamaChunk{}, LlamaFields{}}, false},
	{"POST", "/infill", "fill in the middle", LlamaInfill{}, anyOf{LlamaChunk{}, LlamaFields{}}, sseType, anyOf{LlamaChunk{}, LlamaFields{}}, false},
	{"POST", "/embedding", "embeddings, as llama-server has them", EmbeddingsRequest{}, []LlamaEmbedding{}, "", nil, false},
	{"GET", "/props", "the loaded model, as llama-server describes it", nil, LlamaProps{}, "", nil, false},
	{"GET", "/slots", "the answers that are generated, as llama-server lists them", nil, []LlamaSlot{}, "", nil, false},
	{"GET", OllamaRoot, "says that Ollama is running, as text", nil, "text/plain", "", nil, false},
	{"GET", "/api/version", "the version of Ollama's API", nil, OllamaVersion{}, "", nil, false},
	{"GET", "/api/tags", "the models, as Ollama lists them", nil, OllamaTags{}, "", nil, false},
	{"GET", "/api/ps", "the loaded models", nil, OllamaProcesses{}, "", nil, false},
	{"POST", "/api/show", "a model, as Ollama shows it", ollamaModel{}, OllamaShown{}, "", nil, false},
	{"POST", "/api/chat", "Ollama chat", OllamaChat{}, OllamaChunk{}, linesType, OllamaChunk{}, false},
	{"POST", "/api/generate", "Ollama completion", OllamaGenerate{}, OllamaChunk{}, linesType, OllamaChunk{}, false},
	{"POST", "/api/embed", "Ollama embeddings", OllamaEmbed{}, OllamaEmbeddings{}, "", nil, false},
	{"POST", "/api/embeddings", "Ollama embedding of one text", OllamaEmbed{}, OllamaEmbedding{}, "", nil, false},
	{"POST", "/api/pull", "download a model", OllamaPull{}, OllamaStatus{}, linesType, OllamaStatus{}, false},
	{"POST", "/api/copy", "give a model another name as well", OllamaCopy{}, nil, "", nil, false},
	{"DELETE", "/api/delete", "delete a model", ollamaModel{}, nil, "", nil, false},
	{"GET", "/metrics", "counters and latencies, in Prometheus' text format", nil, "text/plain", "", nil, false},
	{"GET", "/openapi.json", "this description", nil, map[string]any{}, "", nil, false},
}

// openAPI answers GET /openapi.json.
func (api *API) openAPI(c echo.Context) error { return c.JSON(http.StatusOK, describeAPI(api.version)) }

// describeAPI returns the description of the API as OpenAPI 3.1 has it.
func describeAPI(version string) map[string]any {
	schemas := newSchemaSet()
	paths := map[string]map[string]any{}
	for _, o := range operations {
		for _, path := range o.paths() {
			if paths[path] == nil {
				paths[path] = map[string]any{}
			}
			paths[path][strings.ToLower(o.method)] = o.describe(path, schemas)
		}
	}
	key := []map[string][]string{{"bearer": {}}, {"key": {}}, {}}
	return map[string]any{
		"openapi":  "3.1.0",
		"info":     map[string]any{"title": "m40-llm", "version": version, "description": "docs/api.md describes every field, shape and limit."},
		"paths":    paths,
		"security": key,
		"components": map[string]any{
			"schemas": schemas.schemas,
			"securitySchemes": map[string]any{
				"bearer": map[string]any{"type": "http", "scheme": "bearer"},
				"key":    map[string]any{"type": "apiKey", "in": "header", "name": "X-Api-Key"},
			},
		},
	}
}

// paths returns the path of o with its parameters as OpenAPI writes them, and that without /v1 if
// there is one.
func (o operation) paths() []string {
	path := gate.DocumentedPath(o.path)
	if o.alias {
		return []string{path, strings.TrimPrefix(path, "/v1")}
	}
	return []string{path}
}

func (o operation) describe(path string, schemas *schemaSet) map[string]any {
	body := func(v any, request bool) map[string]any { return map[string]any{"schema": schemas.of(v, request)} }
	failed := body(failuresAt(path), false)
	content := map[string]any{}
	if text, isText := o.response.(string); isText {
		content[text] = body("", false)
	} else if o.response != nil {
		content["application/json"] = body(o.response, false)
	}
	switch {
	case o.stream == linesType:
		content[linesType] = map[string]any{"schema": map[string]any{"anyOf": []any{schemas.of(o.event, false), failed["schema"]}}} // each line
	case o.stream == sseType:
		stream := map[string]any{"schema": kind("string")}
		if o.event != nil {
			stream["x-event-schema"] = map[string]any{"anyOf": []any{schemas.of(o.event, false), failed["schema"]}} // of the data of each event but [DONE]
		}
		content[sseType] = stream
	}
	ok := map[string]any{"description": "OK"}
	if len(content) > 0 {
		ok["content"] = content
	}
	status := "200"
	if o.path == "/v1/activity/:answer/stop" {
		status = "204"
	}
	responses := map[string]any{status: ok, "default": map[string]any{"description": "an error", "content": map[string]any{"application/json": failed}}}
	if o.path == "/health" {
		responses["503"] = map[string]any{"description": "no model is ready", "content": map[string]any{"application/json": body(anyOf{notReadyBody{}, failure.Body{}}, false)}}
	}
	d := map[string]any{"summary": o.summary, "responses": responses}
	if o.request != nil {
		d["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": body(o.request, true)}}
	}
	if _, parameter, found := strings.Cut(path, "{"); found {
		name, _, _ := strings.Cut(parameter, "}")
		d["parameters"] = []map[string]any{{"name": name, "in": "path", "required": true, "schema": map[string]any{"type": "string"}}}
	}
	return d
}

// failuresAt returns the shapes that errors have at path.
func failuresAt(path string) any {
	own := gate.ErrorBody(path, failure.Failure{})
	switch {
	case strings.Contains(path, "/models"):
		return anyOf{own, failure.AnthropicBody{}} // for clients of Anthropic's API
	case path == "/v1/generate":
		return anyOf{own, gate.EngineErrorBody{}}
	}
	return own
}
