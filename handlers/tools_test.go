package handlers_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
)

func TestTokenize(t *testing.T) {
	type ask struct {
		model, text string
		add, parse  bool
	}
	var asked ask
	engine := &handlerstest.FakeEngine{
		OnTokenize: func(name, text string, add, parse bool) ([]int32, error) {
			asked = ask{name, text, add, parse}
			return []int32{1, 2}, nil
		},
		OnDetokenize: func(_ string, ids []int32) (string, error) { return map[int32]string{1: "a", 2: "\xc3"}[ids[0]], nil },
	}
	for _, tc := range []struct {
		name, body, want string
		asked            ask
	}{
		{"by default special text is parsed and nothing is added", `{"content":"hi"}`, `{"tokens":[1,2]}`, ask{"", "hi", false, true}},
		{"both can be said", `{"model":"m","content":"hi","add_special":true,"parse_special":false}`, `{"tokens":[1,2]}`, ask{"m", "hi", true, false}},
		{"pieces are text, or bytes where they are no text", `{"content":"hi","with_pieces":true}`, `{"tokens":[{"id":1,"piece":"a"},{"id":2,"piece":[195]}]}`, ask{"", "hi", false, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, engine), "/tokenize", tc.body)
			sameJSON(t, got.Body, tc.want)
			if asked != tc.asked {
				t.Errorf("the engine was asked %+v, want %+v", asked, tc.asked)
			}
		})
	}
	runScenarios(t, []scenario{
		{name: "nothing has no tokens", path: "/tokenize", body: `{"content":""}`, status: 200, want: []string{`{"tokens":[]}`}},
		{name: "content must be there", path: "/tokenize", body: `{"text":"a"}`, status: 400, want: []string{`"param":"content"`}},
		{name: "content must be text", path: "/tokenize", body: `{"content":["a"]}`, status: 400, want: []string{`"param":"content"`, "a string"}},
		{name: "tokens must be there", path: "/detokenize", body: `{}`, status: 400, want: []string{`"param":"tokens"`}},
		{name: "tokens must be ids", path: "/detokenize", body: `{"tokens":[1,"a"]}`, status: 400, want: []string{`"param":"tokens[1]"`}},
		{name: "tokens become text", path: "/detokenize", body: `{"tokens":[1]}`, engine: engine, status: 200, want: []string{`{"content":"a","prompt":"a"}`}},
	})
}

func TestApplyTemplate(t *testing.T) {
	var asked infer.Request
	engine := &handlerstest.FakeEngine{OnRender: func(r infer.Request) (infer.Rendered, error) {
		asked = r
		return infer.Rendered{Prompt: "<u>hi", Tokens: []int32{4, 5}}, nil
	}}
	got := handlerstest.Post(t, handlerstest.Server(t, engine), "/apply-template", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	sameJSON(t, got.Body, `{"prompt":"<u>hi","tokens":[4,5]}`)
	if asked.Model != "m" || !reflect.DeepEqual(asked.Messages, []chat.Message{{Role: "user", Content: "hi"}}) {
		t.Errorf("the engine was asked %+v", asked)
	}
	engine.OnRender = func(infer.Request) (infer.Rendered, error) {
		return infer.Rendered{}, &fault.Error{Code: fault.CodeTemplate, Message: "roles must alternate"}
	}
	if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/apply-template", `{"messages":[{"role":"user"}]}`); got.Status != 400 || !strings.Contains(got.Body, "roles must alternate") {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
}

func TestModels(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnModels: func(context.Context) ([]infer.ModelInfo, error) {
		return []infer.ModelInfo{
			{Name: "guide", Path: "/home/ann/guide.gguf", Size: 10, ModifiedUnix: 1700000000, ContextTrain: 512, Parameters: 99, Quant: "Q8_0", Architecture: "llama", Demo: true},
			{Name: "org/repo:Q4_0", Size: 20},
			{Name: "broken", Error: "cut off"},
		}, nil
	}}
	s := handlerstest.Server(t, engine)
	sameJSON(t, handlerstest.Call(t, s, "GET", "/v1/models", "").Body, `{"object":"list","data":[
		{"id":"guide","object":"model","created":1700000000,"owned_by":"m40-llm","status":{"value":"loaded"},"meta":{"n_ctx":512,"n_ctx_train":512,"n_params":99,"size":10,"quant":"Q8_0","architecture":"llama","tools":true,"demo":true}},
		{"id":"org/repo:Q4_0","object":"model","created":0,"owned_by":"m40-llm","status":{"value":"unloaded"},"meta":{"size":20,"tools":true}}]}`)
	for path, status := range map[string]int{
		"/v1/models/guide":             200,
		"/v1/models/org/repo:Q4_0":     200,
		"/v1/models/org%2Frepo%3AQ4_0": 200,
		"/v1/models/org":               404,
		"/v1/models/broken":            404,
		"/v1/models/%3Cscript%3E":      404,
	} {
		got := handlerstest.Call(t, s, "GET", path, "")
		if got.Status != status {
			t.Errorf("%s: got %d: %s", path, got.Status, got.Body)
		}
		if status == 404 && parseError(t, got).Code != "model_not_found" {
			t.Errorf("%s: %s", path, got.Body)
		}
	}
	t.Run("no models are an empty list", func(t *testing.T) {
		none := &handlerstest.FakeEngine{OnModels: func(context.Context) ([]infer.ModelInfo, error) { return nil, nil }}
		sameJSON(t, handlerstest.Call(t, handlerstest.Server(t, none), "GET", "/v1/models", "").Body, `{"object":"list","data":[]}`)
	})
}

func TestHealth(t *testing.T) {
	state := func(s infer.Status) *handlerstest.FakeEngine {
		return &handlerstest.FakeEngine{OnStatus: func() infer.Status { return s }}
	}
	for _, tc := range []struct {
		name   string
		engine *handlerstest.FakeEngine
		status int
		want   string
	}{
		{"a loaded model is healthy", &handlerstest.FakeEngine{}, 200,
			`{"status":"ok","model":"guide","device":"test device","path":"go","n_ctx":512,"kv_cache":{"planned":402653184,"used":786432},"running":0,"queued":0,"version":"test"}`},
		{"a model on a GPU says with which units it multiplies", state(infer.Status{State: infer.StateReady, Device: device.Info{Name: "a GPU", Path: "i16", Units: "mma"}}), 200,
			`{"status":"ok","model":"","device":"a GPU","path":"i16","units":"mma","n_ctx":0,"kv_cache":{"planned":0,"used":0},"running":0,"queued":0,"version":"test"}`},
		{"a model that loads is not yet", state(infer.Status{State: infer.StateLoading, Loading: infer.Loading{Model: "m", Done: 3, Total: 9}}), 503,
			`{"status":"loading","error":{"code":503,"message":"Loading model","type":"unavailable_error","param":null},"loading":{"model":"m","done":3,"total":9}}`},
		{"a model that failed says why", state(infer.Status{State: infer.StateFailed, Error: &fault.Error{Code: fault.CodeModelFile, Message: "cut off at byte 7"}}), 503,
			`{"status":"failed","error":{"code":503,"message":"cut off at byte 7","type":"unavailable_error","param":null}}`},
		{"what is for the log stays there", state(infer.Status{State: infer.StateFailed, Error: &fault.Error{Code: fault.CodeDevice, Message: "secret"}}), 503,
			`{"status":"failed","error":{"code":503,"message":"the engine failed on this request; the server's log says more","type":"unavailable_error","param":null}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := handlerstest.Call(t, handlerstest.Server(t, tc.engine), "GET", "/health", "")
			if got.Status != tc.status {
				t.Errorf("got %d", got.Status)
			}
			sameJSON(t, got.Body, tc.want)
			if head := handlerstest.Call(t, handlerstest.Server(t, tc.engine), http.MethodHead, "/health", ""); head.Status != tc.status || head.Body != "" {
				t.Errorf("HEAD got %d, %q", head.Status, head.Body)
			}
		})
	}
}

func TestModels_Failure(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnModels: func(context.Context) ([]infer.ModelInfo, error) { return nil, errors.New("secret") }}
	for _, path := range []string{"/v1/models", "/v1/models/x"} {
		if got := handlerstest.Call(t, handlerstest.Server(t, engine), "GET", path, ""); got.Status != 500 || strings.Contains(got.Body, "secret") {
			t.Errorf("%s: got %d: %s", path, got.Status, got.Body)
		}
	}
}
