// Package handlerstest has what the tests of the server share, with a browser and without: engines whose answers a test
// writes, servers over them, and clients that fail the test when something goes wrong.
package handlerstest

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/live"
	"m40-llm/handlers/people"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// FakeEngine answers with its fields; those left out have a plain default.
type FakeEngine struct {
	OnGenerate   func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	OnModels     func(ctx context.Context) ([]infer.ModelInfo, error)
	OnStatus     func() infer.Status
	OnTokenize   func(name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	OnDetokenize func(name string, ids []int32) (string, error)
	OnRender     func(r infer.Request) (infer.Rendered, error)
	OnRank       func(ctx context.Context, r infer.RankRequest) (infer.Ranking, error)
	OnEmbed      func(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error)
}

// Generate answers "Hi" by default.
func (e *FakeEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	if e.OnGenerate == nil {
		return Replay(WordEvent(1, "Hi"), DoneEvent(infer.FinishStop))
	}
	return e.OnGenerate(ctx, r)
}

// Models lists the one model by default.
func (e *FakeEngine) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	if e.OnModels == nil {
		return []infer.ModelInfo{{Name: "guide", Path: "/secret/guide.gguf", Size: 10, ModifiedUnix: 1700000000}}, nil
	}
	return e.OnModels(ctx)
}

// Status says by default that the model is ready.
func (e *FakeEngine) Status() infer.Status {
	if e.OnStatus == nil {
		return infer.Status{
			State:         infer.StateReady,
			Model:         infer.ModelInfo{Name: "guide"},
			Device:        device.Info{Kind: "ref", Name: "test device", Path: "go"},
			ContextLength: 512,
			Cache:         infer.Cache{Planned: 402653184, Used: 786432},
		}
	}
	return e.OnStatus()
}

// Tokenize returns no tokens by default.
func (e *FakeEngine) Tokenize(_ context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error) {
	if e.OnTokenize == nil {
		return nil, nil
	}
	return e.OnTokenize(name, text, addSpecial, parseSpecial)
}

// Detokenize returns no text by default.
func (e *FakeEngine) Detokenize(_ context.Context, name string, ids []int32) (string, error) {
	if e.OnDetokenize == nil {
		return "", nil
	}
	return e.OnDetokenize(name, ids)
}

// Pieces returns the text of each token.
func (e *FakeEngine) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
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
func (e *FakeEngine) Embed(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error) {
	if err := r.Validate(); err != nil {
		return infer.Embeddings{}, err
	}
	if e.OnEmbed != nil {
		return e.OnEmbed(ctx, r)
	}
	result := infer.Embeddings{Model: "guide", LoadMS: 1.5}
	for _, in := range r.Inputs {
		n := len(in.Text) + len(in.Tokens)
		result.Vectors, result.Tokens = append(result.Vectors, infer.Vector{float32(n), 4, 0, 0}), append(result.Tokens, n)
	}
	return result, nil
}

// Rank returns the length of each document minus 4 as its score, and as its tokens that with the query.
func (e *FakeEngine) Rank(ctx context.Context, r infer.RankRequest) (infer.Ranking, error) {
	if err := r.Validate(); err != nil {
		return infer.Ranking{}, err
	}
	if e.OnRank != nil {
		return e.OnRank(ctx, r)
	}
	result := infer.Ranking{Model: "guide", LoadMS: 1.5}
	for _, document := range r.Documents {
		result.Scores, result.Tokens = append(result.Scores, float64(len(document)-4)), append(result.Tokens, len(r.Query)+len(document))
	}
	return result, nil
}

// Render returns an empty prompt by default.
func (e *FakeEngine) Render(_ context.Context, r infer.Request) (infer.Rendered, error) {
	if e.OnRender == nil {
		return infer.Rendered{}, nil
	}
	return e.OnRender(r)
}

// Replay yields events as they are.
func Replay(events ...infer.Event) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// WordEvent returns the event of a token with this text.
func WordEvent(id int32, text string) infer.Event {
	return infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: sample.Choice{ID: id, LogProb: -0.5}, Bytes: []byte(text), Text: text}}
}

// DoneEvent returns the event of an end for this reason.
func DoneEvent(reason infer.FinishReason) infer.Event {
	return infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:   record.End{Reason: reason},
		Usage: record.Usage{PromptTokens: 7, CachedTokens: 3, CompletionTokens: 2},
	}}}
}

// Server serves the real routes over engine.
func Server(t testing.TB, engine handlers.Engine, change ...func(*handlers.Config)) *httptest.Server {
	t.Helper()
	cfg := TestConfig(t, engine)
	for _, f := range change {
		f(&cfg)
	}
	s := httptest.NewUnstartedServer(nil)
	s.Config = handlers.NewServer(handlers.New(cfg), cfg.Logger)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// TestConfig returns the configuration of Server, which asks for no key and stores nothing.
func TestConfig(t testing.TB, engine handlers.Engine) handlers.Config {
	log := slog.New(slog.DiscardHandler)
	chats := live.New(engine, live.Options{Log: log})
	t.Cleanup(chats.Close)
	return handlers.Config{Engine: engine, Live: chats, Logger: log, Version: "test"}
}

// Lock has all routes ask for a key, which is the owner's.
func Lock(t testing.TB, c *handlers.Config, key string) {
	t.Helper()
	c.Asks, c.People = gate.AsksAll, PeopleOf(t, OpenStore(t), key)
}

// OpenStore returns a store of its own for a test.
func OpenStore(t testing.TB) *store.Store {
	t.Helper()
	return OpenStoreAt(t, filepath.Join(t.TempDir(), "data", "chats.db"))
}

// OpenStoreAt opens the store in the file path until the test ends.
func OpenStoreAt(t testing.TB, path string) *store.Store {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: path, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// PeopleOf returns the people of a store; key is the owner's.
func PeopleOf(t testing.TB, db *store.Store, key string) *people.Service {
	t.Helper()
	s, err := people.New(t.Context(), people.Options{Store: db, OwnerKey: key})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Response is an answer with its whole body.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Call sends a request with header, a list of names and values.
func Call(t testing.TB, s *httptest.Server, method, path, body string, header ...string) Response {
	t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return Do(t, s, r, header...)
}

// Do sends r with header, a list of names and values. Redirects are not followed.
func Do(t testing.TB, s *httptest.Server, r *http.Request, header ...string) Response {
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
	got := Response{resp.StatusCode, resp.Header, string(data)}
	checkDescribed(t, r, got)
	return got
}

// Post sends body with header, a list of names and values.
func Post(t testing.TB, s *httptest.Server, path, body string, header ...string) Response {
	t.Helper()
	return Call(t, s, http.MethodPost, path, body, header...)
}

// Hang is a wait after which nothing comes any more, however busy the machine is.
const Hang = 2 * time.Minute
