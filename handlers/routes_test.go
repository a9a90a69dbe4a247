package handlers

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/failure"
)

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestRoutes_WhatDoesNotExistIsRefusedWithWhatDoes(t *testing.T) {
	const routes = "the routes are DELETE /api/delete, GET /api, GET /api/ps, GET /api/tags, GET /api/version, GET /health, GET /metrics, GET /openapi.json, GET /props, GET /slots, GET /v1/activity, GET /v1/models, GET /v1/models/{id}, GET /v1/status, " +
		"POST /api/chat, POST /api/copy, POST /api/embed, POST /api/embeddings, POST /api/generate, POST /api/pull, POST /api/show, POST /apply-template, POST /completion, POST /detokenize, POST /embedding, POST /infill, POST /tokenize, " +
		"POST /v1/activity/{id}/stop, POST /v1/chat/completions, POST /v1/completions, POST /v1/embed, POST /v1/embeddings, POST /v1/generate, POST /v1/messages, POST /v1/messages/count_tokens, POST /v1/render, POST /v1/responses"
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
			for _, accept := range []string{"*/*", "application/json", browserAccept} {
				got := call(t, server(t, &fakeEngine{}), method, path, "", "Accept", accept)
				e := parseError(t, got)
				if got.status != http.StatusNotFound || e.Type != "invalid_request_error" || e.Code != "unknown_url" {
					t.Errorf("Accept %s: got %d: %s", accept, got.status, got.body)
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
			got := call(t, server(t, &fakeEngine{}), method, path, "")
			e := parseError(t, got)
			if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != allow || e.Code != "method_not_allowed" {
				t.Errorf("got %d, Allow %q: %s", got.status, got.header.Get("Allow"), got.body)
			}
			if want := " supports " + strings.TrimPrefix(allow, "OPTIONS, ") + ", not " + method; !strings.Contains(e.Message, want) {
				t.Errorf("the message does not say %q: %s", want, e.Message)
			}
		})
	}
}

// Clients whose base address lacks the /v1 ask for /models, which is a page too.
func TestRoutes_TheModelListIsThereWithoutV1(t *testing.T) {
	s := server(t, &fakeEngine{})
	list := call(t, s, http.MethodGet, "/v1/models", "").body
	for _, accept := range []string{"", "*/*", "application/json", "application/json, text/plain, */*"} {
		got := call(t, s, http.MethodGet, "/models", "", "Accept", accept)
		if got.status != http.StatusOK || got.body != list || got.header.Get("Vary") != "Accept" {
			t.Errorf("Accept %q: got %d, Vary %q: %s", accept, got.status, got.header.Get("Vary"), got.body)
		}
	}
	if got := call(t, s, http.MethodGet, "/models/", ""); got.body != list {
		t.Errorf("with a trailing slash got %s", got.body)
	}
	if got := call(t, s, http.MethodGet, "/models", "", "Accept", browserAccept); !strings.Contains(got.header.Get("Content-Type"), "text/html") || !strings.Contains(got.body, "<h1") {
		t.Errorf("a browser gets %s: %.200s", got.header.Get("Content-Type"), got.body)
	}
	if got, want := call(t, s, http.MethodGet, "/models/guide", ""), call(t, s, http.MethodGet, "/v1/models/guide", ""); got.status != http.StatusOK || got.body != want.body {
		t.Errorf("one model without /v1: got %d: %s", got.status, got.body)
	}
	if got := call(t, s, http.MethodGet, "/models/gpt-9", ""); got.status != http.StatusNotFound || parseError(t, got).Code != "model_not_found" {
		t.Errorf("an unknown model without /v1: got %d: %s", got.status, got.body)
	}
	locked := server(t, &fakeEngine{}, func(c *Config) { lock(t, c, "k") })
	if got := call(t, locked, http.MethodGet, "/models", ""); got.status != http.StatusUnauthorized || parseError(t, got).Code != "missing_api_key" {
		t.Errorf("a program without the key gets %d: %s", got.status, got.body)
	}
	if got := call(t, locked, http.MethodGet, "/models", "", "Accept", browserAccept); got.status != http.StatusSeeOther || got.header.Get("Location") != "/login" {
		t.Errorf("a browser without the key gets %d: %s", got.status, got.body)
	}
}

func TestRoutes_HeadIsGetWithoutItsBody(t *testing.T) {
	s := server(t, &fakeEngine{})
	for path, status := range map[string]int{
		"/v1/models": 200, "/v1/models/guide": 200, "/v1/models/none": 404, "/v1/status": 200, "/models": 200, "/models/guide": 200, "/health": 200, "/v1/nothing": 404,
	} {
		got := call(t, s, http.MethodHead, path, "")
		if got.status != status || got.body != "" {
			t.Errorf("HEAD %s: got %d, want %d, with the body %q", path, got.status, status, got.body)
		}
	}
}

// A program that goes astray among the pages is told so in JSON, a browser in a page.
func TestRoutes_ErrorsOfPagesAreForWhoAsks(t *testing.T) {
	s := server(t, &fakeEngine{})
	for request, status := range map[string]int{"GET /nothing": 404, "GET /c/1/nothing": 404, "POST /nothing": 403, "POST /models/pull": 403, "DELETE /": 403} {
		method, path, _ := strings.Cut(request, " ")
		program, browser := call(t, s, method, path, "", "Accept", "*/*"), call(t, s, method, path, "", "Accept", browserAccept)
		var body failure.Body
		if err := json.Unmarshal([]byte(program.body), &body); err != nil || program.status != status || body.Error.Message == "" {
			t.Errorf("%s: a program gets %d: %s", request, program.status, program.body)
		}
		if browser.status != status || !strings.Contains(browser.body, "<h1") {
			t.Errorf("%s: a browser gets %d: %.200s", request, browser.status, browser.body)
		}
	}
}

func TestModels_OfTheLoadedOneTheContextIsKnown(t *testing.T) {
	got := call(t, server(t, &fakeEngine{}), http.MethodGet, "/v1/models/guide", "")
	sameJSON(t, got.body, `{"object":"model","owned_by":"m40-llm","meta":{"n_ctx":512,"size":10}}`)
}
