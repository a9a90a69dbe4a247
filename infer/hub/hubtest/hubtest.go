// Package hubtest runs a fake model registry and its storage on this machine, with faults on
// demand.
package hubtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is a request that a server received.
type Request struct {
	Server string // api or cdn
	Path   string
	Header http.Header
	Host   string
}

// Registry is a fake registry and the storage that it redirects to. It answers as Hugging Face does
// for the repository org/repo, and as the Ollama library does for its model model. The hooks OnAPI and OnCDN
// return true if they wrote the response.
type Registry struct {
	Files map[string][]byte // of the repository org/repo
	API   *httptest.Server
	CDN   *httptest.Server

	OnAPI        func(w http.ResponseWriter, r *http.Request) bool
	OnCDN        func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool // try counts from 1
	Chosen       string                                                                  // file in the manifest; "": no manifest
	Architecture string                                                                  // that the registry tells of the files; "": it tells nothing
	EditManifest func(m map[string]any)                                                  // modifies the file in the manifest
	EditLayers   func(layers []map[string]any) []map[string]any                          // modifies the layers in the library's manifest
	CDNHost      string                                                                  // in redirects; the storage's own address if empty

	mu       sync.Mutex
	requests []Request
	tries    int
}

// New starts a registry with the files of the repository org/repo. chosen is the file in its
// manifest. The servers stop at the end of the test.
func New(t testing.TB, files map[string][]byte, chosen string) *Registry {
	t.Helper()
	f := &Registry{Files: files, Chosen: chosen}
	f.API = httptest.NewServer(http.HandlerFunc(f.serveAPI))
	f.CDN = httptest.NewServer(http.HandlerFunc(f.serveCDN))
	t.Cleanup(func() {
		for _, s := range []*httptest.Server{f.API, f.CDN} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	return f
}

// SetCDN sets OnCDN while the servers run, and resets the number of tries.
func (f *Registry) SetCDN(answer func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.OnCDN, f.tries = answer, 0
}

func (f *Registry) record(server string, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, Request{server, r.URL.Path, r.Header.Clone(), r.Host})
}

// Requests returns the requests that a server received.
func (f *Registry) Requests(server string) (list []Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r.Server == server {
			list = append(list, r)
		}
	}
	return list
}

// Sum returns the SHA-256 of data in hexadecimal.
func Sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func (f *Registry) serveAPI(w http.ResponseWriter, r *http.Request) {
	f.record("api", r)
	if f.OnAPI != nil && f.OnAPI(w, r) {
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/v2/org/repo/manifests/"):
		if f.Chosen == "" || !strings.Contains(r.UserAgent(), "llama-cpp") {
			http.Error(w, "no such tag", http.StatusBadRequest)
			return
		}
		data := f.Files[f.Chosen]
		file := map[string]any{"rfilename": f.Chosen, "size": len(data), "lfs": map[string]any{"sha256": Sum(data)}}
		if f.EditManifest != nil {
			f.EditManifest(file)
		}
		json.NewEncoder(w).Encode(map[string]any{"schemaVersion": 2, "ggufFile": file})
	case strings.HasPrefix(r.URL.Path, "/v2/"):
		f.serveLibrary(w, r, strings.TrimPrefix(r.URL.Path, "/v2/library/model/"))
	case r.URL.Path == "/api/models/org/repo" && f.Architecture != "":
		json.NewEncoder(w).Encode(map[string]any{"id": "org/repo", "gguf": map[string]any{"architecture": f.Architecture, "context_length": 4096}})
	case r.URL.Path == "/api/models/org/repo/tree/main":
		json.NewEncoder(w).Encode(f.listing())
	case strings.HasPrefix(r.URL.Path, "/org/repo/resolve/main/"):
		name := strings.TrimPrefix(r.URL.Path, "/org/repo/resolve/main/")
		data, ok := f.Files[name]
		if !ok {
			w.Header().Set("X-Error-Code", "EntryNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("X-Linked-Etag", `"`+Sum(data)+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		f.redirect(w, r, name, http.StatusFound)
	default:
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// redirect sends the client to a file in the storage.
func (f *Registry) redirect(w http.ResponseWriter, r *http.Request, name string, status int) {
	host := f.CDNHost
	if host == "" {
		host = strings.TrimPrefix(f.CDN.URL, "http://")
	}
	http.Redirect(w, r, "http://"+host+"/"+name+"?signature=secret", status)
}

// serveLibrary answers requests for the model of the library whose tag latest has the chosen file.
func (f *Registry) serveLibrary(w http.ResponseWriter, r *http.Request, rest string) {
	const manifest, image = "application/vnd.docker.distribution.manifest.v2+json", "application/vnd.ollama.image."
	if sum, ok := strings.CutPrefix(rest, "blobs/sha256:"); ok {
		for name, data := range f.Files {
			if Sum(data) == sum {
				f.redirect(w, r, name, http.StatusTemporaryRedirect)
				return
			}
		}
	}
	if rest != "manifests/latest" || f.Chosen == "" || r.Header.Get("Accept") != manifest {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
		return
	}
	layer := func(kind string, data []byte) map[string]any {
		return map[string]any{"mediaType": image + kind, "digest": "sha256:" + Sum(data), "size": len(data)}
	}
	layers := []map[string]any{
		layer("model", f.Files[f.Chosen]), layer("template", []byte("{{ .Prompt }}")), layer("params", []byte(`{"stop":["x"]}`)), layer("license", []byte("free")),
	}
	if f.EditLayers != nil {
		layers = f.EditLayers(layers)
	}
	json.NewEncoder(w).Encode(map[string]any{"schemaVersion": 2, "mediaType": manifest, "layers": layers,
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:" + Sum(nil), "size": 0}})
}

func (f *Registry) listing() (entries []map[string]any) {
	for name, data := range f.Files {
		entries = append(entries, map[string]any{"type": "file", "path": name, "size": len(data), "oid": "0123",
			"lfs": map[string]any{"oid": Sum(data), "size": len(data), "pointerSize": 130}})
	}
	return append(entries, map[string]any{"type": "file", "path": "README.md", "size": 10, "oid": "0123"}, map[string]any{"type": "directory", "path": "d"})
}

func (f *Registry) serveCDN(w http.ResponseWriter, r *http.Request) {
	f.record("cdn", r)
	f.mu.Lock()
	f.tries++
	try, answer := f.tries, f.OnCDN
	f.mu.Unlock()
	data := f.Files[strings.TrimPrefix(r.URL.Path, "/")]
	if answer != nil && answer(w, r, try, data) {
		return
	}
	Serve(w, r, data, `"one"`)
}

// Serve writes data as a storage server does, with ranges and conditional requests.
func Serve(w http.ResponseWriter, r *http.Request, data []byte, etag string) {
	if etag != "" {
		w.Header().Set("Etag", etag)
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(data)))
}

// Truncate sends n bytes of the requested range and closes the connection.
func Truncate(w http.ResponseWriter, r *http.Request, data []byte, n int) {
	start, end := Range(r, len(data))
	w.Header().Set("Etag", `"one"`)
	w.Header().Set("Content-Length", strconv.Itoa(end-start))
	if start > 0 || end < len(data) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(data[start:min(start+n, end)])
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Range returns the requested bytes of a file of size bytes, from start to end-1.
func Range(r *http.Request, size int) (start, end int) {
	from, to, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
	start, _ = strconv.Atoi(from)
	if last, err := strconv.Atoi(to); err == nil {
		return start, min(last+1, size)
	}
	return start, size
}

// RangeStart returns the offset of the first requested byte.
func RangeStart(r *http.Request) int {
	start, _ := Range(r, 0)
	return start
}

// Hang sends nothing until the client disconnects.
func Hang(r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}
