package handlers_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
)

// /openapi.json has every route for programs, and no other.
func TestOpenAPI_HasTheRoutesThatExist(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	got := handlerstest.Call(t, s, http.MethodGet, "/openapi.json", "")
	var document struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Summary   string
			Responses map[string]json.RawMessage
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal([]byte(got.Body), &document); err != nil || got.Status != http.StatusOK || document.OpenAPI != "3.1.0" {
		t.Fatalf("got %d, %v: %.300s", got.Status, err, got.Body)
	}
	var documented, existing []string
	for path, operations := range document.Paths {
		for method, o := range operations {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if o.Summary == "" || o.Responses["200"] == nil && o.Responses["204"] == nil || o.Responses["default"] == nil {
				t.Errorf("%s %s lacks a summary or a response", method, path)
			}
		}
	}
	for _, route := range s.Config.Handler.(*echo.Echo).Routes() {
		if path := gate.DocumentedPath(route.Path); route.Method != http.MethodHead && (gate.IsAPI(path) || path == "/models/{id}") {
			existing = append(existing, route.Method+" "+path)
		}
	}
	slices.Sort(documented)
	slices.Sort(existing)
	for _, route := range existing {
		if !slices.Contains(documented, route) {
			t.Errorf("%s exists and is not documented", route)
		}
	}
	for _, route := range documented {
		if !slices.Contains(existing, route) {
			t.Errorf("%s is documented and does not exist", route)
		}
	}
	for _, reference := range regexp.MustCompile(`"#/components/schemas/([^"]*)"`).FindAllStringSubmatch(got.Body, -1) {
		if _, there := document.Components.Schemas[reference[1]]; !there {
			t.Errorf("the schema %s is missing", reference[1])
		}
	}
	for _, name := range []string{`"client":`, `"sibling":`, `"kv_file":`, `"row_file":`} { // no request can set them
		if strings.Contains(got.Body, name) {
			t.Errorf("the document has %s", name)
		}
	}
	chat := document.Components.Schemas["api.chatRequest"].Properties
	for _, field := range []string{"messages", "temperature", "max_tokens", "response_format", "tools", "seed"} {
		if chat[field] == nil {
			t.Errorf("the schema of a chat completion lacks %s", field)
		}
	}
}

// All tests check answers by this, so it has to see what is wrong.
func TestOpenAPI_WhatContradictsItIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		path, sent, kind, body string
		status                 int
		right                  bool
	}{
		"an answer":                           {"/v1/completions", `{"prompt":"a"}`, "application/json", `{"id":"a","object":"b","created":1,"model":"c","system_fingerprint":"d","choices":[]}`, 200, true},
		"a field is missing":                  {"/v1/completions", `{"prompt":"a"}`, "application/json", `{"id":"a","object":"b","created":1,"model":"c","system_fingerprint":"d"}`, 200, false},
		"a field is null":                     {"/v1/completions", `{"prompt":"a"}`, "application/json", `{"id":null,"object":"b","created":1,"model":"c","system_fingerprint":"d","choices":[]}`, 200, false},
		"a field is unknown":                  {"/v1/completions", `{"prompt":"a"}`, "application/json", `{"id":"a","object":"b","created":1,"model":"c","system_fingerprint":"d","choices":[],"more":1}`, 200, false},
		"an error of another API":             {"/v1/completions", `{"prompt":"a"}`, "application/json", `{"error":"no"}`, 400, false},
		"an event of a stream":                {"/v1/completions", `{"prompt":"a"}`, "text/event-stream", "data: {}\n\ndata: [DONE]\n\n", 200, false},
		"a line of a stream":                  {"/api/chat", hello, "application/x-ndjson", `{"model":"a"}`, 200, false},
		"a type of content":                   {"/v1/completions", `{"prompt":"a"}`, "application/xml", "<a/>", 200, false},
		"a request without what it must have": {"/v1/completions", `{}`, "application/json", `{"id":"a","object":"b","created":1,"model":"c","system_fingerprint":"d","choices":[]}`, 200, false},
		"a request of another type":           {"/v1/completions", `{"prompt":"a","stop":1}`, "application/json", `{"id":"a","object":"b","created":1,"model":"c","system_fingerprint":"d","choices":[]}`, 200, false},
	} {
		r, err := http.NewRequest(http.MethodPost, c.path, strings.NewReader(c.sent))
		if err != nil {
			t.Fatal(err)
		}
		err = handlerstest.CheckDescribed(r, handlerstest.Response{Status: c.status, Header: http.Header{"Content-Type": {c.kind}}, Body: c.body})
		if (err == nil) != c.right {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
