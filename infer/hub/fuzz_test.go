package hub

import (
	"bytes"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

func TestParseNameAcceptsRepositoriesAndAddresses(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     name
		err      string
	}{
		{"a repository", "org/repo", name{org: "org", repo: "repo"}, ""},
		{"a repository with a quantisation", "org/Re.po-1_x:Q4_K_M", name{org: "org", repo: "Re.po-1_x", quant: "Q4_K_M"}, ""},
		{"the registry's short host", "hf.co/org/repo:Q8_0", name{org: "org", repo: "repo", quant: "Q8_0"}, ""},
		{"the registry's long host", "huggingface.co/org/repo", name{org: "org", repo: "repo"}, ""},
		{"the address of a repository", "https://huggingface.co/org/repo", name{org: "org", repo: "repo"}, ""},
		{"the address of a file", "https://hf.co/org/repo/resolve/main/d/a.gguf?download=true", name{org: "org", repo: "repo", revision: "main", file: "d/a.gguf"}, ""},
		{"the address of a file's page", "https://huggingface.co/org/repo/blob/abc/a.gguf", name{org: "org", repo: "repo", revision: "abc", file: "a.gguf"}, ""},

		{"nothing", "", name{}, "the name is empty"},
		{"a model of the Ollama library", "mistral", name{org: "library", repo: "mistral", tag: "latest"}, ""},
		{"one with a tag", "llama3.2:1b", name{org: "library", repo: "llama3.2", tag: "1b"}, ""},
		{"one with a host", "Registry.Ollama.ai/library/mistral:7b-instruct-q4_K_M", name{org: "library", repo: "mistral", tag: "7b-instruct-q4_K_M"}, ""},
		{"one of another namespace", "ollama.com/someone/model", name{org: "someone", repo: "model", tag: "latest"}, ""},
		{"the page of one", "https://ollama.com/library/mistral:7b", name{org: "library", repo: "mistral", tag: "7b"}, ""},

		{"an empty tag", "mistral:", name{}, `"" is not a tag of the Ollama library; give model:tag, such as llama3.2:1b`},
		{"a tag with a slash", "mistral:a/b", name{}, `"a/b" is not a tag`},
		{"a digest as the tag", "mistral@sha256:" + strings.Repeat("0", 64), name{}, "is not a name of the Ollama library"},
		{"a name with ..", "..", name{}, "is not a name of the Ollama library"},
		{"a name like that of a split file", "model:00001-of-00002", name{}, "looks like a file of a split model"},
		{"three parts behind the host", "ollama.com/a/b/c", name{}, "is not a name of the Ollama library"},
		{"the address of a file of the library", "https://registry.ollama.ai/v2/library/mistral/manifests/latest", name{}, "is not a name of the Ollama library"},
		{"three parts", "a/b/c", name{}, "is neither org/repo"},
		{"a part with ..", "../repo", name{}, "is neither org/repo"},
		{"a part that contains ..", "org/a..b", name{}, "is neither org/repo"},
		{"a part with a space", "org/a b", name{}, "is neither org/repo"},
		{"an empty quantisation", "org/repo:", name{}, "is not a quantisation"},
		{"a quantisation with a slash", "org/repo:a/b", name{}, "is not a quantisation"},
		{"a control character", "org/re\x1bpo", name{}, "has invalid characters"},
		{"a very long name", strings.Repeat("a", 3000), name{}, "too long"},
		{"another scheme", "ftp://example.org/a.gguf", name{}, "begins with https://"},
		{"a password", "https://a:b@example.org/a.gguf", name{}, "must not contain a password"},
		{"an address of something else", "https://example.org/a.zip", name{}, "does not end in .gguf"},
		{"the address of a file of a split model", "https://hf.co/org/repo/resolve/main/a-00002-of-00002.gguf", name{org: "org", repo: "repo", revision: "main", file: "a-00002-of-00002.gguf"}, ""},
		{"the address of a folder", "https://huggingface.co/org/repo/tree/main", name{}, "is not the address of a .gguf file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseName(c.in)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	t.Run("the folder and the file of a model of the library", func(t *testing.T) {
		for in, want := range map[string]string{"mistral": "from-ollama.com/library/mistral.gguf", "ollama.com/a/b:c": "from-ollama.com/a/b-c.gguf"} {
			if n, err := parseName(in); err != nil || n.folder()+"/"+n.libraryFile() != want {
				t.Errorf("%s: got %s/%s, %v", in, n.folder(), n.libraryFile(), err)
			}
		}
	})
	t.Run("an address elsewhere", func(t *testing.T) {
		n, err := parseName("https://Example.org:8443/models/a.gguf?sig=1#x")
		if err != nil || n.address.String() != "https://Example.org:8443/models/a.gguf?sig=1" || n.folder() != "from-example.org" {
			t.Errorf("got %+v, %v", n, err)
		}
	})
}

func TestQuantisationsAreReadFromFileNames(t *testing.T) {
	for file, want := range map[string]string{
		"model-Q4_K_M.gguf": "Q4_K_M", "model.Q8_0.gguf": "Q8_0", "Q6_K/model-Q6_K.gguf": "Q6_K", "Q5_K_S/model.gguf": "Q5_K_S",
		"qwen2.5-0.5b-instruct-fp16.gguf": "F16", "m-bf16.gguf": "BF16", "m-f32.gguf": "F32", "m-IQ4_XS.gguf": "IQ4_XS", "m-UD-Q4_K_XL.gguf": "Q4_K_XL",
		"m-mxfp4.gguf": "MXFP4", "m-NVFP4.gguf": "NVFP4", "bitnet-tq1_0.gguf": "TQ1_0", "m-Q2_0.gguf": "Q2_0", "Q4-lab-model-Q8_0.gguf": "Q8_0", "model.gguf": "", "quantum-f16x.gguf": "", "seq2seq.gguf": "",
	} {
		t.Run(file, func(t *testing.T) {
			if got := quantOf(file); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	all := []string{"m-Q2_K.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-F16.gguf", "m-F32.gguf"}
	for _, c := range []struct {
		name  string
		files []string
		types []gguf.Type
		want  string // empty: none
	}{
		{"if all types are supported the usual one is best", all, nil, "m-Q4_K_M.gguf"},
		{"K-quants need all their types", all, []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K}, "m-Q4_K_M.gguf"},
		{"supported files are preferred to unclear ones", all, []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0}, "m-Q8_0.gguf"},
		{"other quantisations are preferred to NVFP4", []string{"m-NVFP4.gguf", "m-Q8_0.gguf", "m-F16.gguf"}, nil, "m-Q8_0.gguf"},
		{"a file in NVFP4 is preferred to one without quantisation", []string{"m-F16.gguf", "m-NVFP4.gguf"}, nil, "m-NVFP4.gguf"},
		{"an unclear file is preferred to none", []string{"m-Q4_0.gguf", "m-Q4_K_M.gguf"}, []gguf.Type{gguf.F32, gguf.Q4_0}, "m-Q4_0.gguf"},
		{"a file without a label is preferred to none", []string{"m-Q4_K_M.gguf", "m.gguf"}, []gguf.Type{gguf.F32}, "m.gguf"},
		{"no file is supported", []string{"m-Q4_K_M.gguf"}, []gguf.Type{gguf.F32}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var files []listedFile
			for _, f := range c.files {
				files = append(files, listedFile{Path: f})
			}
			if got, ok := bestFile(files, c.types); got.Path != c.want || ok != (c.want != "") {
				t.Errorf("got %q, %v", got.Path, ok)
			}
		})
	}
}

// FuzzName checks that the file of any name is inside the models folder.
func FuzzName(f *testing.F) {
	for _, s := range []string{"org/repo:Q8_0", "hf.co/org/repo", "https://huggingface.co/a/b/resolve/main/c/d.gguf", "https://h/..%2f..%2fx.gguf", "https://[::1]/%00.gguf", "a/..:b", "https://h/a/%2e%2e/x.gguf", "llama3.2:1b", "ollama.com/a/b:c", "https://ollama.com/library/mistral"} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseName(s)
		if err != nil {
			checkLine(t, err)
			return
		}
		if again, err := parseName(n.String()); err != nil || again.String() != n.String() {
			t.Errorf("%q is %q, which is %q, %v", s, n, again, err)
		}
		files := []string{path.Base(n.file)}
		if n.tag != "" {
			files[0] = n.libraryFile()
		} else if n.address != nil {
			files[0] = path.Base(n.address.Path)
			if (n.address.Scheme != "https" && n.address.Scheme != "http") || n.address.User != nil {
				t.Errorf("%q is pulled from %s", s, n.address)
			}
		} else if n.file == "" {
			files = nil
		}
		if !filepath.IsLocal(n.folder()) || strings.Count(n.folder(), "/") > 1 || strings.HasPrefix(n.folder(), ".") {
			t.Errorf("%q is stored in the folder %q", s, n.folder())
		}
		for _, file := range files {
			checkInside(t, dir, n.folder()+"/"+file)
		}
		address := fileAddress(&url.URL{Scheme: "https", Host: "registry.example", Path: "/api"}, n, n.file)
		if address.Host != "registry.example" || !strings.HasPrefix(address.Path, "/api/") && n.address == nil {
			t.Errorf("%q is requested from %s", s, address)
		}
	})
}

// FuzzManifest checks that the file of any manifest is a valid model file.
func FuzzManifest(f *testing.F) {
	for _, s := range []string{
		`{"schemaVersion":2,"ggufFile":{"rfilename":"a-Q8_0.gguf","size":10,"lfs":{"sha256":"` + strings.Repeat("a", 64) + `"}}}`,
		`{"ggufFile":{"rfilename":"../a.gguf","size":10}}`, `{"ggufFile":null}`, `{}`, `[]`, `{"ggufFile":{"rfilename":"a\u0000.gguf","size":1e3}}`,
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		file, ok, err := parseManifest(data)
		if err != nil {
			checkLine(t, err)
			return
		}
		if ok {
			checkListed(t, dir, file)
		}
	})
}

// FuzzListing checks that the files of any listing are valid model files.
func FuzzListing(f *testing.F) {
	for _, s := range []string{
		`[{"type":"file","path":"a-Q8_0.gguf","size":10,"oid":"1","lfs":{"oid":"` + strings.Repeat("a", 64) + `","size":10}}]`,
		`[{"type":"file","path":"d/a-00001-of-00002.gguf","size":1},{"type":"file","path":"d/a-00002-of-00002.gguf","size":1}]`,
		`[{"type":"file","path":"../../a.gguf","size":10},{"type":"directory","path":"d.gguf"}]`, `[]`, `{}`, `[{"type":"file","path":"d/mmproj-F16.gguf","size":10}]`, `[{"type":"file","path":"a\u001b.gguf"}]`,
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		files, companions, err := parseListing(data)
		if err != nil {
			checkLine(t, err)
			return
		}
		for _, file := range slices.Concat(files, companions) {
			if err := file.check(); err != nil {
				checkLine(t, err)
				continue
			}
			checkListed(t, dir, file)
		}
		models := joinParts(files)
		quantsOf(models, supportedTypes)
		if b, ok := bestFile(models, supportedTypes); ok && !slices.ContainsFunc(models, func(f listedFile) bool { return f.Path == b.Path }) {
			t.Errorf("chose %+v, which is not listed", b)
		}
	})
}

// FuzzLibraryManifest checks that a manifest of the Ollama library gives one model with a size and
// a digest, or an error.
func FuzzLibraryManifest(f *testing.F) {
	f.Add([]byte(`{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:` + strings.Repeat("0", 64) + `","size":5},{"mediaType":"application/vnd.ollama.image.template"}]}`))
	f.Add([]byte(`{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../..","size":-1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		layers, err := parseLibraryManifest(data)
		if err != nil {
			checkLine(t, err)
			return
		}
		models := slices.DeleteFunc(layers, func(l layer) bool { return l.kind() != "model" })
		if len(models) != 1 || models[0].Size <= 0 || !digest.MatchString(models[0].sha256()) {
			t.Errorf("got %+v", models)
		}
	})
}

// FuzzJournal checks that no journal resumes beyond the end of the file.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"source":"s","size":10,"etag":"\"e\"","offset":5}`))
	f.Add([]byte(`{"size":10,"offset":-5}`))
	f.Add([]byte(`{"source":"s","size":10,"etag":"\"e\"","offset":0,"ahead":[{"from":2,"to":3},{"from":5,"to":10}]}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if err := root.WriteFile("m.gguf"+journalSuffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
		j := readJournal(root, "m.gguf")
		d := infer.Download{Source: "s", Size: 10}
		if j.resumes(d) && (j.done() <= 0 || j.done() > d.Size || j.Offset < 0 || j.Size != d.Size || j.ETag == "") {
			t.Errorf("%+v resumes %+v", j, d)
		}
	})
}

func checkListed(t *testing.T, dir string, f listedFile) {
	t.Helper()
	if len(f.SHA) != 64 || f.Size <= 0 || !strings.EqualFold(path.Ext(f.Path), ".gguf") {
		t.Errorf("accepted %+v", f)
	}
	checkInside(t, dir, "org/repo/"+path.Base(f.Path))
}

// checkInside fails unless file is exactly two folders deep in dir.
func checkInside(t *testing.T, dir, file string) {
	t.Helper()
	full := filepath.Join(dir, filepath.FromSlash(file))
	relative, err := filepath.Rel(dir, full)
	if err != nil || !filepath.IsLocal(file) || relative != filepath.FromSlash(file) || strings.ContainsAny(file, "\x00\n\x1b\\") || strings.HasPrefix(path.Base(file), ".") {
		t.Errorf("%q is outside the models folder", file)
	}
}

// checkLine fails if an error contains control characters.
func checkLine(t *testing.T, err error) {
	t.Helper()
	if bytes.ContainsFunc([]byte(err.Error()), func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f }) {
		t.Errorf("got error %q", err)
	}
}
