package handlerstest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"m40-llm/handlers"
	"m40-llm/handlers/live"
	"m40-llm/infer/readtext"
)

// description is /openapi.json, which each answer to a test is checked against, and each request that was
// accepted. Fields that it does not have are errors in answers.
type description struct {
	document map[string]any
	compiler *jsonschema.Compiler // of answers.json, and of requests.json, which allows other fields

	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema // by address
}

var described = sync.OnceValues(func() (*description, error) {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/openapi.json", nil)
	r.URL.Scheme, r.URL.Host = "", ""
	w := httptest.NewRecorder()
	chats := live.New(&FakeEngine{}, live.Options{})
	defer chats.Close()
	handlers.New(handlers.Config{Engine: &FakeEngine{}, Live: chats, Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(w, r)
	compiler := jsonschema.NewCompiler()
	text := w.Body.String()
	var document map[string]any
	for _, name := range []string{"requests.json", "answers.json"} {
		parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return nil, err
		}
		if document, _ = parsed.(map[string]any); document["paths"] == nil {
			return nil, fmt.Errorf("got %d: %s", w.Code, text)
		}
		if name == "answers.json" {
			forbidOthers(document)
		}
		if err := compiler.AddResource(name, document); err != nil {
			return nil, err
		}
	}
	return &description{document: document, compiler: compiler, schemas: map[string]*jsonschema.Schema{}}, nil
})

// forbidOthers adds to all schemas with properties that there are no others.
func forbidOthers(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["properties"] != nil && v["type"] != nil {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			forbidOthers(inner)
		}
	case []any:
		for _, inner := range v {
			forbidOthers(inner)
		}
	}
}

// checkDescribed fails the test if an answer of the API for programs is not as /openapi.json describes it.
func checkDescribed(t testing.TB, r *http.Request, got Response) {
	t.Helper()
	if got.Header.Get("Content-Security-Policy") == "" {
		return // a worker, which serves its server alone and describes nothing
	}
	if err := CheckDescribed(r, got); err != nil {
		t.Error(err)
	}
}

// CheckDescribed returns an error if an answer of the API for programs is not as /openapi.json describes it, or if
// it accepts a request that is not.
func CheckDescribed(r *http.Request, got Response) error {
	d, err := described()
	if err != nil {
		return fmt.Errorf("/openapi.json: %w", err)
	}
	pointer, responses := d.operation(r.Method, r.URL.Path)
	kind, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if responses == nil || kind == "text/html" || got.Header.Get("Content-Encoding") != "" || got.Status >= 300 && got.Status < 400 || got.Body == "" {
		return nil
	}
	if err := d.checkRequest(pointer, r, got); err != nil {
		return err
	}
	status := fmt.Sprint(got.Status)
	if responses[status] == nil {
		status = "default"
	}
	response, _ := responses[status].(map[string]any)
	content, _ := response["content"].(map[string]any)
	if content[kind] == nil {
		return fmt.Errorf("%s %s answers %d with %q, which /openapi.json does not have: %.300s", r.Method, r.URL.Path, got.Status, kind, got.Body)
	}
	pointer += "/responses/" + status + "/content/" + escaped(kind)
	values, schema := bodies(kind, got.Body), "/schema"
	if kind == "text/event-stream" {
		if content[kind].(map[string]any)["x-event-schema"] == nil {
			return nil
		}
		schema = "/x-event-schema"
	}
	for _, body := range values {
		if err := d.check("answers.json#"+pointer+schema, kind, body); err != nil {
			return fmt.Errorf("%s %s answers %d, which is not as /openapi.json describes it: %w\n%.600s", r.Method, r.URL.Path, got.Status, err, body)
		}
	}
	return nil
}

// checkRequest returns an error if a request that was accepted is not as /openapi.json describes it.
func (d *description) checkRequest(pointer string, r *http.Request, got Response) error {
	if got.Status != http.StatusOK || r.GetBody == nil || r.Header.Get("Content-Encoding") != "" {
		return nil
	}
	sent, err := r.GetBody()
	if err != nil {
		return err
	}
	body, err := io.ReadAll(sent)
	if err != nil || len(body) == 0 {
		return err
	}
	if err := d.check("requests.json#"+pointer+"/requestBody/content/application~1json/schema", "", readtext.Trim(string(body))); err != nil {
		return fmt.Errorf("%s %s accepts a request that is not as /openapi.json describes it: %w\n%.600s", r.Method, r.URL.Path, err, body)
	}
	return nil
}

// operation returns the JSON pointer of the operation and its responses; nil: it is not in the document.
func (d *description) operation(method, path string) (pointer string, responses map[string]any) {
	paths, _ := d.document["paths"].(map[string]any)
	for _, documented := range slices.Sorted(maps.Keys(paths)) {
		pattern := regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(documented), `\{id\}`, `.+`) + `$`)
		operation, _ := paths[documented].(map[string]any)[strings.ToLower(method)].(map[string]any)
		if operation != nil && pattern.MatchString(path) {
			responses, _ := operation["responses"].(map[string]any)
			return "/paths/" + escaped(documented) + "/" + strings.ToLower(method), responses
		}
	}
	return "", nil
}

// escaped returns a key as a part of a JSON pointer in a URL.
func escaped(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(key)
}

// bodies returns the JSON values of a body: one, or those of the lines or events of a stream.
func bodies(kind, body string) (list []string) {
	switch kind {
	case "application/x-ndjson":
		return strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	case "text/event-stream":
		frames := strings.Split(body, "\n\n")
		for _, frame := range frames[:len(frames)-1] { // the last one may be incomplete
			if data, ok := strings.CutPrefix(frame, "data: "); ok && data != "[DONE]" {
				list = append(list, data)
			}
		}
		return list
	}
	return []string{body}
}

// check returns an error if body does not match the schema at address.
func (d *description) check(address, kind, body string) error {
	schema, err := d.schema(address)
	if err != nil {
		return err
	}
	if kind == "text/plain" {
		return schema.Validate(body)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (d *description) schema(address string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.schemas[address]; known != nil {
		return known, nil
	}
	schema, err := d.compiler.Compile(address)
	if err == nil {
		d.schemas[address] = schema
	}
	return schema, err
}
