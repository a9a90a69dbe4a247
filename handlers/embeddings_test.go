package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub"
	"m40-llm/infer/ref"
)

// refusing is an engine that computes no embeddings.
func refusing(err *fault.Error) *handlerstest.FakeEngine {
	return &handlerstest.FakeEngine{OnEmbed: func(context.Context, infer.EmbedRequest) (infer.Embeddings, error) { return infer.Embeddings{}, err }}
}

var (
	noEmbedder      = refusing(fault.Errorf(fault.CodeNotSupported, "the model guide does not compute embeddings: its file names no pooling"))
	unknownEmbedder = refusing(&fault.Error{Code: fault.CodeNotFound, Param: "model", Message: "there is no such model"})
)

func TestEmbeddings_EachAPIGetsItsShape(t *testing.T) {
	unit := `[0.6,0.8,0,0]` // of a text of three bytes
	for _, c := range []struct{ name, path, body, want string }{
		{"OpenAI, one text", "/v1/embeddings", `{"model":"m","input":"abc"}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":` + unit + `}],"model":"guide","usage":{"prompt_tokens":3,"total_tokens":3}}`},
		{"OpenAI without /v1, texts", "/embeddings", `{"input":["abc","abc"]}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":` + unit + `},{"object":"embedding","index":1,"embedding":` + unit + `}],"model":"guide","usage":{"prompt_tokens":6,"total_tokens":6}}`},
		{"OpenAI, tokens in base64", "/v1/embeddings", `{"input":[1,2,3],"encoding_format":"base64"}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":"mpkZP83MTD8AAAAAAAAAAA=="}],"model":"guide","usage":{"prompt_tokens":3,"total_tokens":3}}`},
		{"OpenAI, two dimensions of lists of tokens", "/v1/embeddings", `{"input":[[1,2,3]],"dimensions":1}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]}],"model":"guide","usage":{"prompt_tokens":3,"total_tokens":3}}`},
		{"llama-server", "/embedding", `{"content":"abc"}`, `[{"index":0,"embedding":[` + unit + `]}]`},
		{"llama-server, not normalised", "/embeddings", `{"content":["abc","ab"],"embd_normalize":-1}`, `[{"index":0,"embedding":[[3,4,0,0]]},{"index":1,"embedding":[[2,4,0,0]]}]`},
		{"Ollama's older route, not normalised", "/api/embeddings", `{"model":"m","prompt":"abc","keep_alive":"5m"}`, `{"embedding":[3,4,0,0]}`},
		{"Ollama's older route, loading a model", "/api/embeddings", `{"model":"m"}`, `{"embedding":[]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), c.path, c.body)
			if got.Status != http.StatusOK || strings.TrimSpace(got.Body) != c.want {
				t.Errorf("got %d: %s, want %s", got.Status, got.Body, c.want)
			}
		})
	}
	for body, want := range map[string]string{
		`{"model":"m","input":["abc","abc"],"options":{"num_ctx":5}}`: `"embeddings":[` + unit + `,` + unit + `],"total_duration":`,
		`{"model":"m","input":"abc","dimensions":1}`:                  `"embeddings":[[1]],"total_duration":`,
		`{"model":"m","input":[]}`:                                    `"embeddings":[],"total_duration":`,
		`{"model":"m"}`:                                               `"embeddings":[],"total_duration":`,
	} {
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/api/embed", body); got.Status != http.StatusOK || !strings.Contains(got.Body, want) || !strings.Contains(got.Body, `"load_duration":1500000`) {
			t.Errorf("%s: got %d: %s, want %s", body, got.Status, got.Body, want)
		}
	}
}

func TestEmbeddings_OllamaTruncatesUnlessItIsToldNotTo(t *testing.T) {
	for body, want := range map[string]bool{`{"input":"a"}`: true, `{"input":"a","truncate":true}`: true, `{"input":"a","truncate":false}`: false} {
		var asked infer.EmbedRequest
		e := &handlerstest.FakeEngine{OnEmbed: func(_ context.Context, r infer.EmbedRequest) (infer.Embeddings, error) {
			asked = r
			return infer.Embeddings{Vectors: []infer.Vector{{1}}, Tokens: []int{1}}, nil
		}}
		if got := handlerstest.Post(t, handlerstest.Server(t, e), "/api/embed", body); got.Status != http.StatusOK || asked.Truncate != want || asked.Client == "" {
			t.Errorf("%s: truncated is %t, the client %q: %s", body, asked.Truncate, asked.Client, got.Body)
		}
	}
}

func TestEmbeddings_BadInputIsRefusedWithTheField(t *testing.T) {
	for _, c := range []struct{ path, body, param, want string }{
		{"/v1/embeddings", `{}`, "input", "input must be a string, an array"},
		{"/v1/embeddings", `{"input":[]}`, "input", "empty array"},
		{"/v1/embeddings", `{"input":[[1],[]]}`, "input", "number 2 has no tokens"},
		{"/v1/embeddings", `{"input":{"a":1}}`, "input", "input must be"},
		{"/v1/embeddings", `{"input":"a","dimensions":0}`, "dimensions", "from 1 to the 4"},
		{"/v1/embeddings", `{"input":"a","dimensions":5}`, "dimensions", "from 1 to the 4"},
		{"/v1/embeddings", `{"input":"a","encoding_format":"hex"}`, "encoding_format", "neither float nor base64"},
		{"/v1/embeddings", `{"input":[` + strings.Repeat(`"a",`, 2048) + `"a"]}`, "input", "at most 2048"},
		{"/embedding", `{"content":"a","embd_normalize":1}`, "embd_normalize", "must be 2"},
		{"/embedding", `{}`, "input", "input must be"},
	} {
		got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), c.path, c.body)
		e := parseError(t, got)
		if got.Status != http.StatusBadRequest || e.Param == nil || *e.Param != c.param || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s %.60s: got %d: %s", c.path, c.body, got.Status, got.Body)
		}
	}
	got := handlerstest.Post(t, handlerstest.Server(t, noEmbedder), "/v1/embeddings", `{"input":"a"}`)
	if e := parseError(t, got); got.Status != http.StatusBadRequest || e.Code != "not_supported" {
		t.Errorf("a text model: got %d: %s", got.Status, got.Body)
	}
}

// openEmbedder returns the engine of a small model that computes embeddings.
func openEmbedder(t *testing.T) *engine.Engine {
	t.Helper()
	return openModels(t, "tiny-embed", map[string][]byte{"tiny-embed": gguftest.TinyBERT(gguftest.BERT{})})
}

// openModels starts an engine on a folder with the files of models by their names, one of which it loads.
func openModels(t *testing.T, loaded string, files map[string][]byte) *engine.Engine {
	t.Helper()
	dir := t.TempDir()
	for name, file := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".gguf"), file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.Open(engine.Options{
		Catalog:    hub.New(hub.Options{Dir: dir}),
		OpenDevice: func(*gguf.File) (device.Device, error) { return ref.New(), nil },
		Model:      loaded,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if err := e.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEmbeddings_OfAModelAreOfLengthOneAndItCannotChat(t *testing.T) {
	s := handlerstest.Server(t, openEmbedder(t))
	got := handlerstest.Post(t, s, "/v1/embeddings", `{"model":"tiny-embed","input":["hello world","Hello, World!"],"dimensions":20}`)
	var list struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal([]byte(got.Body), &list); err != nil || len(list.Data) != 2 || len(list.Data[0].Embedding) != 20 {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	length := 0.0
	for _, x := range list.Data[1].Embedding {
		length += x * x
	}
	if math.Abs(length-1) > 1e-5 {
		t.Errorf("the length is %g", math.Sqrt(length))
	}
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"tiny-embed","messages":[{"role":"user","content":"a"}]}`,
		"/v1/completions":      `{"model":"tiny-embed","prompt":"a"}`,
		"/v1/messages":         `{"model":"tiny-embed","max_tokens":3,"messages":[{"role":"user","content":"a"}]}`,
		"/api/generate":        `{"model":"tiny-embed","prompt":"a","stream":false}`,
		"/completion":          `{"prompt":"a"}`,
	} {
		if got := handlerstest.Post(t, s, path, body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "computes embeddings and cannot write text") {
			t.Errorf("%s: got %d: %s", path, got.Status, got.Body)
		}
	}
	if got := handlerstest.Post(t, s, "/api/show", `{"model":"tiny-embed"}`); !strings.Contains(got.Body, `"capabilities":["embedding"]`) || !strings.Contains(got.Body, fmt.Sprintf(`"bert.embedding_length":%d`, 64)) {
		t.Errorf("shown as %s", got.Body)
	}
	if got := handlerstest.Call(t, s, http.MethodGet, "/api/tags", ""); !strings.Contains(got.Body, `"capabilities":["embedding"]`) {
		t.Errorf("listed as %s", got.Body)
	}
}
