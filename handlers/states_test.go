package handlers_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/web/states"
)

// The storybook is in no release: neither its route nor its package.
func TestTheStorybookIsOnlyInBuildsForDevelopment(t *testing.T) {
	for _, c := range []struct {
		tags string
		has  bool
	}{{"", false}, {"states", true}} {
		out, err := exec.Command("go", "list", "-deps", "-tags", c.tags, "m40-llm").Output()
		if err != nil {
			t.Fatal(err)
		}
		if has := slices.Contains(strings.Fields(string(out)), "m40-llm/web/states"); has != c.has {
			t.Errorf("with the tags %q the program has the storybook: %v, want %v", c.tags, has, c.has)
		}
	}
	e := handlers.New(handlerstest.TestConfig(t, &handlerstest.FakeEngine{}))
	s := httptest.NewServer(e)
	defer s.Close()
	if got := handlerstest.Call(t, s, "GET", states.Path, ""); got.Status != http.StatusNotFound {
		t.Errorf("GET %s: status %d", states.Path, got.Status)
	}
}
