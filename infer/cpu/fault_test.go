package cpu_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// mapFile maps an empty file of size bytes into memory.
func mapFile(t *testing.T, size int64) (*os.File, []byte) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "weights"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	data, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(data) })
	return file, data
}

// TestUploadSurvivesAFileThatIsCutShort uploads weights of a mapped file of which the end,
// all or nothing of it was cut off; what is cut off later is not missed.
func TestUploadSurvivesAFileThatIsCutShort(t *testing.T) {
	const rows, cols = 4096, 256
	size := int64(rows * gguf.Q8_0.RowBytes(cols))
	for _, threads := range []int{1, 3} {
		for _, left := range []int64{0, size - 5000, size} {
			t.Run(fmt.Sprintf("%d threads, %d of %d bytes are left", threads, left, size), func(t *testing.T) {
				file, data := mapFile(t, size)
				d, err := cpu.Open(threads)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				if err := file.Truncate(left); err != nil {
					t.Fatal(err)
				}
				w, err := d.Upload(gguf.Q8_0, rows, cols, data)
				if errors.Is(err, device.ErrUnreadable) != (left < size) {
					t.Fatalf("got %v", err)
				}
				if err != nil {
					return
				}
				if err := file.Truncate(0); err != nil {
					t.Fatal(err)
				}
				x, y := alloc(t, d, 2, cols), alloc(t, d, 2, rows)
				p := device.NewProgram(2, 2)
				p.Embed(x, upload(t, d, gguf.F32, 2, cols, make([]byte, 2*4*cols)))
				p.MatMul(y, w, x)
				run(t, compile(t, d, p), upTo(0, 2))
			})
		}
	}
}

// TestAStepSurvivesAFileThatIsCutShort computes with weights that stay in a file, of which the end is
// cut off between two steps.
func TestAStepSurvivesAFileThatIsCutShort(t *testing.T) {
	const rows, cols = 4096, 256
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			file, data := mapFile(t, int64(rows*gguf.Q8_0.RowBytes(cols)))
			d, err := cpu.OpenWith(cpu.Options{Threads: threads, NoRepack: "the test says so"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			p := device.NewProgram(2, 2)
			x, y := alloc(t, d, 2, cols), alloc(t, d, 2, rows)
			w := upload(t, d, gguf.Q8_0, rows, cols, data)
			p.Embed(x, w)
			p.MatMul(y, w, x)
			e := compile(t, d, p)
			run(t, e, upTo(0, 2))
			if err := file.Truncate(5000); err != nil {
				t.Fatal(err)
			}
			if err := e.Run(upTo(0, 2)); !errors.Is(err, device.ErrUnreadable) {
				t.Errorf("got %v, want one that matches ErrUnreadable", err)
			}
		})
	}
}
