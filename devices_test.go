package main

import (
	"bytes"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

func TestAutoTakesTheGPUOrSaysWhyNot(t *testing.T) {
	emulation := emutest.Emulation(t)
	for _, c := range []struct {
		name    string
		env     map[string]string
		weights gguf.Type
		kind    string
		notice  string
		logged  bool
	}{
		{"a GPU that can is taken", nil, gguf.Q8_0, "cuda", "", false},
		{"without a driver the CPU computes, which is nothing to log", map[string]string{"M40_LLM_LIBCUDA": "/nowhere/libcuda.so.1"}, gguf.Q8_0, "cpu", "/nowhere/libcuda.so.1", false},
		{"without a device the CPU computes", map[string]string{"M40_LLM_EMU_DEVICES": "0"}, gguf.Q8_0, "cpu", "finds no device", true},
		{"beside an old device the CPU computes", map[string]string{"M40_LLM_EMU_CAPABILITY": "3.5"}, gguf.Q8_0, "cpu", "compute capability 3.5", true},
		{"weights without kernels are computed with on the CPU", nil, gguf.BF16, "cpu", "BF16", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			t.Setenv("M40_LLM_LIBCUDA", emulation)
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: c.weights}))
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			d, err := openBest(f, 1, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			i := d.Info()
			if i.Kind != c.kind || !strings.Contains(i.Notice, c.notice) || (i.Notice == "") != (c.notice == "") {
				t.Errorf("got %+v", i)
			}
			if (log.Len() > 0) != c.logged {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}

// What auto lists must be computed by one of the two, and models move to the CPU when the
// GPU fails.
func TestTheCPUHasKernelsForAllThatTheGPUHas(t *testing.T) {
	for _, typ := range cuda.WeightTypes() {
		if !slices.Contains(cpu.WeightTypes(), typ) {
			t.Errorf("there are no kernels for %s on the CPU", typ)
		}
	}
}

func TestAServerHasAWorkerWhereThereMayBeAGPU(t *testing.T) {
	for path, gpu := range map[string]bool{emutest.Emulation(t): true, "/nowhere/libcuda.so.1": false} {
		t.Setenv("M40_LLM_LIBCUDA", path)
		if got := auto().gpu; got != gpu {
			t.Errorf("with the driver %s: %v", path, got)
		}
	}
}

func TestAModelMustFitWhereItWouldBeComputed(t *testing.T) {
	const small, large = 1 << 20, 1 << 60
	onCPU := device.Info{Kind: "cpu", Memory: small}
	gpu := func(memory int64) device.Info { return device.Info{Kind: "cuda", Memory: memory, Dedicated: true} }
	cpus := func(n int64) bool { return n != small && n != large && n > 0 }
	is := func(want int64) func(int64) bool { return func(n int64) bool { return n == want } }
	for _, c := range []struct {
		name, flag string
		dev        device.Info
		holds      func(int64) bool
	}{
		{"on the CPU it is what is free now", "cpu", onCPU, cpus},
		{"on a GPU that was asked for it is the GPU's", "cuda", gpu(small), is(small)},
		{"where the CPU took over from the GPU it is the CPU's", "cuda", onCPU, cpus},
		{"where the GPU is the larger one it is the GPU's", "auto", gpu(large), is(large)},
		{"what is too large for the GPU the CPU takes", "auto", gpu(small), cpus},
		{"before there is a device it is the CPU's", "auto", device.Info{}, cpus},
	} {
		if got := (deviceFlags{device: &c.flag}).freeMemory(c.dev); !c.holds(got) {
			t.Errorf("%s: got %d", c.name, got)
		}
	}
}
