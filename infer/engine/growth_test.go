package engine

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/sample"
)

func TestGrowth_GrantsWhatIsFreeAndNoMore(t *testing.T) {
	const mb = int64(1) << 20
	tests := []struct {
		name     string
		block    int64 // bytes
		free     int64 // alongside what is left to other programs
		n        int
		promised int
		granted  int
		refused  bool
	}{
		{"plenty of memory is granted in steps", mb, 10 << 30, 1, 0, 64, false},
		{"more than a step is granted as it is asked for", mb, 10 << 30, 200, 0, 200, false},
		{"memory that was promised before is not given twice", mb, 30 * mb, 1, 20, 10, false},
		{"too little memory is granted as far as it goes", mb, 30 * mb, 40, 0, 30, true},
		{"no memory", mb, 0, 1, 0, 0, true},
		{"an unknown memory grants everything", mb, -placement.Spare, 40, 0, 64, false},
		{"a cache with a memory of its own asks nobody", 0, 0, 40, 0, growthStep, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reads := 0
			g := growth{free: func() int64 { reads++; return tt.free + placement.Spare }}
			if got := g.grant(tt.n, tt.block, int64(tt.promised)*tt.block); got != tt.granted || g.refused != tt.refused {
				t.Errorf("granted %d, refused %v; want %d, %v", got, g.refused, tt.granted, tt.refused)
			}
			if g.grant(tt.n, tt.block, int64(tt.promised)*tt.block); tt.refused && reads != 1 {
				t.Errorf("the memory was read %d times in a turn that it refused", reads)
			}
		})
	}
}

func TestBlocks_GrowOnlyAsFarAsThereIsMemory(t *testing.T) {
	b := oneGroup(8, 4)
	p := b.pools[0]
	memory, asked := 3, 0
	p.growBy(func(n int) int {
		asked++
		n = min(n, memory)
		memory -= n
		return n
	})
	first, _, ok := b.open(span(0, 8), 0, audience{})
	if !ok || p.fresh != 2 || p.written != 0 {
		t.Fatalf("8 tokens: %v, %d blocks in use, %d written", ok, p.fresh, p.written)
	}
	if !b.hasSpare(8) || b.hasSpare(12) {
		t.Error("with 2 of 8 blocks in use, 2 more and no others should leave half of them")
	}
	b.write(&first, 0, 5)
	if p.written != 2 {
		t.Errorf("5 positions took the memory of %d blocks, want 2", p.written)
	}
	if _, _, ok := b.open(span(10, 30), 0, audience{}); ok || p.fresh != 2 {
		t.Errorf("5 blocks were opened with memory for 1: %d are in use", p.fresh)
	}
	if !b.hasSpare(0) || b.hasSpare(4) {
		t.Error("with 2 of the 3 blocks in use that there is memory for, one more should leave too few")
	}
	if !b.grow(&first, 12, 0) || b.grow(&first, 13, 0) {
		t.Errorf("the table has %d blocks, want 3 and a refusal", len(first.groups[0].ids))
	}
	b.close(&first, span(0, 8))
	if second, _, ok := b.open(span(40, 52), 0, audience{}); !ok || p.fresh != 3 {
		t.Errorf("idle blocks were not used again: %v, %d blocks in use", second.groups, p.fresh)
	}
	checkedBefore := asked
	memory = 5
	if third, _, ok := b.open(span(60, 64), 0, audience{}); !ok || p.fresh != 4 || asked == checkedBefore {
		t.Errorf("memory that came back was not used: %v, %d blocks", third.groups, p.fresh)
	}
	if !b.hasSpare(0) {
		t.Error("the memory that came back does not count as spare")
	}
}

func TestBlocks_MemoryThatWasGivenBackIsNotSpare(t *testing.T) {
	b := oneGroup(8, 4)
	b.pools[0].growBy(func(n int) int { return n })
	table, _, ok := b.open(span(0, 12), 0, audience{})
	if !ok {
		t.Fatal("12 tokens do not fit in 8 blocks of 4")
	}
	b.write(&table, 0, 12)
	b.close(&table, span(0, 12))
	if !b.hasSpare(4) {
		t.Error("with 3 of 8 blocks idle, one more leaves too few")
	}
	if ids := b.shrink(0, 3); len(ids) != 3 {
		t.Fatalf("the memory of blocks %v is given back, want that of 3", ids)
	}
	if b.hasSpare(4) {
		t.Error("memory that was given back counts before it is asked for again")
	}
	if _, _, ok := b.open(span(20, 24), 0, audience{}); !ok || !b.hasSpare(4) {
		t.Error("memory that was granted again does not count")
	}
}

func TestGrowth_AsksBackWhatOthersLack(t *testing.T) {
	const mb = int64(1) << 20
	tests := []struct {
		name                  string
		free, unused, missing int64
		want                  int64
	}{
		{"as much is free as old prompts take", 500 * mb, 500 * mb, 0, 0},
		{"less is free, but hardly", 400 * mb, 500 * mb, 0, 0},
		{"much less is free: both get the same", 100 * mb, 500 * mb, 0, 200 * mb},
		{"weights are still to be copied", 300 * mb, 500 * mb, 200 * mb, 200 * mb},
		{"hardly anything is free", 10 * mb, 40 * mb, 0, 40 * mb},
		{"less than what growth leaves to others is free, and old prompts take little more than that", 50 * mb, 60 * mb, 0, 14 * mb},
		{"nothing is unused", 10 * mb, 0, 0, 0},
		{"what is free is not known", 0, 500 * mb, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := growth{free: func() int64 { return tt.free }}
			if got := g.excess(tt.unused, tt.missing); got != tt.want {
				t.Errorf("%d MiB are asked back, want %d", got/mb, tt.want/mb)
			}
		})
	}
}

// Prompts stay cached while memory is free. When other programs take it, the engine gives that of old prompts back, whether it is idle or
// writes an answer; the answer stays the same.
func TestEngine_OldPromptsGiveTheirMemoryBack(t *testing.T) {
	block := toySource(t).config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()
	var free atomic.Int64 // before blocks are released
	free.Store(1 << 40)
	b := newBench(t, func(b *bench, o *Options) {
		o.Parallel, o.ContextLength, o.shrinkEvery = 4, 512, time.Microsecond
		o.FreeMemory = func() int64 { return free.Load() + b.released.Load()*block }
	})
	ask := func(from int32, n int) outcome {
		t.Helper()
		r := request(span(from, from+60), n)
		r.IgnoreEOS = true
		reply := b.ask(r)
		if reply.err != nil {
			t.Fatal(reply.err)
		}
		return reply
	}
	used := func() int64 { return b.Status().Cache.Used }
	waitUsed := func(want int64) {
		t.Helper()
		for used() != want {
			select {
			case <-time.After(time.Millisecond):
			case <-t.Context().Done():
				t.Fatalf("the cache takes %d bytes, want %d", used(), want)
			}
		}
	}
	old, long := ask(10, 100), ask(100, 150)
	if again := ask(10, 100); again.done.Usage.CachedTokens < 32 {
		t.Fatalf("with memory free, %d tokens of an old prompt are cached", again.done.Usage.CachedTokens)
	}
	before := used()
	free.Store(placement.Spare - 3*block) // the engine is idle
	waitUsed(before - 3*block)
	free.Store(placement.Spare - 1000*block)
	waitUsed(0)
	free.Store(1 << 40)
	if again := ask(10, 100); again.done.Usage.CachedTokens != 0 || !slices.Equal(again.ids(), old.ids()) {
		t.Errorf("after the release, %d tokens are cached, and the answer is %v, want %v", again.done.Usage.CachedTokens, again.ids(), old.ids())
	}
	free.Store(placement.Spare - b.released.Load()*block - used() + 2*block)
	waitUsed(2 * block)
	r := request(span(100, 160), 150)
	r.IgnoreEOS = true
	if reply := b.ask(r); reply.code() != fault.CodeMemory {
		t.Errorf("an answer of 7 blocks in memory for 2: %v", reply.err)
	}
	free.Add(5 * block)
	if again := ask(100, 150); !slices.Equal(again.ids(), long.ids()) || used() > 7*block {
		t.Errorf("with just enough memory, the answer is %v, want %v; %d bytes are taken", again.ids(), long.ids(), used())
	}
}

// Memory runs out while answers are written: the younger ones wait, and the one that does not
// fit even alone ends, with what it has written.
func TestEngine_WhereMemoryRunsOutAnAnswerEndsAndTheRestGoesOn(t *testing.T) {
	const blocks = 4 // of 32 positions
	var free int64
	reads := 0
	m := toySource(t)
	block := m.config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()
	var b *bench
	b = newBench(t, func(_ *bench, o *Options) {
		o.Parallel, o.ContextLength = 4, 256
		free = placement.Spare + blocks*block
		taken := func() int64 { return b.Status().Cache.Used }
		o.FreeMemory = func() int64 {
			reads++
			if b == nil {
				return free
			}
			return max(1, free-taken())
		}
	})
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := b.Status().Cache; c.Planned < 8*block || c.Used != 0 {
		t.Fatalf("after the load: %+v, a block is %d", c, block)
	}

	short := request(span(10, 20), 20)
	short.IgnoreEOS = true
	before := b.ask(short)
	if used := b.Status().Cache.Used; before.err != nil || used != block {
		t.Errorf("30 positions: %v; the cache takes %d bytes, want %d", before.err, used, block)
	}

	long := request(span(100, 120), 200)
	long.IgnoreEOS = true
	reply := b.ask(long)
	if reply.code() != fault.CodeMemory {
		t.Fatalf("an answer of 220 positions in memory for %d: %v", blocks*device.BlockSize, reply.err)
	}
	if n := len(reply.ids()); n != blocks*device.BlockSize+1-20 {
		t.Errorf("%d tokens were written before memory ran out, want %d", n, blocks*device.BlockSize+1-20)
	}
	for _, part := range []string{"129 tokens need", "are free", "close other programs"} {
		if !strings.Contains(reply.err.Error(), part) {
			t.Errorf("error %q does not say %q", reply.err, part)
		}
	}
	if c := b.Status().Cache; c.Used != blocks*block || b.Status().State != infer.StateReady {
		t.Errorf("afterwards: %+v, %s", c, b.Status().State)
	}
	if after := b.ask(short); after.err != nil || !slices.Equal(after.ids(), before.ids()) {
		t.Errorf("the next answer: %v, %v; want %v", after.ids(), after.err, before.ids())
	}
	if reads > 60 {
		t.Errorf("the free memory was read %d times", reads)
	}
}

// Two answers that fit one after the other, but not both at once, both end as if there were
// memory for all.
func TestEngine_AnswersTakeTurnsWhereMemoryIsShort(t *testing.T) {
	ask := func(free func(b *bench) int64) [2][]int32 {
		var b *bench
		b = newBench(t, func(_ *bench, o *Options) {
			o.Parallel, o.ContextLength = 4, 128
			o.FreeMemory = func() int64 {
				if b == nil {
					return 1
				}
				return free(b)
			}
		})
		if err := b.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ids [2][]int32
		done := make(chan int)
		for i := range ids {
			go func() {
				r := request(span(int32(10+50*i), int32(30+50*i)), 100)
				r.IgnoreEOS = true
				reply := b.ask(r)
				if reply.err != nil {
					t.Errorf("answer %d: %v", i, reply.err)
				}
				ids[i] = reply.ids()
				done <- i
			}()
		}
		<-done
		<-done
		return ids
	}
	m := toySource(t)
	room := placement.Spare + 5*m.config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()
	plenty := ask(func(*bench) int64 { return 1 << 40 })
	scarce := ask(func(b *bench) int64 { return max(1, room-b.Status().Cache.Used) })
	for i := range plenty {
		if !slices.Equal(plenty[i], scarce[i]) || len(plenty[i]) != 100 {
			t.Errorf("answer %d: %v with plenty of memory, %v with little", i, plenty[i], scarce[i])
		}
	}
}

func TestStatusSaysWhatTheCacheTakes(t *testing.T) {
	data, err := json.Marshal(infer.Status{Cache: infer.Cache{Planned: 7, Used: 3}})
	if err != nil || !strings.Contains(string(data), `"cache":{"planned":7,"used":3}`) {
		t.Errorf("%s, %v", data, err)
	}
}

// What a person is told before is what the engine plans.
func TestFitAgreesWithTheEngine(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Layers: 2, Context: 2048})
	f, config := parse(t, file)
	shape, err := placement.ShapeOf(f, config)
	if err != nil {
		t.Fatal(err)
	}
	least := model.WeightBytes(f) + placement.StepLimitsOf(3, 0).Scratch(config) + placement.Spare
	block := config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()
	for _, memory := range []int64{least, least + 20*block, least + 70*block, least + 1000*block} {
		b := newBench(t, func(b *bench, o *Options) { b.files["toy"], b.memory, o.Parallel = file, memory, 3 })
		err := b.WaitReady(t.Context())
		fit := shape.Fit(placement.Machine{Devices: []device.Info{{Memory: memory}}, Parallel: 3})
		if context := b.Status().ContextLength; context != fit.Context || (err == nil) != (fit.Context > 0) {
			t.Errorf("memory of %d: the engine plans %d (%v), the fit says %+v", memory, context, err, fit)
		}
	}
}

// An embedding model needs memory for the texts of a step, not for answers.
func TestTheFitOfAnEmbeddingModelIsThePlanOfTheEngine(t *testing.T) {
	for name, file := range map[string][]byte{
		"an encoder":       gguftest.TinyBERT(gguftest.BERT{Dim: 128, FFN: 512, Layers: 4}),
		"for conversation": gguftest.TinyLlama(gguftest.Llama{}),
	} {
		t.Run(name, func(t *testing.T) {
			b := openReference(t, file, nil)
			if err := b.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			f, config := parse(t, file)
			shape, err := placement.ShapeOf(f, config)
			if err != nil {
				t.Fatal(err)
			}
			status := b.Status()
			fit, uses := shape.Plan(placement.Machine{Devices: []device.Info{{Kind: "cpu", Memory: 1 << 40}}})
			if len(uses) != 1 || uses[0].Cache != status.Memory[0].Cache || fit.Context != status.ContextLength {
				t.Errorf("a context of %d with %+v is told, the engine has %d with %+v", fit.Context, uses, status.ContextLength, status.Memory)
			}
			if config.Embeds() && fit.Needs != uses[0].Total() {
				t.Errorf("%d bytes are told, the plan has %d", fit.Needs, uses[0].Total())
			}
		})
	}
}

// A file may have many more rows of logits than tokens. What all answers need to sample from them
// is planned once: here it would be 16 times 3 MB.
func TestAnswersShareTheBuffersOfASampler(t *testing.T) {
	const rows, answers, tokens = 1 << 16, 16, 3
	file := gguftest.TinyLlama(gguftest.Llama{Dim: 4, Heads: 2, KVHeads: 1, FFN: 4, Layers: 1, Rows: rows, Tied: true})
	b := newBench(t, func(b *bench, o *Options) { b.files["toy"], b.vocab, o.Parallel = file, rows, answers })
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var asked sync.WaitGroup
	for i := range answers {
		asked.Go(func() {
			r := request(span(int32(10*i), int32(10*i+8)), tokens)
			r.Params.Temperature, r.Params.TopK, r.Params.TypicalP = 1, 0, 0.9
			r.Params.RepeatPenalty, r.Params.DryMultiplier = 1.3, 0.8
			if got := b.ask(r); got.err != nil {
				t.Error(got.err)
			}
		})
	}
	asked.Wait()
	runtime.ReadMemStats(&after)
	// The toy makes each row of logits anew.
	taken := int64(after.TotalAlloc-before.TotalAlloc) - answers*tokens*4*rows
	if planned := sample.BufferBytes(rows); taken > 2*planned {
		t.Errorf("%d answers allocate %d bytes, and %d are planned", answers, taken, planned)
	}
	_, config := parse(t, file)
	steps := placement.StepLimitsOf(answers, 0)
	if got, least := steps.Scratch(config), config.ScratchBytes(steps.Rows, steps.Logits)+sample.BufferBytes(rows); got < least {
		t.Errorf("%d bytes are planned beside weights and cache, want at least %d", got, least)
	}
}
