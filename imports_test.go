package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "m40-llm"

// mayImport says which of our packages each of our packages may import outside of its
// tests. A package without a line may import none of ours, and so is a leaf.
var mayImport = map[string][]string{
	".":                 {"handlers/commands"},
	"handlers/commands": {"handlers/document", "handlers", "handlers/access", "handlers/activity", "handlers/certificate", "handlers/gate", "handlers/guest", "handlers/mdns", "handlers/metrics", "handlers/people", "handlers/share", "handlers/visitors", "handlers/compare", "handlers/live", "handlers/models", "handlers/presets", "handlers/page", "handlers/cli", "store", "infer", "infer/fault", "infer/cpu", "infer/cuda", "infer/hub", "infer/kvfile", "infer/placement", "infer/engine", "infer/readtext", "infer/fleet", "infer/lease", "infer/units", "infer/worker", "infer/upstream", "infer/guide", "infer/ref", "infer/device", "infer/model", "infer/gguf", "infer/tokenizer", "infer/chat", "infer/bench", "infer/perplexity", "infer/suggest"},

	"handlers/access":   {"store", "infer/fault"},
	"handlers/activity": {"handlers/access", "infer", "infer/fault", "store"},
	"handlers/people":   {"handlers/access", "handlers/activity", "handlers/quota", "handlers/ratelimit", "infer", "infer/fault", "store"},
	"handlers/visitors": {"handlers/access", "handlers/activity", "handlers/quota", "infer", "infer/fault", "store"},
	"handlers/quota":    {"web/lang", "infer", "infer/fault", "infer/units"},

	"handlers/account":   {"web/lang", "handlers/access", "handlers/failure", "handlers/httpio", "handlers/live", "handlers/people", "handlers/quota", "handlers/share", "store", "web", "infer/fault"},
	"handlers":           {"handlers/access", "handlers/document", "handlers/account", "handlers/activity", "handlers/guest", "handlers/people", "handlers/api", "handlers/gate", "handlers/page", "handlers/share", "handlers/stream", "handlers/compare", "handlers/inspect", "handlers/live", "handlers/metrics", "handlers/models", "handlers/presets", "handlers/visitors", "web/states", "handlers/attached"},
	"web":                {"web/lang"},
	"web/lang":           {"infer/units"},
	"web/states":         {"web"},
	"handlers/guest":     {"handlers/access", "handlers/live", "handlers/ratelimit", "infer/record", "store", "infer/fault", "handlers/links", "handlers/owned", "handlers/setting"},
	"handlers/inspect":   {"handlers/access", "handlers/activity", "handlers/live", "infer", "infer/fault", "infer/chat", "infer/perplexity", "infer/picture", "infer/sample", "store", "handlers/owned", "handlers/attached", "handlers/choice", "handlers/setting"},
	"handlers/live":      {"handlers/access", "handlers/activity", "handlers/markdown/blocks", "handlers/repetition", "store", "infer", "infer/fault", "infer/chat", "infer/kvfile", "infer/record", "infer/reply", "infer/sample", "infer/units", "handlers/chatlist", "handlers/disk", "handlers/links", "handlers/owned", "handlers/attached", "handlers/choice", "handlers/setting", "handlers/tree", "handlers/temporary"},
	"handlers/owned":     {"handlers/access", "infer/fault", "store"},
	"handlers/attached":  {"handlers/access", "handlers/owned", "infer/chat", "infer/fault", "infer/picture", "store"},
	"handlers/choice":    {"handlers/access", "handlers/owned", "infer/fault", "store"},
	"handlers/setting":   {"infer", "infer/fault", "infer/grammar", "infer/sample"},
	"handlers/temporary": {"handlers/owned", "infer/fault", "infer/units", "store"},
	"handlers/tree":      {"store"},
	"handlers/chatlist":  {"handlers/access", "handlers/choice", "handlers/owned", "infer/fault", "store"},
	"handlers/links":     {"handlers/access", "handlers/owned", "infer/fault", "store"},
	"handlers/disk":      {"handlers/access", "handlers/owned", "infer", "infer/fault", "infer/kvfile", "store"},
	"handlers/presets":   {"web/lang", "handlers/access", "handlers/live", "infer", "infer/fault", "infer/sample", "store", "handlers/owned", "handlers/setting"},
	"handlers/compare":   {"handlers/access", "handlers/activity", "handlers/live", "handlers/presets", "infer/sample", "store", "infer/fault", "handlers/owned", "handlers/choice", "handlers/setting"},
	"handlers/metrics":   {"infer"},
	"handlers/models":    {"infer", "infer/fault", "infer/suggest"},
	"handlers/cli":       {"infer", "infer/fault", "infer/bench", "infer/chat", "infer/perplexity", "infer/picture", "infer/placement", "infer/readtext", "infer/sample", "infer/units"},
	"store":              {"migrations", "infer/record", "infer/sample", "infer/fault"},

	"handlers/page":     {"docs", "handlers/help", "handlers/document", "handlers/foreign", "handlers/access", "handlers/activity", "handlers/compare", "handlers/failure", "handlers/gate", "handlers/growing", "handlers/guest", "handlers/httpio", "handlers/inspect", "handlers/live", "handlers/markdown", "handlers/models", "handlers/presets", "handlers/view", "handlers/visitors", "infer", "infer/fault", "infer/chat", "infer/readtext", "infer/sample", "infer/units", "store", "web", "web/lang", "handlers/owned", "handlers/attached", "handlers/setting"},
	"handlers/foreign":  {"infer/fault", "infer/readtext", "infer/record", "store"},
	"handlers/growing":  {"handlers/live", "handlers/markdown"},
	"handlers/share":    {"web/lang", "handlers/access", "handlers/failure", "handlers/gate", "handlers/growing", "handlers/guest", "handlers/httpio", "handlers/live", "handlers/markdown", "handlers/view", "web", "infer/fault", "handlers/links", "handlers/owned", "handlers/setting"},
	"handlers/stream":   {"handlers/access", "handlers/activity", "handlers/failure", "handlers/gate", "handlers/guest", "handlers/httpio", "handlers/inspect", "handlers/live", "handlers/markdown", "handlers/markdown/blocks", "handlers/models", "handlers/view", "infer/record", "store", "web", "infer/fault", "handlers/owned", "handlers/setting"},
	"handlers/api":      {"handlers/access", "handlers/activity", "handlers/failure", "handlers/gate", "handlers/httpio", "handlers/models", "infer", "infer/fault", "infer/chat", "infer/readtext", "infer/record", "infer/reply", "infer/sample"},
	"handlers/view":     {"web/lang", "handlers/activity", "handlers/compare", "handlers/failure", "handlers/inspect", "handlers/live", "handlers/markdown", "handlers/models", "infer", "infer/sample", "infer/units", "store", "web", "handlers/disk", "handlers/setting", "handlers/tree"},
	"handlers/markdown": {"web/lang", "handlers/live", "handlers/markdown/blocks", "handlers/markdown/mathml"},
	"handlers/gate":     {"handlers/access", "handlers/activity", "handlers/people", "handlers/visitors", "handlers/failure", "handlers/httpio", "infer/units", "web", "web/lang", "infer/fault"},
	"handlers/httpio":   {"infer/fault", "infer/readtext"},
	"handlers/failure":  {"infer/fault", "web/lang"},

	"infer":             {"infer/chat", "infer/device", "infer/gguf", "infer/placement", "infer/record", "infer/reply", "infer/sample", "infer/fault"},
	"infer/gguf":        {"infer/units"},
	"infer/engine":      {"infer", "infer/fault", "infer/picture", "infer/chat", "infer/device", "infer/gguf", "infer/grammar", "infer/kvfile", "infer/lease", "infer/model", "infer/placement", "infer/record", "infer/reply", "infer/sample", "infer/chatformat", "infer/tokenizer", "infer/units"},
	"infer/chatformat":  {"infer/chat", "infer/gguf", "infer/grammar", "infer/jinja", "infer/reply", "infer/tokenizer"},
	"infer/chat":        {"infer/jinja"},
	"infer/record":      {"infer/sample"},
	"infer/picture":     {"infer/gguf", "infer/units"},
	"infer/placement":   {"infer/device", "infer/gguf", "infer/model", "infer/sample", "infer/units"},
	"infer/model":       {"infer/device", "infer/gguf", "infer/picture"},
	"infer/device":      {"infer/gguf"},
	"infer/ref":         {"infer/device", "infer/gguf"},
	"infer/cpu":         {"infer/cpu/host", "infer/device", "infer/gguf"},
	"infer/cuda":        {"infer/device", "infer/gguf", "cudakern", "cudakern/resident"},
	"cudakern":          {"cudakern/fatbin"},
	"cudakern/resident": {"cudakern"},
	"cudakern/nvcc":     {"cudakern/fatbin"},
	"cudakern/sass":     {"cudakern/fatbin"},
	"infer/hub":         {"infer", "infer/fault", "infer/gguf", "infer/model", "infer/placement", "infer/readtext", "infer/sample", "infer/chatformat", "infer/tokenizer", "infer/units"},
	"infer/bench":       {"infer/device", "infer/gguf", "infer/model", "infer/placement", "infer/sample"},
	"infer/bench/table": {"infer/bench"},
	"infer/suggest":     {"infer/bench", "infer/gguf", "infer/model", "infer/placement"},
	"infer/perplexity":  {"infer"},
	"infer/client":      {"infer", "infer/fault"},
	"infer/upstream":    {"infer", "infer/fault", "infer/chat", "infer/client", "infer/record", "infer/reply", "infer/sample", "infer/chatformat"},
	"infer/fleet":       {"infer", "infer/fault", "infer/device", "infer/placement", "infer/units"},
	"infer/worker":      {"infer", "infer/fault", "infer/client", "infer/sample"},

	// What tests share.
	"handlers/markdown/markdowntest": {"infer/fixtures"},
	"world/worldtest":                {"infer/fixtures"},
	"infer/gguf/gguftest":            {"infer/gguf"},
	"infer/hub/hubtest":              {},
	"cudakern/emutest":               {"cudakern", "infer/fixtures"},
	"infer/device/devicetest":        {"infer/device", "infer/fixtures", "infer/gguf", "infer/ref"},
	"handlers/handlerstest":          {"infer/fault", "handlers", "handlers/access", "handlers/compare", "handlers/disk", "handlers/gate", "handlers/live", "handlers/models", "handlers/page", "handlers/people", "handlers/presets", "handlers/stream", "store", "infer", "infer/cpu", "infer/device", "infer/engine", "infer/gguf", "infer/gguf/gguftest", "infer/guide", "infer/hub", "infer/hub/hubtest", "infer/kvfile", "infer/readtext", "infer/record", "infer/placement", "infer/reply", "infer/sample", "infer/suggest", "handlers/setting"},
}

// soleImporters says which packages or files alone may import a package, or
// one below it.
var soleImporters = map[string][]string{
	"github.com/labstack/echo":     {"handlers", "handlers/account", "handlers/api", "handlers/failure", "handlers/gate", "handlers/growing", "handlers/httpio", "handlers/page", "handlers/share", "handlers/stream"},
	"nhooyr.io/websocket":          {"handlers/stream/socket.go", "handlers/handlerstest/socket.go"},
	"github.com/prometheus":        {"handlers/metrics"},
	"github.com/pion":              {"handlers/mdns"},
	"github.com/alexedwards":       {"handlers/people"},
	"github.com/mattn/go-sqlite3":  {"store"},
	"database/sql":                 {"store"},
	"github.com/pelletier/go-toml": {"handlers/cli"},
	"github.com/chromedp":          {},
	"github.com/andybalholm":       {"cudakern/fatbin"},
	"golang.org/x/image":           {"infer/picture"},
	"github.com/ledongthuc":        {"handlers/document"},
	"m40-llm/cudakern/resident":    {"infer/cuda/resident.go"},
}

// mayUseHTTP are the packages below infer that may know HTTP.
var mayUseHTTP = []string{"infer/upstream", "infer/client", "infer/hub", "infer/hub/hubtest", "infer/worker"}

// deviceFree are the files of the engine that decide without knowing what computes.
var deviceFree = []string{"infer/engine/scheduler.go", "infer/engine/blocks.go", "infer/engine/sequence.go", "infer/engine/lookup.go"}

// sourceFile is a Go file outside of tests.
type sourceFile struct {
	path    string // from the root of the module
	pkg     string // its folder
	imports []string
}

func sourceFiles(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base != "." && (strings.HasPrefix(base, ".") || base == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := sourceFile{path: filepath.ToSlash(name), pkg: path.Dir(filepath.ToSlash(name))}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imported)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// breaches returns what the imports of f do against the rules.
func breaches(f sourceFile) (found []string) {
	for _, imported := range f.imports {
		for guarded, importers := range soleImporters {
			if within(imported, guarded) && !slices.Contains(importers, f.pkg) && !slices.Contains(importers, f.path) {
				found = append(found, f.path+" may not import "+imported+", only "+strings.Join(importers, " and ")+" may")
			}
		}
		if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
			if !slices.Contains(mayImport[f.pkg], ours) {
				found = append(found, "package "+f.pkg+" may not import "+ours)
			}
			if ours == "infer/device" && slices.Contains(deviceFree, f.path) {
				found = append(found, f.path+" may not know devices")
			}
			continue
		}
		if within(imported, "net/http") && within(f.pkg, "infer") && !slices.Contains(mayUseHTTP, f.pkg) {
			found = append(found, "package "+f.pkg+" may not know HTTP")
		}
	}
	return found
}

// within reports whether the package or folder name is outer or lies below it.
func within(name, outer string) bool {
	return name == outer || strings.HasPrefix(name, outer+"/")
}

// TestImports holds the rules of who knows whom.
func TestImports(t *testing.T) {
	files := sourceFiles(t)
	if len(files) < 20 {
		t.Fatalf("only %d files were found", len(files))
	}
	for _, f := range files {
		for _, b := range breaches(f) {
			t.Errorf("%s: %s", f.path, b)
		}
	}
	for pkg, list := range mayImport {
		for i, imported := range list {
			used := slices.ContainsFunc(files, func(f sourceFile) bool { return f.pkg == pkg && slices.Contains(f.imports, module+"/"+imported) })
			if !used || slices.Contains(list[:i], imported) {
				t.Errorf("package %s may import %s, which it does not, or which is listed twice", pkg, imported)
			}
		}
	}
}

// TestImportRules tries the rules on imports that they must stop.
func TestImportRules(t *testing.T) {
	for _, c := range []struct {
		name, file, imported string
		allowed              bool
	}{
		{"the engine does not know the routes", "infer/engine/engine.go", "m40-llm/handlers", false},
		{"the engine does not know the page", "infer/engine/engine.go", "m40-llm/web", false},
		{"the engine does not know the store", "infer/engine/engine.go", "m40-llm/store", false},
		{"the engine does not know a concrete device", "infer/engine/engine.go", "m40-llm/infer/cpu", false},
		{"the engine does not know echo", "infer/engine/engine.go", "github.com/labstack/echo/v4", false},
		{"the engine does not know SQL", "infer/engine/engine.go", "database/sql", false},
		{"the engine does not know HTTP", "infer/engine/engine.go", "net/http", false},
		{"a device does not know HTTP", "infer/cpu/cpu.go", "net/http/httptest", false},
		{"the page knows none of ours", "web/page.go", "m40-llm/infer", false},
		{"the kernels know none of ours", "cudakern/driver.go", "m40-llm/infer/gguf", false},
		{"graphs do not know the resident kernel", "infer/cuda/ahead.go", "m40-llm/cudakern/resident", false},
		{"the routes do not know the kernels", "handlers/page/page.go", "m40-llm/cudakern", false},
		{"the routes do not know devices", "handlers/page/page.go", "m40-llm/infer/device", false},
		{"the routes do not know SQL", "handlers/page/page.go", "database/sql", false},
		{"the values that others speak do not know the engine", "infer/request.go", "m40-llm/infer/engine", false},
		{"the values that others speak do not know models", "infer/info.go", "m40-llm/infer/model", false},
		{"the scheduler does not know devices", "infer/engine/scheduler.go", "m40-llm/infer/device", false},
		{"the model does not know the scheduler", "infer/model/model.go", "m40-llm/infer", false},
		{"the file format is a leaf", "infer/gguf/file.go", "m40-llm/infer/device", false},
		{"the tokenizer is a leaf", "infer/tokenizer/bpe.go", "m40-llm/infer/gguf", false},
		{"the samplers are a leaf", "infer/sample/chain.go", "m40-llm/infer/gguf", false},
		{"the reader of replies is a leaf", "infer/reply/reply.go", "m40-llm/infer/chat", false},
		{"the chat templates are a leaf", "infer/chat/chat.go", "m40-llm/infer/gguf", false},
		{"one file alone knows the websocket package", "handlers/page/page.go", "nhooyr.io/websocket/wsjson", false},
		{"chats know no HTTP routes", "handlers/live/chat.go", "m40-llm/handlers", false},
		{"links do not know chats", "handlers/links/links.go", "m40-llm/handlers/live", false},
		{"the list of chats does not know chats", "handlers/chatlist/chatlist.go", "m40-llm/handlers/live", false},
		{"uploads do not know chats", "handlers/attached/uploads.go", "m40-llm/handlers/live", false},
		{"settings do not know chats", "handlers/setting/setting.go", "m40-llm/handlers/live", false},
		{"choices of models do not know chats", "handlers/choice/choice.go", "m40-llm/handlers/live", false},
		{"chats do not know their guests", "handlers/live/chat.go", "m40-llm/handlers/guest", false},
		{"chats do not know what looks into their answers", "handlers/live/chat.go", "m40-llm/handlers/inspect", false},
		{"chats do not know what compares their answers", "handlers/live/chat.go", "m40-llm/handlers/compare", false},
		{"the rest of the stream does not know the websocket package", "handlers/stream/session.go", "nhooyr.io/websocket", false},
		{"the pages do not know the stream", "handlers/page/page.go", "m40-llm/handlers/stream", false},
		{"the gate does not know chats", "handlers/gate/gate.go", "m40-llm/handlers/live", false},
		{"the API for programs does not know chats", "handlers/api/chat.go", "m40-llm/handlers/live", false},
		{"Markdown does not know echo", "handlers/markdown/markdown.go", "github.com/labstack/echo/v4", false},
		{"chats do not know echo", "handlers/live/chat.go", "github.com/labstack/echo/v4", false},
		{"the terminal does not know concrete devices", "handlers/cli/serve.go", "m40-llm/infer/cpu", false},
		{"no program file drives a browser", "handlers/page/page.go", "github.com/chromedp/chromedp", false},

		{"the stream knows the websocket package", "handlers/stream/socket.go", "nhooyr.io/websocket", true},
		{"the engine knows the device interface", "infer/engine/engine.go", "m40-llm/infer/device", true},
		{"the store knows SQL", "store/store.go", "database/sql", true},
		{"the commands know concrete devices", "handlers/commands/devices.go", "m40-llm/infer/cpu", true},
		{"the hub knows HTTP", "infer/hub/pull.go", "net/http", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := breaches(sourceFile{path: c.file, pkg: path.Dir(c.file), imports: []string{c.imported}})
			if (len(got) == 0) != c.allowed {
				t.Errorf("%s importing %s: %q", c.file, c.imported, got)
			}
		})
	}
}
