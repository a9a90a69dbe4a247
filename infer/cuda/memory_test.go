package cuda_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
)

// crowded is a GPU that reports more free memory than it has: taken is what another program has allocated since.
type crowded struct {
	device.Device
	device.Reserver
	taken int64
}

func (d crowded) Info() device.Info {
	info := d.Device.Info()
	info.Memory += d.taken
	return info
}

// However much less memory than planned there is, the model loads: with fewer layers on the GPU, or with none, and the answer is that of
// the reference.
func TestAModelLoadsOnAGPUOfWhichMemoryIsMissing(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	const answers, rows = 1, 8
	for _, name := range []string{"qwen3moe", "llama"} {
		file, golden := readFixture(t, name)
		whole := tooSmall(t, file, answers, rows) + 1
		for _, missing := range []int64{0, 128 << 20, 192 << 20, whole - 48<<20} {
			t.Run(fmt.Sprintf("%s, %d MiB are missing", name, missing>>20), func(t *testing.T) {
				t.Setenv("M40_LLM_EMU_MEMORY", fmt.Sprint(whole-missing))
				e, err := engine.Open(engine.Options{
					Catalog: oneModel{file},
					OpenDevice: func(*gguf.File) (device.Device, error) {
						d, err := cuda.Open()
						if err != nil {
							return nil, err
						}
						return crowded{d, d.(device.Reserver), missing}, nil
					},
					MoreDevices: func() iter.Seq2[device.Device, error] {
						return func(yield func(device.Device, error) bool) { yield(cpu.Open(2)) }
					},
					Model: "tiny", CacheType: "f32", ChunkRows: rows, Parallel: answers,
				})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				golden.check(t, e)
				notice := e.Status().Device.Notice
				if ran := strings.Contains(notice, "ran out while the model was loaded"); ran != (missing > 128<<20) {
					t.Errorf("the notice is %q", notice)
				}
			})
		}
	}
}
