package commands

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/cli"
)

// --prompt-lookup reaches the engine in the worker: an answer that has to copy its prompt is drafted, or not.
func TestPromptLookupIsSwitchedByItsFlag(t *testing.T) {
	if got := execute(t, nil, "", "serve", "--addr", ":0", "--prompt-lookup", "often"); got.code != cli.ExitUsage || !strings.Contains(got.errs, `--prompt-lookup "often" is none of auto, on and off`) {
		t.Errorf("got %+v", got)
	}
	const line = " one two three four five six."
	ask := fmt.Sprintf(`{"model":"guide","prompt":%q,"max_tokens":64,"params":{"temperature":0},"grammar":%q}`, strings.Repeat(line, 3), fmt.Sprintf("root ::= %q", strings.Repeat(line, 3)))
	texts := map[string]string{}
	for value, drafts := range map[string]bool{"auto": true, "on": true, "off": false} {
		s := startServer(t, t.TempDir(), "--device", "cpu", "--prompt-lookup", value)
		status, body := s.post("/v1/generate", ask)
		if status != http.StatusOK {
			t.Fatalf("--prompt-lookup %s: got %d: %s", value, status, body)
		}
		text, _, done := readEvents(t, body)
		if (done.Lookup.Drafted > 0) != drafts || done.Lookup.Accepted > done.Lookup.Drafted {
			t.Errorf("--prompt-lookup %s: %+v", value, done.Lookup)
		}
		texts[text] = value
		s.stop()
	}
	if len(texts) != 1 {
		t.Errorf("the answers differ: %v", texts)
	}
}
