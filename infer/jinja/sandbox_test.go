package jinja

import (
	goparser "go/parser"
	gotoken "go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A template cannot reach the host, because the package imports nothing that can. The one
// exception is a clock, which templates cannot read.
func TestThePackageImportsNothingThatReachesTheHost(t *testing.T) {
	allowed := []string{
		"bytes", "cmp", "context", "crypto/sha256", "encoding/hex", "encoding/json", "errors", "fmt", "html", "io", "math", "math/big",
		"runtime", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf16", "unicode/utf8",
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := goparser.ParseFile(gotoken.NewFileSet(), f.Name(), nil, goparser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, imp := range file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			clock := f.Name() == "clock_linux.go" && path == "golang.org/x/sys/unix"
			if !clock && !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", f.Name(), path)
			}
		}
	}
	if checked == 0 {
		t.Fatal("no files checked")
	}
}

// attacks returns template injections that work on Jinja2 or similar languages.
func attacks() []string {
	roots := []string{"''", "[]", "()", "{}", "1", "none", "true", "namespace", "range", "dict", "cycler", "joiner", "lipsum", "self", "config", "request",
		"raise_exception", "strftime_now", "messages", "messages[0]", "namespace()", "loop", "caller", "varargs", "url_for", "get_flashed_messages", "g", "session", "environ", "os"}
	paths := []string{
		".__class__.__mro__[1].__subclasses__()",
		".__class__.__base__.__subclasses__()[40]('/etc/passwd').read()",
		".__init__.__globals__['os'].popen('id').read()",
		".__init__.__globals__.__builtins__.__import__('os').system('id')",
		"['__class__']['__mro__'][1]['__subclasses__']()",
		"|attr('__class__')|attr('__mro__')|attr('__getitem__')(1)",
		"|attr('\\x5f\\x5fclass\\x5f\\x5f')|attr('__init__')|attr('__globals__')",
		"['\\u005f\\u005fclass\\u005f\\u005f'].mro()",
		"|map(attribute='__class__')|list|first|attr('mro')",
		".__globals__.sys.modules.os.environ",
		".func_globals.os.popen('id').read()",
	}
	var out []string
	for _, r := range roots {
		for _, p := range paths {
			out = append(out, "{{ ("+r+")"+p+" }}")
		}
	}
	return append(out,
		"{% include '/etc/passwd' %}", "{% import 'os' as os %}{{ os.system('id') }}", "{% from 'os' import system %}", "{% extends '/etc/passwd' %}",
		"{% for c in [].__class__.__base__.__subclasses__() %}{% if c.__name__ == 'catch_warnings' %}{{ c()._module.__builtins__['eval']('1') }}{% endif %}{% endfor %}",
		"{{ self._TemplateReference__context.cycler.__init__.__globals__.os.popen('id').read() }}",
		"{{ '{0.__class__.__init__.__globals__}'.format(1) }}", "{{ '{0[__class__]}'.format(messages) }}", "{{ '{x.__class__}'.format_map({'x': 1}) }}",
		"{{ '%(x.__class__)s' | format(x=1) }}", "{{ ''.format.__self__.__class__ }}", "{{ (''.join).__class__ }}",
		"{% set x = ''.__class__ %}{{ x.mro() }}", "{% set messages.x = 1 %}", "{{ messages.append(1) }}", "{{ messages[0].update({'a': 1}) }}", "{{ messages[0].clear() }}",
		"{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}", "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
		"{{ open('/etc/passwd').read() }}", "{{ eval('1') }}", "{{ __import__('os') }}", "{{ os.Getenv('HOME') }}", "{{ getenv('HOME') }}", "{{ env }}", "{{ debug() }}", "{% debug %}",
		"{{ call os.system 'id' }}", "{{ .Env }}", "{{printf \"%v\" .}}", "${7*7}", "#{7*7}", "<%= 7*7 %>", "{% do messages.pop() %}", "{{ ''|file }}", "{{ 'id'|system }}", "{{ ''|pprint|xmlattr }}",
	)
}

func TestTemplateInjectionIsAnErrorOrInert(t *testing.T) {
	payloads := attacks()
	if len(payloads) < 200 {
		t.Fatalf("only %d payloads", len(payloads))
	}
	inert := 0
	for _, source := range payloads {
		p, err := render(source, `{"messages":[{"role":"user","content":"hi"}]}`)
		if err != nil {
			continue
		}
		inert++
		out := p.String()
		for _, leak := range []string{"root:", "uid=", "<class", "<module", "0x", "chat.", "func(", "PATH=", "HOME="} {
			if strings.Contains(out, leak) {
				t.Errorf("%s gives %q", source, out)
			}
		}
		if out != "" && !strings.Contains(source, out) && out != "[]" && out != "{}" {
			t.Errorf("%s gives %q, which is more than nothing and more than itself", source, out)
		}
	}
	t.Logf("%d payloads: %d errors, %d inert", len(payloads), len(payloads)-inert, inert)
}
