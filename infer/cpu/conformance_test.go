package cpu_test

import (
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
)

// On every path of this machine: results near the reference's, and the same bits
// for other numbers of threads.
func TestDeviceContract(t *testing.T) {
	for _, path := range cpu.Paths() {
		t.Run(path, func(t *testing.T) {
			with := func(threads int) func() (device.Device, error) {
				return func() (device.Device, error) { return cpu.OpenPath(threads, path) }
			}
			devicetest.Run(t, devicetest.Suite{
				Open:  []func() (device.Device, error){with(1), with(3)},
				Types: cpu.WeightTypes(),
			})
		})
	}
}
