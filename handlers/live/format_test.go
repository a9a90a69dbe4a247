package live

import (
	"context"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/infer"
)

func TestOutputFormat_ConstrainsTheRequestsOfAChat(t *testing.T) {
	const schema, gbnf = `{"type":"object","properties":{"a":{"type":"integer"}}}`, `root ::= "yes" | "no"`
	for _, c := range []struct {
		name         string
		format       setting.OutputFormat
		raw          bool
		schema, gbnf string
	}{
		{"text is free", setting.OutputFormat{}, false, "", ""},
		{"JSON is an object", setting.OutputFormat{Type: setting.OutputJSON}, false, `{"type":"object"}`, ""},
		{"a schema is that of the answer", setting.OutputFormat{Type: setting.OutputSchema, Schema: schema}, false, schema, ""},
		{"a grammar is that of the answer", setting.OutputFormat{Type: setting.OutputGrammar, Grammar: gbnf}, false, "", gbnf},
		{"a raw chat has no format", setting.OutputFormat{Type: setting.OutputSchema, Schema: schema}, true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
			q := Question{Text: "one", Settings: setting.Default()}
			q.Settings.OutputFormat, q.Opening.Raw = c.format, c.raw
			chat, err := s.Start(context.Background(), me, q, false)
			must(t, err)
			a := <-engine.asked
			check := func(what string, r infer.Request, resumes bool) {
				t.Helper()
				if string(r.JSONSchema) != c.schema || r.Grammar != c.gbnf || r.ContinueForm != (resumes && c.schema+c.gbnf != "") {
					t.Errorf("%s has the schema %s and the grammar %s, continued %v", what, r.JSONSchema, r.Grammar, r.ContinueForm)
				}
			}
			check("the request", a.request, false)
			a.write("{")
			must(t, chat.Stop(context.Background(), me, 2))
			settle(chat)
			must(t, chat.Continue(context.Background(), me, 2, q.Settings))
			a = <-engine.asked
			check("the continuation", a.request, true)
			a.finish()
			settle(chat)
			recipe, err := chat.Recipe(context.Background(), me, 2)
			must(t, err)
			check("the recipe", recipe, false)
		})
	}
}
