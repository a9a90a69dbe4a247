package hub

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCopyGivesAModelASecondName(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "far.gguf")
	write := func(path string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "org/repo/one.gguf"), testModel)
	write(elsewhere, otherModel)
	for name, data := range splitModel("parts") {
		write(filepath.Join(dir, "org/repo", name), data)
	}
	h := New(Options{Dir: dir, Builtin: map[string][]byte{"guide": testModel}, Types: supportedTypes})
	if _, err := h.AllowPath(elsewhere); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, from, to string
		want           []byte // nil: a split model
	}{
		{"a model in the folder", "one", "mine", testModel},
		{"into a folder, with the file's ending", "org/repo/one", "own/two.gguf", testModel},
		{"a built-in model", "guide", "guide2", testModel},
		{"a file outside of the folder", "far", "near", otherModel},
		{"a split model", "parts", "whole", nil},
		{"a name with a colon, as clients of Ollama give", "one", "mine:v1", testModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			info, err := h.Copy(t.Context(), c.from, c.to)
			if err != nil || info.Error != "" || info.Path == "" {
				t.Fatalf("got %+v, %v", info, err)
			}
			if c.want == nil {
				return
			}
			if got, err := os.ReadFile(info.Path); err != nil || string(got) != string(c.want) {
				t.Errorf("the copy has %d bytes, %v", len(got), err)
			}
		})
	}
	t.Run("the copy shares its data, and stays when the first is removed", func(t *testing.T) {
		one, _ := os.Stat(filepath.Join(dir, "org/repo/one.gguf"))
		mine, _ := os.Stat(filepath.Join(dir, "mine.gguf"))
		if !os.SameFile(one, mine) {
			t.Error("it has data of its own")
		}
		if err := h.Remove("one"); err != nil {
			t.Fatal(err)
		}
		if f, _, err := h.Open("mine"); err != nil {
			t.Error(err)
		} else {
			f.Close()
		}
	})
	before := len(filesIn(t, dir))
	for _, c := range []struct{ name, from, to, err string }{
		{"an unknown model", "none", "x", "there is no model called"},
		{"a name that exists", "mine", "guide2", `a model called "guide2" exists already`},
		{"the name of a built-in model", "mine", "guide", `a model called "guide" exists already`},
		{"the file of a model that is called differently", "mine", "near.gguf", "exists already"},
		{"a long name", "mine", strings.Repeat("x", 250), "cannot be the name of a model"},
		{"a name that leaves the folder", "mine", "../x", "cannot be the name of a model"},
		{"an absolute name", "mine", "/tmp/x", "cannot be the name of a model"},
		{"a hidden name", "mine", ".x", "cannot be the name of a model"},
		{"a hidden folder", "mine", ".x/y", "cannot be the name of a model"},
		{"a name too deep to be listed", "mine", "a/b/c/d", "cannot be the name of a model"},
		{"the name of a split file", "mine", "x-00001-of-00002", "cannot be the name of a model"},
		{"no name", "mine", "", "cannot be the name of a model"},
	} {
		t.Run(c.name+" is an error", func(t *testing.T) {
			if _, err := h.Copy(t.Context(), c.from, c.to); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("a copy that was stopped leaves nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Copy(ctx, "far", "own/never"); err == nil {
			t.Error("it succeeded")
		}
	})
	if after := filesIn(t, dir); len(after) != before {
		t.Errorf("got files %q", after)
	}
}
