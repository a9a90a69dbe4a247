package engine

import (
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/ref"
)

// TestRealModel_SlidingWindowsGiveTheBitsOfAFreshCache asks models with sliding windows for many answers at
// once, with little memory: prompts begin alike and part, answers are continued, and bans rewind them. Each
// answer is that of an engine that has computed nothing else.
func TestRealModel_SlidingWindowsGiveTheBitsOfAFreshCache(t *testing.T) {
	for name, blocks := range map[string]int64{"gemma3": 14, "phi3_window": 14} {
		t.Run(name, func(t *testing.T) {
			file := readFile(t, filepath.Join(fixtures.Path(t, "logits", name), "f32.gguf"))
			f, err := gguf.Parse(file)
			if err != nil {
				t.Fatal(err)
			}
			config := mustConfig(t, f)
			limit := func(o *Options) { o.ChunkRows, o.Parallel, o.ContextLength = 12, 3, 256 }
			fresh := func(r infer.Request) outcome { return openReference(t, file, limit).askAndClose(r) }
			requests := branchingRequests(rand.New(rand.NewPCG(9, 40)), fresh, 4)
			want := make([]outcome, len(requests))
			rewound := 0
			for i, r := range requests {
				if want[i] = fresh(r); len(r.BannedStrings) > 0 {
					rewound++
				}
			}

			var closed int
			sum := placement.StepLimitsOf(3, 12).Scratch(config) + model.WeightBytes(f)
			b := openReference(t, file, func(o *Options) {
				limit(o)
				o.OpenDevice = func(*gguf.File) (device.Device, error) {
					return smallDevice{ref.New(), sum + blocks*config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()*8/7, &closed}, nil
				}
			})
			reused := 0
			for range 3 {
				var wg sync.WaitGroup
				got := make([]outcome, len(requests))
				for i, r := range requests {
					wg.Go(func() { got[i] = b.ask(r) })
				}
				wg.Wait()
				for i, a := range got {
					if a.err != nil || !reflect.DeepEqual(a.tokens, want[i].tokens) {
						t.Fatalf("request %d: %v, %v; on a fresh cache %v", i, a.ids(), a.err, want[i].ids())
					}
					reused += a.done.Usage.CachedTokens
				}
			}
			if reused == 0 || rewound == 0 {
				t.Errorf("%d tokens came from the cache and %d answers were rewound", reused, rewound)
			}
		})
	}
}

func TestASequenceHoldsAsManyBlocksOfAWindowAsArePlanned(t *testing.T) {
	for window := 1; window < 200; window += 3 {
		for rows := 1; rows < 100; rows += 7 {
			if got, want := spanOf(window, rows, device.BlockSize), (model.CacheGroup{Window: window}).Span(rows); got != want {
				t.Fatalf("window %d, %d rows: %d blocks, planned are %d", window, rows, got, want)
			}
		}
	}
}

// branchingRequests returns requests with long common beginnings, some of which continue answers of others,
// and some of which ban what they would say.
func branchingRequests(rng *rand.Rand, fresh func(infer.Request) outcome, n int) (list []infer.Request) {
	var trunk []int32
	for i := range int32(120) {
		trunk = append(trunk, 3+i*i%60)
	}
	for i := range n {
		r := request(slices.Concat(trunk[:40+rng.IntN(80)], span(int32(10+i), int32(12+i+rng.IntN(30)))), 30)
		r.IgnoreEOS, r.Alternatives, r.Params.Temperature, r.Params.Seed = true, 2, 1, int64(i)
		said := fresh(r)
		list = append(list, r)
		again := r
		again.Tokens = slices.Concat(r.Tokens, said.ids(), span(20, 24))
		list = append(list, again)
		if text := said.text; len(text) > 12 {
			ban := r
			ban.BannedStrings = []string{text[8:12]}
			list = append(list, ban)
		}
	}
	return list
}
