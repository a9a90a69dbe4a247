package jinja

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestEveryBudgetStopsTheTemplateThatExceedsIt(t *testing.T) {
	deepJSON := `{"d":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`
	chain := func(link string, n int) string { return "{{ a" + strings.Repeat(link, n) + " }}" }
	for _, c := range []struct{ what, source, request, budget string }{
		{"a large range", "{{ range(1000000000) }}", "{}", "range"},
		{"a range that runs backwards", "{{ range(0, -1000000000, -1) }}", "{}", "range"},
		{"nested loops", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{}", "memory"},
		{"a loop that only scans", "{% set t = 'ab' * 1000000 %}{% for i in range(99999) %}{{ 'c' in t }}{% endfor %}", "{}", "steps"},
		{"much output", "{% set t = 'x' * 100000 %}{% for i in range(99) %}{{ t }}{% endfor %}", "{}", "output"},
		{"a repeated string", "{{ 'abc' * 1000000000 }}", "{}", "string"},
		{"a string that doubles", "{% set n = namespace(t='x') %}{% for i in range(40) %}{% set n.t = n.t + n.t %}{% endfor %}", "{}", "string"},
		{"a list that doubles", "{% set n = namespace(l=[1]) %}{% for i in range(40) %}{% set n.l = n.l + n.l %}{% endfor %}", "{}", "memory"},
		{"a repeated list", "{{ [1] * 1000000000 }}", "{}", "range"},
		{"padding", "{{ 'x'.ljust(1000000000) }}", "{}", "string"},
		{"a width in a format", "{{ '%1000000000d' % 1 }}", "{}", "string"},
		{"a precision in a format", "{{ '%.1000000000f' % 1 }}", "{}", "string"},
		{"digits of a float", "{{ '%.999999999f' % 1.5 }}", "{}", "string"},
		{"a replacement that grows", "{% set t = 'x' * 10000 %}{{ t | replace('x', t) }}", "{}", "string"},
		{"a join that grows", "{% set t = 'x' * 100000 %}{{ range(1000) | join(t) }}", "{}", "string"},
		{"indentation", "{{ ('\\n' * 100000 ~ 'x') | indent(1000, blank=true) }}", "{}", "string"},
		{"indented JSON", "{{ [[[[[[[[1]]]]]]]] | tojson(indent=10000000) }}{{ [1] * 1000 | tojson(indent=100000) }}", "{}", "string"},
		{"a power", "{{ 9 ** 99999 }}", "{}", "integer"},
		{"a product of integers", "{% set n = namespace(i=7) %}{% for i in range(99) %}{% set n.i = n.i * n.i %}{% endfor %}", "{}", "integer"},
		{"a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", "nesting depth"},
		{"a macro that calls itself as caller", "{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}", "{}", "nesting depth"},
		{"a loop that calls itself", "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{}", "nesting depth"},
		{"a list that grows inwards", "{% set n = namespace(l=[]) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}", "{}", "nesting depth"},
		{"JSON of it", "{% set n = namespace(l=[]) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l | tojson }}", "{}", "nesting depth"},
		{"a comparison of two of it", "{% set n = namespace(l=[], m=[]) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% set n.m = [n.m] %}{% endfor %}{{ n.l == n.m }}", "{}", "nesting depth"},
		{"a tuple of it as key", "{% set n = namespace(l=()) %}{% for i in range(999) %}{% set n.l = (n.l,) %}{% endfor %}{{ {n.l: 1} }}", "{}", "nesting depth"},
		{"a namespace that holds itself", "{% set n = namespace() %}{% set n.n = n %}{{ n }}", "{}", "nesting depth"},
		{"brackets", "{{ " + strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100) + " }}", "{}", "nesting depth"},
		{"signs", "{{ " + strings.Repeat("-", 100) + "1 }}", "{}", "nesting depth"},
		{"nots", "{{ " + strings.Repeat("not ", 100) + "1 }}", "{}", "nesting depth"},
		{"tags", strings.Repeat("{% if 1 %}", 100), "{}", "nesting depth"},
		{"targets", "{% set " + strings.Repeat("(", 100) + "a" + strings.Repeat(")", 100) + " = 1 %}", "{}", "nesting depth"},
		{"attributes in a row", chain(".a", 100), "{}", "nesting depth"},
		{"calls in a row", chain("()", 100), "{}", "nesting depth"},
		{"filters in a row", chain("|trim", 100), "{}", "nesting depth"},
		{"choices in a row", chain(" if a else a", 100), "{}", "nesting depth"},
		{"values of the request", "{{ d }}", deepJSON, "nesting depth"},
		{"a long integer in the request", "{{ i }}", `{"i":` + strings.Repeat("9", 5000) + `}`, "integer"},
		{"a long integer in the template", "{{ " + strings.Repeat("9", 5000) + " }}", "{}", "integer"},
		{"a long template", strings.Repeat("x", maxSource+1), "{}", "source"},
	} {
		t.Run(c.what, func(t *testing.T) {
			p, err := render(c.source, c.request)
			var limit *LimitError
			if !errors.As(err, &limit) {
				t.Fatalf("got %d bytes and error %v, want a *LimitError", len(p.String()), err)
			}
			if limit.Budget != c.budget {
				t.Errorf("got %v, want the %s budget", err, c.budget)
			}
		})
	}
}

func TestLongChainsWithoutNestingAreRendered(t *testing.T) {
	for _, source := range []string{
		"{{ 1" + strings.Repeat(" + 1", 1000) + " }}",
		"{{ 1" + strings.Repeat(" and 1", 1000) + " }}",
		"{{ ''" + strings.Repeat(" ~ ''", 1000) + " }}",
		"{% if 0 %}" + strings.Repeat("{% elif 0 %}", 1000) + "{% endif %}",
		"{{ [" + strings.Repeat("1,", 1000) + "] | length }}",
	} {
		if _, err := render(source, "{}"); err != nil {
			t.Errorf("%.30s…: %v", source, err)
		}
	}
}

func TestTheTimeBudgetIsMeasuredByTheGivenClock(t *testing.T) {
	tmpl, err := Parse("{% for i in range(9999) %}{{ i }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	for tick, wantLimit := range map[time.Duration]bool{0: false, 100 * time.Millisecond: true} {
		used := time.Duration(0)
		clock := func() time.Duration {
			used += tick
			return used
		}
		_, err := tmpl.render(context.Background(), NewDict(), Options{Now: testNow}, clock)
		var limit *LimitError
		if got := errors.As(err, &limit); got != wantLimit || wantLimit && limit.Budget != "time" {
			t.Errorf("clock that ticks %v: %v", tick, err)
		}
	}
}

func TestAnErrorMessageIsShortWhateverTheTemplatePutsInIt(t *testing.T) {
	for _, source := range []string{"{{ raise_exception('x' * 10000) }}", "{{ [1].index('x' * 10000) }}"} {
		if _, err := render(source, "{}"); err == nil || len(err.Error()) > 3000 {
			t.Errorf("%s: %d bytes", source, len(err.Error()))
		}
	}
}
