package gate

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
)

// apiPrefixes are the first path elements of the routes for programs, and of those that
// clients of other servers ask for: their errors are JSON, and requests that carry no
// Origin are welcome.
var apiPrefixes = func() map[string]bool {
	known := map[string]bool{}
	for _, name := range strings.Fields(`
		api apply-template assistants audio batches chat completion completions detokenize embedding embeddings
		files fine_tuning health images infill messages metrics moderations openai props rerank reranking responses
		slots threads tokenize v1 vector_stores`) {
		known[name] = true
	}
	return known
}()

// isAPI reports whether path is for programs rather than for people.
func isAPI(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return apiPrefixes[first]
}

// AsksForPage reports whether a request is a browser's that can show a page, which is what
// tells GET /models of a person from that of a program.
func AsksForPage(r *http.Request) bool {
	return !isAPI(r.URL.Path) && strings.Contains(r.Header.Get(echo.HeaderAccept), echo.MIMETextHTML)
}

// unsupported says of routes that clients know from elsewhere what to do instead, by their
// path without /v1.
var unsupported = map[string]string{
	"api":         "Ollama's API is not supported; use OpenAI's routes below",
	"audio":       "audio is not supported",
	"completion":  "llama-server's own route is not supported; use POST /v1/completions",
	"embedding":   "embeddings are not supported",
	"embeddings":  "embeddings are not supported",
	"images":      "images are not supported",
	"messages":    "Anthropic's Messages API is not supported; use POST /v1/chat/completions",
	"moderations": "moderations are not supported",
	"rerank":      "reranking is not supported",
	"reranking":   "reranking is not supported",
	"responses":   "the Responses API is not supported; use POST /v1/chat/completions",
}

// apiRoutes lists the routes of e for programs, such as "POST /v1/completions". Those that
// are there with and without /v1 are listed once.
func apiRoutes(e *echo.Echo) string {
	var list []string
	known := map[string]bool{}
	for _, route := range e.Routes() {
		known[route.Path] = true
	}
	for _, route := range e.Routes() {
		if route.Method != http.MethodHead && isAPI(route.Path) && !known["/v1"+route.Path] {
			list = append(list, route.Method+" "+strings.Replace(route.Path, "*", "{id}", 1))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// explainRoute returns the failure of a program's request for a route that does not exist,
// or not with its method, and err itself if it is another one.
func (g *Gate) explainRoute(c echo.Context, err error) error {
	r := c.Request()
	path := httpio.Shorten(r.URL.Path)
	switch {
	case g.trusted || AsksForPage(r):
	case errors.Is(err, echo.ErrMethodNotAllowed):
		methods := strings.TrimPrefix(c.Response().Header().Get(echo.HeaderAllow), "OPTIONS, ")
		return failure.New(failure.MethodNotAllowed, "%s takes %s, not %s", path, methods, r.Method)
	case errors.Is(err, echo.ErrNotFound):
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/"), "/")
		hint, known := unsupported[name]
		if known {
			hint = ": " + hint
		}
		return failure.New(failure.UnknownURL, "there is no route %s %s%s; there are %s", r.Method, path, hint, g.programRoutes())
	}
	return err
}
