package bench_test

import (
	"math"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/bench"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// TestKernelsOfAStepAreMeasured measures the kernels of a tiny model on the emulated GPU: 2 layers, K and
// V of 2 heads of 64 in half precision. What the kernels read is compared with the weights and the cache.
func TestKernelsOfAStepAreMeasured(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Library(t))
	measure := func(kernels bool) bench.Result {
		t.Helper()
		f, err := bench.Synthetic("tiny", "q4_0", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := cuda.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		r, err := bench.Run(t.Context(), f, "tiny", dev, bench.Options{Prompts: []int{40}, Answer: 1, Repeat: 1, Parallel: 1, Cache: device.CacheOf(gguf.F16), Kernels: kernels})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain, r := measure(false), measure(true)
	if plain.Kernels != nil || r.LogitsHash != plain.LogitsHash {
		t.Errorf("without --kernels there are %d kernels and the logits %s, with it %s", len(plain.Kernels), plain.LogitsHash, r.LogitsHash)
	}
	var weights, cache int64
	share := 0.0
	for _, k := range r.Kernels {
		if k.Launches < 1 || !(k.Microseconds >= 0) || (k.Bytes > 0) != (k.GBs > 0 && k.Share > 0) {
			t.Errorf("got %+v", k)
		}
		switch bytes := k.Bytes * int64(k.Launches); {
		case strings.HasPrefix(k.Kernel, "matmul"):
			weights += bytes
		case strings.HasPrefix(k.Kernel, "attention"):
			cache += bytes
		case bytes > 0:
			t.Errorf("%s reads %d bytes of weights or cache", k.Kernel, bytes)
		}
		share += k.OfStep
	}
	if math.Abs(share-1) > 1e-9 {
		t.Errorf("the shares of the step add up to %g", share)
	}
	if want := int64(41 * 2 * 2 * 2 * 64 * 2); cache != want {
		t.Errorf("attention reads %d bytes of 41 positions, want %d", cache, want)
	}
	f, err := bench.Synthetic("tiny", "q4_0", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range f.Tensors() {
		if tensor.Type == gguf.Q4_0 { // the others are weights of norms
			weights -= int64(len(tensor.Data))
		}
	}
	if weights != 0 {
		t.Errorf("products read %d bytes more than the weights have", weights)
	}
}

func TestKernelsOfACPUCannotBeMeasured(t *testing.T) {
	f, err := bench.Synthetic("tiny", "q4_0", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	_, err = bench.Run(t.Context(), f, "tiny", dev, bench.Options{Prompts: []int{1}, Answer: 1, Repeat: 1, Parallel: 1, Cache: device.CacheOf(gguf.F16), Kernels: true})
	if err == nil || !strings.Contains(err.Error(), "has no kernels to measure; use a GPU") {
		t.Errorf("got %v", err)
	}
}
