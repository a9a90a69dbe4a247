package handlers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/handlerstest"
)

func TestRoutes_WhatDoesNotExistIsRefusedWithWhatDoes(t *testing.T) {
	const routes = "the routes are DELETE /api/delete, GET /api, GET /api/ps, GET /api/tags, GET /api/version, GET /health, GET /metrics, GET /openapi.json, GET /props, GET /slots, GET /tokenizer_info, GET /v1/activity, GET /v1/models, GET /v1/models/{id}, GET /v1/status, " +
		"POST /api/chat, POST /api/copy, POST /api/embed, POST /api/embeddings, POST /api/generate, POST /api/pull, POST /api/show, POST /apply-template, POST /completion, POST /detokenize, POST /embedding, POST /infill, POST /tokenize, " +
		"POST /v1/activity/{id}/stop, POST /v1/chat/completions, POST /v1/completions, POST /v1/embed, POST /v1/embeddings, POST /v1/generate, POST /v1/messages, POST /v1/messages/count_tokens, POST /v1/models/load, POST /v1/models/pin, POST /v1/models/unload, POST /v1/models/unpin, POST /v1/rank, POST /v1/render, POST /v1/rerank, POST /v1/reranking, POST /v1/responses, POST /v1/responses/compact, POST /v1/responses/input_tokens, POST /v2/rerank"
	for request, hint := range map[string]string{
		"GET /v1":                          "",
		"POST /v1/nothing":                 "",
		"POST /v1/v1/chat/completions":     "",
		"GET /responses/resp_1":            "responses are not stored",
		"POST /messages/":                  "Anthropic's Messages API is at /v1/messages",
		"POST /v1/audio/speech":            "audio is not supported",
		"POST /images/generations":         "images are not supported",
		"POST /moderations":                "moderations are not supported",
		"POST /openai/v1/chat/completions": "",
		"DELETE /files/1":                  "",
	} {
		t.Run(request, func(t *testing.T) {
			method, path, _ := strings.Cut(request, " ")
			for _, accept := range []string{"*/*", "application/json", handlerstest.BrowserAccept} {
				got := handlerstest.Call(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), method, path, "", "Accept", accept)
				e := parseError(t, got)
				if got.Status != http.StatusNotFound || e.Type != "invalid_request_error" || e.Code != "unknown_url" {
					t.Errorf("Accept %s: got %d: %s", accept, got.Status, got.Body)
				}
				for _, want := range []string{method + " " + strings.TrimSuffix(path, "/"), hint, routes} {
					if !strings.Contains(e.Message, want) {
						t.Errorf("Accept %s: the message lacks %q: %s", accept, want, e.Message)
					}
				}
			}
		})
	}
}

func TestRoutes_AWrongMethodIsRefusedWithTheRightOnes(t *testing.T) {
	for request, allow := range map[string]string{
		"GET /v1/chat/completions":    "OPTIONS, POST",
		"PUT /v1/completions":         "OPTIONS, POST",
		"GET /completions":            "OPTIONS, POST",
		"DELETE /v1/models/guide":     "OPTIONS, GET, HEAD",
		"POST /v1/models":             "OPTIONS, GET, HEAD",
		"GET /tokenize":               "OPTIONS, POST",
		"PATCH /chat/completions/":    "OPTIONS, POST",
		"POST /health":                "OPTIONS, GET, HEAD",
		"GET /v1/chat/completions///": "OPTIONS, POST",
	} {
		t.Run(request, func(t *testing.T) {
			method, path, _ := strings.Cut(request, " ")
			got := handlerstest.Call(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), method, path, "")
			e := parseError(t, got)
			if got.Status != http.StatusMethodNotAllowed || got.Header.Get("Allow") != allow || e.Code != "method_not_allowed" {
				t.Errorf("got %d, Allow %q: %s", got.Status, got.Header.Get("Allow"), got.Body)
			}
			if want := " supports " + strings.TrimPrefix(allow, "OPTIONS, ") + ", not " + method; !strings.Contains(e.Message, want) {
				t.Errorf("the message does not say %q: %s", want, e.Message)
			}
		})
	}
}

// Clients whose base address lacks the /v1 ask for /models, which is a page too.
func TestRoutes_TheModelListIsThereWithoutV1(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	list := handlerstest.Call(t, s, http.MethodGet, "/v1/models", "").Body
	for _, accept := range []string{"", "*/*", "application/json", "application/json, text/plain, */*"} {
		got := handlerstest.Call(t, s, http.MethodGet, "/models", "", "Accept", accept)
		if got.Status != http.StatusOK || got.Body != list || got.Header.Get("Vary") != "Accept" {
			t.Errorf("Accept %q: got %d, Vary %q: %s", accept, got.Status, got.Header.Get("Vary"), got.Body)
		}
	}
	if got := handlerstest.Call(t, s, http.MethodGet, "/models/", ""); got.Body != list {
		t.Errorf("with a trailing slash got %s", got.Body)
	}
	if got := handlerstest.Call(t, s, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept); !strings.Contains(got.Header.Get("Content-Type"), "text/html") || !strings.Contains(got.Body, "<h1") {
		t.Errorf("a browser gets %s: %.200s", got.Header.Get("Content-Type"), got.Body)
	}
	if got, want := handlerstest.Call(t, s, http.MethodGet, "/models/guide", ""), handlerstest.Call(t, s, http.MethodGet, "/v1/models/guide", ""); got.Status != http.StatusOK || got.Body != want.Body {
		t.Errorf("one model without /v1: got %d: %s", got.Status, got.Body)
	}
	if got := handlerstest.Call(t, s, http.MethodGet, "/models/gpt-9", ""); got.Status != http.StatusNotFound || parseError(t, got).Code != "model_not_found" {
		t.Errorf("an unknown model without /v1: got %d: %s", got.Status, got.Body)
	}
	locked := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { handlerstest.Lock(t, c, "k") })
	if got := handlerstest.Call(t, locked, http.MethodGet, "/models", ""); got.Status != http.StatusUnauthorized || parseError(t, got).Code != "missing_api_key" {
		t.Errorf("a program without the key gets %d: %s", got.Status, got.Body)
	}
	if got := handlerstest.Call(t, locked, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/login" {
		t.Errorf("a browser without the key gets %d: %s", got.Status, got.Body)
	}
}

func TestRoutes_HeadIsGetWithoutItsBody(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	for path, status := range map[string]int{
		"/v1/models": 200, "/v1/models/guide": 200, "/v1/models/none": 404, "/v1/status": 200, "/models": 200, "/models/guide": 200, "/health": 200, "/v1/nothing": 404,
	} {
		got := handlerstest.Call(t, s, http.MethodHead, path, "")
		if got.Status != status || got.Body != "" {
			t.Errorf("HEAD %s: got %d, want %d, with the body %q", path, got.Status, status, got.Body)
		}
	}
}

// A program that goes astray among the pages is told so in JSON, a browser in a page.
func TestRoutes_ErrorsOfPagesAreForWhoAsks(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	for request, status := range map[string]int{"GET /nothing": 404, "GET /c/1/nothing": 404, "POST /nothing": 403, "POST /models/pull": 403, "DELETE /": 403} {
		method, path, _ := strings.Cut(request, " ")
		program, browser := handlerstest.Call(t, s, method, path, "", "Accept", "*/*"), handlerstest.Call(t, s, method, path, "", "Accept", handlerstest.BrowserAccept)
		var body failure.Body
		if err := json.Unmarshal([]byte(program.Body), &body); err != nil || program.Status != status || body.Error.Message == "" {
			t.Errorf("%s: a program gets %d: %s", request, program.Status, program.Body)
		}
		if browser.Status != status || !strings.Contains(browser.Body, "<h1") {
			t.Errorf("%s: a browser gets %d: %.200s", request, browser.Status, browser.Body)
		}
	}
}

func TestModels_OfTheLoadedOneTheContextIsKnown(t *testing.T) {
	got := handlerstest.Call(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), http.MethodGet, "/v1/models/guide", "")
	sameJSON(t, got.Body, `{"object":"model","owned_by":"m40-llm","status":{"value":"loaded"},"meta":{"n_ctx":512,"size":10,"tools":true}}`)
}
