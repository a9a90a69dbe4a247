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
			if o.Summary == "" || o.Responses["200"] == nil || o.Responses["default"] == nil {
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
	chat := document.Components.Schemas["api.chatRequest"].Properties
	for _, field := range []string{"messages", "temperature", "max_tokens", "response_format", "tools", "seed"} {
		if chat[field] == nil {
			t.Errorf("the schema of a chat completion lacks %s", field)
		}
	}
}
