package jinja

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
)

// TestMain limits the stack to 64 MB, beyond which the tests abort.
func TestMain(m *testing.M) {
	debug.SetMaxStack(64 << 20)
	os.Exit(m.Run())
}

// smallLimits are the limits for templates that exceed them.
var smallLimits = Limits{Steps: 25_000, Output: 1 << 16, Alloc: 2 << 20}

// mostAllocated limits what a rendering may allocate under smallLimits, garbage and
// uncounted memory included: growing a value allocates it twice, and steps allocate numbers.
const mostAllocated = 4*(2<<20) + 25_000*128

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// tryHostile renders source and fails if that allocates more than the limits permit.
func tryHostile(t *testing.T, source string) error {
	t.Helper()
	tmpl, err := Parse(source)
	if err != nil {
		t.Fatalf("%.200s: %v", source, err)
	}
	took := allocated(func() { _, err = renderLimited(tmpl, smallLimits) })
	if took > mostAllocated {
		t.Errorf("%.200s: it allocated %d bytes, at most %d are allowed, and ended with %v", source, took, mostAllocated, err)
	}
	checkHostile(t, source, err)
	return err
}

// checkHostile fails unless err is nil or of a type that Render may return.
func checkHostile(t *testing.T, source string, err error) {
	t.Helper()
	var render *RenderError
	var raised *RaisedError
	var limit *LimitError
	if err != nil && !errors.As(err, &render) && !errors.As(err, &raised) && !errors.As(err, &limit) {
		t.Errorf("%.200s: unexpected kind of error: %T %v", source, err, err)
	}
}

const hostileRequest = `{"messages":[{"role":"user","content":"hi"}],"n":3,"d":{"a":1,"b":[1,2]}}`

// grow returns a template that grows ns.v n times by an expression of it.
func grow(first, next string, n int, use string) string {
	return fmt.Sprintf("{%% set ns = namespace(v=%s) %%}{%% for i in range(%d) %%}{%% set ns.v = %s %%}{%% endfor %%}{{ %s }}", first, n, next, use)
}

func TestNestingInATemplateTakesABoundedStack(t *testing.T) {
	lazy := []string{"select", "reject('none')", "map('list')", "unique", "batch(1)", "slice(1)", "selectattr('x', 'undefined')", "map(attribute='x')", "reverse"}
	long := func(call string) string {
		return "{{ " + strings.Repeat("(", 28) + call + strings.Repeat(strings.Repeat("|trim", 60)+" is string)", 28) + " }}"
	}
	deep := []string{
		// A filter of a loop that asks the loop itself how long it is.
		"{% set ns = namespace(l='') %}{% for i in [0] * 90000 if ns.l|string %}{% set ns.l = loop %}{% endfor %}",
		"{% set ns = namespace(l=[]) %}{% for i in range(90000) if ns.l.last or 1 %}{% set ns.l = loop %}{{ loop.last }}{% endfor %}",
		"{% set ns = namespace(l=[]) %}{% for i in range(90000) if ns.l.nextitem or 1 %}{% set ns.l = loop %}{{ loop.length }}{% endfor %}",
		// Macros and loops that call themselves from inside the longest expressions.
		"{% macro m() %}" + long("m()") + "{% endmacro %}{{ m() }}",
		"{% macro m() %}{% call m() %}{% endcall %}" + long("m()") + "{% endmacro %}{{ m() }}",
		"{% for i in [1] recursive %}" + long("loop([1])") + "{% endfor %}",
	}
	for _, f := range lazy {
		deep = append(deep, grow("[1]", "ns.v"+strings.Repeat("|"+f, 50), 900, "ns.v|list|length"))
	}
	for _, source := range deep {
		_, err := renderWith(source, noTime)
		checkHostile(t, source, err)
	}
	wide := []string{}
	for _, f := range lazy {
		for _, use := range []string{"ns.v|list|length", "1 in ns.v", "ns.v|join", "ns.v|first", "ns.v|sort", "dict(ns.v)"} {
			wide = append(wide, grow("[1]", "ns.v|"+f, 900, use))
		}
	}
	for _, nest := range []string{"[ns.v]", "(ns.v,)", "{'a': ns.v}", "namespace(a=ns.v)", "{(ns.v,): 1}", "[ns.v].copy()", "dict(a=ns.v).items()", "[ns.v]|map('list')"} {
		for _, use := range []string{"ns.v", "ns.v|tojson", "ns.v == ns.v", "ns.v < ns.v", "[ns.v, ns.v]|sort", "[ns.v, ns.v]|unique|list", "{(ns.v,): 1}", "ns.v in [ns.v]", "'%s' % [ns.v]", "'{}'.format(ns.v)", "'%s' % [[ns.v]]",
			"[ns.v]|groupby('a')", "[ns.v]|sum(start=[])", "ns.v|string|length", "[ns.v]|join", "ns.v is sameas ns.v", "ns.v|escape", "[ns.v].index(1)", "[ns.v].count(ns.v)", "raise_exception(ns.v)"} {
			wide = append(wide, grow("1", nest, 900, use))
		}
	}
	for _, source := range wide {
		tryHostile(t, source)
	}
}

func TestGeneratorsThatReadEachOtherCountAsNesting(t *testing.T) {
	source := "{% set ns = namespace(g=[1]) %}{% for i in range(16000) %}{% set ns.g = ns.g" + strings.Repeat("|select", 50) + " %}{% endfor %}{{ ns.g|list|length }}"
	for name, l := range map[string]Limits{"the default limits": noTime, "small ones": smallLimits} {
		_, err := renderWith(source, l)
		var limit *LimitError
		if !errors.As(err, &limit) {
			t.Errorf("%s: got %v, want a *LimitError", name, err)
		}
	}
	out, err := render("{{ [3,1,3]"+strings.Repeat("|select", 50)+"|list }}", "{}")
	if err != nil || out.String() != "[3, 1, 3]" {
		t.Errorf("fifty of them give %q, %v", out, err)
	}
}

func renderWith(source string, l Limits) (Text, error) {
	tmpl, err := Parse(source)
	if err != nil {
		return Text{}, err
	}
	return renderLimited(tmpl, l)
}

func renderLimited(tmpl *Template, l Limits) (Text, error) {
	return renderJSON(tmpl, []byte(hostileRequest), Options{Now: testNow, Limits: l})
}

// hostileValues are expressions of values that are as large as smallLimits permit.
var hostileValues = []string{
	"'x' * 50000", "'x ' * 25000", "'<b>' * 15000", "'\\n' * 50000", "'-' * 50000", "'\\x01' * 50000", "'\U0001F600' * 50000", "'ß' * 25000", "'a,' * 25000", "'{}' * 25000", "'%s' * 25000", "'a.' * 25000", "'%' * 50000", "'1' * 50000",
	"range(20000)", "[1] * 20000", "[[]] * 20000", "['x' * 5000] * 5000", "[{}] * 20000", "[{'a': 'x' * 5000}] * 5000", "[(1, 2)] * 20000", "['ab'] * 20000", "[('x' * 15000,)] * 20000", "[9 ** 5000] * 2000", "[none] * 20000",
	"range(20000)|map('string')", "range(20000)|select", "range(20000)|map('float')", "range(20000)|map('int')|batch(1)",
	"((((), ) * 300, ) * 300, ) * 300", "dict(range(9000)|map('string')|batch(2))", "9 ** 5000", "-9 ** 5000", "1e300", "[[1] * 300] * 300",
}

// TestNoFilterTakesMoreThanItsBudget applies each filter, test and method to the largest
// values, with arguments that make the result large.
func TestNoFilterTakesMoreThanItsBudget(t *testing.T) {
	arguments := []string{"", "(1)", "(90000)", "('x')", "(v)", "('x', 'x' * 1000)", "('', 'xy')", "(1, 'x' * 1000)", "('a,' * 9000)", "('string')", "('list')", "('attr', 'upper')", "(attribute='a,' * 9000)", "(attribute='a.' * 9000)", "(attribute=0)", "('in', v)", "(indent=1000)", "(start=[])", "(90000, true, true)", "('%d' * 15000)"}
	apply := []string{}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		for _, a := range arguments {
			apply = append(apply, "v|"+name+a)
		}
	}
	for _, name := range testNames() {
		apply = append(apply, "v is "+name, "v is "+name+"(v)", "v is "+name+"(2)")
	}
	methods := strings.Fields(`upper lower casefold title capitalize swapcase strip lstrip rstrip split rsplit splitlines partition rpartition startswith endswith
		removeprefix removesuffix replace join find rfind index rindex count center ljust rjust zfill expandtabs format isalpha isidentifier istitle get keys values items copy`)
	for _, name := range methods {
		for _, a := range []string{"()", "('x')", "(v)", "(90000)", "('', 'xy')", "('x', v)", "(90000, 'y')", "(['x'] * 9000)", "(1, 2)", "(*range(9000))"} {
			apply = append(apply, "v."+name+a)
		}
	}
	for _, op := range []string{"v + v", "v * 9", "v * 90000", "9 * v", "v ~ v", "v % v", "v % (1, 2)", "v ** 9", "v // 7", "v == v", "v < v", "v in v", "1 in v", "v[::2]", "v[::-1]", "v[1:]", "v[5]", "v['x']", "v.x", "{v: v}", "{(v, v): 1}", "[v, v, v]", "namespace(a=v)", "dict(v)",
		"'%s %s %s' % (v, v, v)", "'{} {0} {}'.format(v, v, v)", "'{} {} {}'.format(v, v, v)", "'%x' % v", "'%90000f' % v", "'%50000s' % (v,)", "range(v)", "cycler(v)", "joiner(v)()", "strftime_now(v)", "raise_exception(v)", "missing_name[v]", "-v", "not v", "n[v]", "d[v]", "d.get(v)", "messages[0][v]", "v()", "v is mapping or v", "none[v]", "true[v]", "1.5[v]", "[n, d, 1, none, true]|map(attribute=v)|list", "range(9000)|map(attribute=v)|list"} {
		apply = append(apply, op)
	}
	values := hostileValues
	n := 0
	for _, value := range values {
		for i, x := range apply {
			if !fixtures.Torture() && (n+i)%151 != 0 {
				continue
			}
			// Once, and with all results of a loop held.
			tryHostile(t, "{% set v = "+value+" %}{{ "+x+" }}")
			if fixtures.Torture() || (n+i)%5 == 0 {
				tryHostile(t, "{% set v = "+value+" %}{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l, "+x+"] %}{% endfor %}")
			}
		}
		n++
	}
}

func TestMemoryThatATemplateHoldsIsCounted(t *testing.T) {
	many := make([]string, 20000)
	for i := range many {
		many[i] = fmt.Sprintf("a%d", i)
	}
	params := strings.Join(many, ",")
	for _, source := range []string{
		"{{ range(9000)|sort(attribute='a,' * 30000)|list|length }}",
		"{{ range(9000)|map(attribute='x' * 50000)|list|length }}",
		"{% set k = 'x' * 50000 %}{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l, 1[k]] %}{% endfor %}",
		"{{ {((((((((),) * 99,) * 99,) * 99,) * 99,) * 99,) * 99,) * 99: 1} }}",
		"{{ ([9 ** 5000] * 90000)|map('int')|list|length }}",
		"{% macro m(" + params + ") %}{% macro n() %}{% endmacro %}{% set ns.l = [ns.l, n] %}{% endmacro %}{% set ns = namespace(l=1) %}{% for i in range(9000) %}{{ m() }}{% endfor %}",
		"{% set d = dict(range(9000)|map('string')|batch(2)) %}{% for i in range(9000) %}{{ 'x'.format(**d) }}{% endfor %}",
		"{% set d = dict(range(9000)|map('string')|batch(2)) %}{% for i in range(9000) %}{% set x = dict(**d) %}{% endfor %}",
		"{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l, ('x' * 50000, i)|list, {('x' * 50000, i): 1}] %}{% endfor %}",
		"{% for i in range(9000) %}{{ ('a b ' * 15000)|title|length }}{% endfor %}",
		"{% for i in range(9000) %}{{ ('<b>' * 20000)|striptags }}{% endfor %}",
		"{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l, 'a b' * 20000] %}{% endfor %}",
	} {
		var limit *LimitError
		if err := tryHostile(t, source); !errors.As(err, &limit) {
			t.Errorf("%.100s: got %v, want a *LimitError", source, err)
		}
	}
}

func TestAGeneratorInATupleIsAKeyOfItsOwn(t *testing.T) {
	p, err := render("{% set a, b = [1]|select, [2]|select %}{% set d = {(a,): 1, (b,): 2} %}{{ d|length }} {{ d[(b,)] }} {{ {(1,): 'x', (true,): 'y', (1.0,): 'z'} }}", "{}")
	if want := "2 2 {(1,): 'z'}"; err != nil || p.String() != want {
		t.Errorf("got %q, %v, want %q", p, err, want)
	}
}

func TestARequestTakesNoMoreMemoryThanARendering(t *testing.T) {
	requests := map[string]string{
		"empty lists":  `{"a":[` + strings.Repeat("[],", 1<<19) + `1]}`,
		"empty dicts":  `{"a":[` + strings.Repeat("{},", 1<<19) + `1]}`,
		"little dicts": `{"a":[` + strings.Repeat(`{"a":1},`, 1<<19) + `1]}`,
		"texts":        `{"a":[` + strings.Repeat(`"",`, 1<<19) + `1]}`,
		"numbers":      `{"a":[` + strings.Repeat(`1.5,`, 1<<19) + `1]}`,
		"keys":         `{` + strings.Repeat(`"a":1,`, 1<<19) + `"b":1}`,
	}
	for what, request := range requests {
		if !fixtures.Torture() && what != "little dicts" && what != "empty lists" {
			continue
		}
		var err error
		most := uint64(6 * DefaultLimits.Alloc)
		if got := allocated(func() { _, err = DecodeJSON([]byte(request)) }); got > most {
			t.Errorf("%s: %d bytes were allocated for %d, at most %d are allowed", what, got, len(request), most)
		}
		var limit *LimitError
		if err != nil && !errors.As(err, &limit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := DecodeJSON([]byte(`"` + strings.Repeat("x", 8<<20) + `"`)); err != nil {
		t.Errorf("a long text: %v", err)
	}
}
