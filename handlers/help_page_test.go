package handlers_test

import (
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
)

func TestHelp_ShowsTheDocumentsOfTheProject(t *testing.T) {
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t), func(*handlers.Config) {})
	for _, test := range []struct {
		path   string
		status int
		shows  string
	}{
		{"/help", http.StatusOK, `href="/help/models"`},
		{"/help/models", http.StatusOK, `<h2 id="architectures">`},
		{"/help/..%2Fgo.mod", http.StatusNotFound, "There is no document"},
		{"/help/nothing", http.StatusNotFound, "There is no document"},
	} {
		t.Run(test.path, func(t *testing.T) {
			got := handlerstest.Call(t, server.Server, http.MethodGet, test.path, "", "Accept", handlerstest.BrowserAccept)
			if got.Status != test.status || !strings.Contains(got.Body, test.shows) {
				t.Errorf("status %d, want %d; the page has %q: %v", got.Status, test.status, test.shows, strings.Contains(got.Body, test.shows))
			}
		})
	}
}
