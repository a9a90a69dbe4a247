package handlers_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// worker serves the engine's own API alone, as to the server whose engine it is.
func worker(t *testing.T, engine handlers.Engine) *httptest.Server {
	s := httptest.NewServer(handlers.NewWorker(handlerstest.TestConfig(t, engine)))
	t.Cleanup(s.Close)
	return s
}

func TestWorker_KeepsNothingFromItsServer(t *testing.T) {
	private := &fault.Error{Code: fault.CodeDevice, Message: "an illegal address at layer 3", Param: "p", PromptTokens: 1, ContextLength: 2}
	engine := &handlerstest.FakeEngine{
		OnGenerate: failingEngine(private, handlerstest.WordEvent(1, "a")).OnGenerate,
		OnTokenize: func(string, string, bool, bool) ([]int32, error) { return nil, private },
		OnRender:   func(infer.Request) (infer.Rendered, error) { return infer.Rendered{}, errors.New("no disk") },
		OnStatus: func() infer.Status {
			return infer.Status{State: infer.StateFailed, Error: private, Model: infer.ModelInfo{Path: "/models/m.gguf"}}
		},
	}
	s := worker(t, engine)
	const whole = `{"code":"device","message":"an illegal address at layer 3","param":"p","prompt_tokens":1,"context_length":2}`
	for _, c := range []struct{ name, method, path, body, want string }{
		{"a failure before the answer", "POST", "/v1/generate", `{"prompt":"x","nonsense":1}`, `{"error":{"code":"invalid_request"`},
		{"a failure in the answer", "POST", "/v1/generate", `{"prompt":"x"}`, `{"error":` + whole + `}`},
		{"a failure of a tool", "POST", "/tokenize", `{"content":"x"}`, `{"error":` + whole + `}`},
		{"a failure that is not the engine's", "POST", "/v1/render", `{"prompt":"x"}`, `{"error":{"code":"internal","message":"no disk"}}`},
		{"the status", "GET", "/v1/status", ``, `"error":` + whole},
		{"where a model lies", "GET", "/v1/status", ``, `"path":"/models/m.gguf"`},
		{"where models lie", "GET", "/v1/catalog", ``, `"path":"/secret/guide.gguf"`},
	} {
		t.Run(c.name+" reaches the server whole", func(t *testing.T) {
			if got := handlerstest.Call(t, s, c.method, c.path, c.body); !strings.Contains(got.Body, c.want) {
				t.Errorf("status %d: %s", got.Status, got.Body)
			}
		})
	}
	t.Run("a body of any size is taken", func(t *testing.T) {
		long := strings.Repeat("x", 40<<20)
		var asked string
		engine.OnRender = func(r infer.Request) (infer.Rendered, error) {
			asked = r.Prompt
			return infer.Rendered{Prompt: r.Prompt[:1]}, nil
		}
		if got := handlerstest.Post(t, s, "/v1/render", `{"prompt":"`+long+`"}`); got.Status != http.StatusOK || asked != long {
			t.Errorf("status %d: %.200s", got.Status, got.Body)
		}
	})
	t.Run("the page and the routes for other clients are not there", func(t *testing.T) {
		for _, path := range []string{"/", "/ws", "/health", "/v1/models"} {
			if got := handlerstest.Call(t, s, http.MethodGet, path, ""); got.Status != http.StatusNotFound {
				t.Errorf("%s has status %d", path, got.Status)
			}
		}
	})
}

func TestStatus_TellsOthersLess(t *testing.T) {
	runScenarios(t, []scenario{
		{name: "the status of the engine", method: "GET", path: "/v1/status", engine: &handlerstest.FakeEngine{OnStatus: func() infer.Status {
			return infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Name: "m", Path: "/secret/m.gguf"}, Trouble: "the CPU took over"}
		}}, status: 200, want: []string{`"state":"ready"`, `"name":"m"`, `"trouble":"the CPU took over"`, `"step":{"rows":0`}, not: []string{"secret"}},
		{name: "a failure that is for the log", method: "GET", path: "/v1/status", engine: &handlerstest.FakeEngine{OnStatus: func() infer.Status {
			return infer.Status{State: infer.StateFailed, Error: &fault.Error{Code: fault.CodeDevice, Message: "secret"}}
		}}, status: 200, want: []string{`"code":"device"`}, not: []string{"secret"}},
		{name: "health while the engine is restarted", method: "GET", path: "/health", engine: &handlerstest.FakeEngine{OnStatus: func() infer.Status {
			return infer.Status{State: infer.StateRestarting, Trouble: "the engine stopped and is being restarted: signal: killed"}
		}}, status: 503, want: []string{`"status":"restarting"`, `"trouble":"the engine stopped`, "The engine is being restarted"}},
		{name: "health of an engine that fell back", method: "GET", path: "/health", engine: &handlerstest.FakeEngine{OnStatus: func() infer.Status {
			return infer.Status{State: infer.StateReady, Trouble: "the CPU took over: the GPU failed twice"}
		}}, status: 200, want: []string{`"status":"ok"`, `"trouble":"the CPU took over`}},
	})
}

func TestDetokenize_SaysWhatEachTokenSpells(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{OnDetokenize: func(_ string, ids []int32) (string, error) { return "a☃"[ids[0] : ids[len(ids)-1]+1], nil }})
	got := handlerstest.Post(t, s, "/detokenize", `{"tokens":[0,1,2],"with_pieces":true}`)
	want := `{"content":"a\ufffd\ufffd","prompt":"a\ufffd\ufffd","bytes":"YeKY","pieces":["a",[226],[152]]}`
	if !reflect.DeepEqual(parseJSON(t, got.Body), parseJSON(t, want)) {
		t.Errorf("got %s, want %s", got.Body, want)
	}
}

func TestDetokenize_KeepsHalfCharacters(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{OnDetokenize: func(_ string, ids []int32) (string, error) { return "a☃"[:len(ids)], nil }})
	for body, want := range map[string]string{
		`{"tokens":[1,2,3,4]}`: `{"content":"a☃","prompt":"a☃"}`,
		`{"tokens":[1,2,3]}`:   `{"content":"a\ufffd\ufffd","prompt":"a\ufffd\ufffd","bytes":"YeKY"}`,
	} {
		if got := handlerstest.Post(t, s, "/detokenize", body); !reflect.DeepEqual(parseJSON(t, got.Body), parseJSON(t, want)) {
			t.Errorf("%s gives %s, want %s", body, got.Body, want)
		}
	}
}
