package hub_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub"
)

// splitTiny returns the files of a split model by name.
func splitTiny(name string) map[string][]byte {
	files := map[string][]byte{}
	for i, data := range gguftest.SplitTinyLlama(gguftest.Llama{Type: gguf.Q8_0}, 3) {
		files[fmt.Sprintf("%s-%05d-of-%05d.gguf", name, i+1, 3)] = data
	}
	return files
}

func TestASplitModelIsOneModel(t *testing.T) {
	files := splitTiny("org/big")
	files["org/whole.gguf"] = tiny
	dir := folder(t, files)
	h := hub.New(hub.Options{Dir: dir})
	if got := names(t, h); !reflect.DeepEqual(got, []string{"big", "whole"}) {
		t.Fatalf("got %q", got)
	}
	for _, name := range []string{"big", "org/big", "big-00001-of-00003", "big-00003-of-00003", "org/big-00002-of-00003"} {
		f, info, err := h.Open(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if info.Name != "big" || len(f.Tensors()) == 0 || info.Size != f.Size() {
			t.Errorf("%s: opened %q with %d tensors, %d bytes of %d", name, info.Name, len(f.Tensors()), info.Size, f.Size())
		}
		f.Close()
	}
	t.Run("it is described as the same model in one file", func(t *testing.T) {
		list := models(t, h)
		split, whole := list[0], list[1]
		if split.Size <= whole.Size || split.Path != filepath.Join(dir, "org", "big-00001-of-00003.gguf") {
			t.Errorf("got %d bytes in %s", split.Size, split.Path)
		}
		split.Name, split.Path, split.Size, split.ModifiedUnix = whole.Name, whole.Path, whole.Size, whole.ModifiedUnix
		if !reflect.DeepEqual(split, whole) {
			t.Errorf("got  %+v\nwant %+v", split, whole)
		}
	})
	t.Run("the path of each of its files is its path", func(t *testing.T) {
		h := hub.New(hub.Options{})
		for i := range 3 {
			if got, err := h.AllowPath(filepath.Join(dir, "org", fmt.Sprintf("big-%05d-of-00003.gguf", i+1))); err != nil || got != "big" {
				t.Errorf("file %d: got %q, %v", i+1, got, err)
			}
		}
	})
	t.Run("a file that comes or goes is noticed", func(t *testing.T) {
		last := filepath.Join(dir, "org", "big-00003-of-00003.gguf")
		data, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(last); err != nil {
			t.Fatal(err)
		}
		want := "file 3 of 3 of a split model: open big-00003-of-00003.gguf: no such file or directory"
		if got := models(t, h)[0]; got.Name != "big" || got.Error != want {
			t.Errorf("without its last file: %q", got.Error)
		}
		if err := os.WriteFile(last, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := models(t, h)[0]; got.Error != "" {
			t.Errorf("with its last file again: %q", got.Error)
		}
	})
	t.Run("it is removed whole", func(t *testing.T) {
		info, err := h.Removable("big")
		if err != nil || info.Size != models(t, h)[0].Size {
			t.Errorf("got %+v, %v", info, err)
		}
		if err := h.Remove("big"); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "org", "*")); err != nil || len(left) != 1 {
			t.Errorf("left are %q, %v", left, err)
		}
	})
}

func TestASplitModelIsCalledByItsFirstFileWhereAnotherHasItsName(t *testing.T) {
	files := splitTiny("big")
	files["big.gguf"] = tiny
	h := hub.New(hub.Options{Dir: folder(t, files)})
	want := []string{"big", "big-00001-of-00003"}
	if got := names(t, h); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for _, name := range want {
		f, info, err := h.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if info.Name != name {
			t.Errorf("%q opens as %q", name, info.Name)
		}
	}
}
