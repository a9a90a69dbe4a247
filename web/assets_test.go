package web

import (
	"slices"
	"testing"
)

func TestPagesPreloadWhatTheirScriptsImport(t *testing.T) {
	for script, want := range map[string][]string{
		"app.js":    {"app.js", "base.js", "chat.js", "socket.js", "sequence.js", "words.js"},
		"models.js": {"models.js", "picker.js", "toggle.js", "transport.js"},
	} {
		got := modules(script)
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s: %s is missing in %q", script, name, got)
			}
		}
		for _, name := range got {
			if _, ok := load().assets[name]; !ok {
				t.Errorf("%s imports %s, which does not exist", script, name)
			}
		}
		if slices.Contains(got, "tree.js") {
			t.Errorf("%s preloads tree.js, which is imported when it is needed", script)
		}
	}
}
