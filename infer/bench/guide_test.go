package bench_test

import (
	"testing"

	"m40-llm/infer/bench"
	"m40-llm/infer/cpu"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
)

// BenchmarkGuide measures the built-in model on this machine's processor. share is
// what decode reads of weights and cache, over what the machine can read: a model
// this small stays in the processor's caches, so it may exceed 1.
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
		r, err = bench.Run(b.Context(), f, "guide", dev, bench.Options{Prompt: 256, Answer: 64, Repeat: 5, Parallel: 8, Cache: gguf.F16})
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
