package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"m40-llm/web/lang"
)

// programs are the packages and files whose errors only programs and terminals show. All others reach the page.
var programs = []string{
	"handlers/api", "handlers/cli", "handlers/commands", "handlers/handlerstest", "handlers/metrics", "handlers/mdns", "handlers/certificate", "docs", "corpus", "cudakern",
	"handlers/gate/inflate.go",                                                   // of compressed bodies, which browsers do not send
	"handlers/httpio/json.go",                                                    // of bodies that are not as the page's scripts write them
	"infer/validate.go", "infer/embedding.go", "infer/rank.go", "infer/tools.go", // of fields that chats do not have, or have checked
	"infer/engine/embed.go", "infer/engine/rank.go", "infer/fleet/rank.go", "infer/upstream/embed.go", "infer/upstream/rank.go",
	"infer/hub/copy.go", // a route of Ollama's API
	"infer/client/client.go", "infer/engine/continuation.go",
	"infer/gguf", "infer/reply", // what is wrong inside of files and schemas has no German text
	"web/states", // fixed data
}

// messageArguments are the functions that make errors for clients, with the arguments that are formats.
var messageArguments = map[string][]int{
	"fault.New": {1}, "fault.Errorf": {1}, "fault.Invalid": {1},
	"forbidden": {0}, "conflict": {0}, "refuse": {0}, "failed": {0}, "invalidName": {0}, "unusable": {0}, "notFound": {0}, "nameNotFound": {0},
	"lang.Message": {1}, "failure.Sentence": {1}, "p.addNotice": {0}, "f.because": {1, 2}, "s.breach": {0},
}

// inside are the packages and files whose other errors are shown inside of those for clients.
var inside = []string{
	"handlers/foreign", "handlers/people/manage.go", "handlers/share/reach.go", "handlers/models/download.go",
	"infer/hub/pull.go", "infer/hub/registry.go", "infer/hub/library.go", "infer/hub/client.go", "infer/hub/name.go", "infer/hub/entry.go",
	"infer/hub/fetch.go", "infer/hub/partial.go", "infer/hub/partials.go", "infer/hub/companion.go", "infer/hub/inspect.go",
	"infer/picture/format.go", "infer/picture/picture.go", "infer/model/unsupported.go", "infer/readtext/readtext.go",
}

// noticed are the functions, variables and constants whose texts are notices and parts of messages, by file.
var noticed = map[string][]string{
	"handlers/failure/failure.go":    {"titles", "loadingModel", "engineFailed", "nothingHere"},
	"handlers/foreign/foreign.go":    {"files", "calls", "orphaned"},
	"handlers/owned/conflict.go":     {"title"},
	"handlers/page/export.go":        {"pleaseExport"},
	"handlers/inspect/microscope.go": {"rowMissing", "rowTooShort", "promptDiffers", "mirostatUnseen", "drawnOtherwise"},
	"handlers/inspect/looked.go":     {"noPictures"},
	"handlers/inspect/score.go":      {"longScore", "notScored"},
	"handlers/models/sight.go":       {"Seeing"},
	"handlers/quota/quota.go":        {"Yours", "OfVisitors", "Begin", "Token", "inWords"},
	"infer/chatformat/adapt.go":      {"emptyFirst", "systemChanges", "roleChanges", "notAllShown"},
	"infer/chatformat/format.go":     {"NoTemplate", "parseTemplate"},
	"infer/device/device.go":         {"Notices"},
	"infer/engine/draftmodel.go":     {"addDraftModel"},
	"infer/engine/loaded.go":         {"whyInFile", "addShortage"},
	"infer/engine/openmodel.go":      {"notices"},
	"infer/engine/pictures.go":       {"pictureSizes"},
	"infer/engine/tower.go":          {"setTower"},
	"infer/fault/part.go":            {"Advice"},
	"infer/fleet/refused.go":         {"notice"},
	"infer/fleet/room.go":            {"neverFits"},
	"infer/hub/entry.go":             {"checkTypes"},
	"infer/hub/pull.go":              {"verify", "checkMagic", "checkModel"},
	"infer/hub/fetch.go":             {"receive"},
	"infer/hub/library.go":           {"libraryNotice"},
	"infer/model/memory.go":          {"NotQuantized"},
	"infer/placement/fit.go":         {"String", "needs", "memory", "on"},
	"infer/placement/placement.go":   {"place", "whole", "plan", "divide", "among", "shares", "free", "tooLarge", "shorter"},
	"infer/placement/types.go":       {"Converted"},
	"infer/sample/numbers.go":        {"check"},
	"infer/sample/suggestion.go":     {"Ignore"},
	"infer/tokenizer/bpe.go":         {"loadBytePair"},
	"infer/upstream/ask.go":          {"missing"},
	"infer/upstream/failure.go":      {"reason"},
	"infer/worker/engine.go":         {"fallBack", "restarting"},
	"infer/worker/watchdog.go":       {"silence", "receive"},
}

// messages returns the formats of messages that reach the page, with a file that has each.
func messages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	files := map[string][]*ast.File{} // by package
	paths := map[*ast.File]string{}
	for _, file := range sourceFiles(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file.path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[file.pkg] = append(files[file.pkg], parsed)
		paths[parsed] = file.path
	}
	for pkg, list := range files {
		constants := constantTexts(list)
		for _, file := range list {
			if name := paths[file]; !slices.Contains(programs, pkg) && !slices.Contains(programs, name) {
				finder{name, constants, func(text string) {
					if text = clause(text); (strings.Contains(text, " ") || strings.ToLower(text) != text) && words.MatchString(verbless.ReplaceAllString(text, "")) {
						found[text] = name
					}
				}}.file(file)
			}
		}
	}
	return found
}

var verbless = regexp.MustCompile(`%(?:\[\d\])?[-+# 0]*[0-9.]*[a-zA-Z]`)

// constantTexts returns the texts of constants and variables that files of a package declare.
func constantTexts(files []*ast.File) map[string]string {
	texts := map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, value := range spec.Values {
					if text, ok := joined(value, nil); ok {
						texts[spec.Names[i].Name] = text
					}
				}
			}
			return true
		})
	}
	return texts
}

// joined returns the text of a literal, of a constant, or of several that are added.
func joined(e ast.Expr, constants map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		left, ok := joined(e.X, constants)
		right, also := joined(e.Y, constants)
		if !ok {
			left = "%s"
		}
		if !also {
			right = "%s"
		}
		return left + right, ok || also
	case *ast.Ident:
		text, ok := constants[e.Name]
		return text, ok
	}
	return literal(e)
}

// fields are those that have messages, of any type.
var fields = []string{"Message", "Notice", "Problem", "Reason", "Title", "SetupNotice", "TemplateProblem"}

// finder finds the formats of messages in a file.
type finder struct {
	name      string
	constants map[string]string
	say       func(text string)
}

func (f finder) file(file *ast.File) {
	others := slices.Contains(inside, f.name) || slices.Contains(inside, path.Dir(f.name))
	for _, d := range file.Decls {
		all := false
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if slices.Contains([]string{"Info", "Warn", "Error"}, methodOf(n)) {
					return false
				}
				f.call(n, others)
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if field, ok := left.(*ast.SelectorExpr); ok && i < len(n.Rhs) && slices.Contains(fields, field.Sel.Name) {
						f.text(n.Rhs[i], "")
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && (slices.Contains(fields, key.Name) || f.name == "handlers/failure/table.go") {
					f.text(n.Value, "")
				}
			case *ast.FuncDecl:
				all = n.Recv != nil && n.Name.Name == "Error" || slices.Contains(noticed[f.name], n.Name.Name)
			case *ast.ValueSpec:
				all = all || slices.Contains(noticed[f.name], n.Names[0].Name)
			case *ast.BinaryExpr:
				if all && n.Op == token.ADD {
					f.text(n, "")
					return false
				}
			case *ast.BasicLit:
				if all {
					f.text(n, "")
				}
			}
			return true
		})
	}
}

// words are what a message has besides its values. clause leaves out what joins it to another one.
var words = regexp.MustCompile(`[a-z]{2,}`)

func clause(text string) string {
	return strings.TrimPrefix(strings.TrimPrefix(text, "%s; "), "; ")
}

func methodOf(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		return f.Sel.Name
	}
	return ""
}

func (f finder) call(call *ast.CallExpr, others bool) {
	name := calledName(call)
	at := messageArguments[name]
	if others && (name == "errors.New" || name == "fmt.Errorf") {
		at = []int{0}
	}
	for _, i := range at {
		if i < len(call.Args) {
			f.text(call.Args[i], map[string]string{"s.breach": "%s "}[name])
		}
	}
}

// text notes a text, or the format of one that is made here.
func (f finder) text(e ast.Expr, before string) {
	if call, ok := e.(*ast.CallExpr); ok && calledName(call) == "fmt.Sprintf" {
		e = call.Args[0]
	}
	if text, ok := joined(e, f.constants); ok {
		f.say(before + strings.ReplaceAll(text, "%w", "%v"))
	}
}

func TestMessages_TheCatalogueHasEachThatReachesThePageAndNoOther(t *testing.T) {
	found, texts := messages(t), catalogue(t, "web/lang/messages.de.json")
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if texts[key] == "" {
			t.Errorf("%s: web/lang/messages.de.json has no German text for %q", found[key], key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if found[key] == "" {
			t.Errorf("nothing says %q, which is in web/lang/messages.de.json", key)
		}
	}
}

// A message is found by its text, so its format must match no text of another one that says less itself.
func TestMessages_EachIsTranslatedWithItsValues(t *testing.T) {
	german := lang.With(t.Context(), lang.German)
	for english, format := range catalogue(t, "web/lang/messages.de.json") {
		verbs := verbless.FindAllString(english, -1)
		values, shown := []any{}, []string{} // and as they are in the English text
		for i, v := range verbs {
			values = append(values, valueFor(v[len(v)-1], i))
			shown = append(shown, fmt.Sprintf(v, values[i]))
		}
		i := 0
		want := verbless.ReplaceAllStringFunc(format, func(v string) string {
			if _, number, found := strings.Cut(v, "["); found {
				i = int(number[0] - '1')
			}
			i++
			if i > len(verbs) || v[len(v)-1] != verbs[i-1][len(verbs[i-1])-1] {
				t.Fatalf("%q has another value in %q than in English", english, format)
			}
			return shown[i-1]
		})
		if got, found := lang.FindMessage(german, fmt.Sprintf(english, values...)); got != want || !found {
			t.Errorf("%q is %q, want %q", english, got, want)
		}
	}
}

// valueFor returns the i-th value of a text, for a verb.
func valueFor(kind byte, i int) any {
	switch kind {
	case 'd', 'X':
		return 1000 + i
	case 'f', 'g':
		return float64(i) + 0.5
	}
	return fmt.Sprintf("value%d", i)
}
