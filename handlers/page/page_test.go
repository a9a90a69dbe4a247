package page

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer"
	"m40-llm/infer/sample"
	"m40-llm/web"
)

func TestPage_FieldsTakeWhatTheServerTakes(t *testing.T) {
	numbers := map[string]sample.Number{}
	for _, n := range sample.Numbers() {
		numbers[n.Name] = n
	}
	shown := map[string]bool{}
	for _, p := range params(setting.Default()) {
		valid := func(v float64) bool {
			s := setting.Default()
			switch n, ok := numbers[p.Key]; {
			case ok:
				n.Set(&s.Params, v)
			case p.Key == "pause_repetition":
				s.PauseRepetition = int(v)
			case p.Key == "must_call":
				s.MustCall = int(v)
			case p.Key == "thinking_budget":
				s.ThinkingBudget = int(v)
			default:
				s.MaxTokens = int(v)
			}
			return s.Validate() == nil
		}
		shown[p.Key] = true
		if p.Label == "" || p.About == "" {
			t.Errorf("%s has no words", p.Key)
		}
		if !valid(p.FieldLo) || !valid(p.FieldHi) || !valid(p.Default) || p.Off != "" && !valid(p.OffAt) {
			t.Errorf("%s: the page takes %v to %v, the server does not", p.Key, p.FieldLo, p.FieldHi)
		}
		if valid(p.FieldHi + max(p.Step, 1)) {
			t.Errorf("%s: the server takes more than %v", p.Key, p.FieldHi)
		}
		if p.Lo < p.FieldLo || p.Hi > p.FieldHi {
			t.Errorf("%s: the slider goes from %v to %v, beyond its field", p.Key, p.Lo, p.Hi)
		}
	}
	for name := range numbers {
		if !shown[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// The page must render whatever the model is called.
func TestPage_EscapesTheModelsName(t *testing.T) {
	var buf bytes.Buffer
	page := web.Page{Engine: view.Engine(t.Context(), infer.Status{Model: infer.ModelInfo{Name: `"><script>pwned=1</script>`}}), Params: params(setting.Default())}
	if err := web.Playground(page).Render(context.Background(), &buf); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(buf.String(), "<script>pwned") {
		t.Error("a model's name became an element")
	}
}
