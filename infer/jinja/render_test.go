package jinja

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"m40-llm/infer/fixtures"
)

// noTime are the default limits without that of time, whose effect would depend on the machine.
var noTime = Limits{Steps: DefaultLimits.Steps, Output: DefaultLimits.Output, Alloc: DefaultLimits.Alloc}

var testNow = time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)

// renderJSON renders with the entries of a JSON object as variables.
func renderJSON(t *Template, object []byte, o Options) (Text, error) {
	vars, err := DecodeJSON(object)
	if err != nil {
		return Text{}, err
	}
	return t.Render(context.Background(), vars.(*Dict), o)
}

// render renders at testNow without a limit of time.
func render(source, object string) (Text, error) {
	t, err := Parse(source)
	if err != nil {
		return Text{}, err
	}
	return renderJSON(t, []byte(object), Options{Now: testNow, Limits: noTime})
}

func TestEverySnippetGivesTheReferenceOutput(t *testing.T) {
	data, err := os.ReadFile(fixtures.Path(t, "templates", "jinja_snippets.json"))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Now     string          `json:"now"`
		Context json.RawMessage `json:"context"`
		Cases   []struct {
			Template  string  `json:"template"`
			Output    *string `json:"output"`
			ErrorKind string  `json:"error_kind"`
			Error     string  `json:"error"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	now, err := time.Parse("2006-01-02T15:04:05", set.Now)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, c := range set.Cases {
		t.Run(c.Template, func(t *testing.T) {
			tmpl, err := Parse(c.Template)
			var p Text
			if err == nil {
				p, err = renderJSON(tmpl, set.Context, Options{Now: now, Limits: noTime})
			}
			switch {
			case c.Output == nil && err == nil:
				t.Errorf("got %q, want an error (%s)", p.String(), c.Error)
			case c.Output != nil && err != nil:
				t.Error(err)
			case c.Output != nil && p.String() != *c.Output:
				t.Error(fixtures.FirstDifference(p.String(), *c.Output))
			default:
				passed++
			}
		})
	}
	fixtures.Row(t, "template language", "reference snippets", passed, len(set.Cases))
}

// nonce marks the text of a request, to find it in what a template makes of it.
const nonce = "§7q§"

// jsonString returns s as JSON.
func jsonString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
