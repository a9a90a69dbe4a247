package cpu_test

import (
	"os"
	"slices"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
)

// On every path of this machine: results near the reference's, and the same bits
// for other numbers of threads.
func TestDeviceContract(t *testing.T) {
	for _, path := range cpu.Paths() {
		t.Run(path, func(t *testing.T) {
			with := func(threads int) func() (device.Device, error) {
				return func() (device.Device, error) { return cpu.OpenPath(threads, path) }
			}
			types := cpu.WeightTypes()
			if path == "portable" && os.Getenv("M40_LLM_TORTURE") != "1" {
				// It takes its time, and Q5_K has all that Q4_K has.
				types = slices.DeleteFunc(types, func(t gguf.Type) bool { return t == gguf.Q4_K })
			}
			devicetest.Run(t, devicetest.Suite{
				Open:  []func() (device.Device, error){with(1), with(3)},
				Types: types,
			})
		})
	}
}
