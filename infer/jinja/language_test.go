package jinja

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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

func TestTheLanguageRendersAsJinja2Does(t *testing.T) {
	set := loadLanguage(t)
	if len(set.Cases) < 466 {
		t.Fatalf("only %d cases", len(set.Cases))
	}
	passed := 0
	for _, c := range set.Cases {
		t.Run(c.Template, func(t *testing.T) {
			p, err := render(c.Template, string(set.Context))
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
			_, err := render(fmt.Sprintf(tag, name), "{}")
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
		{"a filter that no template of the field uses is refused by its name", "{{ 'a b' | wordcount }}", "line 1: no filter named 'wordcount'"},
		{"an unknown test is named", "{{ 1 is prime }}", "line 1: no test named 'prime'"},
		{"an unknown function is named", "{{ now() }}", "'now' is undefined"},
		{"an unknown tag is named", "a\n\n{% frobnicate %}", `line 3: unknown tag "frobnicate"`},
		{"an import is refused", "{% include 'x' %}", `"include" is refused`},
		{"a missing end is named", "{% if a %}", `expected "endif"`},
		{"a bracket that does not match", "{{ (a] }}", "unexpected ']', expected ')'"},
		{"an attribute of something undefined", "{{ a.b }}", "'a' is undefined"},
		{"a line inside a macro", "{% macro m() %}\n{{ none + 1 }}\n{% endmacro %}\n{{ m() }}", "line 2: "},
		{"a loop control outside of a loop", "{% break %}", `"break" outside of a loop`},
		{"a conversion that no template of the field uses is refused by its name", "{{ '%+d' % 1 }}", "line 1: the format %+ is not supported"},
		{"a key in a format", "{{ '%(a)s' % {'a': 1} }}", "the format %( is not supported"},
		{"a precision of a text", "{{ '%.2s' | format('abc') }}", "the format %.2s is not supported"},
		{"a keyword of the filter format", "{{ '%s' | format(a=1) }}", "format takes no keyword argument 'a'"},
		{"a field with a name", "{{ '{a}'.format(a=1) }}", "the field {a} is not supported"},
		{"a field with a format", "{{ '{:>5}'.format(1) }}", "the field {:>5} is not supported"},
		{"a method that no template of the field uses", "{{ '{}'.format_map({}) }}", "format_map"},
		{"an argument of a filter", "{{ 'a' | trim(color='red') }}", "unexpected keyword argument 'color'"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := render(c.source, "{}")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestARefusalCarriesTheTemplatesMessage(t *testing.T) {
	_, err := render("\n{{ raise_exception('roles must alternate') }}", "{}")
	var raised *RaisedError
	if !errors.As(err, &raised) || raised.Message != "roles must alternate" || raised.Line != 2 {
		t.Errorf("got %#v", err)
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
