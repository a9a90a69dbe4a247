package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/api"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/hub/hubtest"
)

// pulled returns the lines of a pull.
func pulled(t *testing.T, body string) (lines []api.OllamaStatus) {
	t.Helper()
	for line := range strings.Lines(body) {
		var s api.OllamaStatus
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, s)
	}
	return lines
}

const remoteName = "org/repo:Q8_0"

func TestOllama_PullsCopiesAndDeletes(t *testing.T) {
	s := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t))
	lines := pulled(t, handlerstest.Post(t, s.Server, "/api/pull", `{"name":"`+remoteName+`"}`).Body)
	var statuses []string
	for _, l := range lines {
		statuses = append(statuses, l.Status)
	}
	digest := hubtest.Sum(handlerstest.RemoteModel)
	if want := []string{"pulling manifest", "pulling " + digest[:12], "verifying sha256 digest", "writing manifest", "success"}; !slices.Equal(slices.Compact(statuses), want) {
		t.Fatalf("got %q, want %q", statuses, want)
	}
	last := lines[len(lines)-4]
	if size := int64(len(handlerstest.RemoteModel)); last.Digest != "sha256:"+digest || last.Total != size || last.Completed != size {
		t.Errorf("at its end the download is %+v", last)
	}
	tags := func() string { return handlerstest.Call(t, s.Server, http.MethodGet, "/api/tags", "").Body }
	if got := tags(); !strings.Contains(got, `"name":"Remote-Q8_0"`) {
		t.Fatalf("the model is not listed: %s", got)
	}
	if got := handlerstest.Post(t, s.Server, "/api/pull", `{"model":"`+remoteName+`","stream":false}`); got.Status != http.StatusOK || got.Body != `{"status":"success"}`+"\n" {
		t.Errorf("a model that is there already: got %d: %s", got.Status, got.Body)
	}
	for _, name := range []string{"Remote-Q8_0", remoteName} {
		if got := handlerstest.Post(t, s.Server, "/api/show", `{"model":"`+name+`"}`); got.Status != http.StatusOK || !strings.Contains(got.Body, "FROM Remote-Q8_0") {
			t.Errorf("show %s: got %d: %s", name, got.Status, got.Body)
		}
	}
	if got := handlerstest.Post(t, s.Server, "/api/copy", `{"source":"Remote-Q8_0:latest","destination":"mine:v1"}`); got.Status != http.StatusOK || !strings.Contains(tags(), `"name":"mine:v1"`) {
		t.Errorf("copy: got %d: %s", got.Status, got.Body)
	}
	if got := handlerstest.Post(t, s.Server, "/api/copy", `{"source":"none","destination":"x"}`); got.Status != http.StatusNotFound || !strings.Contains(got.Body, "model 'none' not found") {
		t.Errorf("copy of nothing: got %d: %s", got.Status, got.Body)
	}
	if got := handlerstest.Post(t, s.Server, "/api/copy", `{"source":"guide","destination":"mine:v1"}`); got.Status != http.StatusConflict {
		t.Errorf("copy to a name that is taken: got %d: %s", got.Status, got.Body)
	}
	loads := func(name string) {
		t.Helper()
		if got := handlerstest.Post(t, s.Server, "/api/generate", `{"model":"`+name+`"}`); got.Status != http.StatusOK || !strings.Contains(got.Body, `"done_reason":"load"`) {
			t.Errorf("load %s: got %d: %s", name, got.Status, got.Body)
		}
		if got := handlerstest.Call(t, s.Server, http.MethodGet, "/api/ps", ""); !strings.Contains(got.Body, `"name":"`+name+`"`) {
			t.Errorf("%s is not loaded: %s", name, got.Body)
		}
	}
	loads("Remote-Q8_0")
	if got := handlerstest.Call(t, s.Server, http.MethodDelete, "/api/delete", `{"model":"Remote-Q8_0"}`); got.Status != http.StatusConflict || !strings.Contains(got.Body, "is loaded") {
		t.Errorf("delete the loaded model: got %d: %s", got.Status, got.Body)
	}
	loads("guide")
	for _, name := range []string{"Remote-Q8_0", "mine:v1"} {
		if got := handlerstest.Call(t, s.Server, http.MethodDelete, "/api/delete", `{"name":"`+name+`"}`); got.Status != http.StatusOK || strings.Contains(tags(), name) {
			t.Errorf("delete %s: got %d: %s", name, got.Status, got.Body)
		}
	}
	if got := handlerstest.Call(t, s.Server, http.MethodDelete, "/api/delete", `{"model":"mine:v1"}`); got.Status != http.StatusNotFound || !strings.Contains(got.Body, "model 'mine:v1' not found") {
		t.Errorf("delete what is gone: got %d: %s", got.Status, got.Body)
	}
}

func TestOllama_APullThatFailsSaysWhy(t *testing.T) {
	registry := handlerstest.NewModelRegistry(t)
	s := handlerstest.ServeModels(t, t.TempDir(), registry)
	registry.SetCDN(func(w http.ResponseWriter, r *http.Request, _ int, data []byte) bool {
		wrong := bytes.Clone(data)
		wrong[len(wrong)-100] ^= 1
		hubtest.Serve(w, r, wrong, `"one"`)
		return true
	})
	for body, want := range map[string]string{
		`{"model":"` + remoteName + `"}`: "SHA-256",
		`{"model":"org/repo:Q1_0"}`:      "Q1_0",
		`{"model":"org/none"}`:           "",
		`{"model":"../x"}`:               "org/repo",
	} {
		got := handlerstest.Post(t, s.Server, "/api/pull", body)
		lines := strings.Split(strings.TrimSpace(got.Body), "\n")
		var e struct{ Error string }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || e.Error == "" || !strings.Contains(e.Error, want) {
			t.Errorf("%s: got %s (%v)", body, got.Body, err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(s.Dir, "*.gguf")); err != nil || len(files) > 0 {
		t.Errorf("%v is there (%v)", files, err)
	}
}

func TestOllama_AClientThatLeavesPausesItsPull(t *testing.T) {
	registry := handlerstest.NewModelRegistry(t)
	s := handlerstest.ServeModels(t, t.TempDir(), registry)
	open := handlerstest.HoldBack(registry, 100_000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/pull", strings.NewReader(`{"model":"`+remoteName+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), `"completed"`) {
			break
		}
	}
	cancel()
	for deadline := time.Now().Add(handlerstest.Hang); ; time.Sleep(10 * time.Millisecond) {
		page := handlerstest.Call(t, s.Server, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept).Body
		if strings.Contains(page, "/models/resume") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the download goes on after its client has left")
		}
	}
	open()
	if lines := pulled(t, handlerstest.Post(t, s.Server, "/api/pull", `{"model":"`+remoteName+`"}`).Body); lines[len(lines)-1].Status != "success" {
		t.Errorf("it is not resumed: %+v", lines)
	}
	if got := handlerstest.Call(t, s.Server, http.MethodGet, "/api/tags", "").Body; !strings.Contains(got, `"name":"Remote-Q8_0"`) {
		t.Errorf("the model is not listed: %s", got)
	}
}
