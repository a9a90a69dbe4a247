package failure_test

import (
	"testing"

	"m40-llm/handlers/failure"
)

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"the file ends early":        "The file ends early.",
		"max_tokens is 0":            "max_tokens is 0.",
		"models/a.gguf is too short": "models/a.gguf is too short.",
		"Is it?":                     "Is it?",
		"übrig ist nichts":           "Übrig ist nichts.",
	} {
		if got := failure.Sentence(t.Context(), text); got != want {
			t.Errorf("failure.Sentence(%q) = %q, want %q", text, got, want)
		}
	}
}
