package cuda_test

import (
	"os"
	"testing"

	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

// On both number paths, results near the reference's and the same bits whoever shares a
// batch. Weights of F32 and F16 have one path, which i16 covers; the emulation takes its
// time, so the other path gets all types in torture only.
func TestDeviceContract(t *testing.T) {
	g := openGPU(t)
	types := map[string][]gguf.Type{
		"i16":   cuda.WeightTypes(),
		"magic": {gguf.Q8_0, gguf.Q6_K},
	}
	torture := os.Getenv("M40_LLM_TORTURE") == "1"
	if torture {
		types["magic"] = cuda.WeightTypes()
	}
	for _, path := range cuda.Paths {
		t.Run(path, func(t *testing.T) {
			devicetest.Run(t, devicetest.Suite{
				Open:  []func() (device.Device, error){func() (device.Device, error) { return g.open(path) }},
				Types: types[path],
				// Paths differ in their products.
				OnlyProducts: path != "i16" && !torture,
			})
		})
	}
}
