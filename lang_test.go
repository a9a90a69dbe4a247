package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	templparser "github.com/a-h/templ/parser/v2"
	"github.com/a-h/templ/parser/v2/visitor"

	"m40-llm/infer/sample"
)

// shownGo are the packages whose texts are for people.
var shownGo = []string{"web", "handlers/view", "handlers/page", "handlers/account", "handlers/share"}

// names are the same in all languages.
var names = []string{"MB", "tok/s", "Hello", "Mirostat", "Enter", "m40-llm", "curl", "Python", "JavaScript", "English", "Deutsch", "JSON", "API", "GBNF", "m40-llm --lan", "--tls"}

// codes are words that packages exchange about models, for which the page has texts, and what an attached file begins with in
// a prompt.
var codes = []string{"in use", "built in", `File  :\n  \n`}

// exported are files with texts of programs and of exported files, which are English.
var exported = []string{"handlers/page/code.go", "handlers/page/export.go", "handlers/page/attach.go"}

// shownAttributes are those whose values people read or hear.
var shownAttributes = []string{"title", "aria-label", "placeholder", "alt", "aria-roledescription", "data-wait"}

var (
	letters = regexp.MustCompile(`[A-Za-z]{2}`)
	prose   = regexp.MustCompile(`^[A-Z][a-z]+( |$|[.,:…])|[a-z]{2,},? [a-z]{2,}`)
	noProse = regexp.MustCompile(`[=}]|^<|^btn |^(Mon )?(2 )?Jan|^Mon$`) // code, HTML, classes, layouts of times
	verb    = regexp.MustCompile(`%(?:\[\d\])?[a-z]`)

	// Scripts are read as text: comments, then literals and what they are given to. scriptNames are selectors, classes, types,
	// values that are compared and keys of objects.
	scriptComment = regexp.MustCompile(`(?m)(^|[ ;{}(,])//.*$|/\*[^*]*\*/`)
	scriptText    = regexp.MustCompile(`\bt\(('(?:[^'\\\n]|\\.)*')|\btn\([^,\n]+, ('(?:[^'\\\n]|\\.)*'), ('(?:[^'\\\n]|\\.)*')`)
	scriptLiteral = regexp.MustCompile("'((?:[^'\\\\\n]|\\\\.)*)'|`((?:[^`\\\\]|\\\\.)*)`")
	scriptInsert  = regexp.MustCompile(`\$\{[^{}]*(\{[^{}]*\}[^{}]*)*\}`)
	scriptNames   = regexp.MustCompile(`\b(querySelector(All)?|closest|matches|includes|find|TypeError)\('[^'\n]*'|\bclassName = .*|[!=]== '[^'\n]*'|'[^'\n]*':`)
	scriptCode    = regexp.MustCompile(`[\[\]#>=;]|^[.a-z]+[.:]|^(Enter|Escape|Tab|Home|End|Page(Up|Down)|Arrow\w+|Shift|Delete|Backspace|Content-Type|POST|GET|Accept|Range|Segmenter|Script)$`)
)

// found are the texts of the catalogue that something names, with a file that does so, and the texts that are outside of it.
type found struct {
	keys    map[string]string
	outside map[string][]string // by file
}

// read looks for texts in all files.
func read(t *testing.T) found {
	f := found{keys: map[string]string{}, outside: map[string][]string{}}
	for _, file := range glob(t, "web/*.templ") {
		f.template(t, file)
	}
	for _, file := range glob(t, "web/static/*.js") {
		f.script(t, file)
	}
	for _, file := range sourceFiles(t) {
		if file.pkg != "web/lang" && file.pkg != "web/states" {
			f.code(t, file.path, slices.Contains(shownGo, file.pkg) && !slices.Contains(exported, file.path))
		}
	}
	for _, n := range sample.Numbers() {
		f.table("infer/sample", n.Label, n.About, n.Slider.Off, n.Slider.Group)
	}
	for _, name := range sample.StageNames() {
		f.table("infer/sample", sample.StageLabel(name))
	}
	return f
}

func glob(t *testing.T, pattern string) []string {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	return files
}

// table adds texts of a table that does not know the catalogue.
func (f found) table(file string, texts ...string) {
	for _, text := range texts {
		if letters.MatchString(text) {
			f.keys[text] = file
		}
	}
}

func (f found) say(file, text string) {
	if !slices.Contains(names, strings.TrimSpace(text)) {
		f.outside[file] = append(f.outside[file], text)
	}
}

// template looks for texts and attributes that are written into a template. Its expressions are in the Go file made of it.
func (f found) template(t *testing.T, file string) {
	t.Helper()
	parsed, err := templparser.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	code := 0 // elements around the text whose content is no language
	v := visitor.New()
	text := v.Text
	v.Text = func(n *templparser.Text) error {
		if code == 0 && letters.MatchString(n.Value) {
			f.say(file, n.Value)
		}
		return text(n)
	}
	element := v.Element
	v.Element = func(n *templparser.Element) error {
		if n.Name == "code" || n.Name == "kbd" {
			code++
			defer func() { code-- }()
		}
		return element(n)
	}
	attribute := v.ConstantAttribute
	v.ConstantAttribute = func(n *templparser.ConstantAttribute) error {
		if slices.Contains(shownAttributes, n.Key.String()) && letters.MatchString(n.Value) {
			f.say(file, n.Value)
		}
		return attribute(n)
	}
	if err := parsed.Visit(v); err != nil {
		t.Fatal(err)
	}
}

// code looks for texts in a Go file: those named to package lang, and, if it shows texts, literals that read like some.
func (f found) code(t *testing.T, file string, shown bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool { return f.inspect(n, file, shown) })
}

// inspect notes the texts that a call names, or a literal that reads like a text. It reports whether to look inside of n.
func (f found) inspect(n ast.Node, file string, shown bool) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.Field:
		return false
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" { // of an error
			return false
		}
	case *ast.CallExpr:
		first, count := catalogueArgument(n)
		for i, arg := range n.Args {
			if text, ok := literal(arg); ok && i >= first && i < first+count {
				f.keys[text] = file
				continue
			}
			ast.Inspect(arg, func(inner ast.Node) bool { return f.inspect(inner, file, shown && !isNoText(n)) })
		}
		ast.Inspect(n.Fun, func(inner ast.Node) bool { return f.inspect(inner, file, shown) })
		return false
	case *ast.BasicLit:
		if text, ok := literal(n); ok && shown && prose.MatchString(text) && !noProse.MatchString(text) && !slices.Contains(codes, text) {
			f.say(strings.Replace(file, "_templ.go", ".templ", 1), text)
		}
	}
	return true
}

// catalogueArgument returns which arguments of a call are texts of the catalogue.
func catalogueArgument(call *ast.CallExpr) (first, count int) {
	switch calledName(call) {
	case "lang.T":
		return 1, 1
	case "lang.N":
		return 2, 2
	case "lang.Key", "sentence":
		return 0, 1
	}
	return 0, 0
}

// isNoText reports whether a call is given texts for others than the readers of a page: errors, which package failure
// translates, logs, and the constant parts of templates.
func isNoText(call *ast.CallExpr) bool {
	name := calledName(call)
	receiver, method, _ := strings.Cut(name, ".")
	return slices.Contains([]string{"fault", "errors", "regexp", "slog", "failure"}, receiver) || method == "Errorf" || name == "templruntime.WriteString" ||
		slices.Contains([]string{"Warn", "Info", "Error", "Debug", "WarnContext", "Format", "Date", "Set", "Get", "MatchString", "fail", "document"}, method) || slices.Contains([]string{"panic", "key", "code", "option"}, name)
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	}
	return ""
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// script looks for texts in a script: those given to t and tn, and literals that read like some.
func (f found) script(t *testing.T, file string) {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f.scriptText(file, string(body))
}

func (f found) scriptText(file, body string) {
	text := scriptComment.ReplaceAllString(body, "$1")
	for _, m := range scriptText.FindAllStringSubmatch(text, -1) {
		for _, literal := range m[1:] {
			if literal != "" {
				f.keys[strings.NewReplacer(`\'`, `'`, `\\`, `\`, `\n`, "\n").Replace(literal[1:len(literal)-1])] = file
			}
		}
	}
	rest := scriptNames.ReplaceAllString(scriptText.ReplaceAllString(text, ""), "")
	for _, m := range scriptLiteral.FindAllStringSubmatch(rest, -1) {
		text := strings.TrimSpace(scriptInsert.ReplaceAllString(m[1]+m[2], " "))
		if prose.MatchString(text) && !scriptCode.MatchString(text) && !slices.Contains(codes, text) {
			f.say(file, text)
		}
	}
}

// catalogue returns the texts of a file, which has them sorted.
func catalogue(t *testing.T, name string) (texts map[string]string) {
	t.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &texts); err != nil {
		t.Fatal(err)
	}
	var sorted bytes.Buffer
	e := json.NewEncoder(&sorted)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(texts); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, sorted.Bytes()) {
		t.Error(name, "is not sorted, or has a text twice")
	}
	return texts
}

func TestLanguages_NoTextIsOutsideTheCatalogue(t *testing.T) {
	f := read(t)
	for _, file := range slices.Sorted(maps.Keys(f.outside)) {
		for _, text := range f.outside[file] {
			t.Errorf("%s: %q is not in the catalogue of package web/lang", file, text)
		}
	}
}

func TestLanguages_TextsOfScriptsAreToldFromCodes(t *testing.T) {
	for script, want := range map[string][]string{
		`el.textContent = 'Something failed'`:                         {"Something failed"},
		"say(`There are ${n} chats`)":                                 {"There are   chats"},
		`el.textContent = ok ? 'all is well' : 'nothing works'`:       {"all is well", "nothing works"},
		`el.textContent = t('Copied')`:                                nil,
		`el.querySelector('form button').className = 'chip accent'`:   nil,
		`if (state === 'in use' || e.target.closest('input, pre')) {`: nil,
		`const dots = { 'in use': 'live' } // one for each state`:     nil,
	} {
		f := found{keys: map[string]string{}, outside: map[string][]string{}}
		if f.scriptText("x.js", script); !slices.Equal(f.outside["x.js"], want) {
			t.Errorf("in %s: got %q, want %q", script, f.outside["x.js"], want)
		}
	}
}

func TestLanguages_TheCatalogueHasEachTextAndNoOther(t *testing.T) {
	f, texts := read(t), catalogue(t, "web/lang/de.json")
	for _, key := range slices.Sorted(maps.Keys(f.keys)) {
		if texts[key] == "" {
			t.Errorf("%s: web/lang/de.json has no German text for %q", f.keys[key], key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		text := texts[key]
		if _, ok := f.keys[key]; !ok {
			t.Errorf("nothing says %q, which is in web/lang/de.json", key)
		}
		if is, want := verbs(text), verbs(key); !slices.Equal(is, want) {
			t.Errorf("%q has the verbs %q, but in German %q", key, want, is)
		}
		if strings.Count(text, "[") != strings.Count(key, "[") || strings.Count(text, "]") != strings.Count(key, "]") {
			t.Errorf("%q has other brackets in German: %q", key, text)
		}
		if key != strings.TrimSpace(key) || text != strings.TrimSpace(text) {
			t.Errorf("%q begins or ends with white space", key)
		}
	}
}

// verbs returns what is put into a text, sorted. In texts with several, each language may have another order.
func verbs(text string) []string {
	list := verb.FindAllString(strings.ReplaceAll(text, "%%", ""), -1)
	for i, v := range list {
		if !strings.Contains(v, "[") {
			list[i] = "%[" + strconv.Itoa(i+1) + "]" + v[1:]
		}
	}
	slices.Sort(list)
	return list
}
