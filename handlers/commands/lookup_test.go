package commands

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// --draft reaches the engine in the worker: an answer that has to copy its prompt is drafted, or not.
func TestDraftsAreSwitchedByTheirFlag(t *testing.T) {
	if got := execute(t, nil, "", "run", "--draft", "nobody", "guide", "hi"); got.code == 0 || !strings.Contains(got.errs, `--draft: there is no model called "nobody"`) {
		t.Errorf("got %+v", got)
	}
	const line = " one two three four five six."
	ask := fmt.Sprintf(`{"model":"guide","prompt":%q,"max_tokens":64,"params":{"temperature":0},"grammar":%q}`, strings.Repeat(line, 3), fmt.Sprintf("root ::= %q", strings.Repeat(line, 3)))
	texts := map[string]string{}
	for value, drafts := range map[string]bool{"lookup": true, "off": false} {
		s := startServer(t, t.TempDir(), "--device", "cpu", "--draft", value)
		status, body := s.post("/v1/generate", ask)
		if status != http.StatusOK {
			t.Fatalf("--draft %s: got %d: %s", value, status, body)
		}
		text, _, done := readEvents(t, body)
		if (done.Lookup.Drafted > 0) != drafts || done.Lookup.Accepted > done.Lookup.Drafted {
			t.Errorf("--draft %s: %+v", value, done.Lookup)
		}
		texts[text] = value
		s.stop()
	}
	if len(texts) != 1 {
		t.Errorf("the answers differ: %v", texts)
	}
}
