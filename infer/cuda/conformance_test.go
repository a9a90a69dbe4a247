package cuda_test

import (
	"os"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

// On both number paths, results near the reference's and the same bits whoever shares a
// batch. Floats have one path, which i16 covers. The emulation takes its time, so all types run
// in torture only: without it, one of each layout and way to unpack. The tests of cudakern run
// the products and embeddings of all types on both paths.
func TestDeviceContract(t *testing.T) {
	g := openGPU(t)
	types := map[string][]gguf.Type{
		"i16":   {gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q5_1, gguf.Q2_K, gguf.Q4_K, gguf.Q6_K, gguf.IQ4_XS},
		"magic": {gguf.Q8_0, gguf.Q5_K, gguf.Q6_K, gguf.MXFP4},
	}
	torture := os.Getenv("M40_LLM_TORTURE") == "1"
	if torture {
		types["i16"], types["magic"] = cuda.KernelTypes(), cuda.KernelTypes()
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

// The same with the units of newer GPUs.
func TestDeviceContractWithExactUnits(t *testing.T) {
	// TestExactUnits of cudakern compares the bits of all types.
	types, all := []gguf.Type{gguf.Q4_K}, []cudakern.Units{cudakern.UnitsMMA}
	if os.Getenv("M40_LLM_TORTURE") == "1" {
		types, all = cuda.KernelTypes(), []cudakern.Units{cudakern.UnitsDP2A, cudakern.UnitsMMA}
	}
	for _, units := range all {
		t.Run(string(units), func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
			t.Setenv("M40_LLM_CUDA_UNITS", string(units))
			g := openGPU(t)
			devicetest.Run(t, devicetest.Suite{
				Open:         []func() (device.Device, error){func() (device.Device, error) { return g.open("i16") }},
				Types:        types,
				OnlyProducts: true,
			})
		})
	}
}
