package grammar

import (
	"context"
	"testing"
)

func TestSchemaRulesStandInALargerGrammar(t *testing.T) {
	rules, err := SchemaRules("arguments", []byte(`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"]}`))
	if err != nil {
		t.Fatal(err)
	}
	g, err := Parse(context.Background(), "root ::= "+Literal("<call>\n")+" arguments "+Literal("\n</call>")+" <[7]>\n"+rules)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"<call>\n{\"city\": \"Zürich\", \"days\": 14}\n</call>": true,
		"<call>\n{\"city\":\"\\\"\"}\n</call>":                  true,
		"<call>\n{\"city\": \"Bern\", \"days\": 15}\n</call>":   false,
		"<call>\n{\"days\": 1}\n</call>":                        false,
	} {
		if got := g.program.read(append(symbols(text), 256+7)); got != want {
			t.Errorf("%q: accepted %v", text, got)
		}
	}
}
