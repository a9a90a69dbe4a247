package hub

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/hub/hubtest"
)

// newLibrary returns a registry whose library has the model model, and a puller.
func newLibrary(t *testing.T) (*hubtest.Registry, *testPuller) {
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	return f, newPuller(t, t.TempDir(), "https://registry.invalid", func(o *PullOptions) { o.Library = f.API.URL })
}

func TestPullFromTheLibrary(t *testing.T) {
	f, p := newLibrary(t)
	d, err := p.Resolve(t.Context(), "model")
	if err != nil {
		t.Fatal(err)
	}
	sum := hubtest.Sum(testModel)
	if d.File != "from-ollama.com/library/model.gguf" || d.SHA256 != sum || d.Size != int64(len(testModel)) || d.Source != f.API.URL+"/v2/library/model/blobs/sha256:"+sum {
		t.Errorf("got %+v", d)
	}
	if want := "not used: template and parameters; the chat template"; !strings.Contains(d.Notice, want) {
		t.Errorf("got the notice %q, want %q", d.Notice, want)
	}
	if d, err = p.Inspect(t.Context(), d); err != nil || d.Problem != "" || d.Quant != "Q8_0" {
		t.Errorf("inspected: %+v, %v", d, err)
	}
	info, err := p.Pull(t.Context(), d, false, nil)
	if err != nil || info.Name != "model" || !checkLoadable(t, p.dir, testModel) {
		t.Fatalf("got %+v, %v", info, err)
	}
	for _, server := range []string{"api", "cdn"} {
		for _, r := range f.Requests(server) {
			if r.Header.Get("Authorization") != "" {
				t.Errorf("%s got the token of Hugging Face", server)
			}
		}
	}
	t.Run("a model is found by the name with which it was pulled", func(t *testing.T) {
		for _, name := range []string{"model", "model:latest", "ollama.com/library/model"} {
			if file, _, err := p.hub.Open(name); err != nil {
				t.Errorf("%s: %v", name, err)
			} else {
				file.Close()
			}
		}
		if _, _, err := p.hub.Open("model:7b"); err == nil {
			t.Error("another tag was found")
		}
	})
	t.Run("so is one of a repository, if the name means one only", func(t *testing.T) {
		p.options.Library, p.endpoint = "", p.library // the registry answers for both
		if err := p.pull(t.Context(), "org/repo:Q8_0", false); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"org/repo", "org/repo:Q8_0", "hf.co/org/repo:q8_0"} {
			if file, info, err := p.hub.Open(name); err != nil || info.Path != filepath.Join(p.dir, "org/repo", modelFile) {
				t.Errorf("%s: %+v, %v", name, info, err)
			} else {
				file.Close()
			}
		}
		if err := os.WriteFile(filepath.Join(p.dir, "org/repo/model-Q4_0.gguf"), testModel, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.hub.Open("org/repo"); err == nil || !strings.Contains(err.Error(), `2 models were pulled as "org/repo": ask for one of model-Q4_0, model-Q8_0`) {
			t.Errorf("with two models: %v", err)
		}
	})
	t.Run("a file that the name does not resolve to is refused", func(t *testing.T) {
		for _, change := range []func(*infer.Download){
			func(d *infer.Download) { d.Source = f.API.URL + "/v2/library/other/blobs/sha256:" + sum },
			func(d *infer.Download) { d.Source = "https://example.org/x" },
			func(d *infer.Download) { d.SHA256 = strings.Repeat("0", 64) },
			func(d *infer.Download) { d.SHA256 = "" },
			func(d *infer.Download) { d.File = "from-ollama.com/library/other.gguf" },
		} {
			bad := d
			change(&bad)
			if _, err := p.Pull(t.Context(), bad, true, nil); err == nil || !strings.Contains(err.Error(), "resolve it again") {
				t.Errorf("%+v: got %v", bad, err)
			}
		}
	})
}

func TestPullFromAFaultyLibrary(t *testing.T) {
	answer := func(status int, body string) func(*hubtest.Registry) {
		return func(f *hubtest.Registry) {
			f.OnAPI = func(w http.ResponseWriter, r *http.Request) bool {
				w.WriteHeader(status)
				w.Write([]byte(body))
				return true
			}
		}
	}
	edit := func(change func(layers []map[string]any) []map[string]any) func(*hubtest.Registry) {
		return func(f *hubtest.Registry) { f.EditLayers = change }
	}
	set := func(key string, value any) func(*hubtest.Registry) {
		return edit(func(layers []map[string]any) []map[string]any {
			layers[0][key] = value
			return layers
		})
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("another host was asked") }))
	defer elsewhere.Close()
	for _, c := range []struct {
		name, pull string
		setup      func(*hubtest.Registry)
		err        string // part of the error; empty: the right file
	}{
		{"an unknown model is an error", "none", nil, "the Ollama library has no model none with the tag latest"},
		{"an unknown tag is an error", "model:70b", nil, "has no model model with the tag 70b: check both, or pull from Hugging Face"},
		{"an unknown model of somebody is an error", "ollama.com/me/model", nil, "has no model model of me with the tag latest"},
		{"a private model is an error", "model", answer(401, ""), "is not public at 127.0.0.1, and logging in there is not supported"},
		{"a library that limits requests is an error", "model", answer(429, ""), "status 429"},
		{"a broken library is an error", "model", answer(500, ""), "failed to look up model"},
		{"a manifest that is not JSON is refused", "model", answer(200, "<html>"), "is not valid JSON"},
		{"a manifest of many megabytes is refused", "model", answer(200, `{"layers":[`+strings.Repeat(" ", maxManifest)), "is larger than"},
		{"a manifest without a model is refused", "model", edit(func(l []map[string]any) []map[string]any { return l[1:] }), "has 0 model files, not one"},
		{"a manifest with two models is refused", "model", edit(func(l []map[string]any) []map[string]any { return append(l, l[0]) }), "has 2 model files, not one"},
		{"a digest that is not hexadecimal is refused", "model", set("digest", "sha256:../../../etc/passwd"), "gives no valid SHA-256"},
		{"a digest of another kind is refused", "model", set("digest", "md5:"+hubtest.Sum(testModel)), "gives no valid SHA-256"},
		{"a digest of another file is an error", "model", set("digest", "sha256:"+strings.Repeat("0", 64)), "status 404"},
		{"a negative size is refused", "model", set("size", -1), "has -1 bytes"},
		{"a size that is too small is refused", "model", set("size", 100), "bytes but announced 100"},
		{"a model with an adapter is refused", "model", edit(func(l []map[string]any) []map[string]any {
			return append(l, map[string]any{"mediaType": layerPrefix + "adapter"})
		}), "a model and an adapter, which is not supported yet"},
		{"other bytes are refused", "model", func(f *hubtest.Registry) {
			f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
				hubtest.Serve(w, r, otherModel, `"one"`)
				return true
			}
		}, "has the SHA-256"},
		{"a redirect to an address that is not public is refused", "model", func(f *hubtest.Registry) { f.CDNHost = "10.0.0.1" }, "does not begin with https://"},
		{"a redirect loop is an error", "model", func(f *hubtest.Registry) {
			f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
				http.Redirect(w, r, r.URL.String(), http.StatusFound)
				return true
			}
		}, "redirects more than"},
		{"a connection that breaks is resumed", "model", func(f *hubtest.Registry) {
			f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
				if try < 4 {
					hubtest.Truncate(w, r, data, len(data)/5)
				}
				return false
			}
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, p := newLibrary(t)
			if c.setup != nil {
				c.setup(f)
			}
			err := p.pull(t.Context(), c.pull, false)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v", err)
			}
			if found := checkLoadable(t, p.dir, testModel); found != (c.err == "") {
				t.Errorf("model listed: %v", found)
			}
		})
	}
}
