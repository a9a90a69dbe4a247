package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// wanted is a file worth downloading: some hundred kilobytes, most of them weights.
var wanted = gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Layers: 4, FFN: 256})

// other is a model of the same size with other weights.
var other = gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Layers: 4, FFN: 256, Seed: 7})

// mixed is called Q8_0 and has weights in a format that the tests cannot compute with.
var mixed = gguftest.TinyLlama(gguftest.Llama{Type: gguf.F16, Dim: 128, Layers: 4, FFN: 256})

var computable = []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q4_0}

// request is what a server was asked.
type request struct {
	server string // api or cdn
	path   string
	header http.Header
	host   string
}

// fakeRegistry imitates a registry and the storage that it redirects to. Its hooks
// answer instead, and report whether they did.
type fakeRegistry struct {
	files map[string][]byte // of the repository org/repo
	api   *httptest.Server
	cdn   *httptest.Server

	onAPI   func(w http.ResponseWriter, r *http.Request) bool
	onCDN   func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool // try counts from 1
	chosen  string                                                                  // file that the manifest names; "": none
	lie     func(m map[string]any)                                                  // changes the file in the manifest
	cdnHost string                                                                  // in redirects; the storage's own address if empty

	mu       sync.Mutex
	requests []request
	tries    int
}

func newRegistry(t testing.TB, files map[string][]byte, chosen string) *fakeRegistry {
	t.Helper()
	f := &fakeRegistry{files: files, chosen: chosen}
	f.api = httptest.NewServer(http.HandlerFunc(f.serveAPI))
	f.cdn = httptest.NewServer(http.HandlerFunc(f.serveCDN))
	t.Cleanup(func() {
		for _, s := range []*httptest.Server{f.api, f.cdn} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	return f
}

func (f *fakeRegistry) note(server string, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, request{server, r.URL.Path, r.Header.Clone(), r.Host})
}

// asked returns the requests that a server got.
func (f *fakeRegistry) asked(server string) (list []request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r.server == server {
			list = append(list, r)
		}
	}
	return list
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func (f *fakeRegistry) serveAPI(w http.ResponseWriter, r *http.Request) {
	f.note("api", r)
	if f.onAPI != nil && f.onAPI(w, r) {
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/v2/org/repo/manifests/"):
		if f.chosen == "" || !strings.Contains(r.UserAgent(), "llama-cpp") {
			http.Error(w, "no such tag", http.StatusBadRequest)
			return
		}
		data := f.files[f.chosen]
		file := map[string]any{"rfilename": f.chosen, "size": len(data), "lfs": map[string]any{"sha256": sum(data)}}
		if f.lie != nil {
			f.lie(file)
		}
		json.NewEncoder(w).Encode(map[string]any{"schemaVersion": 2, "ggufFile": file})
	case r.URL.Path == "/api/models/org/repo/tree/main":
		json.NewEncoder(w).Encode(f.listing())
	case strings.HasPrefix(r.URL.Path, "/org/repo/resolve/main/"):
		name := strings.TrimPrefix(r.URL.Path, "/org/repo/resolve/main/")
		data, ok := f.files[name]
		if !ok {
			w.Header().Set("X-Error-Code", "EntryNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("X-Linked-Etag", `"`+sum(data)+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		host := f.cdnHost
		if host == "" {
			host = strings.TrimPrefix(f.cdn.URL, "http://")
		}
		http.Redirect(w, r, "http://"+host+"/"+name+"?signature=secret", http.StatusFound)
	default:
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func (f *fakeRegistry) listing() (entries []map[string]any) {
	for name, data := range f.files {
		entries = append(entries, map[string]any{"type": "file", "path": name, "size": len(data), "oid": "0123",
			"lfs": map[string]any{"oid": sum(data), "size": len(data), "pointerSize": 130}})
	}
	return append(entries, map[string]any{"type": "file", "path": "README.md", "size": 10, "oid": "0123"}, map[string]any{"type": "directory", "path": "d"})
}

func (f *fakeRegistry) serveCDN(w http.ResponseWriter, r *http.Request) {
	f.note("cdn", r)
	f.mu.Lock()
	f.tries++
	try := f.tries
	f.mu.Unlock()
	data := f.files[strings.TrimPrefix(r.URL.Path, "/")]
	if f.onCDN != nil && f.onCDN(w, r, try, data) {
		return
	}
	serve(w, r, data, `"one"`)
}

// serve answers like a storage server, ranges and conditions included.
func serve(w http.ResponseWriter, r *http.Request, data []byte, etag string) {
	if etag != "" {
		w.Header().Set("Etag", etag)
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(data)))
}

// cut sends n bytes of the answer that is asked for and breaks the connection.
func cut(w http.ResponseWriter, r *http.Request, data []byte, n int) {
	start := rangeStart(r)
	w.Header().Set("Etag", `"one"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)-start))
	if start > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(data[start:min(start+n, len(data))])
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func rangeStart(r *http.Request) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
	return n
}

// pulls is a Puller over a fake registry that waits for nothing but the network.
type pulls struct {
	*Puller
	dir    string
	mu     sync.Mutex
	waited []time.Duration
}

func newPuller(t testing.TB, dir, endpoint string, change ...func(*PullOptions)) *pulls {
	t.Helper()
	p := &pulls{dir: dir}
	o := PullOptions{
		Endpoint:  endpoint,
		Token:     "hf_secret",
		Version:   "test",
		Addresses: true,
		Stall:     10 * time.Second,
		FreeDisk:  func(string) (int64, error) { return 1 << 40, nil },
		Sleep: func(ctx context.Context, d time.Duration) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.waited = append(p.waited, d)
			return context.Cause(ctx)
		},
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if p.Puller, err = NewPuller(New(Options{Dir: dir, Types: computable}), o); err != nil {
		t.Fatal(err)
	}
	return p
}

// pull resolves and pulls name.
func (p *pulls) pull(ctx context.Context, name string, force bool) error {
	d, err := p.Resolve(ctx, name)
	if err != nil {
		return err
	}
	_, err = p.Pull(ctx, d, force, nil)
	return err
}

// left returns the files of a folder, by their path in it.
func left(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err == nil && !d.IsDir() {
			relative, _ := filepath.Rel(dir, path)
			files = append(files, relative)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// checkLoadable fails if a file is listed as a model and is not want.
func checkLoadable(t testing.TB, dir string, want []byte) (found bool) {
	t.Helper()
	for _, name := range left(t, dir) {
		if !strings.HasSuffix(name, ".gguf") {
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is listed as a model and is a wrong file of %d bytes", name, len(got))
		}
		found = true
	}
	return found
}

// hang answers nothing until the client goes.
func hang(r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}
