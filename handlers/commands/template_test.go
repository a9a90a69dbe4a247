package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/cli"
)

func TestAChatTemplateOfOnesOwnIsBesideTheModelOrNamedByAFlag(t *testing.T) {
	run := func(model string, flags ...string) result {
		return execute(t, nil, "", append([]string{"run", model, "hi", "--device", "cpu", "--seed", "7", "--max-tokens", "8"}, flags...)...)
	}
	model := tinyModel(t)
	template := filepath.Join(t.TempDir(), "own")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(template, "{{ messages[0].content }} and nothing else")
	plain, named := run(model), run(model, "--chat-template", template)
	write(strings.TrimSuffix(model, ".gguf")+".jinja", "{{ messages[0].content }} and nothing else")
	beside := run(model)
	if plain.code != cli.ExitOK || named != beside || named.out == plain.out {
		t.Errorf("the model's own gives %+v, the flag %+v, the file %+v", plain, named, beside)
	}
	for text, want := range map[string]string{"": "it is empty", "a\n{% if %}": "line 2"} {
		write(template, text)
		if got := run(model, "--chat-template", template); got.code != cli.ExitUsage || !strings.Contains(got.errs, want) {
			t.Errorf("%q: got %+v, want %q", text, got, want)
		}
	}
}
