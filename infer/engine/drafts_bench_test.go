package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"m40-llm/infer"
	shapes "m40-llm/infer/bench"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// chanceDrafter drafts the tokens of a known answer, each of which it gets right with a probability. A token takes it a given time.
type chanceDrafter struct {
	answer []int32
	right  float64
	takes  time.Duration
	rng    *rand.Rand
}

func (d *chanceDrafter) cost() (token, unread time.Duration) { return max(d.takes, 1), 0 }
func (d *chanceDrafter) unread(*sequence) int                { return 1 }
func (d *chanceDrafter) release(*sequence)                   {}

func (d *chanceDrafter) draft(asks []*draftAsk) error {
	for _, ask := range asks {
		n := len(ask.seq.tokens) - ask.seq.prompt
		for k := n; k < min(n+ask.most, len(d.answer)); k++ {
			id := d.answer[k]
			if d.rng.Float64() >= d.right {
				id ^= 1
			}
			ask.tokens = append(ask.tokens, id)
		}
		time.Sleep(time.Duration(ask.most) * d.takes)
	}
	return nil
}

// BenchmarkDrafts writes answers of random weights in the shape of Llama 3.2 1B without drafts, and with drafts that are right with a given
// probability, as far as they gain, in turn. A drafted token takes a twentieth of a step.
func BenchmarkDrafts(b *testing.B) {
	weights, err := shapes.Synthetic("llama-1b", "q4_0", 1, 0)
	if err != nil {
		b.Fatal(err)
	}
	config, err := model.ReadConfig(weights)
	if err != nil {
		b.Fatal(err)
	}
	load := func(ctx context.Context, _ *gguf.File, stages []model.Stage, o model.Options) (forwarder, error) {
		stages[0].Layers = len(config.Layers)
		return model.LoadStages(ctx, weights, stages, o)
	}
	file := gguftest.TinyLlama(gguftest.Llama{Dim: 32, Heads: 1, KVHeads: 1, FFN: 32, Rows: config.Vocab, Context: 512})
	engineWith := func(draft string, d drafter) *bench {
		one := &bench{t: b, files: map[string][]byte{"m": file}}
		e, err := open(Options{
			Catalog: catalog{one}, OpenDevice: func(*gguf.File) (device.Device, error) { return cpu.Open(0) },
			Model: "m", ContextLength: 512, Parallel: 1, Draft: draft, drafter: d,
		}, load)
		if err != nil {
			b.Fatal(err)
		}
		one.Engine = e
		if err := e.WaitReady(b.Context()); err != nil {
			b.Fatal(err)
		}
		return one
	}
	off := engineWith(DraftOff, nil)
	defer off.Close()
	d := &chanceDrafter{rng: rand.New(rand.NewPCG(1, 2))}
	with := engineWith(DraftAuto, d)
	defer with.Close()
	r := request(span(10, 60), 96)
	r.IgnoreEOS = true
	no := false
	r.PromptLookup = &no // random weights may repeat themselves
	seconds := func(one *bench, r infer.Request) (float64, outcome) {
		a := one.ask(r)
		if a.err != nil {
			b.Fatal(a.err)
		}
		return a.done.Timings.Decode.Seconds(), a
	}
	took, first := seconds(off, r)
	d.answer, d.takes = first.ids(), time.Duration(took/96/20*1e9)
	for _, right := range []float64{0, 0.4, 0.6, 0.8} {
		b.Run(fmt.Sprintf("right by %.0f %%", 100*right), func(b *testing.B) {
			d.right = right
			seconds(with, r) // it learns the times of steps and how often drafts are right
			var gains []float64
			drafted, accepted, claimed := 0, 0, 0.0
			for b.Loop() {
				without, _ := seconds(off, r)
				took, a := seconds(with, r)
				if !slices.Equal(a.ids(), first.ids()) {
					b.Fatal("the answer differs")
				}
				gains = append(gains, without/took)
				drafted, accepted, claimed = drafted+a.done.Lookup.Drafted, accepted+a.done.Lookup.Accepted, a.done.Lookup.Gain
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(slices.Sorted(slices.Values(gains))[len(gains)/2], "gain")
			b.ReportMetric(slices.Min(gains), "least-gain")
			b.ReportMetric(slices.Max(gains), "most-gain")
			b.ReportMetric(claimed, "claimed-gain")
			b.ReportMetric(100*float64(accepted)/float64(max(1, drafted)), "accepted-%")
			b.ReportMetric(float64(drafted)/float64(len(gains)*96), "drafted/token")
		})
	}
}
