package cpu_test

import (
	"slices"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// samePanel are types whose weights lie in memory as those of another type do, which has
// their kernels: see formats.h.
var samePanel = []gguf.Type{gguf.IQ2_S, gguf.IQ3_S, gguf.IQ4_XS, gguf.MXFP4}

// commonTypes have one of each way to unpack weights: make test tries the rows of these in many batches.
var commonTypes = []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0, gguf.Q5_1, gguf.Q4_K, gguf.Q6_K, gguf.IQ4_NL}

// sameOrder are groups of paths that have the same bits: the same order of additions with other
// instructions.
var sameOrder = [][]string{
	{"avx512vbmi", "avx512vnni", "avx512bw"},
	{"avxvnni", "avx2"},
	{"f16c", "avx", "sse41", "portable"},
	{"neon", "portable"},
}

// twins returns the paths of this machine that have the bits of path: itself and others, fastest first.
func twins(path string) []string {
	for _, group := range sameOrder {
		own := slices.DeleteFunc(cpu.Paths(), func(p string) bool { return !slices.Contains(group, p) })
		if slices.Contains(own, path) && len(own) > 1 {
			return own
		}
	}
	return []string{path}
}

// On every path of this machine: results near the reference's, and the same bits
// for other numbers of threads, on its twin, and with weights that stay in the file or are packed later.
func TestDeviceContract(t *testing.T) {
	for _, path := range cpu.Paths() {
		if twins(path)[0] != path {
			continue // compared bit for bit with that path
		}
		t.Run(path, func(t *testing.T) {
			with := func(threads int, path string) func() (device.Device, error) {
				return func() (device.Device, error) { return cpu.OpenWith(cpu.Options{Threads: threads, Path: path}) }
			}
			variants := []func() (device.Device, error){with(1, path), with(3, path)}
			if path == cpu.Paths()[0] || fixtures.Torture() { // the same code on every path
				variants = append(variants, func() (device.Device, error) {
					return cpu.OpenWith(cpu.Options{Threads: 2, Path: path, NoRepack: "the test says so"})
				}, func() (device.Device, error) { return openPackingLater(2, path) })
			}
			for _, twin := range twins(path)[1:] {
				variants = append(variants, with(2, twin))
			}
			types := cpu.WeightTypes()
			if !fixtures.Torture() {
				types = slices.DeleteFunc(types, func(t gguf.Type) bool {
					return slices.Contains(samePanel, t) || !fixtures.Check() && !slices.Contains(commonTypes, t)
				})
			}
			devicetest.Run(t, devicetest.Suite{
				Open:     variants,
				Types:    cpu.WeightTypes(),
				SameBits: types,
			})
		})
	}
}
