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
	response     any    // nil: none
	stream       string // content type of a streamed response; empty: it is never streamed
	alias        bool   // the route exists without /v1 too
}

const (
	sseType   = "text/event-stream"
	linesType = "application/x-ndjson"
)

// operations are all routes of the API for programs.
var operations = []operation{
	{"POST", "/v1/chat/completions", "OpenAI chat completion", chatRequest{}, ChatResponse{}, sseType, true},
	{"POST", "/v1/completions", "OpenAI text completion", completionRequest{}, Completion{}, sseType, true},
	{"POST", "/v1/responses", "OpenAI response", ResponsesRequest{}, Response{}, sseType, true},
	{"POST", "/v1/responses/input_tokens", "the length of a response's prompt in tokens", ResponsesRequest{}, ResponseTokens{}, "", true},
	{"POST", "/v1/responses/compact", "a conversation as a summary", ResponsesRequest{}, CompactedResponse{}, "", true},
	{"POST", "/v1/embeddings", "OpenAI embeddings", EmbeddingsRequest{}, EmbeddingList{}, "", true},
	{"GET", "/v1/models", "the models that requests can name", nil, modelList{}, "", false},
	{"GET", "/v1/models/*", "a model", nil, modelBody{}, "", true},
	{"POST", "/v1/messages", "Anthropic message", AnthropicRequest{}, AnthropicMessage{}, sseType, false},
	{"POST", "/v1/messages/count_tokens", "the length of a prompt in tokens", AnthropicConversation{}, AnthropicCount{}, "", false},
	{"POST", "/v1/generate", "the engine's own API: an infer.Event per line", infer.Request{}, infer.Event{}, linesType, false},
	{"POST", "/v1/render", "the prompt of a request, and its tokens", infer.Request{}, renderedBody{}, "", false},
	{"POST", "/v1/embed", "the engine's own API: embeddings as the model computes them", infer.EmbedRequest{}, infer.Embeddings{}, "", false},
	{"GET", "/v1/status", "what the engine does", nil, infer.Status{}, "", false},
	{"GET", "/v1/activity", "the answers that are generated or wait", nil, activityBody{}, "", false},
	{"POST", "/v1/activity/:answer/stop", "stop an answer", nil, nil, "", false},
	{"GET", "/health", "200 when a model is ready, else 503", nil, healthBody{}, "", false},
	{"POST", "/tokenize", "text to tokens", tokenizeRequest{}, tokenList{}, "", false},
	{"POST", "/detokenize", "tokens to text", detokenizeRequest{}, detokenizeBody{}, "", false},
	{"GET", "/tokenizer_info", "the tokenizer of the loaded model, as vLLM describes it", nil, TokenizerInfo{}, "", false},
	{"POST", "/apply-template", "messages to prompt", templateRequest{}, RenderedTemplate{}, "", false},
	{"POST", "/completion", "llama-server's completion", LlamaCompletion{}, LlamaChunk{}, sseType, false},
	{"POST", "/infill", "fill in the middle", LlamaInfill{}, LlamaChunk{}, sseType, false},
	{"POST", "/embedding", "embeddings, as llama-server has them", EmbeddingsRequest{}, []LlamaEmbedding{}, "", false},
	{"GET", "/props", "the loaded model, as llama-server describes it", nil, LlamaProps{}, "", false},
	{"GET", "/slots", "the answers that are generated, as llama-server lists them", nil, []LlamaSlot{}, "", false},
	{"GET", OllamaRoot, "says that Ollama is running, as text", nil, nil, "", false},
	{"GET", "/api/version", "the version of Ollama's API", nil, OllamaVersion{}, "", false},
	{"GET", "/api/tags", "the models, as Ollama lists them", nil, OllamaTags{}, "", false},
	{"GET", "/api/ps", "the loaded model", nil, OllamaProcesses{}, "", false},
	{"POST", "/api/show", "a model, as Ollama shows it", ollamaModel{}, OllamaShown{}, "", false},
	{"POST", "/api/chat", "Ollama chat", OllamaChat{}, OllamaChunk{}, linesType, false},
	{"POST", "/api/generate", "Ollama completion", OllamaGenerate{}, OllamaChunk{}, linesType, false},
	{"POST", "/api/embed", "Ollama embeddings", OllamaEmbed{}, OllamaEmbeddings{}, "", false},
	{"POST", "/api/embeddings", "Ollama embedding of one text", OllamaEmbed{}, OllamaEmbedding{}, "", false},
	{"POST", "/api/pull", "download a model", OllamaPull{}, OllamaStatus{}, linesType, false},
	{"POST", "/api/copy", "give a model another name as well", OllamaCopy{}, nil, "", false},
	{"DELETE", "/api/delete", "delete a model", ollamaModel{}, nil, "", false},
	{"GET", "/metrics", "counters and latencies, in Prometheus' text format", nil, nil, "", false},
	{"GET", "/openapi.json", "this description", nil, nil, "", false},
}

// openAPI answers GET /openapi.json.
func (api *API) openAPI(c echo.Context) error { return c.JSON(http.StatusOK, describeAPI(api.version)) }

// describeAPI returns the description of the API as OpenAPI 3.1 has it.
func describeAPI(version string) map[string]any {
	schemas := schemaSet{}
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
			"schemas": schemas,
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

func (o operation) describe(path string, schemas schemaSet) map[string]any {
	ok := map[string]any{"description": "OK"}
	content := map[string]any{}
	if o.response != nil {
		schema := map[string]any{"schema": schemas.of(o.response)}
		content["application/json"] = schema
		if o.stream == linesType {
			content[linesType] = schema // each line
		}
	}
	if o.stream == sseType {
		content[sseType] = map[string]any{"schema": map[string]any{"type": "string"}}
	}
	if len(content) > 0 {
		ok["content"] = content
	}
	failed := map[string]any{"description": "an error", "content": map[string]any{"application/json": map[string]any{"schema": schemas.of(failureAt(path))}}}
	d := map[string]any{"summary": o.summary, "responses": map[string]any{"200": ok, "default": failed}}
	if o.request != nil {
		d["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": schemas.of(o.request)}}}
	}
	if _, parameter, found := strings.Cut(path, "{"); found {
		name, _, _ := strings.Cut(parameter, "}")
		d["parameters"] = []map[string]any{{"name": name, "in": "path", "required": true, "schema": map[string]any{"type": "string"}}}
	}
	return d
}

// failureAt returns an error in the shape of the API that path belongs to.
func failureAt(path string) any { return gate.ErrorBody(path, failure.Failure{}) }
