package hub

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/hub/hubtest"
)

func TestPartialsListsAndDiscardsStoppedDownloads(t *testing.T) {
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	half := len(testModel) / 2
	f.SetCDN(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
		if try == 1 {
			hubtest.Truncate(w, r, data, half)
		}
		return false
	})
	p := newPuller(t, t.TempDir(), f.API.URL, func(o *PullOptions) {
		o.Sleep = func(context.Context, time.Duration) error { return context.Canceled }
	})
	if err := p.pull(t.Context(), "org/repo:Q8_0", false); err == nil {
		t.Fatal("the download was not stopped")
	}
	h := p.hub
	list, err := h.Partials()
	want := infer.Download{
		Name: "org/repo:Q8_0", File: "org/repo/" + modelFile, Source: f.API.URL + "/org/repo/resolve/main/" + modelFile,
		Size: int64(len(testModel)), SHA256: hubtest.Sum(testModel), Quant: "Q8_0", Partial: int64(half),
	}
	if err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], want) {
		t.Fatalf("got %+v, want %+v (%v)", list, want, err)
	}
	d, err := p.Resolve(t.Context(), "org/repo:Q8_0")
	if err != nil || d.Partial != int64(half) || d.DiskNeed != d.Size-int64(half)+diskReserve {
		t.Errorf("Resolve returned %+v (%v)", d, err)
	}

	t.Run("an invalid journal is not listed", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{"a": "{", "b": `{"size":5,"offset":6}`, "c": `{"size":-1}`, "d": `null`} {
			for suffix, data := range map[string]string{partialSuffix: "x", journalSuffix: text} {
				if err := os.WriteFile(filepath.Join(dir, name+".gguf"+suffix), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if list, err := New(Options{Dir: dir}).Partials(); err != nil || len(list) != 0 {
			t.Errorf("got %+v (%v)", list, err)
		}
	})
	t.Run("a running download is not discarded", func(t *testing.T) {
		root, err := os.OpenRoot(p.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		lock, err := lockPartial(root, want.File)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := h.Discard(want.File); err == nil {
			t.Error("Discard succeeded")
		}
	})
	t.Run("names of other files are ignored", func(t *testing.T) {
		outside := filepath.Join(filepath.Dir(p.dir), "x.gguf.partial")
		if err := os.WriteFile(outside, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"", "..", "../x.gguf", "/etc/passwd", "org/repo", "other.gguf"} {
			if err := h.Discard(file); err != nil {
				t.Errorf("%q: %v", file, err)
			}
		}
		if _, err := os.Stat(outside); err != nil {
			t.Error(err)
		}
	})
	t.Run("discarding keeps the model and removes empty folders", func(t *testing.T) {
		model := filepath.Join(p.dir, filepath.FromSlash(want.File))
		if err := os.WriteFile(model, testModel, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.Discard(want.File); err != nil {
			t.Fatal(err)
		}
		if got := filesIn(t, p.dir); !slices.Equal(got, []string{filepath.FromSlash(want.File)}) {
			t.Errorf("got files %q", got)
		}
		other := filepath.Join(p.dir, "org", "empty")
		if err := os.Mkdir(other, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(other, "m.gguf"+partialSuffix), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.Discard("org/empty/m.gguf"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(other); !os.IsNotExist(err) {
			t.Errorf("the folder still exists: %v", err)
		}
	})
	if dir, free := h.Folder(); dir != p.dir || free <= 0 {
		t.Errorf("got folder %q with %d bytes free", dir, free)
	}
}
