package hub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer/hub"
)

func TestCopyGivesAModelAnotherName(t *testing.T) {
	dir := t.TempDir()
	guide := []byte("GGUF of a test, which need not be valid")
	h := hub.New(hub.Options{Dir: dir, Builtin: map[string][]byte{"guide": guide}})
	if err := h.Copy("guide", "mine:v1"); err != nil {
		t.Fatal(err)
	}
	if err := h.Copy("mine:v1", "again"); err != nil {
		t.Fatal(err)
	}
	one, oneErr := os.Stat(filepath.Join(dir, "mine:v1.gguf"))
	two, twoErr := os.Stat(filepath.Join(dir, "again.gguf"))
	if oneErr != nil || twoErr != nil || !os.SameFile(one, two) || one.Size() != int64(len(guide)) {
		t.Errorf("got %v (%v) and %v (%v)", one, oneErr, two, twoErr)
	}
	for _, c := range []struct{ name, source, as, want string }{
		{"an unknown model", "none", "x", "there is no model"},
		{"a name that is taken", "guide", "again", "exists already"},
		{"the name of a built-in model", "again", "guide", "exists already"},
		{"a path", "guide", "../x", "cannot be the name"},
		{"a folder", "guide", "a/b", "cannot be the name"},
		{"no name", "guide", "", "cannot be the name"},
		{"a long name", "guide", strings.Repeat("x", 97), "cannot be the name"},
		{"a hidden file", "guide", ".x", "cannot be the name"},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			if err := h.Copy(c.source, c.as); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if err := hub.New(hub.Options{}).Copy("guide", "x"); err == nil {
		t.Error("a hub without a folder copies")
	}
}
