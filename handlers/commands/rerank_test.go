package commands

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer/gguf/gguftest"
)

func TestRerankPrintsTheLinesThatFitBest(t *testing.T) {
	dir := t.TempDir()
	model, lines := filepath.Join(dir, "tiny-ranker.gguf"), filepath.Join(dir, "lines.txt")
	if err := os.WriteFile(model, gguftest.TinyBERT(gguftest.BERT{Context: 32, Ranks: true}), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = "one text\r\n\nanother line\nthe third"
	if err := os.WriteFile(lines, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	piped := execute(t, nil, text, "rerank", model, "what?", "-")
	if got := execute(t, nil, "", "rerank", "--device", "cpu", model, "what?", lines); got.code != 0 || got != piped {
		t.Fatalf("the file gave %+v, the standard input %+v", got, piped)
	}
	status, answer := serving(t, "--model", model)("/v1/rerank", `{"query":"what?","documents":["one text","another line","the third"],"return_documents":true}`)
	var list struct {
		Results []struct {
			Index    int
			Score    float64 `json:"relevance_score"`
			Document struct{ Text string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || status != http.StatusOK || len(list.Results) != 3 {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	want := ""
	for _, r := range list.Results {
		want += fmt.Sprintf("%.6f\t%d\t%s\n", r.Score, []int{1, 3, 4}[r.Index], r.Document.Text)
	}
	if piped.out != want {
		t.Errorf("the command prints\n%sthe server has\n%s", piped.out, want)
	}
	if got := execute(t, nil, text, "rerank", "--top", "1", "--normalize", model, "what?", "-"); got.code != 0 || strings.Count(got.out, "\n") != 1 || !strings.HasPrefix(got.out, "0.") || !strings.HasSuffix(got.out, list.Results[0].Document.Text+"\n") {
		t.Errorf("the best one: %+v", got)
	}
	long := strings.Repeat("long ", 30)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rerank", model, "query"}, "give a model that ranks documents, a query, and a file"},
		{[]string{"rerank", "guide", "query", lines}, "cannot rank documents"},
		{[]string{"rerank", model, "query", filepath.Join(dir, "none")}, "none"},
		{[]string{"rerank", model, long, lines}, "the query alone has"},
		{[]string{"rerank", "--top", "-1", model, "query", lines}, "--top cannot be negative"},
	} {
		if got := execute(t, nil, "", c.args...); got.code == 0 || got.out != "" || !strings.Contains(got.errs, c.want) {
			t.Errorf("%.60s: got %+v", fmt.Sprint(c.args), got)
		}
	}
	if got := execute(t, nil, long, "rerank", model, "query", "-"); got.code == 0 || !strings.Contains(got.errs, "document 1 with the query has") {
		t.Errorf("a long line: got %+v", got)
	}
	if got := execute(t, nil, long, "rerank", "--truncate", model, "query", "-"); got.code != 0 || strings.Count(got.out, "\n") != 1 {
		t.Errorf("a truncated line: got %+v", got)
	}
}
