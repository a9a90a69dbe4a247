package gate

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
)

// apiPrefixes are the first path elements of the API's routes and of routes of other servers
// that clients may try. Errors of these routes are JSON, and their requests need no Origin.
var apiPrefixes = func() map[string]bool {
	known := map[string]bool{}
	for _, name := range strings.Fields(`
		api apply-template assistants audio batches chat completion completions detokenize embedding embeddings
		files fine_tuning health images infill messages metrics moderations openai openapi.json props rerank reranking responses
		slots threads tokenize tokenizer_info v1 v2 vector_stores`) {
		known[name] = true
	}
	return known
}()

// IsAPI reports whether path is one of the API rather than of a page.
func IsAPI(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return apiPrefixes[first]
}

// AsksForPage reports whether a request comes from a browser that can show a page. It
// distinguishes a person's GET /models from a program's.
func AsksForPage(r *http.Request) bool {
	return !IsAPI(r.URL.Path) && strings.Contains(r.Header.Get(echo.HeaderAccept), echo.MIMETextHTML)
}

// unsupported says what to do instead of calling routes that other servers have, by their
// path without /v1.
var unsupported = map[string]string{
	"api":         "of Ollama's API, the routes below are supported",
	"audio":       "audio is not supported",
	"images":      "images are not supported",
	"messages":    "Anthropic's Messages API is at /v1/messages",
	"moderations": "moderations are not supported",
	"responses":   "responses are not stored; send the whole conversation to POST /v1/responses",
}

// parameters are those of the API's paths.
var parameters = strings.NewReplacer("*", "{id}", ":answer", "{id}")

// DocumentedPath returns the path of a route of the API with its parameters as documents write them.
func DocumentedPath(path string) string { return parameters.Replace(path) }

// apiRoutes lists the API's routes of e, such as "POST /v1/completions". A route that exists
// with and without /v1 is listed once.
func apiRoutes(e *echo.Echo) string {
	var list []string
	known := map[string]bool{}
	for _, route := range e.Routes() {
		known[route.Path] = true
	}
	for _, route := range e.Routes() {
		if route.Method != http.MethodHead && IsAPI(route.Path) && !known["/v1"+route.Path] {
			list = append(list, route.Method+" "+DocumentedPath(route.Path))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// explainRoute returns an error that lists what exists instead, if a program has requested an
// unknown route or an unsupported method. It returns any other err as it is.
func (g *Gate) explainRoute(c echo.Context, err error) error {
	r := c.Request()
	path := httpio.Shorten(r.URL.Path)
	switch {
	case g.trusted || AsksForPage(r):
	case errors.Is(err, echo.ErrMethodNotAllowed):
		methods := strings.TrimPrefix(c.Response().Header().Get(echo.HeaderAllow), "OPTIONS, ")
		return fault.Errorf(fault.CodeMethodNotAllowed, "%s supports %s, not %s", path, methods, r.Method)
	case errors.Is(err, echo.ErrNotFound):
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/"), "/")
		hint, known := unsupported[name]
		if known {
			hint = ": " + hint
		}
		return fault.Errorf(fault.CodeUnknownURL, "the route %s %s does not exist%s; the routes are %s", r.Method, path, hint, g.programRoutes())
	}
	return err
}
