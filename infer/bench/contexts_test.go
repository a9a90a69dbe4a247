package bench_test

import (
	"fmt"
	"strings"
	"testing"

	"m40-llm/infer/bench"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// Contexts for one answer, as the planner chooses them. A published file in Q4_K_M has more than Q4_K, so weights are scaled to its size.
// docs/performance.md has the table that the test logs.
func TestSmallerFormatsOfTheCacheHoldLongerContexts(t *testing.T) {
	const reserved = 300 << 20 // of a GPU's memory, by its driver and the context of the process
	formats := []string{"f16", "q8_0", "q8_0/q4_0", "q4_0"}
	for _, c := range []struct {
		name, shape string
		file        int64 // bytes of the published file
		trained     int
	}{{"llama-8b", "llama-8b", 4_920_739_232, 131_072}, {"30b-a3b", "qwen3-30b-a3b", 18_556_686_912, 262_144}} {
		for _, memory := range []int64{12, 24} {
			f, err := bench.Header(c.shape, "q4_k", c.trained)
			if err != nil {
				t.Fatal(err)
			}
			config, err := model.ReadConfig(f)
			if err != nil {
				t.Fatal(err)
			}
			shape, err := placement.ShapeOf(f, config)
			if err != nil {
				t.Fatal(err)
			}
			shape = shape.Scaled(float64(c.file)/float64(model.WeightBytes(f)), gguf.Q4_K)
			devices := []device.Info{{Kind: "cuda", Name: fmt.Sprintf("a GPU with %d GB", memory), Memory: memory<<30 - reserved, Dedicated: true}}
			if c.file > memory<<30 {
				devices = append(devices, device.Info{Kind: "cpu", Memory: 64 << 30})
			}
			last := 0
			row := []string{fmt.Sprintf("%s Q4_K_M, %d GB", c.name, memory)}
			for _, format := range formats {
				fit := shape.Fit(placement.Machine{Devices: devices, Converts: cuda.Converts, CacheType: format, Parallel: 1})
				whole := len(devices) == 1 // else the planner chooses between longer contexts and more experts on the GPU
				if fit.Context == 0 || whole && (fit.Context < last || fit.Context == last && fit.Context < c.trained) {
					t.Errorf("%s: %s holds a context of %d, the format before %d", row[0], format, fit.Context, last)
				}
				row, last = append(row, fmt.Sprintf("%d, %s", fit.Context, fit.On)), fit.Context
			}
			t.Logf("contexts: | %s |", strings.Join(row, " | "))
		}
	}
}
