package engine

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/sample"
)

// aheadParams returns settings of any samplers, most of which a device can draw with.
func aheadParams(rng *rand.Rand, seed int64) sample.Params {
	if rng.IntN(4) == 0 {
		return anyParams(rng, seed)
	}
	p := infer.DefaultRequest().Params
	p.Seed, p.Temperature = seed, []float64{0, 0.3, 0.7, 1, 1.5}[rng.IntN(5)]
	p.TopK, p.TopP, p.MinP = []int{0, 1, 5, 40, 300}[rng.IntN(5)], []float64{1, 0.95, 0.5}[rng.IntN(3)], []float64{0, 0.05, 0.3}[rng.IntN(3)]
	switch rng.IntN(6) {
	case 0:
		p.RepeatPenalty, p.RepeatLastN = 1.05, 64
	case 1:
		p.PresencePenalty, p.FrequencyPenalty, p.RepeatLastN = 0.3, 0.1, -1
	case 2:
		p.DryMultiplier, p.DryAllowedLength = 0.4, 6
	}
	return p
}

// aheadRequests returns requests as lookupRequests does, half of them without lookup.
func aheadRequests(rng *rand.Rand, count int, fresh func(infer.Request) outcome) (list []infer.Request, want []outcome) {
	list, want = lookupRequests(rng, count, aheadParams, fresh)
	off := false
	for i := range list {
		if rng.IntN(2) > 0 {
			list[i].PromptLookup = &off
		}
	}
	return list, want
}

// checkAhead checks that tokens were computed ahead, and that some of them were wrong.
func checkAhead(t *testing.T, b *bench) {
	t.Helper()
	got := b.Status().Ahead
	t.Logf("%d tokens were computed ahead, %d were wrong, %d were dropped", got.Tokens, got.Missed, got.Dropped)
	if !got.On || got.Missed == 0 || got.Tokens < 3*got.Missed {
		t.Errorf("%+v: too few or too many are wrong to test anything", got)
	}
}

// TestEngine_AnswersWithStepsAheadAreTheSame checks with the toy, which finds every row at a wrong place, in little
// memory, so that sequences give way to each other, and with many tokens that the device draws wrong.
func TestEngine_AnswersWithStepsAheadAreTheSame(t *testing.T) {
	for _, tt := range []struct{ depth, blocks, missEvery int }{{2, 200, 7}, {2, 12, 7}, {5, 200, 9}, {5, 12, 9}} {
		t.Run(fmt.Sprintf("%d steps, %d blocks", tt.depth, tt.blocks), func(t *testing.T) {
			open := func(depth int) *bench {
				return newBench(t, func(b *bench, o *Options) {
					o.Parallel, o.ChunkRows, o.ContextLength, o.QueueLimit, o.freeMisses = 3, 24, 160, 600, 1000
					b.memory = memoryFor(t, *o, tt.blocks)
					b.onLogits = func(logits []float32, pos int32) { logits[letterA+int(pos)%5] += 7 }
					b.depth, b.missEvery, o.RunAhead = depth, tt.missEvery, new(true)
				})
			}
			rng := rand.New(rand.NewPCG(17, 4))
			requests, want := aheadRequests(rng, fixtures.Full(24, 500), open(1).ask)
			b := open(tt.depth)
			stormOfLookups(t, b, rng, requests, want)
			for i, r := range requests[:fixtures.Full(12, 250)] { // one after the other, so that nobody waits
				if a := b.ask(r); fmt.Sprint(a.ids()) != fmt.Sprint(want[i].ids()) {
					t.Errorf("request %d alone: %v, want %v", i, a.ids(), want[i].ids())
				}
			}
			checkAhead(t, b)
		})
	}
}

// TestRealModel_AnswersWithStepsAheadAreTheSameBits checks on the GPU of tests, with graphs and in the resident kernel.
func TestRealModel_AnswersWithStepsAheadAreTheSameBits(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Library(t))
	t.Setenv("M40_LLM_EMU_SMS", "2") // a resident kernel has few blocks then
	file := gguftest.TinyLlama(gguftest.Llama{Dim: 128, Heads: 2, KVHeads: 1, Type: gguf.Q8_0})
	open := func(on bool, how device.Decode) *bench {
		b := openReference(t, file, func(o *Options) {
			o.Parallel, o.ChunkRows, o.ContextLength, o.QueueLimit, o.freeMisses, o.RunAhead = 3, 24, 192, 600, 1000, &on
			o.aheadTime = time.Hour // the emulation is slow
			o.OpenDevice = func(*gguf.File) (device.Device, error) {
				d, err := cuda.Open()
				if err == nil {
					d.(device.DecodeChooser).ChooseDecode(how)
				}
				return d, err
			}
		})
		if got := b.Status().Device; got.Decode != how {
			t.Fatalf("the device decodes as %s: %s", got.Decode, got.DecodeReason)
		}
		return b
	}
	rng := rand.New(rand.NewPCG(17, 5))
	alone := open(false, device.DecodeGraph)
	requests, want := aheadRequests(rng, fixtures.At(3, 6, 500), alone.ask)
	if got := alone.Status().Ahead; got != (infer.Ahead{}) {
		t.Errorf("%+v without steps ahead", got)
	}
	alone.Close()
	for how, count := range map[device.Decode]int{device.DecodeGraph: fixtures.At(3, 6, 500), device.DecodePersistent: fixtures.At(1, 2, 500)} {
		t.Run(string(how), func(t *testing.T) {
			b := open(true, how)
			stormOfLookups(t, b, rng, requests[:count], want)
			for i, r := range requests[:min(count, fixtures.At(1, 4, 250))] {
				if a := b.ask(r); fmt.Sprint(a.ids()) != fmt.Sprint(want[i].ids()) {
					t.Errorf("request %d alone: %v, want %v", i, a.ids(), want[i].ids())
				}
			}
			checkAhead(t, b)
			b.Close()
		})
	}
}

func TestEngine_AsManyStepsAreAheadAsTakeLittleTime(t *testing.T) {
	for step, want := range map[time.Duration]int{2 * time.Millisecond: 4, 6 * time.Millisecond: 3, 9 * time.Millisecond: 2, 100 * time.Millisecond: 1} {
		var at atomic.Int64
		b := newBench(t, func(b *bench, o *Options) {
			b.depth, o.RunAhead = 5, new(true)
			o.Now = func() time.Time { return time.Unix(0, at.Load()) }
			b.onStep = func(int, *device.Batch) error {
				at.Add(int64(step))
				return nil
			}
		})
		r := infer.DefaultRequest()
		r.Tokens, r.MaxTokens, r.IgnoreEOS, r.Params.Seed = span(10, 40), 100, true, 1
		if a := b.ask(r); a.err != nil {
			t.Fatal(a.err)
		}
		if b.Close(); b.ahead[len(b.ahead)/2] != want {
			t.Errorf("%d steps of %v are ahead, want %d; behind each step there were %v", b.ahead[len(b.ahead)/2], step, want, b.ahead)
		}
	}
}

func TestProposal_FewerStepsAreAheadTheMoreTokensWereWrong(t *testing.T) {
	for _, tt := range []struct{ free, tokens, missed, want int }{
		{2, 0, 0, 4}, {2, 3, 2, 4}, {2, 31, 3, 0}, {2, 32, 3, 1}, {2, 64, 3, 2}, {2, 127, 3, 3}, {2, 128, 3, 4},
		{0, 0, 0, 4}, {0, 31, 1, 0}, {0, 63, 1, 1}, {0, 1000, 8, 3},
	} {
		p := proposal{free: tt.free, tokens: tt.tokens, missed: tt.missed}
		got := 0
		for got < 4 && p.holds(got+1) {
			got++
		}
		if got != tt.want {
			t.Errorf("%d steps are ahead behind %d tokens, %d of them wrong and %d free, want %d", got, tt.tokens, tt.missed, tt.free, tt.want)
		}
	}
}

func TestEngine_StepsAheadEndWhereTheDeviceIsWrongTooOften(t *testing.T) {
	r := infer.DefaultRequest()
	r.Tokens, r.MaxTokens, r.IgnoreEOS, r.Params.Seed = span(10, 40), 100, true, 1
	for _, tt := range []struct {
		missEvery            int
		penalty              float64 // of repetitions that do not occur
		least, most, missing int64
	}{{0, 0, 90, 99, 0}, {0, 1, 90, 99, 0}, {2, 0, 1, 40, 8}, {2, 1, 1, 40, 1}} {
		r.Params.DryMultiplier, r.Params.DryAllowedLength = tt.penalty, 90
		b := newBench(t, func(b *bench, o *Options) { b.depth, b.missEvery, o.RunAhead = 2, tt.missEvery, new(true) })
		a := b.ask(r)
		if got := b.Status().Ahead; a.err != nil || got.Tokens < tt.least || got.Tokens > tt.most || got.Missed > tt.missing {
			t.Errorf("%+v of 100 tokens, one in %d of which is drawn wrong, with the penalty %v; error %v", got, tt.missEvery, tt.penalty, a.err)
		}
	}
}

func TestEngine_StepsAheadAreForRequestsThatTheDeviceCanDrawFor(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name string
		set  func(*infer.Request, *Options)
		want bool
	}{
		{"the default settings", func(*infer.Request, *Options) {}, true},
		{"temperature 0", func(r *infer.Request, _ *Options) { r.Params.Temperature = 0 }, true},
		{"a penalty", func(r *infer.Request, _ *Options) { r.Params.RepeatPenalty = 1.1 }, true},
		{"stages in another order", func(r *infer.Request, _ *Options) { r.Params.Samplers = []string{"temperature", "top_k"} }, false},
		{"the stages in their order", func(r *infer.Request, _ *Options) { r.Params.Samplers = []string{"top_p", "temperature"} }, true},
		{"typical_p", func(r *infer.Request, _ *Options) { r.Params.TypicalP = 0.5 }, false},
		{"typical_p at temperature 0", func(r *infer.Request, _ *Options) { r.Params.TypicalP, r.Params.Temperature = 0.5, 0 }, true},
		{"mirostat", func(r *infer.Request, _ *Options) { r.Params.Mirostat = 2 }, false},
		{"a bias", func(r *infer.Request, _ *Options) { r.Params.LogitBias = map[int32]float64{5: 1} }, false},
		{"a grammar", func(r *infer.Request, _ *Options) { r.Grammar, r.IgnoreEOS = "root ::= [a-z]*", false }, false},
		{"prompt lookup that has no draft", func(r *infer.Request, _ *Options) { r.PromptLookup = &yes }, true},
		{"the option off", func(_ *infer.Request, o *Options) { o.RunAhead = &no }, false},
		{"no option", func(_ *infer.Request, o *Options) { o.RunAhead = nil }, true},
	} {
		r := infer.DefaultRequest()
		r.Tokens, r.MaxTokens, r.IgnoreEOS, r.Params.Seed = span(10, 40), 10, true, 1
		b := newBench(t, func(b *bench, o *Options) {
			b.depth, o.RunAhead = 2, &yes
			tt.set(&r, o)
		})
		if a := b.ask(r); a.err != nil || (b.Status().Ahead.Tokens > 0) != tt.want {
			t.Errorf("%s: %+v, want steps ahead: %v; error %v", tt.name, b.Status().Ahead, tt.want, a.err)
		}
	}
}

func TestEngine_StepsAheadEndWhilePromptLookupHasADraft(t *testing.T) {
	on, off := true, false
	open := func(depth int) *bench {
		return newBench(t, func(b *bench, o *Options) {
			b.depth, o.RunAhead = depth, &on
			b.onLogits = func(logits []float32, pos int32) {
				if pos > 60 && pos < 120 { // else the answer repeats nothing
					logits[letterA+int(pos)%5] += 100
				}
			}
		})
	}
	r := request(span(10, 20), 150)
	r.IgnoreEOS, r.Params, r.PromptLookup = true, infer.DefaultRequest().Params, &off
	r.Params.Seed = 1
	plain := open(1).ask(r)
	r.PromptLookup = &on
	b := open(2)
	a := b.ask(r)
	ahead, lookup := b.Status().Ahead, a.done.Lookup
	if a.err != nil || a.text != plain.text || ahead.Tokens < 60 || lookup.Accepted < 30 || int(ahead.Tokens)+lookup.Accepted > 150 {
		t.Errorf("%d tokens ahead and %d of %d drafts accepted for 150 tokens; error %v", ahead.Tokens, lookup.Accepted, lookup.Drafted, a.err)
	}
}
