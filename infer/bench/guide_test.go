package bench_test

import (
	"testing"

	"m40-llm/infer/bench"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
)

// BenchmarkGuide measures the built-in model on the CPU. share is the bandwidth that decode
// uses over that of the memory; it may exceed 1, because so small a model stays in the CPU's
// caches.
func BenchmarkGuide(b *testing.B) {
	f, err := gguf.Parse(guide.Model)
	if err != nil {
		b.Fatal(err)
	}
	var r bench.Result
	for b.Loop() {
		dev, err := cpu.Open(0)
		if err != nil {
			b.Fatal(err)
		}
		r, err = bench.Run(b.Context(), f, "guide", dev, bench.Options{Prompts: []int{256}, Answer: 64, Repeat: 5, Parallel: 8, Cache: device.CacheOf(gguf.F16)})
		dev.Close()
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(r.PrefillTokS, "prefill-tok/s")
	b.ReportMetric(r.DecodeTokS, "decode-tok/s")
	b.ReportMetric(r.Parallel[len(r.Parallel)-1].DecodeTokS, "decode-of-8-tok/s")
	b.ReportMetric(r.ReadGBs, "wall-GB/s")
	b.ReportMetric(r.DecodeShare, "share")
}
