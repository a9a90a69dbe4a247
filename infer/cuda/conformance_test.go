package cuda_test

import (
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// Results near the reference's and the same bits whoever shares a batch. The emulation takes its time, so all
// types run in torture only, and one of each layout in make check. The tests of cudakern run the
// products and embeddings of all types.
func TestDeviceContract(t *testing.T) {
	g := openGPU(t)
	types := fixtures.At([]gguf.Type{gguf.F16, gguf.Q4_K}, []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K}, cuda.KernelTypes())
	devicetest.Run(t, devicetest.Suite{
		Open:   []func() (device.Device, error){g.open},
		Types:  types,
		Halves: g.context.Units == cudakern.UnitsMMA,
	})
}

// The same with the units of newer GPUs.
func TestDeviceContractWithExactUnits(t *testing.T) {
	// TestExactUnits of cudakern compares the bits of all types.
	types, all := []gguf.Type{gguf.Q4_K, gguf.F16}, []cudakern.Units{cudakern.UnitsMMA}
	if !fixtures.Check() {
		all = nil
	}
	if fixtures.Torture() {
		types, all = cuda.KernelTypes(), []cudakern.Units{cudakern.UnitsDP2A, cudakern.UnitsMMA}
	}
	for _, units := range all {
		t.Run(string(units), func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
			t.Setenv("M40_LLM_CUDA_UNITS", string(units))
			g := openGPU(t)
			devicetest.Run(t, devicetest.Suite{
				Open:         []func() (device.Device, error){g.open},
				Types:        types,
				Halves:       g.context.Units == cudakern.UnitsMMA,
				OnlyProducts: true,
			})
		})
	}
}
