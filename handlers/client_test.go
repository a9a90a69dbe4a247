package handlers_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
	"m40-llm/store"
)

// Behind a proxy each client has wrong keys of its own.
func TestProxies_WrongKeysCountForTheClient(t *testing.T) {
	for trusted, want := range map[string]int{"127.0.0.1/32": 401, "192.0.2.0/24": 429} {
		s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
			handlerstest.Lock(t, c, "open sesame")
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(trusted)}
		})
		for range map[int]int{401: 5, 429: 20}[want] {
			handlerstest.Call(t, s, "GET", "/v1/models", "", "Authorization", "Bearer wrong", "X-Forwarded-For", "198.51.100.1")
		}
		if got := handlerstest.Call(t, s, "GET", "/v1/models", "", "Authorization", "Bearer wrong", "X-Forwarded-For", "198.51.100.2"); got.Status != want {
			t.Errorf("trusting %s, another client got %d, want %d", trusted, got.Status, want)
		}
	}
}

func TestClient_NamesWhoAsks(t *testing.T) {
	asked := make(chan infer.Request, 8)
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		asked <- r
		return handlerstest.Replay(handlerstest.DoneEvent(infer.FinishStop))
	}}
	trust := func(c *handlers.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }
	open, locked := handlerstest.Server(t, engine, trust), handlerstest.Server(t, engine, trust, func(c *handlers.Config) { handlerstest.Lock(t, c, "k") })
	clientOf := func(s *httptest.Server, path, body string, header ...string) string {
		t.Helper()
		if got := handlerstest.Post(t, s, path, body, header...); got.Status != 200 {
			t.Fatalf("got %d: %s", got.Status, got.Body)
		}
		return (<-asked).Client
	}
	const prompt = `{"prompt":"a"}`
	own := clientOf(open, "/v1/completions", prompt)
	for name, tc := range map[string]struct {
		client string
		same   bool
	}{
		"another route":                      {clientOf(open, "/v1/chat/completions", hello), true},
		"a client that calls itself another": {clientOf(open, "/v1/generate", `{"prompt":"a","client":"owner","sibling":7}`), true},
		"another address":                    {clientOf(open, "/v1/completions", prompt, "X-Forwarded-For", "192.0.2.1"), false},
		"another key, where none is checked": {clientOf(open, "/v1/completions", prompt, "Authorization", "Bearer x"), false},
		"another key in the other header":    {clientOf(open, "/v1/completions", prompt, "X-Api-Key", "x"), false},
		"the one key that is right":          {clientOf(locked, "/v1/completions", prompt, "Authorization", "Bearer k"), true},
	} {
		if (tc.client == own) != tc.same {
			t.Errorf("%s is %q, beside %q", name, tc.client, own)
		}
	}
	if got := handlerstest.Post(t, open, "/v1/completions", `{"prompt":["a","b"],"n":2}`); got.Status != 200 {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	siblings := map[int]bool{}
	for range 4 {
		siblings[(<-asked).Sibling] = true
	}
	if len(siblings) != 4 || !siblings[0] || !siblings[3] {
		t.Errorf("the answers to one request have the numbers %v, want 0 to 3", siblings)
	}
}

// What a program asks shares the cache with what its person asks, whoever the program says it is.
func TestCacheScope_IsOfThePersonWhoAsks(t *testing.T) {
	asked := make(chan infer.Request, 1)
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		asked <- r
		return handlerstest.Replay(handlerstest.DoneEvent(infer.FinishStop))
	}}
	s := handlerstest.Server(t, engine)
	ask := func(path, body string) infer.Request {
		t.Helper()
		if got := handlerstest.Post(t, s, path, body); got.Status != 200 {
			t.Fatalf("got %d: %s", got.Status, got.Body)
		}
		return <-asked
	}
	const owner = store.OwnerID
	for name, tc := range map[string]struct {
		path, body string
		same       bool
	}{
		"a completion":                            {"/v1/completions", `{"prompt":"a"}`, true},
		"a chat":                                  {"/v1/chat/completions", hello, true},
		"the engine's own route":                  {"/v1/generate", `{"prompt":"a"}`, true},
		"a part for somebody of the client's":     {"/v1/generate", `{"prompt":"a","cache_scope":"anna"}`, false},
		"a client that names another person":      {"/v1/generate", `{"prompt":"a","cache_scope":"owner"}`, false},
		"a client that says its prompt is public": {"/v1/generate", `{"prompt":"a","public_system":true}`, true},
	} {
		r := ask(tc.path, tc.body)
		if (r.CacheScope == owner) != tc.same || !strings.HasPrefix(r.CacheScope, owner) || r.PublicSystem {
			t.Errorf("%s: scope %q, public %v", name, r.CacheScope, r.PublicSystem)
		}
	}
	if one, other := ask("/v1/generate", `{"prompt":"a","cache_scope":"anna"}`), ask("/v1/generate", `{"prompt":"a","cache_scope":"ben"}`); one.CacheScope == other.CacheScope {
		t.Errorf("two people of a client are one, %q", one.CacheScope)
	}
}

// Nobody who only looks waits for an engine that does not answer.
func TestModelsAreListedWhileTheEngineHangs(t *testing.T) {
	folder := hub.New(hub.Options{Dir: t.TempDir(), Builtin: map[string][]byte{"guide": guide.Model}, Types: cpu.WeightTypes()})
	engine := &handlerstest.FakeEngine{OnModels: func(ctx context.Context) ([]infer.ModelInfo, error) {
		if _, limited := ctx.Deadline(); !limited {
			return nil, errors.New("asked without a limit")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	list := models.New(models.Options{Engine: engine, Files: folder, Patience: time.Millisecond})
	t.Cleanup(list.Close)
	s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.Models = list })
	for path, accept := range map[string]string{"/v1/models": "*/*", "/v1/models/guide": "*/*", "/models": "text/html"} {
		if got := handlerstest.Call(t, s, http.MethodGet, path, "", "Accept", accept); got.Status != http.StatusOK || !strings.Contains(got.Body, "guide") {
			t.Errorf("%s got %d: %s", path, got.Status, got.Body)
		}
	}
}
