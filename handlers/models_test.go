package handlers_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
)

func TestModelsWithoutScripts(t *testing.T) {
	registry := handlerstest.NewModelRegistry(t)
	server := handlerstest.ServeModels(t, t.TempDir(), registry)
	open := handlerstest.HoldBack(registry, len(handlerstest.RemoteModel)/2)
	name, file := url.Values{"name": {"org/repo:Q8_0"}}, url.Values{"file": {"org/repo/" + handlerstest.RemoteFile}}
	size := strconv.Itoa(len(handlerstest.RemoteModel))
	page := func() string {
		return handlerstest.Call(t, server.Server, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept).Body
	}
	until := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(handlerstest.Hang); !strings.Contains(page(), want); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for %q", want)
			}
		}
	}

	found := handlerstest.Submit(t, server.Server, "/models/find", name)
	if found.Status != http.StatusOK || !strings.Contains(found.Body, `name="size" value="`+size+`"`) {
		t.Fatalf("looked up: %d, %s", found.Status, found.Body)
	}
	if got := handlerstest.Submit(t, server.Server, "/models/pull", url.Values{"name": name["name"], "size": {"5"}}); got.Status != http.StatusConflict || !strings.Contains(got.Body, "look at it again") {
		t.Errorf("with another size: %d", got.Status)
	}
	if got := handlerstest.Submit(t, server.Server, "/models/pull", name); got.Status != http.StatusBadRequest {
		t.Errorf("without a size: %d", got.Status)
	}
	started := handlerstest.Submit(t, server.Server, "/models/pull", url.Values{"name": name["name"], "size": {size}})
	if started.Status != http.StatusSeeOther || started.Header.Get("Location") != "/models" {
		t.Fatalf("started: %d, %s", started.Status, started.Body)
	}
	until(`data-state="running"`)
	if got := handlerstest.Submit(t, server.Server, "/models/pause", file); got.Status != http.StatusSeeOther {
		t.Errorf("paused: %d", got.Status)
	}
	until(`data-state="paused"`)
	open()
	if got := handlerstest.Submit(t, server.Server, "/models/resume", file); got.Status != http.StatusSeeOther {
		t.Errorf("resumed: %d", got.Status)
	}
	until(`data-state="done"`)
	if got := page(); strings.Count(got, "its with a context of") != 2 || !strings.Contains(got, "of the 8.0 GB that are free") {
		t.Error("neither the download that is done nor the details of a model say which context fits")
	}
	server.Memory.Store(5e6)
	if got := page(); !strings.Contains(got, "Does not fit: ") {
		t.Error("the details do not say that a model has become too large")
	}

	for name, c := range map[string]struct {
		path   string
		fields url.Values
		status int
		says   string
	}{
		"a download that there is not":         {"/models/resume", url.Values{"file": {"../x"}}, http.StatusNotFound, "download does not exist"},
		"to cancel one that there is not":      {"/models/cancel", url.Values{"file": {""}}, http.StatusNotFound, "download does not exist"},
		"to delete the built-in model":         {"/models/delete", url.Values{"name": {"guide"}}, http.StatusConflict, "built into the program"},
		"to delete a path":                     {"/models/delete", url.Values{"name": {"/etc/passwd"}}, http.StatusNotFound, "no model called"},
		"to delete by a way out of the folder": {"/models/delete", url.Values{"name": {"../chats"}}, http.StatusNotFound, "no model called"},
	} {
		if got := handlerstest.Submit(t, server.Server, c.path, c.fields); got.Status != c.status || !strings.Contains(got.Body, c.says) {
			t.Errorf("%s: %d, want %d and %q", name, got.Status, c.status, c.says)
		}
	}
	if got := handlerstest.Call(t, server.Server, http.MethodGet, "/models?show=nothing", "", "Accept", handlerstest.BrowserAccept); got.Status != http.StatusNotFound || !strings.Contains(got.Body, "no model called") {
		t.Errorf("details of a model that there is not: %d", got.Status)
	}

	var model string
	mustDecode(t, handlerstest.Post(t, server.Server, "/v1/completions", `{"model":"Remote-Q8_0","prompt":"x","max_tokens":1}`), &struct{ Model *string }{&model})
	if got := handlerstest.Submit(t, server.Server, "/models/delete", url.Values{"name": {"Remote-Q8_0"}}); model != "Remote-Q8_0" || got.Status != http.StatusConflict || !strings.Contains(got.Body, "is loaded") {
		t.Errorf("to delete the model that is loaded: %d", got.Status)
	}
	if status := handlerstest.Post(t, server.Server, "/v1/completions", `{"model":"guide","prompt":"x","max_tokens":1}`).Status; status != http.StatusOK {
		t.Fatal(status)
	}
	confirm := handlerstest.Call(t, server.Server, http.MethodGet, "/models?show=Remote-Q8_0&delete=1", "", "Accept", handlerstest.BrowserAccept)
	if !strings.Contains(confirm.Body, `action="/models/delete"`) {
		t.Error("nobody is asked before a model is deleted")
	}
	if got := handlerstest.Submit(t, server.Server, "/models/delete", url.Values{"name": {"Remote-Q8_0"}}); got.Status != http.StatusSeeOther {
		t.Errorf("deleted: %d, %s", got.Status, got.Body)
	}
	if strings.Contains(page(), "show=Remote") {
		t.Error("the deleted model is listed")
	}
}

func TestOnlyTheOwnerChangesModels(t *testing.T) {
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t), func(c *handlers.Config) { handlerstest.Lock(t, c, "open sesame") })
	for _, path := range []string{"find", "pull", "pause", "resume", "cancel", "delete"} {
		fields := url.Values{"name": {"org/repo:Q8_0"}, "size": {"1"}, "file": {"x"}}
		if got := handlerstest.Submit(t, server.Server, "/models/"+path, fields); got.Status != http.StatusUnauthorized {
			t.Errorf("%s without the key: %d", path, got.Status)
		}
		foreign := handlerstest.Call(t, server.Server, http.MethodPost, "/models/"+path, fields.Encode(), "Content-Type", "application/x-www-form-urlencoded",
			"Origin", "https://evil.example", "Authorization", "Bearer open sesame")
		if foreign.Status != http.StatusForbidden {
			t.Errorf("%s from another site: %d", path, foreign.Status)
		}
	}
	if got := handlerstest.Call(t, server.Server, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/login" {
		t.Errorf("the page without the key: %d", got.Status)
	}
	if len(server.Registry.Requests("api")) != 0 {
		t.Error("the registry was asked")
	}
}
