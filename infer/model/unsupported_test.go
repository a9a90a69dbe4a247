package model

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestAnUnsupportedArchitectureIsNamedWithTheNearestSupportedOne(t *testing.T) {
	for name, want := range map[string]string{
		"muse-spark": "muse-glimmer", "deepseek32": "deepseek2", "mistral4": "mistral3", "minimax-m3": "minimax-m2", "hy_v4": "hy_v3", "gemma5": "gemma4",
		"Qwen4": "qwen3", "rwkv7": "", "t5": "", "": "",
	} {
		err := CheckArchitecture(name)
		unsupported, ok := errors.AsType[*UnsupportedError](err)
		if !ok || unsupported.Architecture != name || unsupported.Nearest != want {
			t.Errorf("%q: got %+v, want the nearest to be %q", name, unsupported, want)
			continue
		}
		if text := err.Error(); strings.Contains(text, "nearest") != (want != "") || len(text) > 200 {
			t.Errorf("%q: got %q", name, text)
		}
	}
	for _, name := range Architectures() {
		if err := CheckArchitecture(name); err != nil {
			t.Error(err)
		}
	}
	if err := CheckArchitecture(Companion); err == nil || !strings.Contains(err.Error(), "the model next to it reads pictures") {
		t.Errorf("a companion file: got %v", err)
	}
}

func TestTheDocumentationListsAllSupportedArchitectures(t *testing.T) {
	text, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Architectures() {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("docs/models.md has no row for %s", name)
		}
	}
	for table := range strings.SplitSeq(string(text), "\n\n") {
		if !strings.Contains(table, "| `llama` |") {
			continue // of something else
		}
		for line := range strings.Lines(table) {
			if name, _, row := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); row {
				if err := CheckArchitecture(name); err != nil {
					t.Errorf("docs/models.md: %v", err)
				}
			}
		}
	}
}
