package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/people"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// The clock of the regular expressions that colour code stops a second after the last.
func TestMain(m *testing.M) {
	if dir := os.Getenv("HANDLERS_HELPER"); dir != "" {
		fmt.Fprintln(os.Stderr, playServer(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(tests{m}, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// tests ends the browser that they shared before anybody looks for what they left.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer closeChromium()
	return t.M.Run()
}

// fakeEngine answers with its fields; those left out have a plain default.
type fakeEngine struct {
	generate   func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	models     func(ctx context.Context) ([]infer.ModelInfo, error)
	status     func() infer.Status
	tokenize   func(name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	detokenize func(name string, ids []int32) (string, error)
	render     func(r infer.Request) (infer.Rendered, error)
	embed      func(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error)
}

func (e *fakeEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	if e.generate == nil {
		return replay(wordEvent(1, "Hi"), doneEvent(infer.FinishStop))
	}
	return e.generate(ctx, r)
}

func (e *fakeEngine) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	if e.models == nil {
		return []infer.ModelInfo{{Name: "guide", Path: "/secret/guide.gguf", Size: 10, ModifiedUnix: 1700000000}}, nil
	}
	return e.models(ctx)
}

func (e *fakeEngine) Status() infer.Status {
	if e.status == nil {
		return infer.Status{
			State:         infer.StateReady,
			Model:         infer.ModelInfo{Name: "guide"},
			Device:        device.Info{Kind: "ref", Name: "test device", Path: "go"},
			ContextLength: 512,
			Cache:         infer.Cache{Planned: 402653184, Used: 786432},
		}
	}
	return e.status()
}

func (e *fakeEngine) Tokenize(_ context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error) {
	if e.tokenize == nil {
		return nil, nil
	}
	return e.tokenize(name, text, addSpecial, parseSpecial)
}

func (e *fakeEngine) Detokenize(_ context.Context, name string, ids []int32) (string, error) {
	if e.detokenize == nil {
		return "", nil
	}
	return e.detokenize(name, ids)
}

func (e *fakeEngine) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	for i := range ids {
		piece, err := e.Detokenize(ctx, name, ids[i:i+1])
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

// Embed returns vectors that have the length of the text, or the number of tokens, and 4, 0 and 0.
func (e *fakeEngine) Embed(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error) {
	if err := r.Validate(); err != nil {
		return infer.Embeddings{}, err
	}
	if e.embed != nil {
		return e.embed(ctx, r)
	}
	result := infer.Embeddings{Model: "guide", LoadMS: 1.5}
	for _, in := range r.Inputs {
		n := len(in.Text) + len(in.Tokens)
		result.Vectors, result.Tokens = append(result.Vectors, infer.Vector{float32(n), 4, 0, 0}), append(result.Tokens, n)
	}
	return result, nil
}

func (e *fakeEngine) Render(_ context.Context, r infer.Request) (infer.Rendered, error) {
	if e.render == nil {
		return infer.Rendered{}, nil
	}
	return e.render(r)
}

// replay yields events as they are.
func replay(events ...infer.Event) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// failing yields events and then err.
func failing(err error, events ...infer.Event) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for e := range replay(events...) {
			if !yield(e, nil) {
				return
			}
		}
		yield(infer.Event{}, err)
	}
}

func wordEvent(id int32, text string) infer.Event {
	return infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: sample.Choice{ID: id, LogProb: -0.5}, Bytes: []byte(text), Text: text}}
}

// scoredEvent is wordEvent with alternatives.
func scoredEvent(id int32, logProb float64, text string, top ...sample.Candidate) infer.Event {
	e := wordEvent(id, text)
	e.Token.LogProb, e.Token.Top = logProb, top
	for _, c := range top {
		e.Token.Tops = append(e.Token.Tops, []byte{byte('a' + c.ID)})
	}
	return e
}

// promptEvent is a token of the prompt.
func promptEvent(e infer.Event) infer.Event {
	e.Token.Prompt, e.Token.Text = true, ""
	return e
}

func doneEvent(reason infer.FinishReason) infer.Event {
	return infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:   record.End{Reason: reason},
		Usage: record.Usage{PromptTokens: 7, CachedTokens: 3, CompletionTokens: 2},
	}}}
}

// captured returns an engine that answers "Hi" and the request it was last asked, less whose
// it is, what it leaves to the model, which TestCompletionsLeaveToTheModelWhatTheyDoNotSet tests, and
// whether the page wants rows.
func captured() (*fakeEngine, *infer.Request) {
	var last infer.Request
	return &fakeEngine{generate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		last = r
		last.Client, last.Sibling, last.Unset, last.Rows = "", 0, nil, false
		return replay(wordEvent(1, "Hi"), doneEvent(infer.FinishStop))
	}}, &last
}

// server serves the real routes over engine.
func server(t testing.TB, engine Engine, change ...func(*Config)) *httptest.Server {
	t.Helper()
	cfg := testConfig(engine)
	for _, f := range change {
		f(&cfg)
	}
	s := httptest.NewUnstartedServer(nil)
	s.Config = NewServer(New(cfg), cfg.Logger)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func testConfig(engine Engine) Config {
	return Config{Engine: engine, Logger: slog.New(slog.DiscardHandler), Version: "test"}
}

// lock has all routes ask for a key, which is the owner's.
func lock(t testing.TB, c *Config, key string) {
	t.Helper()
	c.Asks, c.People = gate.AsksAll, peopleOf(t, openStore(t), key)
}

// openStore returns a store of its own for a test.
func openStore(t testing.TB) *store.Store {
	t.Helper()
	return openStoreAt(t, filepath.Join(t.TempDir(), "data", "chats.db"))
}

func openStoreAt(t testing.TB, path string) *store.Store {
	t.Helper()
	kept, err := store.Open(t.Context(), store.Options{Path: path, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	return kept
}

// peopleOf returns the people of a store; key is the owner's.
func peopleOf(t testing.TB, kept *store.Store, key string) *people.Service {
	t.Helper()
	s, err := people.New(t.Context(), people.Options{Store: kept, OwnerKey: key})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serveInMemory answers a chat completion without a network, whose waits would
// stop the clock of a synctest bubble.
func serveInMemory(t *testing.T, handler http.Handler, body string) string {
	t.Helper()
	return serveInMemoryAt(t, handler, "/v1/chat/completions", body)
}

// serveInMemoryAt is serveInMemory at another path.
func serveInMemoryAt(t *testing.T, handler http.Handler, path, body string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	r.URL.Scheme, r.URL.Host = "", ""
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

type response struct {
	status int
	header http.Header
	body   string
}

func call(t testing.TB, s *httptest.Server, method, path, body string, header ...string) response {
	t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return do(t, s, r, header...)
}

// do sends r with header, a list of names and values. Redirects are not followed.
func do(t testing.TB, s *httptest.Server, r *http.Request, header ...string) response {
	t.Helper()
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	client := *s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("failed to read the response: %v", err)
	}
	return response{resp.StatusCode, resp.Header, string(data)}
}

func post(t testing.TB, s *httptest.Server, path, body string, header ...string) response {
	t.Helper()
	return call(t, s, http.MethodPost, path, body, header...)
}

// scenario is one request and what must come back.
type scenario struct {
	name   string
	method string // default POST
	path   string
	body   string
	header []string
	engine *fakeEngine

	status int
	want   []string // each must be in the body
	not    []string // none may be in the body
}

func runScenarios(t *testing.T, scenarios []scenario, change ...func(*Config)) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			engine := sc.engine
			if engine == nil {
				engine = &fakeEngine{}
			}
			if sc.method == "" {
				sc.method = http.MethodPost
			}
			got := call(t, server(t, engine, change...), sc.method, sc.path, sc.body, sc.header...)
			if got.status != sc.status {
				t.Fatalf("status is %d, want %d; body: %s", got.status, sc.status, got.body)
			}
			for _, want := range sc.want {
				if !strings.Contains(got.body, want) {
					t.Errorf("the body lacks %q: %s", want, got.body)
				}
			}
			for _, not := range sc.not {
				if strings.Contains(got.body, not) {
					t.Errorf("the body has %q: %s", not, got.body)
				}
			}
		})
	}
}

// sameJSON compares two JSON texts, less the fields that no two responses share.
func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	if g, w := parseJSON(t, got), parseJSON(t, want); !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", indent(g), indent(w))
	}
}

func parseJSON(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q is not JSON: %v", text, err)
	}
	if object, ok := v.(map[string]any); ok {
		delete(object, "id")
		delete(object, "created")
		delete(object, "timings")
	}
	return v
}

func indent(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
	return b.String()
}

// sseData returns the data of each event of a stream and the comments in it.
func sseData(t *testing.T, stream string) (data, comments []string) {
	t.Helper()
	for _, frame := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		switch {
		case strings.HasPrefix(frame, "data: ") && !strings.Contains(frame, "\n"):
			data = append(data, strings.TrimPrefix(frame, "data: "))
		case strings.HasPrefix(frame, ": ") && !strings.Contains(frame, "\n"):
			comments = append(comments, strings.TrimPrefix(frame, ": "))
		default:
			t.Fatalf("the stream has the frame %q", frame)
		}
	}
	return data, comments
}

// hang is a wait after which nothing comes any more, however busy the machine is.
const hang = 2 * time.Minute

// waitFor fails the test if nothing arrives on done.
func waitFor(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(hang):
		t.Fatalf("waited in vain for %s", what)
	}
}
