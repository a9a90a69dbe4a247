package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"sync"

	"m40-llm/web/lang"
)

//go:embed static
var static embed.FS

// Asset is a file of the page.
type Asset struct {
	Type string // MIME type
	Body []byte
	Gzip []byte // the same, compressed; nil where that saves nothing
}

var types = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// bundle holds every asset under its name, and one hash of them all: scripts name
// each other by relative address, so all of them change address together.
type bundle struct {
	hash    string
	assets  map[string]Asset
	scripts map[string][]string // by the script of a page: that and all that it imports
}

// preloaded are the scripts of pages of which browsers fetch the imports in parallel.
var preloaded = []string{"app.js", "models.js"}

var importLine = regexp.MustCompile(`(?m)^import .*'\./([a-z]+\.js)'$`)

// scriptText matches the beginning of a call of t or tn in a script, and literal each of its texts in single quotes.
var (
	scriptText = regexp.MustCompile(`\bt\(('(?:[^'\\\n]|\\.)*')|\btn\([^,\n]+, ('(?:[^'\\\n]|\\.)*'), ('(?:[^'\\\n]|\\.)*')`)
	escaped    = regexp.MustCompile(`\\(.)`)
)

// scriptTexts returns the texts of the catalogue that a script names.
func scriptTexts(script []byte) (texts []string) {
	for _, m := range scriptText.FindAllSubmatch(script, -1) {
		for _, literal := range m[1:] {
			if len(literal) > 0 {
				texts = append(texts, escaped.ReplaceAllString(string(literal[1:len(literal)-1]), "$1"))
			}
		}
	}
	return texts
}

// languageScript returns the script that gives the scripts of a page their texts in a language.
func languageScript(l lang.Language, keys []string) []byte {
	texts, err := json.Marshal(lang.Texts(l, keys))
	if err != nil {
		panic(err) // strings
	}
	return []byte("globalThis.texts = " + string(texts) + "\n")
}

var load = sync.OnceValue(func() bundle {
	b := bundle{assets: map[string]Asset{}}
	sum := sha256.New()
	names, err := fs.Glob(static, "static/*")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	z, err := gzip.NewWriterLevel(nil, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	add := func(name string, body []byte) {
		sum.Write([]byte(name))
		sum.Write(body)
		asset := Asset{Type: types[path.Ext(name)], Body: body}
		if short := compress(z, body); len(short) < len(body) {
			asset.Gzip = short
		}
		b.assets[name] = asset
	}
	var texts []string
	for _, name := range names {
		body, err := static.ReadFile(name)
		if err != nil {
			panic(err) // embedded
		}
		add(path.Base(name), body)
		if path.Ext(name) == ".js" {
			texts = append(texts, scriptTexts(body)...)
		}
	}
	add(string(lang.German)+".js", languageScript(lang.German, texts))
	b.hash = hex.EncodeToString(sum.Sum(nil))[:12]
	b.scripts = map[string][]string{}
	for _, name := range preloaded {
		b.scripts[name] = b.imports(name, nil)
	}
	return b
})

// imports appends to names a script and all that it imports when it is loaded, each once.
func (b bundle) imports(name string, names []string) []string {
	if slices.Contains(names, name) {
		return names
	}
	names = append(names, name)
	for _, line := range importLine.FindAllSubmatch(b.assets[name].Body, -1) {
		names = b.imports(string(line[1]), names)
	}
	return names
}

// modules returns the scripts of a page for the browser to preload, so that it fetches them in parallel: script, which is
// one of preloaded, and its imports.
func modules(script string) []string { return load().scripts[script] }

// compress compresses body with z, whose buffers of 800 KB serve all assets.
func compress(z *gzip.Writer, body []byte) []byte {
	var buf bytes.Buffer
	z.Reset(&buf)
	_, _ = z.Write(body) // a bytes.Buffer takes everything
	_ = z.Close()
	return buf.Bytes()
}

// AssetPath returns the address of an asset. It changes with the content of any asset, so that
// responses may be cached for ever.
func AssetPath(name string) string { return "/static/" + load().hash + "/" + name }

// FindAsset returns the asset called name at the address of hash.
func FindAsset(hash, name string) (Asset, bool) {
	b := load()
	a, ok := b.assets[name]
	return a, ok && hash == b.hash
}
