package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/handlers"
	"m40-llm/handlers/document"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/sample"
)

func TestMain(m *testing.M) {
	document.Serve()
	// The clock of the regular expressions that colour code stops a second after the last.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// failing yields events and then err.
func failing(err error, events ...infer.Event) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for e := range handlerstest.Replay(events...) {
			if !yield(e, nil) {
				return
			}
		}
		yield(infer.Event{}, err)
	}
}

// scoredEvent is wordEvent with alternatives.
func scoredEvent(id int32, logProb float64, text string, top ...sample.Candidate) infer.Event {
	e := handlerstest.WordEvent(id, text)
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

// captured returns an engine that answers "Hi" and the request it was last asked, less whose
// it is, what it leaves to the model, which TestCompletionsLeaveToTheModelWhatTheyDoNotSet tests, and
// whether the page wants rows.
func captured() (*handlerstest.FakeEngine, *infer.Request) {
	var last infer.Request
	return &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		last = r
		last.Client, last.Sibling, last.Unset, last.Rows = "", 0, nil, false
		last.CacheScope, last.PublicSystem = "", false
		return handlerstest.Replay(handlerstest.WordEvent(1, "Hi"), handlerstest.DoneEvent(infer.FinishStop))
	}}, &last
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

// scenario is one request and what must come back.
type scenario struct {
	name   string
	method string // default POST
	path   string
	body   string
	header []string
	engine *handlerstest.FakeEngine

	status int
	want   []string // each must be in the body
	not    []string // none may be in the body
}

func runScenarios(t *testing.T, scenarios []scenario, change ...func(*handlers.Config)) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			engine := sc.engine
			if engine == nil {
				engine = &handlerstest.FakeEngine{}
			}
			if sc.method == "" {
				sc.method = http.MethodPost
			}
			got := handlerstest.Call(t, handlerstest.Server(t, engine, change...), sc.method, sc.path, sc.body, sc.header...)
			if got.Status != sc.status {
				t.Fatalf("status is %d, want %d; body: %s", got.Status, sc.status, got.Body)
			}
			for _, want := range sc.want {
				if !strings.Contains(got.Body, want) {
					t.Errorf("the body lacks %q: %s", want, got.Body)
				}
			}
			for _, not := range sc.not {
				if strings.Contains(got.Body, not) {
					t.Errorf("the body has %q: %s", not, got.Body)
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

// waitFor fails the test if nothing arrives on done.
func waitFor(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(handlerstest.Hang):
		t.Fatalf("waited in vain for %s", what)
	}
}
