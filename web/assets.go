package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"path"
	"sync"
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
	hash   string
	assets map[string]Asset
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
	for _, name := range names {
		body, err := static.ReadFile(name)
		if err != nil {
			panic(err) // embedded
		}
		base := path.Base(name)
		sum.Write([]byte(base))
		sum.Write(body)
		asset := Asset{Type: types[path.Ext(base)], Body: body}
		if short := compress(z, body); len(short) < len(body) {
			asset.Gzip = short
		}
		b.assets[base] = asset
	}
	b.hash = hex.EncodeToString(sum.Sum(nil))[:12]
	return b
})

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
