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

// TestRunSurvivesAFileThatIsCutShort computes with weights in a mapped file of which
// the end, all or nothing of it is cut off meanwhile.
func TestRunSurvivesAFileThatIsCutShort(t *testing.T) {
	const rows, cols = 4096, 256
	size := int64(rows * gguf.Q8_0.RowBytes(cols))
	for _, threads := range []int{1, 3} {
		for _, left := range []int64{0, size - 5000, size} {
			t.Run(fmt.Sprintf("%d threads, %d of %d bytes are left", threads, left, size), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "weights")
				file, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				if err := file.Truncate(size); err != nil {
					t.Fatal(err)
				}
				data, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
				if err != nil {
					t.Fatal(err)
				}
				defer syscall.Munmap(data)
				d, err := cpu.Open(threads)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				w := upload(t, d, gguf.Q8_0, rows, cols, data)
				table := upload(t, d, gguf.F32, 1, cols, make([]byte, 4*cols))
				x, y := alloc(t, d, 2, cols), alloc(t, d, 2, rows)
				p := device.NewProgram(2, 2)
				p.Embed(x, table)
				p.MatMul(y, w, x)
				product := compile(t, d, p)
				batch := device.Batch{Tokens: []int32{0, 0}, Pos: []int32{0, 0}, Seq: []int32{0, 0}, Out: []int32{0, 1}, Tables: [][]int32{{0}}}
				if err := product.Run(&batch); err != nil {
					t.Fatal(err)
				}
				if err := file.Truncate(left); err != nil {
					t.Fatal(err)
				}
				if err := product.Run(&batch); errors.Is(err, device.ErrUnreadable) != (left < size) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}
