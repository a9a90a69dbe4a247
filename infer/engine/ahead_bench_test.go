package engine

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"m40-llm/infer"
	shapes "m40-llm/infer/bench"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// BenchmarkStepsAhead writes answers on a GPU without steps ahead and with them, in turn: with random weights in the shapes of
// models, one answer and four at once, with the default samplers, and one with a penalty, which needs the whole row.
func BenchmarkStepsAhead(b *testing.B) {
	if err := cuda.Check(); err != nil {
		b.Skip(err)
	}
	for _, m := range []struct {
		shape, quant string
		answers      []int
	}{{"llama-15m", "q8_0", []int{1, 4}}, {"qwen-0.5b", "q8_0", []int{1}}, {"llama-1b", "q4_0", []int{1, 4}}, {"llama-8b", "q4_0", []int{1}}} {
		weights, err := shapes.Synthetic(m.shape, m.quant, 1, 0)
		if err != nil {
			b.Fatal(err)
		}
		for _, answers := range m.answers {
			r := request(span(10, 74), 300)
			r.IgnoreEOS, r.Params = true, infer.DefaultRequest().Params
			b.Run(fmt.Sprintf("%s %s, %d at once", m.shape, m.quant, answers), func(b *testing.B) { benchmarkAhead(b, weights, answers, r) })
		}
		if m.shape != "llama-1b" {
			continue
		}
		r := request(span(10, 74), 300)
		r.IgnoreEOS, r.Params = true, infer.DefaultRequest().Params
		r.Params.RepeatPenalty = 1.05
		b.Run(fmt.Sprintf("%s %s, a penalty", m.shape, m.quant), func(b *testing.B) { benchmarkAhead(b, weights, 1, r) })
	}
}

// benchmarkAhead reports the speeds of so many answers to r at once, and how long the process computes on the CPU for a token.
func benchmarkAhead(b *testing.B, weights *gguf.File, answers int, r infer.Request) {
	config, err := model.ReadConfig(weights)
	if err != nil {
		b.Fatal(err)
	}
	one := &bench{t: b, files: map[string][]byte{
		"m": gguftest.TinyLlama(gguftest.Llama{Dim: 32, Heads: 1, KVHeads: 1, FFN: 32, Rows: config.Vocab, Context: 512}),
	}}
	load := func(ctx context.Context, _ *gguf.File, stages []model.Stage, o model.Options) (forwarder, error) {
		stages[0].Layers = len(config.Layers)
		return model.LoadStages(ctx, weights, stages, o)
	}
	var rates, cpu [2][]float64 // tokens per second and microseconds a token, without steps ahead and with them
	var ahead infer.Ahead
	for b.Loop() {
		for k, on := range []bool{false, true} {
			e, err := open(Options{
				Catalog:    catalog{one},
				OpenDevice: func(*gguf.File) (device.Device, error) { return cuda.Open() },
				Model:      "m", ContextLength: 512, Parallel: answers, RunAhead: &on,
			}, load)
			if err != nil {
				b.Fatal(err)
			}
			one.Engine = e
			if err := e.WaitReady(b.Context()); err != nil {
				b.Fatal(err)
			}
			for round := range 4 {
				before, done := cpuTime(), make(chan outcome)
				for i := range answers {
					r.Params.Seed = int64(i)
					go func() { done <- one.ask(r) }()
				}
				tokens, longest := 0, 0.0
				for range answers {
					a := <-done
					if a.err != nil {
						b.Fatal(a.err)
					}
					tokens, longest = tokens+len(a.tokens), max(longest, a.done.Timings.Decode.Seconds())
				}
				if round > 0 { // the first one warms up
					rates[k] = append(rates[k], float64(tokens-answers)/longest)
					cpu[k] = append(cpu[k], float64((cpuTime()-before).Microseconds())/float64(tokens))
				}
			}
			if on {
				ahead = e.Status().Ahead
			}
			e.Close()
		}
	}
	middle := func(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(rates[0]), "off-tok/s")
	b.ReportMetric(middle(rates[1]), "on-tok/s")
	b.ReportMetric(middle(rates[1])/middle(rates[0]), "gain")
	b.ReportMetric(middle(cpu[0]), "off-µs/token")
	b.ReportMetric(middle(cpu[1]), "on-µs/token")
	b.ReportMetric(100*ahead.MissShare(), "missed-%")
	b.ReportMetric(float64(ahead.Tokens), "ahead")
}

// cpuTime returns how long the process has computed on the CPU.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
