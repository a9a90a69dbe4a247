package chat

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/fixtures"
)

//go:embed testdata/language.json
var languageJSON []byte // made by testdata/language.py

type languageSet struct {
	Jinja2  string          `json:"jinja2"`
	Now     string          `json:"now"`
	Context json.RawMessage `json:"context"`
	Cases   []struct {
		Template string  `json:"template"`
		Output   *string `json:"output"`
		Error    string  `json:"error"`
	} `json:"cases"`
}

func loadLanguage(t testing.TB) languageSet {
	t.Helper()
	var set languageSet
	if err := json.Unmarshal(languageJSON, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

var testNow = time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)

// render renders without a time limit, whose effect would depend on the machine.
func render(source, request string, o Options) (Prompt, error) {
	t, err := Parse(source)
	if err != nil {
		return nil, err
	}
	o.Now = testNow
	return t.renderJSON(context.Background(), []byte(request), o, noTime, threadCPUTime)
}

func TestTheLanguageRendersAsJinja2Does(t *testing.T) {
	set := loadLanguage(t)
	if len(set.Cases) < 480 {
		t.Fatalf("only %d cases", len(set.Cases))
	}
	passed := 0
	for _, c := range set.Cases {
		t.Run(c.Template, func(t *testing.T) {
			p, err := render(c.Template, string(set.Context), Options{})
			switch {
			case c.Output == nil && err == nil:
				t.Errorf("got %q, want an error (%s)", p.String(), c.Error)
			case c.Output != nil && err != nil:
				t.Error(err)
			case c.Output != nil && p.String() != *c.Output:
				t.Error(firstDifference(p.String(), *c.Output))
			default:
				passed++
			}
		})
	}
	fixtures.Row(t, "template language", "Jinja2 "+set.Jinja2, passed, len(set.Cases))
}

// testNames returns the names of tests that can be written without quotes.
func testNames() []string {
	names := slices.Concat(slices.Sorted(maps.Keys(tests)), slices.Sorted(maps.Keys(comparisons)))
	return slices.DeleteFunc(names, func(name string) bool {
		return strings.ContainsAny(name, "=<>")
	})
}

func TestFiltersAndTestsAreKnownByTheirNames(t *testing.T) {
	filterNames := slices.Collect(maps.Keys(filters))
	for tag, names := range map[string][]string{"{{ 1 | %s }}": append(filterNames, "shout"), "{{ 1 is %s }}": append(testNames(), "prime")} {
		for _, name := range names {
			_, err := render(fmt.Sprintf(tag, name), "{}", Options{})
			unknown := err != nil && strings.Contains(err.Error(), "named '"+name+"'")
			if want := name == "shout" || name == "prime"; unknown != want {
				t.Errorf(tag+" says %v", name, err)
			}
		}
	}
}

func TestErrorsSayWhatIsWrongAndWhere(t *testing.T) {
	for _, c := range []struct{ what, source, want string }{
		{"an unknown filter is named", "\n{{ 1 | shout }}", "line 2: no filter named 'shout'"},
		{"an unknown test is named", "{{ 1 is prime }}", "line 1: no test named 'prime'"},
		{"an unknown function is named", "{{ now() }}", "'now' is undefined"},
		{"an unknown tag is named", "a\n\n{% frobnicate %}", `line 3: unknown tag "frobnicate"`},
		{"an import is refused", "{% include 'x' %}", `"include" is refused`},
		{"a missing end is named", "{% if a %}", `expected "endif"`},
		{"a bracket that does not match", "{{ (a] }}", "unexpected ']', expected ')'"},
		{"an attribute of something undefined", "{{ a.b }}", "'a' is undefined"},
		{"a line inside a macro", "{% macro m() %}\n{{ none + 1 }}\n{% endmacro %}\n{{ m() }}", "line 2: "},
		{"a loop control outside of a loop", "{% break %}", `"break" outside of a loop`},
		{"an argument of a filter", "{{ 'a' | trim(color='red') }}", "unexpected keyword argument 'color'"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := render(c.source, "{}", Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestARefusalCarriesTheTemplatesMessage(t *testing.T) {
	_, err := render("\n{{ raise_exception('roles must alternate') }}", "{}", Options{})
	var raised *RaisedError
	if !errors.As(err, &raised) || raised.Message != "roles must alternate" || raised.Line != 2 {
		t.Errorf("got %#v", err)
	}
}

func TestRenderGivesMessagesToolsAndVariablesToTheTemplate(t *testing.T) {
	tmpl, err := Parse(`{{ bos_token }}{% for m in messages %}{{ m | tojson }}{{ eos_token }}{% endfor %}{{ tools | tojson }}{{ documents }}{{ level }}{{ add_generation_prompt }}{{ strftime_now('%Y') }}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.Render(context.Background(), Input{
		Messages: []Message{
			{Role: "user", Content: "bad \xff byte"},
			{Role: "assistant", ReasoningContent: "hm", ToolCalls: json.RawMessage(`[{"z":1.0,"a":1}]`)},
			{Role: "tool", Content: "4", Name: "add", ToolCallID: "c1"},
		},
		Tools:               json.RawMessage(`[{"b":1,"a":2}]`),
		AddGenerationPrompt: true,
		Vars:                map[string]json.RawMessage{"level": json.RawMessage(`"high"`), "messages": json.RawMessage(`[]`), "bos_token": json.RawMessage(`"x"`)},
		BOSToken:            "<s>",
		EOSToken:            "</s>",
		Now:                 testNow,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `<s>{"role": "user", "content": "bad ` + "\uFFFD" + ` byte"}</s>` +
		`{"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [{"z": 1.0, "a": 1}]}</s>` +
		`{"role": "tool", "content": "4", "name": "add", "tool_call_id": "c1"}</s>` +
		`[{"b": 1, "a": 2}]NonehighTrue2025`
	if p.String() != want {
		t.Error(firstDifference(p.String(), want))
	}
}

func TestToolsAreNoneWhereThereAreNone(t *testing.T) {
	tmpl, err := Parse(`{{ tools is none }}{{ documents is none }}{{ enable_thinking is defined }}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.Render(context.Background(), Input{})
	if err != nil || p.String() != "TrueTrueFalse" {
		t.Errorf("got %q, %v", p.String(), err)
	}
}

func TestAMalformedVariableIsNamed(t *testing.T) {
	for what, in := range map[string]Input{
		`"tools"`: {Tools: json.RawMessage(`[1`)},
		`"level"`: {Vars: map[string]json.RawMessage{"level": json.RawMessage(`{} {}`)}},
		"message": {Messages: []Message{{Role: "assistant", ToolCalls: json.RawMessage(`{`)}}},
	} {
		if _, err := ChatML.Render(context.Background(), in); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want an error that names %s", err, what)
		}
	}
}

func TestChatMLIsTheFormatThatTheNameStandsFor(t *testing.T) {
	p, err := ChatML.Render(context.Background(), Input{
		Messages:            []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "  Hi\n"}, {Role: "assistant"}},
		AddGenerationPrompt: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n  Hi\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n"
	if p.String() != want {
		t.Error(firstDifference(p.String(), want))
	}
}

func TestRenderJSONTakesTheVariablesFromTheRequest(t *testing.T) {
	tmpl, err := Parse(`{{ bos_token }}{{ tools is defined }}{{ messages | tojson }}{{ x }}{{ eos_token }}{{ strftime_now('%F') }}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.RenderJSON(context.Background(), []byte(`{"messages":[{"z":1,"a":1.0}],"x":[1],"eos_token":"E"}`), Options{BOSToken: "B", EOSToken: "lost", Now: testNow})
	if want := `BFalse⟦[{"z": 1, "a": 1.0}]⟧[1]⟦E⟧2025-03-14`; err != nil || show(p) != want {
		t.Errorf("got %s, %v, want %s", show(p), err, want)
	}
	for _, request := range []string{"", "[]", "{", `{} x`, `{"a": tru}`} {
		if _, err := tmpl.RenderJSON(context.Background(), []byte(request), Options{}); err == nil {
			t.Errorf("request %q: no error", request)
		}
	}
}

func TestChatMLTakesContentInPartsAndNone(t *testing.T) {
	p, err := render(ChatMLSource, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]},{"role":"assistant","content":null}]}`, Options{})
	if want := "<|im_start|>user\n⟦ab⟧<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"; err != nil || show(p) != want {
		t.Errorf("got %s, %v, want %s", show(p), err, want)
	}
}

func TestUsesReportsFreeVariablesOnly(t *testing.T) {
	tmpl, err := Parse(`{% macro show(tools, n=depth) %}{{ tools }}{{ caller() }}{% endmacro %}{% for m in messages if m.role != hidden %}{{ m }}{{ loop.index }}{% endfor %}{{ x.enable_thinking }}{% if reasoning_effort is defined %}{% endif %}{{ show(['a']) }}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"messages": true, "hidden": true, "depth": true, "reasoning_effort": true, "x": true,
		"tools": false, "m": false, "loop": false, "caller": false, "enable_thinking": false,
	} {
		if tmpl.Uses(name) != want {
			t.Errorf("Uses(%q) = %v", name, !want)
		}
	}
}

func TestTheHashIsThatOfTheSource(t *testing.T) {
	tmpl, err := Parse("abc")
	if err != nil {
		t.Fatal(err)
	}
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; tmpl.Hash() != want {
		t.Errorf("got %s, want FIPS 180's %s", tmpl.Hash(), want)
	}
}
