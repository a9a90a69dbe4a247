package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/jinja"
)

// noTime are the default limits without that of time, whose effect would depend on the machine.
var noTime = jinja.Limits{Steps: jinja.DefaultLimits.Steps, Output: jinja.DefaultLimits.Output, Alloc: jinja.DefaultLimits.Alloc}

var testNow = time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)

// render renders at testNow without a limit of time.
func render(source, request string, o Options) (Prompt, error) {
	t, err := Parse(source)
	if err != nil {
		return nil, err
	}
	o.Now = testNow
	return t.renderJSON(context.Background(), []byte(request), o, noTime)
}

type fixtureCase struct {
	Conversation        string                     `json:"conversation"`
	AddGenerationPrompt bool                       `json:"add_generation_prompt"`
	Kwargs              map[string]json.RawMessage `json:"kwargs"`
	ToolsUndefined      bool                       `json:"tools_undefined"`
	Output              *string                    `json:"output"`
	ErrorKind           string                     `json:"error_kind"`
	Error               string                     `json:"error"`
}

type fixtureTemplate struct {
	Name          string            `json:"name"`
	Source        string            `json:"source"`
	SpecialTokens map[string]string `json:"special_tokens"`
	Cases         []fixtureCase     `json:"cases"`
}

type fixtureSet struct {
	Now           string                                `json:"now"`
	Conversations map[string]map[string]json.RawMessage `json:"conversations"`
	Templates     []fixtureTemplate                     `json:"templates"`
}

func loadFixtures(t testing.TB) fixtureSet {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "templates", "chat_templates.json"))
	if err != nil {
		t.Fatal(err)
	}
	var set fixtureSet
	if err := json.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// request builds the variables of a case; raw JSON keeps the order of keys.
func (set fixtureSet) request(c fixtureCase) []byte {
	vars := map[string]json.RawMessage{}
	if !c.ToolsUndefined {
		vars["tools"], vars["documents"] = json.RawMessage("null"), json.RawMessage("null")
	}
	for k, v := range set.Conversations[c.Conversation] {
		vars[k] = v
	}
	for k, v := range c.Kwargs {
		vars[k] = v
	}
	vars["add_generation_prompt"] = json.RawMessage(fmt.Sprint(c.AddGenerationPrompt))
	var b bytes.Buffer
	sep := "{"
	for k, v := range vars {
		fmt.Fprintf(&b, "%s%q:%s", sep, k, v)
		sep = ","
	}
	b.WriteString("}")
	return b.Bytes()
}

func TestEveryPublicTemplateGivesTheReferenceOutput(t *testing.T) {
	set := loadFixtures(t)
	now, err := time.Parse("2006-01-02T15:04:05", set.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, ft := range set.Templates {
		tmpl, err := Parse(ft.Source)
		if err != nil {
			t.Errorf("%s: %v", ft.Name, err)
			continue
		}
		failures := 0
		for i, c := range ft.Cases {
			p, err := tmpl.renderJSON(context.Background(), set.request(c), Options{BOSToken: ft.SpecialTokens["bos_token"], EOSToken: ft.SpecialTokens["eos_token"], Now: now}, noTime)
			why := ""
			switch {
			case c.Output != nil && err != nil:
				why = err.Error()
			case c.Output != nil && p.String() != *c.Output:
				why = fixtures.FirstDifference(p.String(), *c.Output)
			case c.Output == nil && err == nil:
				why = fmt.Sprintf("no error, want %s: %s; got %.200q", c.ErrorKind, c.Error, p.String())
			}
			var limit *jinja.LimitError
			if errors.As(err, &limit) {
				why = err.Error()
			}
			if why == "" {
				continue
			}
			if failures++; failures <= 2 {
				t.Errorf("%s, case %d (%s, tools_undefined %v): %s", ft.Name, i, c.Conversation, c.ToolsUndefined, why)
			}
		}
		fixtures.Row(t, "template cases", ft.Name, len(ft.Cases)-failures, len(ft.Cases))
	}
}
