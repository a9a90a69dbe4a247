package hub

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub/hubtest"
)

const modelFile = "model-Q8_0.gguf"

// Each pull ends with the right file or with an error, and never with a wrong file that could
// be loaded.
func TestPullFromAFaultyRegistry(t *testing.T) {
	half := len(testModel) / 2
	for _, c := range []struct {
		name  string
		pull  string // default org/repo:Q8_0
		setup func(f *hubtest.Registry)
		stall time.Duration
		err   string // part of the error; empty: the right file
		not   string // must not be in the error
		after func(t *testing.T, f *hubtest.Registry, p *testPuller)
		alone bool // only with one connection
	}{
		{name: "a registry without faults gives the file"},
		{
			name: "a closed connection is resumed",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 1 {
						hubtest.Truncate(w, r, data, half)
					}
					return false
				}
			},
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				asked := f.Requests("cdn")
				if len(asked) != 2 || asked[1].Header.Get("Range") != fmt.Sprintf("bytes=%d-", half) || asked[1].Header.Get("If-Range") != `"one"` {
					t.Errorf("the second request was %v", asked[len(asked)-1].Header)
				}
			},
		},
		{
			name: "a connection closed repeatedly is resumed as long as bytes arrive",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try <= 20 {
						hubtest.Truncate(w, r, data, len(data)/25)
					}
					return false
				}
			},
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				for _, d := range p.waited {
					if d != time.Second {
						t.Errorf("waited %s, want the first wait after progress", d)
					}
				}
			},
		},
		{
			name: "a connection that always breaks at the same position fails after increasing waits",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Truncate(w, r, data, max(0, half-hubtest.RangeStart(r)))
					return true
				}
			},
			err: "failed 7 times at the same position",
			not: "secret",
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				want := []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second}
				if !reflect.DeepEqual(p.waited, want) {
					t.Errorf("waited %v, want %v", p.waited, want)
				}
			},
		},
		{
			name:  "a request to a stalled server is retried",
			stall: 500 * time.Millisecond,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try > 1 {
						return false
					}
					w.Header().Set("Etag", `"one"`)
					w.Header().Set("Content-Length", strconv.Itoa(len(data)))
					w.Write(data[:half])
					http.NewResponseController(w).Flush()
					hubtest.Hang(r)
					return true
				}
			},
		},
		{
			name:  "a slow server is not a stalled one",
			stall: 6 * time.Second,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					w.Header().Set("Content-Length", strconv.Itoa(len(data)))
					for piece := range slices.Chunk(data, len(data)/12) {
						time.Sleep(600 * time.Millisecond)
						w.Write(piece)
						http.NewResponseController(w).Flush()
					}
					return true
				}
			},
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				if len(f.Requests("cdn")) != 1 {
					t.Error("the request was retried")
				}
			},
		},
		{
			name:  "a pull from a server that never responds fails",
			stall: 500 * time.Millisecond,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool { hubtest.Hang(r); return true }
			},
			err: "failed 7 times",
		},
		{
			name:  "a lookup at a registry that never responds fails",
			stall: 50 * time.Millisecond,
			setup: func(f *hubtest.Registry) {
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool { hubtest.Hang(r); return true }
			},
			err: "failed to look up org/repo",
		},
		{
			name: "the download restarts if the server ignores ranges",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 1 {
						hubtest.Truncate(w, r, data, half)
					}
					r.Header.Del("Range")
					return false
				}
			},
		},
		{
			name: "a length other than announced is refused",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Serve(w, r, data[:half], "")
					return true
				}
			},
			err: "but announced",
		},
		{
			name: "a length greater than announced is refused",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Serve(w, r, append(bytes.Clone(data), "more"...), "")
					return true
				}
			},
			err: "but announced",
		},
		{
			name: "a body longer than announced, without a length, is refused",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					w.Write(append(bytes.Clone(data[:len(data)-9]), bytes.Repeat([]byte{1}, 1<<20)...))
					return true
				}
			},
			err: "it announced",
		},
		{
			name: "a body that ends early without an error is resumed",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try > 1 {
						return false
					}
					w.Header().Set("Etag", `"one"`)
					w.Write(data[:half])
					return true
				}
			},
		},
		{
			name: "the download restarts if the file changes between two ranges",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 1 {
						hubtest.Truncate(w, r, otherModel, half)
					}
					hubtest.Serve(w, r, data, `"two"`)
					return true
				}
			},
		},
		{
			name: "the download restarts if the file changes on a server that ignores If-Range",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 1 {
						hubtest.Truncate(w, r, otherModel, half)
					}
					r.Header.Del("If-Range")
					hubtest.Serve(w, r, data, `"two"`)
					return true
				}
			},
		},
		{
			name: "a flipped byte is detected and the file deleted",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					wrong := bytes.Clone(data)
					wrong[len(wrong)-100] ^= 1
					hubtest.Serve(w, r, wrong, "")
					return true
				}
			},
			err: "SHA-256",
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				if files := filesIn(t, p.dir); len(files) > 0 {
					t.Errorf("got files %q", files)
				}
			},
		},
		{
			name: "another model of the same length is detected",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Serve(w, r, otherModel, "")
					return true
				}
			},
			err: "SHA-256",
		},
		{
			name: "a request to a server that fails at first is retried",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try <= 3 {
						w.WriteHeader(http.StatusBadGateway + try%3)
						return true
					}
					return false
				}
			},
		},
		{
			name:  "a request is retried after the time in Retry-After",
			alone: true,
			setup: func(f *hubtest.Registry) {
				asked := 0
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					if asked++; asked > 2 { // the first asks for the architecture, and is not repeated
						return false
					}
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(http.StatusTooManyRequests)
					return true
				}
			},
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				if !reflect.DeepEqual(p.waited, []time.Duration{7 * time.Second}) {
					t.Errorf("waited %v", p.waited)
				}
			},
		},
		{
			name: "an expired signature is renewed",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 1 {
						w.WriteHeader(http.StatusForbidden)
					}
					return try == 1
				}
			},
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				resolved := 0
				for _, r := range f.Requests("api") {
					if strings.Contains(r.Path, "/resolve/") {
						resolved++
					}
				}
				if resolved != 2 {
					t.Errorf("the address was resolved %d times", resolved)
				}
			},
		},
		{
			name: "a loop of redirects ends",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					http.Redirect(w, r, r.URL.String(), http.StatusFound)
					return true
				}
			},
			err: "redirects more than 5 times",
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				if n := len(f.Requests("cdn")); n != 5 { // the redirect of the registry counts as the first
					t.Errorf("the storage received %d requests", n)
				}
			},
		},
		{name: "a redirect into a private network is refused", setup: redirect("http://10.0.0.1/model.gguf"), err: "does not begin with https://"},
		{name: "a redirect into a private network over TLS is refused", setup: redirect("https://10.0.0.1/model.gguf"), err: "not on the public internet"},
		{name: "a redirect to the metadata service is refused", setup: redirect("https://169.254.169.254/latest/"), err: "not on the public internet"},
		{name: "a redirect to a mapped private address is refused", setup: redirect("https://[::ffff:192.168.1.1]/x"), err: "not on the public internet"},
		{name: "a redirect to another scheme is refused", setup: redirect("file:///etc/passwd"), err: "not a host that can be downloaded from"},
		{name: "a redirect with a password is refused", setup: redirect("https://user:pw@example.org/x"), err: "not a host that can be downloaded from", not: "pw"},
		{name: "a redirect without an address is refused", setup: redirect(""), err: "redirects to an invalid address"},
		{
			name: "a redirect to another host does not get the token",
			setup: func(f *hubtest.Registry) {
				f.CDNHost = strings.Replace(strings.TrimPrefix(f.CDN.URL, "http://"), "127.0.0.1", "localhost", 1)
			},
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				for _, r := range f.Requests("api") {
					if r.Header.Get("Authorization") != "Bearer hf_secret" {
						t.Errorf("the registry received a request for %s without the token", r.Path)
					}
				}
				for _, r := range f.Requests("cdn") {
					if !strings.HasPrefix(r.Host, "localhost") || r.Header.Get("Authorization") != "" {
						t.Errorf("%s received the token %q", r.Host, r.Header.Get("Authorization"))
					}
				}
			},
		},
		{
			name: "a redirect on the same host does not get the token",
			setup: func(f *hubtest.Registry) {
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == "/stored" {
						if r.Header.Get("Authorization") != "" {
							w.WriteHeader(http.StatusTeapot)
							return true
						}
						hubtest.Serve(w, r, testModel, "")
						return true
					}
					if strings.Contains(r.URL.Path, "/resolve/") {
						http.Redirect(w, r, "/stored", http.StatusTemporaryRedirect)
						return true
					}
					return false
				}
			},
		},
		{
			name: "a digest that is not hexadecimal is refused",
			setup: func(f *hubtest.Registry) {
				f.EditManifest = func(m map[string]any) { m["lfs"] = map[string]any{"sha256": "../../etc/passwd"} }
			},
			err: "no valid SHA-256",
		},
		{
			name:  "a file without a digest is refused",
			setup: func(f *hubtest.Registry) { f.EditManifest = func(m map[string]any) { delete(m, "lfs") } },
			err:   "no valid SHA-256",
		},
		{name: "a file name with .. is refused", setup: named("../../model-Q8_0.gguf"), err: "not a path inside a repository"},
		{name: "a file name with NUL is refused", setup: named("model\x00-Q8_0.gguf"), err: "not allowed"},
		{name: "a file name with an escape sequence is refused", setup: named("\x1b]0;x\amodel-Q8_0.gguf"), err: "not allowed", not: "\x1b"},
		{name: "a hidden file name is refused", setup: named(".model.gguf"), err: "does not end in .gguf"},
		{name: "a file that is not a model is refused", setup: named("run.sh"), err: "does not end in .gguf"},
		{
			name:  "an invalid size is refused",
			setup: func(f *hubtest.Registry) { f.EditManifest = func(m map[string]any) { m["size"] = -1 } },
			err:   "has -1 bytes",
		},
		{
			name: "a manifest of 100 MB is not read",
			setup: func(f *hubtest.Registry) {
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					for range 100 {
						if _, err := w.Write(make([]byte, 1<<20)); err != nil {
							break
						}
					}
					return true
				}
			},
			err: "is larger than",
		},
		{
			name: "a listing of a million files is not read",
			setup: func(f *hubtest.Registry) {
				f.Chosen = ""
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "/tree/") {
						return false
					}
					page := strings.Repeat(`{"type":"file","path":"model-Q8_0.gguf","size":1000,"oid":"0123456789"},`, 1000)
					fmt.Fprint(w, "[")
					for range 1000 {
						if _, err := fmt.Fprint(w, page); err != nil {
							return true
						}
					}
					fmt.Fprint(w, "{}]")
					return true
				}
			},
			err: "is larger than",
		},
		{
			name: "an endless listing is not read",
			setup: func(f *hubtest.Registry) {
				f.Chosen = ""
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "/tree/") {
						return false
					}
					w.Header().Set("Link", `<`+r.URL.String()+`>; rel="next"`)
					fmt.Fprint(w, "[]")
					return true
				}
			},
			err: "more than 100 pages",
		},
		{
			name: "pages that are too large together are not read",
			setup: func(f *hubtest.Registry) {
				f.Chosen = ""
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "/tree/") {
						return false
					}
					w.Header().Set("Link", `<`+r.URL.String()+`>; rel="next"`)
					fmt.Fprint(w, "["+strings.Repeat(" ", 2<<20)+"]")
					return true
				}
			},
			err: "is larger than",
		},
		{
			name: "a listing that continues on another host is refused",
			setup: func(f *hubtest.Registry) {
				f.Chosen = ""
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					w.Header().Set("Link", `<https://example.org/>; rel="next"`)
					return false
				}
			},
			err: "continues on another host",
		},
		{
			name: "a listing of several pages is read to the end",
			setup: func(f *hubtest.Registry) {
				f.Chosen = ""
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "/tree/") || r.URL.Query().Get("cursor") != "" {
						return false
					}
					w.Header().Set("Link", `<`+f.API.URL+r.URL.Path+`?recursive=1&cursor=2>; rel="next"`)
					fmt.Fprint(w, "[]")
					return true
				}
			},
		},
		{
			name: "a response that is not JSON is refused",
			setup: func(f *hubtest.Registry) {
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					fmt.Fprint(w, "<html>Please log in to the network")
					return true
				}
			},
			err: "not valid JSON",
		},
		{
			name: "the download restarts if a range begins elsewhere",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					switch try {
					case 1:
						hubtest.Truncate(w, r, data, half)
					case 2:
						w.Header().Set("Etag", `"one"`)
						w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", half-1, len(data)-1, len(data)))
						w.WriteHeader(http.StatusPartialContent)
						w.Write(data[half-1:])
						return true
					}
					return false
				}
			},
		},
		{
			name:  "a range of a file of another length is refused",
			alone: true,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 1 {
						hubtest.Truncate(w, r, data, half)
					}
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", half, len(data), len(data)+1))
					w.WriteHeader(http.StatusPartialContent)
					return true
				}
			},
			err: "but announced",
		},
		{
			name: "the download restarts if the server lacks the announced range",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					switch try {
					case 1:
						hubtest.Truncate(w, r, data, half)
					case 2:
						w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
						return true
					}
					return false
				}
			},
		},
		{
			name: "a compressed body is refused",
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					w.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					z.Write(data)
					z.Close()
					return true
				}
			},
			err: "compressed",
		},
		{
			name: "the error for a gated repository has the address of its terms",
			setup: func(f *hubtest.Registry) {
				f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
					w.Header().Set("X-Error-Code", "GatedRepo")
					w.WriteHeader(http.StatusForbidden)
					return true
				}
			},
			err: "accept its terms at",
		},
		{name: "a repository that does not exist is an error", pull: "org/none", err: "the repository org/none does not exist"},
		{
			name:  "a repository without models is an error",
			setup: func(f *hubtest.Registry) { f.Files, f.Chosen = nil, "" },
			err:   "has no .gguf files",
		},
		{
			name:  "the error for a missing quantisation lists the others",
			pull:  "org/repo:Q5_1",
			setup: func(f *hubtest.Registry) { f.Chosen = "" },
			err:   "org/repo has no quantisation Q5_1; it has Q8_0",
		},
		{
			name: "a split model is not chosen without all of its files",
			pull: "org/repo:Q8_0",
			setup: func(f *hubtest.Registry) {
				f.Chosen = "big-Q8_0-00001-of-00002.gguf"
				f.Files = map[string][]byte{f.Chosen: testModel}
			},
			err: "has no .gguf files",
		},
		{
			name: "the error for two files of one quantisation has an address",
			setup: func(f *hubtest.Registry) {
				f.Chosen = ""
				f.Files = map[string][]byte{"a-Q8_0.gguf": testModel, "b-Q8_0.gguf": testModel}
			},
			err: "pull one by its address, such as",
		},
		{
			name: "an unsupported quantisation is refused, and the error lists the supported ones",
			pull: "org/repo:Q4_K_M",
			setup: func(f *hubtest.Registry) {
				f.Chosen = "model-Q4_K_M.gguf"
				f.Files[f.Chosen] = otherModel
			},
			err: "weights in Q4_K_M are not supported yet; the same repository has Q8_0, which can be used; on the command line, --force",
		},
		{
			name: "without a quantisation, a supported one is chosen",
			pull: "org/repo",
			setup: func(f *hubtest.Registry) {
				f.Chosen = "model-Q4_K_M.gguf"
				f.Files[f.Chosen] = otherModel
				f.Files["model-f16.gguf"] = otherModel
			},
		},
		{
			name: "a file in a folder of the repository is stored beside the others",
			setup: func(f *hubtest.Registry) {
				f.Chosen, f.Files = "Q8_0/"+modelFile, map[string][]byte{"Q8_0/" + modelFile: testModel}
			},
		},
		{
			name:  "a model with unsupported types in its header is refused",
			setup: func(f *hubtest.Registry) { f.Files = map[string][]byte{modelFile: unsupportedModel} },
			err:   "has weights in F16, which is not supported; get the model in Q8_0, Q4_0 or F32",
		},
		{
			name:  "a file that is not a model is refused though its digest is right",
			setup: func(f *hubtest.Registry) { f.Files = map[string][]byte{modelFile: bytes.Repeat([]byte("text "), 1000)} },
			err:   `not a GGUF file: it starts with "text tex"`,
		},
		{
			name:  "a model truncated before its upload is refused though its digest is right",
			setup: func(f *hubtest.Registry) { f.Files = map[string][]byte{modelFile: testModel[:half]} },
			err:   "not a valid model file",
		},

		{
			name: "an address of a file gives the file, and its host does not get the token",
			pull: "CDN/" + modelFile,
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				for _, r := range f.Requests("cdn") {
					if r.Header.Get("Authorization") != "" {
						t.Error("the host got the token")
					}
				}
			},
		},
		{name: "a file from an address is checked by the digest that its redirect announces", pull: "API/org/repo/resolve/main/" + modelFile},
		{
			name: "a file that differs from the digest of its address is refused",
			pull: "API/org/repo/resolve/main/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Serve(w, r, otherModel, "")
					return true
				}
			},
			err: "SHA-256",
		},
		{
			name: "an address whose hosts announce different sizes is refused",
			pull: "API/org/repo/resolve/main/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Serve(w, r, data[:half], "")
					return true
				}
			},
			err: "announced",
		},
		{
			name: "a closed connection to an address is resumed",
			pull: "CDN/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 2 { // the first asks for the size
						hubtest.Truncate(w, r, data, half)
					}
					return false
				}
			},
		},
		{
			name: "a file that changes at its address is not mixed",
			pull: "CDN/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 2 {
						hubtest.Truncate(w, r, otherModel, half)
					}
					hubtest.Serve(w, r, data, `"two"`)
					return true
				}
			},
		},
		{
			name: "without a strong ETag the download of an address restarts",
			pull: "CDN/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					if try == 2 {
						w.Header().Set("Content-Length", strconv.Itoa(len(data)))
						w.Write(otherModel[:half])
						return true
					}
					hubtest.Serve(w, r, data, `W/"weak"`)
					return true
				}
			},
			after: func(t *testing.T, f *hubtest.Registry, p *testPuller) {
				if asked := f.Requests("cdn"); asked[len(asked)-1].Header.Get("Range") != "" {
					t.Error("resumed from bytes of an unknown file")
				}
			},
		},
		{
			name: "an address without a length is refused",
			pull: "CDN/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					http.NewResponseController(w).Flush()
					w.Write(data)
					return true
				}
			},
			err: "does not give the size of the file",
		},
		{
			name: "a pull from an address with fewer bytes than announced fails",
			pull: "CDN/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					w.Header().Set("Content-Length", strconv.Itoa(len(data)+1000))
					w.Write(data)
					return true
				}
			},
			err: "failed 7 times",
		},
		{
			name: "a model larger than announced is refused",
			pull: "CDN/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Serve(w, r, data[:half], "")
					return true
				}
			},
			err: "not a valid model file",
		},
		{name: "an address without a file is an error", pull: "API/files/none.gguf", err: "does not have the file"},
		{
			name: "a page instead of the file is refused",
			pull: "CDN/" + modelFile,
			setup: func(f *hubtest.Registry) {
				f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
					hubtest.Serve(w, r, []byte("<html>\x1b[31mlog in</html>"), "")
					return true
				}
			},
			err: `starts with "<html>\x1b["`,
		},
	} {
		check := func(t *testing.T, segment int64) {
			t.Parallel()
			f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
			if c.setup != nil {
				c.setup(f)
			}
			p := newPuller(t, filepath.Join(t.TempDir(), "models"), f.API.URL, func(o *PullOptions) {
				if c.stall > 0 {
					o.Stall = c.stall
				}
			})
			if segment > 0 {
				p.segment = segment
			}
			name := c.pull
			if name == "" {
				name = "org/repo:Q8_0"
			}
			name = strings.Replace(strings.Replace(name, "API", f.API.URL, 1), "CDN", f.CDN.URL, 1)
			err := p.pull(t.Context(), name, false)
			found := checkLoadable(t, p.dir, testModel)
			switch {
			case c.err == "" && (err != nil || !found):
				t.Fatalf("got error %v, model listed %v", err, found)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Fatalf("got error %v, want one with %q", err, c.err)
			case c.err != "" && found:
				t.Error("a model is listed in spite of the error")
			case c.err != "" && (strings.ContainsAny(err.Error(), "\n\x1b\x00") || c.not != "" && strings.Contains(err.Error(), c.not)):
				t.Errorf("got error %q", err)
			}
			if c.after != nil && segment == 0 {
				c.after(t, f, p)
			}
			if c.err == "" {
				for _, name := range filesIn(t, p.dir) {
					if !strings.HasSuffix(name, ".gguf") {
						t.Errorf("got file %s", name)
					}
				}
			}
		}
		t.Run(c.name, func(t *testing.T) { check(t, 0) })
		if c.stall == 0 && !c.alone {
			t.Run(c.name+", with several connections", func(t *testing.T) { check(t, 16<<10) })
		}
	}
}

// redirect makes the storage redirect to another address.
func redirect(to string) func(f *hubtest.Registry) {
	return func(f *hubtest.Registry) {
		f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if to != "" {
				w.Header().Set("Location", to)
			}
			w.WriteHeader(http.StatusFound)
			return true
		}
	}
}

// named makes the manifest name another file.
func named(file string) func(f *hubtest.Registry) {
	return func(f *hubtest.Registry) { f.EditManifest = func(m map[string]any) { m["rfilename"] = file } }
}

func TestPullReturnsAModelAndLeavesOneFile(t *testing.T) {
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	p := newPuller(t, filepath.Join(t.TempDir(), "new", "models"), f.API.URL, func(o *PullOptions) {
		o.FreeMemory = func() int64 { return 12345 }
	})
	d, err := p.Resolve(t.Context(), "hf.co/org/repo:Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	want := infer.Download{Name: "hf.co/org/repo:Q8_0", File: "org/repo/" + modelFile, Source: f.API.URL + "/org/repo/resolve/main/" + modelFile,
		Size: int64(len(testModel)), SHA256: hubtest.Sum(testModel), Quant: "Q8_0", DiskNeed: int64(len(testModel)) + diskReserve, DiskFree: 1 << 40, MemoryFree: 12345}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("resolved to %+v\nwant %+v", d, want)
	}
	if len(f.Requests("cdn")) > 0 {
		t.Error("Resolve requested the file")
	}
	var phases []infer.DownloadPhase
	info, err := p.Pull(t.Context(), d, false, func(p infer.DownloadProgress) {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
		if p.Total != d.Size || p.Done > d.Size {
			t.Errorf("got progress %+v", p)
		}
	})
	path := filepath.Join(p.dir, "org", "repo", modelFile)
	if err != nil || info.Name != "model-Q8_0" || info.Path != path || info.Error != "" || info.Quant != "Q8_0" {
		t.Fatalf("got %+v, %v", info, err)
	}
	if want := []infer.DownloadPhase{infer.PhaseDownloading, infer.PhaseDone}; !reflect.DeepEqual(phases, want) {
		t.Errorf("got phases %v, want %v", phases, want)
	}
	for path, want := range map[string]os.FileMode{path: 0o444, filepath.Dir(path): 0o700 | os.ModeDir, p.dir: 0o700 | os.ModeDir} {
		if stat, err := os.Stat(path); err != nil || stat.Mode() != want {
			t.Errorf("%s: got mode %v, want %v", path, stat.Mode(), want)
		}
	}
	t.Run("a second pull verifies the file and does not download it", func(t *testing.T) {
		before := len(f.Requests("cdn"))
		d, err := p.Resolve(t.Context(), "org/repo:Q8_0")
		if err != nil || !d.Present {
			t.Fatalf("resolved to %+v, %v", d, err)
		}
		if _, err := p.Pull(t.Context(), d, false, nil); err != nil {
			t.Fatal(err)
		}
		if len(f.Requests("cdn")) != before {
			t.Error("it was downloaded again")
		}
		if got := filesIn(t, p.dir); len(got) != 1 {
			t.Errorf("got files %q", got)
		}
	})
	t.Run("a file with other bytes is replaced", func(t *testing.T) {
		if err := os.WriteFile(path+".x", otherModel, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".x", path); err != nil {
			t.Fatal(err)
		}
		if err := p.pull(t.Context(), "org/repo:Q8_0", false); err != nil {
			t.Fatal(err)
		}
		checkLoadable(t, p.dir, testModel)
	})
	t.Run("a download that was not resolved is refused", func(t *testing.T) {
		for _, change := range []func(*infer.Download){
			func(d *infer.Download) { d.File = "../" + modelFile },
			func(d *infer.Download) { d.File = "org/repo/../../x.gguf" },
			func(d *infer.Download) { d.File = "other/repo/x.gguf" },
			func(d *infer.Download) { d.SHA256 = "" },
			func(d *infer.Download) { d.SHA256 = strings.ToUpper(d.SHA256) },
			func(d *infer.Download) { d.Source = "https://example.org/x.gguf" },
			func(d *infer.Download) { d.Size = 0 },
			func(d *infer.Download) { d.Name = "" },
		} {
			bad := d
			change(&bad)
			if _, err := p.Pull(t.Context(), bad, true, nil); err == nil || !strings.Contains(err.Error(), "resolve") && bad.Name != "" {
				t.Errorf("%+v: got %v", bad, err)
			}
		}
	})
}

func TestForceDownloadsUnsupportedModels(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string][]byte
		pull  string
	}{
		{"an unsupported quantisation is downloaded with force", map[string][]byte{"m-F16.gguf": unsupportedModel}, "org/repo:F16"},
		{"a model with an unsupported header is downloaded with force", map[string][]byte{"m-Q8_0.gguf": unsupportedModel}, "org/repo:Q8_0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hubtest.New(t, c.files, "")
			p := newPuller(t, t.TempDir(), f.API.URL)
			if err := p.pull(t.Context(), c.pull, false); err == nil || !strings.Contains(err.Error(), "--force") {
				t.Fatalf("without force: %v", err)
			}
			d, err := p.Resolve(t.Context(), c.pull)
			if err != nil {
				t.Fatal(err)
			}
			info, err := p.Pull(t.Context(), d, true, nil)
			if err != nil || !strings.Contains(info.Error, "F16") || !checkLoadable(t, p.dir, unsupportedModel) {
				t.Errorf("got %+v, %v", info, err)
			}
		})
	}
	t.Run("a file that is not a model is refused even with force", func(t *testing.T) {
		f := hubtest.New(t, map[string][]byte{modelFile: []byte("GGUF and then nothing")}, modelFile)
		p := newPuller(t, t.TempDir(), f.API.URL)
		if err := p.pull(t.Context(), "org/repo:Q8_0", true); err == nil || len(filesIn(t, p.dir)) > 0 {
			t.Errorf("got %v, left %q", err, filesIn(t, p.dir))
		}
	})
}

func TestPullChecksTheFreeDiskSpace(t *testing.T) {
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	need := int64(len(testModel)) + 1<<30
	t.Run("a disk without room for the file and a reserve is refused before the download", func(t *testing.T) {
		p := newPuller(t, t.TempDir(), f.API.URL, func(o *PullOptions) {
			o.FreeDisk = func(string) (int64, error) { return need - 1, nil }
		})
		if err := p.pull(t.Context(), "org/repo:Q8_0", false); err == nil || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("got %v", err)
		}
		if len(f.Requests("cdn")) > 0 || len(filesIn(t, p.dir)) > 0 {
			t.Error("the file was requested, or files remain")
		}
	})
	t.Run("a disk with just enough room suffices", func(t *testing.T) {
		p := newPuller(t, t.TempDir(), f.API.URL, func(o *PullOptions) {
			o.FreeDisk = func(string) (int64, error) { return need, nil }
		})
		if err := p.pull(t.Context(), "org/repo:Q8_0", false); err != nil {
			t.Error(err)
		}
	})
	t.Run("a full disk keeps the partial file, and the error says what to do", func(t *testing.T) {
		p := &partial{want: infer.Download{Size: 10}}
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		p.file, p.hash = full, sha256.New()
		if err := p.writeAt([]byte("x"), 0); err == nil || !strings.Contains(err.Error(), "is full") {
			t.Errorf("got %v", err)
		}
	})
}

func TestPullResumesAStoppedPull(t *testing.T) {
	half := len(testModel) / 2
	// begun returns a folder with a pull stopped at half of the file.
	begun := func(t *testing.T, f *hubtest.Registry, name string) *testPuller {
		t.Helper()
		p := newPuller(t, t.TempDir(), f.API.URL)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d, err := p.Resolve(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			w.Header().Set("Etag", `"one"`)
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			w.Write(data[:half])
			http.NewResponseController(w).Flush()
			hubtest.Hang(r)
			return true
		}
		p.options.Now = advancingClock() // so that each read is reported
		_, err = p.Pull(ctx, d, false, func(g infer.DownloadProgress) {
			if g.Done >= int64(half) {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("the stopped pull returned %v", err)
		}
		f.OnCDN = nil
		if checkLoadable(t, p.dir, nil) {
			t.Fatal("an incomplete file is listed as a model")
		}
		return p
	}
	for _, c := range []struct {
		name, pull string
		change     func(t *testing.T, f *hubtest.Registry, p *testPuller)
		start      int    // first requested byte; -1: from the start
		want       []byte // default wanted
	}{
		{"a stopped pull resumes", "org/repo:Q8_0", nil, half, nil},
		{"a stopped pull of an address resumes", "CDN/" + modelFile, nil, half, nil},
		{"without a journal it restarts", "org/repo:Q8_0", func(t *testing.T, f *hubtest.Registry, p *testPuller) {
			os.Remove(filepath.Join(p.dir, "org/repo", modelFile+journalSuffix))
		}, -1, nil},
		{"with a broken journal it restarts", "org/repo:Q8_0", func(t *testing.T, f *hubtest.Registry, p *testPuller) {
			os.WriteFile(filepath.Join(p.dir, "org/repo", modelFile+journalSuffix), []byte(`{"offset":`), 0o600)
		}, -1, nil},
		{"with a partial file of another length it restarts", "org/repo:Q8_0", func(t *testing.T, f *hubtest.Registry, p *testPuller) {
			os.Truncate(filepath.Join(p.dir, "org/repo", modelFile+partialSuffix), 17)
		}, -1, nil},
		{"it restarts if the registry has another file", "org/repo:Q8_0", func(t *testing.T, f *hubtest.Registry, p *testPuller) {
			f.Files[modelFile] = otherModel
		}, -1, otherModel},
		{"it restarts if the address has another file", "CDN/" + modelFile, func(t *testing.T, f *hubtest.Registry, p *testPuller) {
			f.Files[modelFile] = otherModel
			f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
				hubtest.Serve(w, r, data, `"two"`)
				return true
			}
		}, half, otherModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
			name := strings.Replace(c.pull, "CDN", f.CDN.URL, 1)
			p := begun(t, f, name)
			if c.change != nil {
				c.change(t, f, p)
			}
			before := len(f.Requests("cdn"))
			d, err := p.Resolve(t.Context(), name)
			if err != nil || (d.Partial > 0) != (c.start > 0) && !strings.Contains(c.name, "length") {
				t.Fatalf("resolved to %+v, %v", d, err)
			}
			if _, err := p.Pull(t.Context(), d, false, nil); err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want == nil {
				want = testModel
			}
			if !checkLoadable(t, p.dir, want) {
				t.Error("no model is listed")
			}
			asked := ""
			for _, r := range f.Requests("cdn")[before:] {
				if h := r.Header.Get("Range"); h != "bytes=0-0" {
					asked = h
				}
			}
			if start := strings.TrimSuffix(strings.TrimPrefix(asked, "bytes="), "-"); c.start < 0 && asked != "" || c.start > 0 && start != strconv.Itoa(half) {
				t.Errorf("requested %q", asked)
			}
		})
	}
	t.Run("bytes that changed on the disk are detected", func(t *testing.T) {
		f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
		p := begun(t, f, "org/repo:Q8_0")
		file, err := os.OpenFile(filepath.Join(p.dir, "org/repo", modelFile+partialSuffix), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		file.WriteAt([]byte{1, 2, 3}, int64(half-10))
		file.Close()
		if err := p.pull(t.Context(), "org/repo:Q8_0", false); err == nil || !strings.Contains(err.Error(), "SHA-256") {
			t.Errorf("got %v", err)
		}
		if err := p.pull(t.Context(), "org/repo:Q8_0", false); err != nil {
			t.Errorf("the next pull returned %v", err)
		}
		checkLoadable(t, p.dir, testModel)
	})
	for _, c := range []struct {
		name string
		data []byte
		err  string
	}{
		{"a pull stopped before the commit needs no download", testModel, ""},
		{"a pull stopped before the commit is still checked", unsupportedModel, "has weights in F16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hubtest.New(t, map[string][]byte{modelFile: c.data}, modelFile)
			p := newPuller(t, t.TempDir(), f.API.URL)
			d, err := p.Resolve(t.Context(), "org/repo:Q8_0")
			if err != nil {
				t.Fatal(err)
			}
			part := writePartial(t, p.dir, d, c.data)
			part.close()
			_, err = p.Pull(t.Context(), d, false, nil)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || checkLoadable(t, p.dir, c.data) != (c.err == "") {
				t.Errorf("got %v", err)
			}
			if len(f.Requests("cdn")) > 0 {
				t.Error("it was downloaded again")
			}
		})
	}
	t.Run("a restart removes the journal first", func(t *testing.T) {
		d := infer.Download{File: "org/repo/" + modelFile, Size: int64(len(testModel)), SHA256: hubtest.Sum(testModel)}
		part := writePartial(t, t.TempDir(), d, testModel[:half])
		defer part.close()
		if j := readJournal(part.root, d.File); j.Offset != int64(half) || !j.resumes(d) {
			t.Fatalf("got journal %+v", j)
		}
		if err := part.reset(); err != nil {
			t.Fatal(err)
		}
		if j := readJournal(part.root, d.File); !reflect.DeepEqual(j, journal{}) || part.offset != 0 || part.sha256() != hubtest.Sum(nil) {
			t.Errorf("got journal %+v, offset %d", j, part.offset)
		}
	})
	t.Run("a stopped pull can be removed", func(t *testing.T) {
		f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
		p := begun(t, f, "org/repo:Q8_0")
		m, err := p.hub.Removable("org/repo/model-Q8_0")
		if err != nil || m.Size != int64(len(testModel)) {
			t.Fatalf("got %+v, %v", m, err)
		}
		if err := p.hub.Remove("model-Q8_0"); err != nil {
			t.Fatal(err)
		}
		if entries, _ := os.ReadDir(p.dir); len(entries) > 0 {
			t.Errorf("got files %v", entries)
		}
	})
}

// writePartial creates the partial file of a stopped pull of d with data.
func writePartial(t *testing.T, dir string, d infer.Download, data []byte) *partial {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	part, err := openPartial(root, d, d.Size)
	if err == nil {
		err = part.resume(t.Context(), nil)
	}
	if err == nil {
		err = part.writeAt(data, 0)
	}
	if err == nil {
		err = part.save()
	}
	if err != nil {
		t.Fatal(err)
	}
	return part
}

// advancingClock returns a clock that advances by a minute at each call.
func advancingClock() func() time.Time {
	now := time.Unix(1700000000, 0)
	return func() time.Time {
		now = now.Add(time.Minute)
		return now
	}
}

func TestASecondPullOfAFileFails(t *testing.T) {
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	p := newPuller(t, t.TempDir(), f.API.URL)
	d, err := p.Resolve(t.Context(), "org/repo:Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	tried := false
	_, err = p.Pull(t.Context(), d, false, func(infer.DownloadProgress) {
		if tried {
			return
		}
		tried = true
		if _, err := p.Pull(t.Context(), d, false, nil); err == nil || !strings.Contains(err.Error(), "another m40-llm") {
			t.Errorf("the second pull returned %v", err)
		}
		if err := p.hub.Remove("org/repo/model-Q8_0"); err == nil || !strings.Contains(err.Error(), "another m40-llm") {
			t.Errorf("Remove returned %v", err)
		}
	})
	if err != nil || !tried || !checkLoadable(t, p.dir, testModel) {
		t.Errorf("the first pull returned %v", err)
	}
}

func TestPullDoesNotLeaveTheModelsFolder(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(dir, outside string) error
	}{
		{"a folder that is a symbolic link to outside", func(dir, outside string) error { return os.Symlink(outside, filepath.Join(dir, "org")) }},
		{"a partial file that is a symbolic link to outside", func(dir, outside string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "org/repo"), 0o700), os.Symlink(filepath.Join(outside, "x"), filepath.Join(dir, "org/repo", modelFile+partialSuffix)))
		}},
		{"a partial file that is a pipe", func(dir, outside string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "org/repo"), 0o700), unix.Mkfifo(filepath.Join(dir, "org/repo", modelFile+partialSuffix), 0o600))
		}},
		{"a folder with the name of the model", func(dir, outside string) error {
			return os.MkdirAll(filepath.Join(dir, "org/repo", modelFile), 0o700)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
			p := newPuller(t, t.TempDir(), f.API.URL)
			outside := t.TempDir()
			if err := c.make(p.dir, outside); err != nil {
				t.Fatal(err)
			}
			if err := p.pull(t.Context(), "org/repo:Q8_0", false); err == nil {
				t.Error("Pull succeeded")
			}
			if files := filesIn(t, outside); len(files) > 0 {
				t.Errorf("files outside the models folder: %q", files)
			}
		})
	}
}

func TestPullVerifiesCertificates(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hubtest.Serve(w, r, testModel, "") }))
	defer plain.Close()
	var target string
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if target != "" {
			http.Redirect(w, r, target, http.StatusFound)
			return
		}
		hubtest.Serve(w, r, testModel, "")
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // rejected certificates are expected
	secure.StartTLS()
	defer secure.Close()
	p := newPuller(t, t.TempDir(), "")
	t.Run("an untrusted certificate is rejected without a retry", func(t *testing.T) {
		if err := p.pull(t.Context(), secure.URL+"/m.gguf", false); err == nil || !strings.Contains(err.Error(), "certificate") || len(p.waited) > 0 {
			t.Errorf("got %v, waited %v", err, p.waited)
		}
	})
	p.tls = secure.Client().Transport.(*http.Transport).TLSClientConfig
	t.Run("an encrypted address gives the file", func(t *testing.T) {
		if err := p.pull(t.Context(), secure.URL+"/m.gguf", false); err != nil || !checkLoadable(t, p.dir, testModel) {
			t.Error(err)
		}
	})
	t.Run("a redirect from an encrypted address to another is refused", func(t *testing.T) {
		target = plain.URL + "/m.gguf"
		if err := p.pull(t.Context(), secure.URL+"/n.gguf", false); err == nil || !strings.Contains(err.Error(), "not encrypted") {
			t.Errorf("got %v", err)
		}
	})
}

func TestPullConnectsToPublicAddressesOnly(t *testing.T) {
	for ip, public := range map[string]bool{
		"8.8.8.8:443": true, "104.16.0.1:443": true, "[2606:4700::1]:443": true, "[::ffff:8.8.8.8]:443": true, "[64:ff9b::808:808]:443": true,
		"127.0.0.1:443": false, "10.1.2.3:443": false, "172.16.0.1:443": false, "172.31.255.255:1": false, "192.168.0.1:80": false,
		"169.254.169.254:80": false, "100.64.0.1:1": false, "0.0.0.0:1": false, "224.0.0.1:1": false, "255.255.255.255:1": false, "198.18.0.1:1": false,
		"[::1]:443": false, "[::]:1": false, "[fe80::1%eth0]:1": false, "[fc00::1]:1": false, "[fd12::1]:1": false, "[ff02::1]:1": false,
		"[::ffff:10.0.0.1]:1": false, "[64:ff9b::a00:1]:1": false, "[2002:a00:1::]:1": false, "[2001:db8::1]:1": false, "[2001::1]:1": false,
		"nonsense": false,
	} {
		t.Run(ip, func(t *testing.T) {
			if err := requirePublic("tcp", ip, nil); (err == nil) != public {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("the default endpoint trusts no address, however a name resolves", func(t *testing.T) {
		f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
		p := newPuller(t, t.TempDir(), "")
		p.endpoint.Host, p.endpoint.Scheme = strings.TrimPrefix(f.API.URL, "http://"), "https"
		if err := p.pull(t.Context(), "org/repo", false); err == nil || !strings.Contains(err.Error(), "not on the public internet") {
			t.Errorf("got %v", err)
		}
		if len(f.Requests("api")) > 0 {
			t.Error("the server received a request")
		}
	})
	t.Run("an address in a private network is refused", func(t *testing.T) {
		p := newPuller(t, t.TempDir(), "")
		for _, address := range []string{"https://192.168.1.2/m.gguf", "https://[fd00::1]/m.gguf"} {
			if err := p.pull(t.Context(), address, false); err == nil || !strings.Contains(err.Error(), "not on the public internet") {
				t.Errorf("%s: got %v", address, err)
			}
		}
	})
	t.Run("an address that is not encrypted is refused", func(t *testing.T) {
		p := newPuller(t, t.TempDir(), "")
		if err := p.pull(t.Context(), "http://example.org/m.gguf", false); err == nil || !strings.Contains(err.Error(), "https://") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("where only names may be pulled, an address is refused", func(t *testing.T) {
		p := newPuller(t, t.TempDir(), "", func(o *PullOptions) { o.Addresses = false })
		if err := p.pull(t.Context(), "https://example.org/m.gguf", false); err == nil || !strings.Contains(err.Error(), "only names") {
			t.Errorf("got %v", err)
		}
	})
}

func TestNewPullerValidatesItsOptions(t *testing.T) {
	for _, c := range []struct{ name, endpoint, token, err string }{
		{"the defaults are valid", "", "", ""},
		{"an endpoint with a path is valid", "https://mirror.example/hf/", "", ""},
		{"an endpoint without a scheme is refused", "mirror.example", "", "HF_ENDPOINT"},
		{"an endpoint of another scheme is refused", "ftp://mirror.example", "", "HF_ENDPOINT"},
		{"an endpoint with a password is refused", "https://a:b@mirror.example", "", "HF_ENDPOINT"},
		{"a token with a line break is refused", "", "hf_x\nEvil: 1", "HF_TOKEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewPuller(New(Options{}), PullOptions{Endpoint: c.endpoint, Token: c.token})
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestMeterReportsRateAndPhases(t *testing.T) {
	now := time.Unix(1000, 0)
	var got []infer.DownloadProgress
	m := newMeter(infer.Download{File: "f", Size: 1000}, func() time.Time { return now }, func(p infer.DownloadProgress) { got = append(got, p) })
	m.report(infer.PhaseDownloading, 0, "")
	now = now.Add(100 * time.Millisecond)
	m.report(infer.PhaseDownloading, 10, "") // too soon
	now = now.Add(900 * time.Millisecond)
	m.report(infer.PhaseDownloading, 100, "")
	now = now.Add(time.Second)
	m.report(infer.PhaseDownloading, 300, "")
	m.report(infer.PhaseWaiting, 300, "cut")
	m.report(infer.PhaseDone, 1000, "")
	want := []infer.DownloadProgress{
		{Phase: infer.PhaseDownloading, File: "f", Total: 1000},
		{Phase: infer.PhaseDownloading, File: "f", Done: 100, Total: 1000, BytesPerSecond: 100, ETASeconds: 9},
		{Phase: infer.PhaseDownloading, File: "f", Done: 300, Total: 1000, BytesPerSecond: 120, ETASeconds: 700.0 / 120},
		{Phase: infer.PhaseWaiting, File: "f", Done: 300, Total: 1000, Notice: "cut"},
		{Phase: infer.PhaseDone, File: "f", Done: 1000, Total: 1000},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	t.Run("progress is a plain value", func(t *testing.T) {
		data, err := json.Marshal(got[1])
		var back infer.DownloadProgress
		if err != nil || json.Unmarshal(data, &back) != nil || back != got[1] {
			t.Errorf("got %s, %v", data, err)
		}
	})
}

func TestDetailsReportTypesTemplateAndMetadata(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("ä", 300)
	for name, data := range map[string][]byte{
		"good.gguf": testModel,
		"text.gguf": []byte("text"),
		"odd.gguf": gguftest.New().Set("general.architecture", "mamba").Set("a.text", "x\n"+long).Set("a.negative", int32(-3)).Set("a.yes", true).
			Set("a.half", float32(0.5)).Set("a.list", []string{"a", "b\x1b", "c", "d", "e", "f"}).Set("a.numbers", []float32{1, 2.5}).
			Tensor("w", gguf.F16, []int{2}, make([]byte, 4)).Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := New(Options{Dir: dir, Types: supportedTypes, Builtin: map[string][]byte{"guide": testModel}})
	t.Run("a model has types, a template and keys", func(t *testing.T) {
		d, err := h.Details("good")
		if err != nil || d.Architecture != "llama" || d.Template == nil || d.Template.SHA256 != hubtest.Sum([]byte(gguftest.ChatML)) || d.Template.Bytes != len(gguftest.ChatML) {
			t.Fatalf("got %+v, %v", d, err)
		}
		if len(d.Types) != 2 || d.Types[0].Type != "Q8_0" || d.Types[1].Type != "F32" || d.Types[1].Tensors != 2*4+1 || d.Types[1].Elements != 9*128 || d.Types[1].Bytes != 4*9*128 {
			t.Errorf("got types %+v", d.Types)
		}
		if got := d.Metadata[0]; got != (infer.Metadata{Key: "general.architecture", Value: "llama"}) {
			t.Errorf("got first key %+v", got)
		}
	})
	t.Run("a built-in model has details", func(t *testing.T) {
		if d, err := h.Details("guide"); err != nil || !d.Demo || len(d.Metadata) == 0 {
			t.Errorf("got %+v, %v", d, err)
		}
	})
	t.Run("an unusable model has details and the reason", func(t *testing.T) {
		d, err := h.Details("odd")
		if err != nil || !strings.Contains(d.Error, "mamba") || d.Template != nil {
			t.Fatalf("got %+v, %v", d, err)
		}
		want := map[string]string{
			"a.text": "x " + strings.Repeat("ä", 97) + "…", "a.negative": "-3", "a.yes": "true", "a.half": "0.5",
			"a.list": `["a", "b\x1b", "c", "d", "e", … 6 in all]`, "a.numbers": "[1, 2.5]",
		}
		for _, m := range d.Metadata {
			if w, ok := want[m.Key]; ok && m.Value != w {
				t.Errorf("%s: got %q, want %q", m.Key, m.Value, w)
			}
		}
	})
	for name, want := range map[string]string{"text": "cannot be read: not a GGUF file", "none": "there is no model"} {
		t.Run("the error has the reason: "+name, func(t *testing.T) {
			if _, err := h.Details(name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRemoveDeletesOnlyModelsInTheFolder(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "mine.gguf")
	for _, path := range []string{filepath.Join(dir, "org/repo/a.gguf"), filepath.Join(dir, "org/b.gguf"), filepath.Join(dir, "x/c.gguf"), filepath.Join(dir, "y/c.gguf"), outside} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, testModel, 0o444)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	h := New(Options{Dir: dir, Builtin: map[string][]byte{"guide": testModel}})
	mine, err := h.AllowPath(outside)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, ask, err string }{
		{"the built-in model cannot be removed", "guide", "built into the program"},
		{"a file outside the folder cannot be removed", mine, "outside the models folder"},
		{"a file behind a symbolic link cannot be removed", "link/mine", "failed to remove"},
		{"an unknown name is an error", "none", "there is no model"},
		{"an ambiguous name is an error", "c", "ask for one of x/c, y/c"},
		{"a path is not a name", "../mine.gguf", "there is no model"},
		{"a model is removed with the folders that become empty", "a", ""},
		{"a removed model does not exist", "a", "there is no model"},
		{"a folder with other models is kept", "y/c", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := h.Remove(c.ask); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v", err)
			}
		})
	}
	if got := filesIn(t, dir); !reflect.DeepEqual(got, []string{"link", "org/b.gguf", "x/c.gguf"}) {
		t.Errorf("got files %q", got)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "org/repo")); err == nil {
		t.Error("an empty folder remains")
	}
}
