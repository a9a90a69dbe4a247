package hub

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub/hubtest"
	"m40-llm/infer/placement"
)

// splitModel returns the files of a split model by name.
func splitModel(name string) map[string][]byte {
	files := map[string][]byte{}
	for i, data := range gguftest.SplitTinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Layers: 4, FFN: 256}, 3) {
		files[fmt.Sprintf("%s-%05d-of-00003.gguf", name, i+1)] = data
	}
	return files
}

func splitSize(files map[string][]byte) (size int64) {
	for data := range maps.Values(files) {
		size += int64(len(data))
	}
	return size
}

func TestPullDownloadsAllFilesOfASplitModel(t *testing.T) {
	for _, c := range []struct {
		name string
		pull string
		with map[string][]byte // other files of the repository
	}{
		{name: "that the registry chooses", pull: "org/repo"},
		{name: "by its quantisation", pull: "org/repo:Q8_0", with: map[string][]byte{"m-Q4_0.gguf": testModel}},
		{name: "by the address of its page of one file", pull: "API/org/repo/resolve/main/Q8_0/m-Q8_0-00002-of-00003.gguf"},
		{name: "by the address of one file elsewhere", pull: "CDN/Q8_0/m-Q8_0-00003-of-00003.gguf"},
		{name: "beside an incomplete one", pull: "org/repo", with: map[string][]byte{"x-Q8_0-00001-of-00002.gguf": testModel}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := splitModel("Q8_0/m-Q8_0")
			size := splitSize(files)
			maps.Copy(files, c.with)
			f := hubtest.New(t, files, "Q8_0/m-Q8_0-00001-of-00003.gguf")
			p := newPuller(t, t.TempDir(), f.API.URL)
			d, err := p.Resolve(t.Context(), strings.NewReplacer("API", f.API.URL, "CDN", f.CDN.URL).Replace(c.pull))
			if err != nil {
				t.Fatal(err)
			}
			if d.Size != size || len(d.Parts) != 3 || d.Quant != "Q8_0" || d.DiskNeed != size+diskReserve {
				t.Errorf("resolved to %+v, want 3 files of %d bytes", d, size)
			}
			done := int64(0)
			info, err := p.Pull(t.Context(), d, false, func(progress infer.DownloadProgress) {
				if progress.Done < done || progress.Total != size {
					t.Errorf("after %d bytes: %+v", done, progress)
				}
				done = progress.Done
			})
			if err != nil {
				t.Fatal(err)
			}
			if info.Name != "m-Q8_0" || info.Error != "" || info.Size != size || done != size {
				t.Errorf("got %+v after %d bytes", info, done)
			}
			opened, _, err := p.hub.Open("m-Q8_0")
			if err != nil {
				t.Fatal(err)
			}
			opened.Close()
			if d, err := p.Resolve(t.Context(), d.Name); err != nil || !d.Present {
				t.Errorf("afterwards it resolves to %+v, %v", d, err)
			}
		})
	}
}

func TestAStoppedPullOfASplitModelGoesOn(t *testing.T) {
	files := splitModel("m-Q8_0")
	first, second := "m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00002-of-00003.gguf"
	size, half := splitSize(files), len(files[second])/2
	stopped := func(t *testing.T) (*hubtest.Registry, *testPuller, infer.Download) {
		t.Helper()
		f := hubtest.New(t, files, first)
		f.SetCDN(func(w http.ResponseWriter, r *http.Request, _ int, data []byte) bool {
			if strings.HasSuffix(r.URL.Path, second) {
				hubtest.Truncate(w, r, data, half)
			}
			return false
		})
		p := newPuller(t, t.TempDir(), f.API.URL, func(o *PullOptions) {
			o.Sleep = func(context.Context, time.Duration) error { return context.Canceled }
		})
		if err := p.pull(t.Context(), "org/repo", false); err == nil {
			t.Fatal("the download was not stopped")
		}
		f.SetCDN(nil)
		list, err := p.hub.Partials()
		if err != nil || len(list) != 1 {
			t.Fatalf("the incomplete downloads are %+v, %v", list, err)
		}
		return f, p, list[0]
	}

	t.Run("it is one incomplete download and no model", func(t *testing.T) {
		_, p, d := stopped(t)
		here := int64(len(files[first]) + half)
		if d.File != "org/repo/"+first || d.Name != "org/repo" || d.Size != size || d.Partial != here {
			t.Errorf("got %+v, want %d of %d bytes", d, here, size)
		}
		if models, err := p.hub.Models(t.Context()); err != nil || len(models) > 0 {
			t.Errorf("the models are %+v, %v", models, err)
		}
		if d, err := p.Resolve(t.Context(), "org/repo"); err != nil || d.Partial != here || d.DiskNeed != size-here+diskReserve || d.Present {
			t.Errorf("it resolves to %+v, %v", d, err)
		}
	})
	t.Run("only what is missing is downloaded", func(t *testing.T) {
		f, p, _ := stopped(t)
		before := len(f.Requests("cdn"))
		if err := p.pull(t.Context(), "org/repo", false); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range f.Requests("cdn")[before:] {
			got = append(got, r.Path+" "+r.Header.Get("Range"))
		}
		if want := []string{"/" + second + fmt.Sprintf(" bytes=%d-", half), "/m-Q8_0-00003-of-00003.gguf "}; !slices.Equal(got, want) {
			t.Errorf("requested %q, want %q", got, want)
		}
		if models, err := p.hub.Models(t.Context()); err != nil || len(models) != 1 || models[0].Error != "" {
			t.Errorf("the models are %+v, %v", models, err)
		}
	})
	for name, discard := range map[string]func(p *testPuller, d infer.Download) error{
		"discarded": func(p *testPuller, d infer.Download) error { return p.hub.Discard(d.File) },
		"removed":   func(p *testPuller, d infer.Download) error { return p.hub.Remove("m-Q8_0") },
	} {
		t.Run("nothing stays where it is "+name, func(t *testing.T) {
			_, p, d := stopped(t)
			if err := discard(p, d); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(p.dir); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}

func TestPullRefusesAFileOfASplitModelWithAnotherDigest(t *testing.T) {
	files := splitModel("m-Q8_0")
	f := hubtest.New(t, files, "m-Q8_0-00001-of-00003.gguf")
	f.OnCDN = func(w http.ResponseWriter, r *http.Request, _ int, data []byte) bool {
		wrong := slices.Clone(data)
		if strings.Contains(r.URL.Path, "00002") {
			wrong[len(wrong)-1] ^= 1
		}
		hubtest.Serve(w, r, wrong, "")
		return true
	}
	p := newPuller(t, t.TempDir(), f.API.URL)
	if err := p.pull(t.Context(), "org/repo", false); err == nil || !strings.Contains(err.Error(), "m-Q8_0-00002-of-00003.gguf has the SHA-256") {
		t.Errorf("got %v", err)
	}
	models, err := p.hub.Models(t.Context())
	if err != nil || len(models) != 1 || !strings.Contains(models[0].Error, "file 2 of 3") {
		t.Errorf("the models are %+v, %v", models, err)
	}
}

func TestPullRefusesFilesThatTheNameDoesNotResolveTo(t *testing.T) {
	f := hubtest.New(t, splitModel("m-Q8_0"), "m-Q8_0-00001-of-00003.gguf")
	p := newPuller(t, t.TempDir(), f.API.URL)
	for name, change := range map[string]func(d *infer.Download){
		"a file outside the folder":      func(d *infer.Download) { d.Parts[1].File = "org/repo/../../m-Q8_0-00002-of-00003.gguf" },
		"a file of another name":         func(d *infer.Download) { d.Parts[1].File = "org/repo/other.gguf" },
		"a file from elsewhere":          func(d *infer.Download) { d.Parts[1].Source = "http://example.org/m-Q8_0-00002-of-00003.gguf" },
		"a file without a digest":        func(d *infer.Download) { d.Parts[1].SHA256 = "" },
		"a file of another size":         func(d *infer.Download) { d.Parts[1].Size++ },
		"a file too few":                 func(d *infer.Download) { d.Parts = d.Parts[:2] },
		"the first file alone":           func(d *infer.Download) { d.Size, d.SHA256, d.Parts = d.Parts[0].Size, d.Parts[0].SHA256, nil },
		"files in another order":         func(d *infer.Download) { slices.Reverse(d.Parts) },
		"a first file that is not first": func(d *infer.Download) { d.File = d.Parts[1].File },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := p.Resolve(t.Context(), "org/repo")
			if err != nil {
				t.Fatal(err)
			}
			change(&d)
			if _, err := p.Pull(t.Context(), d, false, nil); err == nil || !strings.Contains(err.Error(), "resolve it again") {
				t.Errorf("got %v", err)
			}
			if files := filesIn(t, p.dir); len(files) > 0 {
				t.Errorf("got files %q", files)
			}
		})
	}
}

func TestInspect_ReadsTheHeadersOfASplitModel(t *testing.T) {
	swapped := splitModel("m-Q8_0")
	second, third := "m-Q8_0-00002-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"
	swapped[second], swapped[third] = swapped[third], swapped[second]
	for _, c := range []struct {
		name    string
		files   map[string][]byte
		problem string
	}{
		{"a model fits", splitModel("m-Q8_0"), ""},
		{"files in the wrong places are a problem", swapped, "file 2 of 3 of a split model: its header says that it is file 3 of 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hubtest.New(t, c.files, "m-Q8_0-00001-of-00003.gguf")
			p := newPuller(t, filepath.Join(t.TempDir(), "models"), f.API.URL)
			p.hub.SetMachine(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: 8 << 30}}} })
			d, err := p.Resolve(t.Context(), "org/repo")
			if err != nil {
				t.Fatal(err)
			}
			if d, err = p.Inspect(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if fits := d.Fit != nil && d.Fit.Context > 0; fits != (c.problem == "") || !strings.Contains(d.Problem, c.problem) || (c.problem == "") != (d.Problem == "") {
				t.Errorf("got fit %+v, problem %q", d.Fit, d.Problem)
			}
		})
	}
}
