package commands

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
	"m40-llm/store"
)

func TestTheModelUsedLastIsLoadedFirst(t *testing.T) {
	data, outside := t.TempDir(), t.TempDir()
	inside := filepath.Join(data, "models", "org", "small.gguf")
	elsewhere := filepath.Join(outside, "other.gguf")
	for _, path := range []string{inside, elsewhere} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asks := func(t *testing.T, post func(path, body string) (int, string), model, want string) {
		t.Helper()
		status, answer := post("/v1/completions", `{"model":"`+model+`","prompt":"x","max_tokens":1}`)
		if status != http.StatusOK || !strings.Contains(answer, `"model":"`+want+`"`) {
			t.Errorf("status %d, want an answer of %s: %s", status, want, answer)
		}
	}
	// Each server ends with its step.
	for _, step := range []struct {
		name  string
		args  []string
		model string // asked for after the first answer; empty: none
		want  string // answers first
	}{
		{name: "at the very first start the guide answers", model: "small", want: "guide"},
		{name: "then the one that was asked for last", want: "small"},
		{name: "one that the command line names", args: []string{"--model", elsewhere}, want: "other"},
		{name: "which is found again outside of the models folder", want: "other"},
		{name: "also where a process of its own computes", args: []string{"--worker", "always"}, model: "small", want: "other"},
		{name: "and what that had loaded last", want: "small"},
	} {
		t.Run(step.name, func(t *testing.T) {
			post := serving(t, append([]string{"--data", data}, step.args...)...)
			asks(t, post, "", step.want)
			last := step.want
			if step.model != "" {
				last = step.model
				asks(t, post, last, last)
			}
			eventually(t, step.name, func() bool { // the status of a worker takes a moment
				status, health := post("/health", "")
				return status == http.StatusOK && strings.Contains(health, `"model":"`+last+`"`)
			})
		})
	}
}

func TestAModelUsedLastThatHasGone(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	path := filepath.Join(dir, "models", "small.gguf")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	catalog := hub.New(hub.Options{Dir: filepath.Dir(path), Builtin: map[string][]byte{guideName: guide.Model}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		file []byte // none: there is no such file any more
		want string
		says string
	}{
		{"it is there", gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0}), "small", ""},
		{"it has gone", nil, guideName, `no model called`},
		{"it is broken", []byte("GGUF"), guideName, "ends too early"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.file == nil {
				os.Remove(path)
			} else if err := os.WriteFile(path, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			used := infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Name: "small", Path: path}}
			saveModelUsed(ended, still(used), db, slog.New(slog.DiscardHandler))
			var said bytes.Buffer
			if got := modelUsedLast(t.Context(), catalog, db, slog.New(slog.NewTextHandler(&said, nil))); got != c.want {
				t.Errorf("%s is to be loaded, want %s", got, c.want)
			}
			if !strings.Contains(said.String(), c.says) || (c.says == "") != (said.Len() == 0) {
				t.Errorf("it says %q, want %q", said.String(), c.says)
			}
		})
	}
}

// still is an engine that does nothing.
type still infer.Status

func (s still) Status() infer.Status { return infer.Status(s) }
