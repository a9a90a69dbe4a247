package markdown

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/chroma/v2"

	"m40-llm/handlers/markdown/markdowntest"
	"m40-llm/infer/fixtures"
	"m40-llm/web"
)

func never() bool { return false }

// after returns a function that is false n times.
func after(n int) func() bool {
	return func() bool { n--; return n < 0 }
}

func textOf(spans []span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.text)
	}
	return b.String()
}

func TestEveryLanguageHasALexer(t *testing.T) {
	for name, lexer := range languages() {
		if lexer == nil {
			t.Errorf("%s has none", name)
		}
	}
	for _, name := range []string{
		"go", "golang", "py", "python", "python3", "js", "javascript", "ts", "tsx", "jsx", "java", "c", "cpp", "c++", "csharp", "cs", "rust", "rs",
		"rb", "ruby", "sh", "bash", "shell", "zsh", "ps1", "powershell", "sql", "html", "xml", "svg", "css", "scss", "json", "jsonc", "yaml", "yml", "toml", "ini",
		"dockerfile", "make", "makefile", "kotlin", "kt", "swift", "lua", "perl", "r", "haskell", "hs", "elixir", "clojure", "diff", "patch", "cuda", "cu",
		"objc", "objective-c", "matlab", "julia", "dart", "scala", "tex", "latex", "nasm", "proto", "graphql", "hcl", "terraform", "nginx", "vim", "zig", "nix", "Go", "Python",
	} {
		if languages()[strings.ToLower(name)] == nil {
			t.Errorf("%s is not known", name)
		}
	}
}

func TestHighlight_FindsWhatTheLanguageMeans(t *testing.T) {
	for _, c := range []struct {
		language, code string
		want           []span
	}{
		{"go", "func f() int { return 1 } // x", []span{{"k", "func"}, {"", " f() "}, {"k", "int"}, {"", " { "}, {"k", "return"}, {"", " "}, {"s", "1"}, {"", " } "}, {"c", "// x"}}},
		{"Python", "def f(): return 'a'  # b", []span{{"k", "def"}, {"", " f(): "}, {"k", "return"}, {"", " "}, {"s", "'a'"}, {"", "  "}, {"c", "# b"}}},
		{"sql", "select 1 -- a", []span{{"k", "select"}, {"", " "}, {"s", "1"}, {"", " "}, {"c", "-- a"}}},
		{"html", "<b>x</b>", []span{{"", "<"}, {"k", "b"}, {"", ">x</"}, {"k", "b"}, {"", ">"}}},
		{"json", `{"a": "b"}`, []span{{"", "{"}, {"k", `"a"`}, {"", ": "}, {"s", `"b"`}, {"", "}"}}},
		{"diff", "@@ -1 +1 @@\n-a\n+b\n", []span{{"c", "@@ -1 +1 @@\n"}, {"gd", "-a\n"}, {"gi", "+b\n"}}},
	} {
		if got := highlight(c.code, c.language, never); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q became\n%q, want\n%q", c.language, c.code, got, c.want)
		}
	}
}

func TestHighlight_GivesUpWhole(t *testing.T) {
	code := "if x { return \"a\" }\n"
	for _, c := range []struct {
		name, language, code string
		spent                func() bool
	}{
		{"over the size", "go", strings.Repeat(code, maxHighlight/len(code)+1), never},
		{"in an unknown language", "klingon", code, never},
		{"when the time is over before it begins", "go", code, after(0)},
		{"when the time is over in the middle", "go", code, after(3)},
	} {
		if got := highlight(c.code, c.language, c.spent); got != nil {
			t.Errorf("%s it still coloured %q", c.name, got)
		}
	}
	if got := highlight(code, "go", after(1000)); textOf(got) != code {
		t.Errorf("with time enough it gave %q", got)
	}
	if got := Text(t.Context(), "```go\n"+strings.Repeat(code, maxHighlight/len(code)+1)+"```"); strings.Contains(got, "<span") || strings.Count(got, "return") != maxHighlight/len(code)+1 {
		t.Errorf("a long block is not shown plain: %.200s", got)
	}
}

// lexerFunc is a lexer whose tokens a test writes.
type lexerFunc func(code string) chroma.Iterator

func (f lexerFunc) Config() *chroma.Config                             { return &chroma.Config{} }
func (f lexerFunc) SetRegistry(*chroma.LexerRegistry) chroma.Lexer     { return f }
func (f lexerFunc) SetAnalyser(func(text string) float32) chroma.Lexer { return f }
func (f lexerFunc) AnalyseText(string) float32                         { return 0 }
func (f lexerFunc) Tokenise(_ *chroma.TokeniseOptions, code string) (chroma.Iterator, error) {
	return f(code), nil
}

func TestHighlight_TrustsNoLexer(t *testing.T) {
	for _, c := range []struct {
		name  string
		lexer lexerFunc
	}{
		{"that panics", func(string) chroma.Iterator { return func() chroma.Token { panic("unknown state") } }},
		{"that leaves text out", func(code string) chroma.Iterator { return chroma.Literator(chroma.Token{Value: code[:3]}) }},
		{"that adds text", func(code string) chroma.Iterator { return chroma.Literator(chroma.Token{Value: code + "x"}) }},
		{"that writes other text", func(code string) chroma.Iterator { return chroma.Literator(chroma.Token{Value: strings.ToUpper(code)}) }},
		{"that never ends", func(string) chroma.Iterator { return func() chroma.Token { return chroma.Token{Type: chroma.Text} } }},
	} {
		if got := cut("if a", c.lexer, after(1000)); got != nil {
			t.Errorf("a lexer %s gave %q", c.name, got)
		}
	}
	whole := func(code string) chroma.Iterator {
		return chroma.Literator(chroma.Token{Type: chroma.Keyword, Value: code + "\n"})
	}
	if got := cut("if a", lexerFunc(whole), never); !slices.Equal(got, []span{{"k", "if a"}}) {
		t.Errorf("a lexer that ends the last line gave %q", got)
	}
}

// worstCode makes lexers look again and again at the same text.
var worstCode = []string{
	"(", "a", " ", `"`, `\`, "<a ", "/*", "\n", "{", "'", "#", "`", "a_", "1", "${", "a b ", "<!--", `"""`, "=\n", "a(", "[[", "%{", "<<a\n",
	"a.", "- ", "@", "a\n", "\\\n", "//", "a=", "a:", " \n", "\t", "::", "<?", "{{", "/a", " a,", "\u202e", "\x00", "\xff", "é", "\r\n", "<script>", "</script>", "<style>", "%", "$", "|",
}

// A lexer that takes its time is stopped between two tokens, so no lexer may stay
// inside one. The count stands for the time: it does not depend on the machine.
func TestHighlight_EndsOnTheWorstCode(t *testing.T) {
	size, steps := 1<<7, 1<<6
	if fixtures.Torture() {
		size, steps = 1<<10, 1<<8
	}
	tried := map[any]bool{}
	for name, lexer := range languages() {
		if tried[lexer] {
			continue
		}
		tried[lexer] = true
		for _, piece := range worstCode {
			code := strings.Repeat(piece, size/len(piece))
			asked := 0
			spans := highlight(code, name, func() bool { asked++; return asked > steps })
			if spans != nil && textOf(spans) != code {
				t.Errorf("%s: of %q repeated, %d bytes of %d are left", name, piece, len(textOf(spans)), len(code))
			}
			if asked > steps+1 {
				t.Errorf("%s: %q repeated went on after it was stopped", name, piece)
			}
		}
	}
}

func FuzzHighlight(f *testing.F) {
	var names []string
	for name := range languages() {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		f.Add(uint(i), "if x <b>\"a\"</b> { /* "+name+" */ }\r\n")
	}
	for i, piece := range worstCode {
		f.Add(uint(i), strings.Repeat(piece, 40))
	}
	f.Fuzz(func(t *testing.T, i uint, code string) {
		name := names[i%uint(len(names))]
		if spans := highlight(code, name, after(4096)); spans != nil && textOf(spans) != code {
			t.Errorf("%s: %q became %q", name, code, textOf(spans))
		}
		if harm := markdowntest.Harms(Text(t.Context(), "````"+name+"\n"+code+"\n````")); harm != "" {
			t.Errorf("%s: %q has %s", name, code, harm)
		}
	})
}

// asset returns a file of the page.
func asset(t *testing.T, name string) string {
	t.Helper()
	parts := strings.Split(web.AssetPath(name), "/")
	found, ok := web.FindAsset(parts[2], parts[3])
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return string(found.Body)
}

// luminance is that of WCAG 2.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 24)
	if err != nil {
		t.Fatal(err)
	}
	channel := func(c uint64) float64 {
		v := float64(c&0xFF) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(n>>16) + 0.7152*channel(n>>8) + 0.0722*channel(n)
}

func TestCodeCanBeReadInBothThemes(t *testing.T) {
	themes := map[string]map[string]string{"light": {}, "dark": {}}
	tokens := asset(t, "tokens.css")
	for theme, begin := range map[string]string{"light": ":root {", "dark": `:root[data-theme="dark"] {`} {
		_, block, _ := strings.Cut(tokens, begin)
		block, _, _ = strings.Cut(block, "}")
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(block, -1) {
			themes[theme][m[1]] = m[2]
		}
	}
	rules := regexp.MustCompile(`(?m)^\.code \.([a-z]+) \{ color: var\(--([a-z0-9-]+)\);(?: background: var\(--([a-z0-9-]+)\);)? \}$`).FindAllStringSubmatch(asset(t, "code.css"), -1)
	if len(rules) < 4 {
		t.Fatalf("only %d rules were found", len(rules))
	}
	for theme, colours := range themes {
		for _, rule := range rules {
			ground := "bg" // of .code
			if rule[3] != "" {
				ground = rule[3]
			}
			on, text := luminance(t, colours[ground]), luminance(t, colours[rule[2]])
			if contrast := (max(on, text) + 0.05) / (min(on, text) + 0.05); contrast < 4.5 {
				t.Errorf("%s: .%s has a contrast of %.2f", theme, rule[1], contrast)
			}
		}
	}
	for _, class := range []string{"k", "s", "c", "gi", "gd"} {
		if !strings.Contains(asset(t, "code.css"), fmt.Sprintf(".code .%s {", class)) {
			t.Errorf("the class %s looks like nothing", class)
		}
	}
}
