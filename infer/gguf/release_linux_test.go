package gguf_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

func TestReleaseDropsThePagesOfOneTensor(t *testing.T) {
	const size = 1 << 20
	data := bytes.Repeat([]byte{1, 2, 3, 4}, size/4)
	b := gguftest.New().Tensor("a", gguf.F32, []int{size / 4}, data).Tensor("b", gguf.F32, []int{size / 4}, data)
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tensor := range f.Tensors() {
		if !bytes.Equal(tensor.Data, data) {
			t.Fatalf("%s: the data differs from the file", tensor.Name)
		}
	}
	if got := residentBytes(t, path); got < 2*size {
		t.Fatalf("%d bytes of the file are in memory after %d were read", got, 2*size)
	}
	f.Release(f.Tensors()[0].Data)
	if got := residentBytes(t, path); got > size+size/4 { // the rest allows for huge pages
		t.Errorf("%d bytes of the file are in memory after one of two tensors of %d was released", got, size)
	}
	if !bytes.Equal(f.Tensors()[0].Data, data) {
		t.Error("the data of a released tensor differs from the file")
	}
	for _, tensor := range f.Tensors() {
		f.Release(tensor.Data)
	}
	if got := residentBytes(t, path); got != 0 {
		t.Errorf("%d bytes of the file are in memory after all tensors were released: those around the first and the last page of each", got)
	}
}

// residentBytes returns the resident bytes of this process's mapping of the file at path.
func residentBytes(t *testing.T, path string) int {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, entry, found := strings.Cut(string(maps), path+"\n")
	if !found {
		t.Fatalf("%s is not mapped", path)
	}
	for line := range strings.Lines(entry) {
		if kB, is := strings.CutPrefix(line, "Rss:"); is {
			n, err := strconv.Atoi(strings.Fields(kB)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("smaps has no Rss")
	return 0
}
