package gguf_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// part returns a file of a split model with tensors of one row.
func part(no, count int, tensors ...string) *gguftest.Builder {
	b := gguftest.New().Set("split.no", uint16(no)).Set("split.count", uint16(count)).Set("split.tensors.count", int32(3))
	if no == 0 {
		b.Set("general.architecture", "llama")
	}
	for i, name := range tensors {
		b.Tensor(name, gguf.F32, []int{4}, bytes.Repeat([]byte{byte(16*no + i)}, 16))
	}
	return b
}

// writeParts writes files into a new folder.
func writeParts(t *testing.T, files map[string]*gguftest.Builder) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpen_OpensASplitModelByTheNameOfAnyOfItsFiles(t *testing.T) {
	dir := writeParts(t, map[string]*gguftest.Builder{
		"m-00001-of-00003.gguf": part(0, 3), // as some tools write it: all metadata, no tensors
		"m-00002-of-00003.gguf": part(1, 3, "a", "b"),
		"m-00003-of-00003.gguf": part(2, 3, "c"),
	})
	size := int64(0)
	for _, path := range gguf.Parts(filepath.Join(dir, "m-00002-of-00003.gguf")) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	var header []byte
	for _, name := range []string{"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"} {
		f, err := gguf.Open(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		defer f.Close()
		if arch, err := f.Str("general.architecture"); arch != "llama" {
			t.Errorf("%s: architecture %q, %v", name, arch, err)
		}
		for tensor, want := range map[string]byte{"a": 16, "b": 17, "c": 32} {
			if got, err := f.Tensor(tensor); err != nil || !bytes.Equal(got.Data, bytes.Repeat([]byte{want}, 16)) {
				t.Errorf("%s: tensor %s: %v, %v", name, tensor, got.Data, err)
			}
		}
		if f.Size() != size || len(f.Tensors()) != 3 {
			t.Errorf("%s: %d bytes and %d tensors, want %d and 3", name, f.Size(), len(f.Tensors()), size)
		}
		if header != nil && !bytes.Equal(header, f.Header()) {
			t.Errorf("%s: another header", name)
		}
		header = f.Header()
	}
}

func TestOpen_RefusesSplitModels(t *testing.T) {
	first, second := "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
	sound := part(0, 2, "a", "b")
	for _, c := range []struct {
		what  string
		files map[string]*gguftest.Builder
		open  string
		want  []string
	}{
		{"one of whose files is not there", map[string]*gguftest.Builder{first: sound}, first, []string{"file 2 of 2", second, "no such file"}},
		{"whose first file is not there", map[string]*gguftest.Builder{second: part(1, 2, "c")}, second, []string{"file 1 of 2", first, "no such file"}},
		{"whose files have lost their numbers", map[string]*gguftest.Builder{"m.gguf": sound}, "m.gguf", []string{"m.gguf", "one of the 2 files", "m.gguf"}},
		{"whose name says another count", map[string]*gguftest.Builder{"m-00001-of-00005.gguf": sound}, "m-00001-of-00005.gguf", []string{"one of the 2 files"}},
		{"whose files changed places", map[string]*gguftest.Builder{first: part(1, 2, "c"), second: sound}, first, []string{"file 1 of 2 of a split model", "says that it is file 2 of 2"}},
		{"a file of which belongs to another", map[string]*gguftest.Builder{first: sound, second: part(1, 3, "c")}, first, []string{"file 2 of 2 of a split model", "says that it is file 2 of 3"}},
		{"a file of which is a whole model", map[string]*gguftest.Builder{first: sound, second: gguftest.New()}, first, []string{"file 2 of 2", "split.no", "missing"}},
		{"with a tensor in two files", map[string]*gguftest.Builder{first: sound, second: part(1, 2, "b")}, first, []string{"file 2 of 2", `"b"`, "earlier file"}},
		{"with too few tensors", map[string]*gguftest.Builder{first: sound, second: part(1, 2)}, first, []string{"has 3 tensors", "2 in its files"}},
		{"of too many files", map[string]*gguftest.Builder{first: part(0, 2000)}, first, []string{first, "split.count is 2000"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := writeParts(t, c.files)
			before := openMaps(t, dir)
			f, err := gguf.Open(filepath.Join(dir, c.open))
			if err == nil {
				f.Close()
				t.Fatal("it was opened")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if after := openMaps(t, dir); after != before {
				t.Errorf("%d files stay mapped", after-before)
			}
		})
	}
	t.Run("the error of a missing file says that it does not exist", func(t *testing.T) {
		dir := writeParts(t, map[string]*gguftest.Builder{first: sound})
		if _, err := gguf.Open(filepath.Join(dir, first)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// openMaps returns how many files of dir this process has mapped, 0 where the system does not
// say.
func openMaps(t *testing.T, dir string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(maps), dir)
}

func TestGuard_NamesTheFileOfASplitModelThatWasCutShort(t *testing.T) {
	second := part(1, 2)
	second.Tensor("w", gguf.F32, []int{1 << 16}, make([]byte, 4<<16))
	dir := writeParts(t, map[string]*gguftest.Builder{"m-00001-of-00002.gguf": part(0, 2, "a", "b"), "m-00002-of-00002.gguf": second})
	f, err := gguf.Open(filepath.Join(dir, "m-00001-of-00002.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := f.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "m-00002-of-00002.gguf")
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	sum := 0
	err = f.Guard(func() error {
		for _, b := range w.Data {
			sum += int(b)
		}
		return nil
	})
	if !errors.Is(err, gguf.ErrUnreadable) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestParts(t *testing.T) {
	for _, c := range []struct {
		path string
		want []string
	}{
		{"dir/a-00002-of-00002.gguf", []string{"dir/a-00001-of-00002.gguf", "dir/a-00002-of-00002.gguf"}},
		{"A-00001-of-00001.GGUF", []string{"A-00001-of-00001.GGUF"}},
		{"A-00001-OF-00002.GGUF", []string{"A-00001-OF-00002.GGUF"}}, // upper case would be another file
		{"a-00003-of-00002.gguf", []string{"a-00003-of-00002.gguf"}},
		{"a-00000-of-00002.gguf", []string{"a-00000-of-00002.gguf"}},
		{"a-00001-of-99999.gguf", []string{"a-00001-of-99999.gguf"}},
		{"a-1-of-2.gguf", []string{"a-1-of-2.gguf"}},
		{"a.gguf", []string{"a.gguf"}},
	} {
		if got := gguf.Parts(c.path); !slices.Equal(got, c.want) {
			t.Errorf("Parts(%q) = %q, want %q", c.path, got, c.want)
		}
	}
}
