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

// Registry is a fake registry and the storage that it redirects to. The hooks OnAPI and OnCDN
// return true if they wrote the response.
type Registry struct {
	Files map[string][]byte // of the repository org/repo
	API   *httptest.Server
	CDN   *httptest.Server

	OnAPI        func(w http.ResponseWriter, r *http.Request) bool
	OnCDN        func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool // try counts from 1
	Chosen       string                                                                  // file in the manifest; "": no manifest
	EditManifest func(m map[string]any)                                                  // modifies the file in the manifest
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
		host := f.CDNHost
		if host == "" {
			host = strings.TrimPrefix(f.CDN.URL, "http://")
		}
		http.Redirect(w, r, "http://"+host+"/"+name+"?signature=secret", http.StatusFound)
	default:
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(http.StatusUnauthorized)
	}
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
	start := RangeStart(r)
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

// RangeStart returns the offset of the first requested byte.
func RangeStart(r *http.Request) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
	return n
}

// Hang sends nothing until the client disconnects.
func Hang(r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}
