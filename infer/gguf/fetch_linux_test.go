package gguf_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// wide opens a file whose largest tensor is fetched in several pieces.
func wide(t *testing.T) (path string, f *gguf.File, largest gguf.Tensor) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "wide.gguf")
	file := gguftest.New().Set("general.architecture", "llama").Tensor("wide", gguf.F32, []int{1 << 20, 10}, make([]byte, 40<<20)).Bytes()
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if largest, err = f.Tensor("wide"); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	if unix.Madvise(page, unix.MADV_POPULATE_READ) == unix.EINVAL {
		fixtures.Skip(t, "this system cannot read mapped pages in (MADV_POPULATE_READ, Linux 5.14)")
	}
	return path, f, largest
}

// evict drops a file from the page cache, if its file system can.
func evict(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(file.Sync(), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
}

// cachedBytes returns how many bytes of a file can be read without waiting for the disk.
func cachedBytes(t *testing.T, path string) (bytes int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	buffer := make([]byte, 64<<10)
	for at := int64(0); ; at += int64(len(buffer)) {
		n, err := unix.Preadv2(int(file.Fd()), [][]byte{buffer}, at, unix.RWF_NOWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			t.Fatal(err)
		case n == 0:
			return bytes
		}
		bytes += n
	}
}

func TestFetchReadsATensorPieceByPiece(t *testing.T) {
	for name, onDisk := range map[string]bool{"from disk, into memory": true, "from the page cache, which is left to those who read it": false} {
		t.Run(name, func(t *testing.T) {
			path, f, largest := wide(t)
			if onDisk {
				evict(t, path)
			}
			size := len(largest.Data)
			if before := residentBytes(t, path); before > size/2 {
				t.Fatalf("%d of %d bytes are mapped before they are fetched", before, size)
			}
			var told []int64
			if err := f.Fetch(largest, func(n int64) error { told = append(told, n); return nil }); err != nil {
				t.Fatal(err)
			}
			if len(told) != 3 || !slices.IsSorted(told) || told[2] != int64(size) {
				t.Errorf("got progress %v, want three steps up to %d", told, size)
			}
			const piece = 16 << 20
			if now := residentBytes(t, path); now >= piece && !onDisk {
				t.Errorf("%d of %d bytes are mapped", now, size)
			}
			if now := cachedBytes(t, path); now < size {
				t.Errorf("%d of %d bytes are in the page cache", now, size)
			}
		})
	}
}

func TestFetchStopsAfterAnError(t *testing.T) {
	path, f, largest := wide(t)
	evict(t, path)
	stop := errors.New("stop")
	if err := f.Fetch(largest, func(int64) error { return stop }); err != stop {
		t.Errorf("got %v", err)
	}
	if now := residentBytes(t, path); now >= len(largest.Data) {
		t.Errorf("%d bytes are mapped", now)
	}
}

func TestFetchReturnsErrUnreadableForATruncatedFile(t *testing.T) {
	path, f, largest := wide(t)
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Fetch(largest, func(int64) error { return nil }); !errors.Is(err, gguf.ErrUnreadable) {
		t.Errorf("got %v, want %v", err, gguf.ErrUnreadable)
	}
}

func TestFetchOfDataInMemoryIsOnePiece(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range f.Tensors() {
		var told []int64
		if err := f.Fetch(tensor, func(n int64) error { told = append(told, n); return nil }); err != nil || len(told) != 1 || told[0] != int64(len(tensor.Data)) {
			t.Errorf("%s: %v, %v", tensor.Name, told, err)
		}
	}
}
