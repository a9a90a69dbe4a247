package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/hub/hubtest"
)

func TestPull_BringsTheCompanionFileOfAModel(t *testing.T) {
	f := hubtest.New(t, map[string][]byte{
		"m-Q8_0.gguf": testModel, "mmproj-m-F32.gguf": append([]byte(nil), testModel...), "mmproj-m-F16.gguf": testModel, "mmproj-other-F16.gguf": testModel,
	}, "m-Q8_0.gguf")
	for _, pull := range []string{"org/repo", "org/repo:Q8_0"} {
		t.Run(pull, func(t *testing.T) {
			dir := t.TempDir()
			p := newPuller(t, dir, f.API.URL)
			d, err := p.Resolve(t.Context(), pull)
			if err != nil {
				t.Fatal(err)
			}
			size := int64(len(testModel))
			if d.Companion == nil || d.Size != 2*size || d.ModelSize() != size || !strings.HasSuffix(d.Companion.File, "/mmproj-m-F16.gguf") || !strings.Contains(d.Notice, "mmproj-m-F16.gguf") {
				t.Fatalf("resolved to %+v", d)
			}
			done := int64(0)
			info, err := p.Pull(t.Context(), d, false, func(progress infer.DownloadProgress) {
				if progress.Done < done || progress.Total != 2*size {
					t.Errorf("after %d bytes: %+v", done, progress)
				}
				done = progress.Done
			})
			if err != nil || done != 2*size || info.Name != "m-Q8_0" {
				t.Fatalf("after %d bytes: %+v, %v", done, info, err)
			}
			again, err := p.Resolve(t.Context(), pull)
			if err != nil || !again.Present {
				t.Errorf("it is not known to be here: %+v, %v", again, err)
			}
			if _, opened, err := p.hub.Open("m-Q8_0"); err != nil || !opened.Vision || filepath.Base(opened.Companion) != "mmproj-m-F16.gguf" {
				t.Errorf("opened %+v, %v", opened, err)
			}
			evil := d
			evil.Companion = &infer.DownloadPart{File: d.Companion.File, Source: "https://example.org/mmproj-m-F16.gguf", Size: size, SHA256: d.Companion.SHA256}
			if _, err := p.Pull(t.Context(), evil, false, nil); err == nil {
				t.Error("a companion file from elsewhere is pulled")
			}
		})
	}
}

func TestRemove_TakesTheCompanionFileWithTheLastModelThatReadsIt(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "org"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"m-Q8_0.gguf", "m-Q4_0.gguf", "mmproj-m-F16.gguf", "n-Q8_0.gguf"} {
		if err := os.WriteFile(filepath.Join(dir, "org", file), testModel, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := New(Options{Dir: dir})
	removeAndSee(t, h, dir, "n-Q8_0", true)
	removeAndSee(t, h, dir, "m-Q8_0", true)
	removeAndSee(t, h, dir, "m-Q4_0", false)
}

func TestCopy_BringsTheCompanionFile(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"m-Q8_0.gguf", "mmproj-m-F16.gguf"} {
		if err := os.WriteFile(filepath.Join(dir, file), testModel, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := New(Options{Dir: dir})
	for _, name := range []string{"mine", "m-two", "org/mine"} {
		if _, err := h.Copy(t.Context(), "m-Q8_0", name); err != nil {
			t.Fatal(err)
		}
		if _, info, err := h.Open(name); err != nil || !info.Vision {
			t.Errorf("the copy %s reads pictures: %t, %v", name, info.Vision, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "mmproj-m-two.gguf")); err == nil {
		t.Error("a copy that finds the companion file of its original got one of its own")
	}
}

func removeAndSee(t *testing.T, h *Hub, dir, model string, want bool) {
	t.Helper()
	if err := h.Remove(model); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "org", "mmproj-m-F16.gguf")); (err == nil) != want {
		t.Errorf("after %s was removed the companion file is there: %t, want %t", model, err == nil, want)
	}
}
