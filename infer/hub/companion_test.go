package hub

import (
	"os"
	"path/filepath"
	"testing"
)

func TestACompanionIsFoundByItsName(t *testing.T) {
	for name, c := range map[string]struct {
		model string
		files []string
		want  string
	}{
		"the model's name behind":         {"gemma-3-4b-it-Q4_K_M.gguf", []string{"mmproj-gemma-3-4b-it-f16.gguf"}, "mmproj-gemma-3-4b-it-f16.gguf"},
		"the model's name before":         {"gemma-3-4b-it-Q4_K_M.gguf", []string{"gemma-3-4b-it.mmproj-Q8_0.gguf"}, "gemma-3-4b-it.mmproj-Q8_0.gguf"},
		"no name":                         {"gemma-3-4b-it-Q4_K_M.gguf", []string{"mmproj-F16.gguf"}, "mmproj-F16.gguf"},
		"a placeholder for a name":        {"gemma-3-4b-it-q4_0.gguf", []string{"mmproj-model-f16-4B.gguf", "mmproj-model-f16.gguf"}, "mmproj-model-f16.gguf"},
		"that of another model":           {"gemma-3-4b-it-Q4_K_M.gguf", []string{"mmproj-gemma-3-12b-it-f16.gguf"}, ""},
		"the longer name":                 {"gemma-3-4b-it-Q4_K_M.gguf", []string{"mmproj-f16.gguf", "mmproj-gemma-3-4b-it-f16.gguf"}, "mmproj-gemma-3-4b-it-f16.gguf"},
		"F16 before others":               {"a.gguf", []string{"mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"}, "mmproj-F16.gguf"},
		"no companion":                    {"a.gguf", []string{"b.gguf", "mmproj.txt"}, ""},
		"none for the companion of a tie": {"smolvlm.gguf", []string{"mmproj-smolvlm-500m.gguf"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range append(c.files, c.model) {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			h := New(Options{Dir: dir})
			got := h.companionOf(entry{path: filepath.Join(dir, c.model)})
			if want := filepath.Join(dir, c.want); got != want && (c.want != "" || got != "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
			h.SetCompanion(NoCompanion)
			if got := h.companionOf(entry{path: filepath.Join(dir, c.model)}); got != "" {
				t.Errorf("got %q although companions are off", got)
			}
			h.SetCompanion("/elsewhere.gguf")
			if got := h.companionOf(entry{path: filepath.Join(dir, c.model)}); got != "/elsewhere.gguf" {
				t.Errorf("got %q, want the one that was chosen", got)
			}
		})
	}
}
