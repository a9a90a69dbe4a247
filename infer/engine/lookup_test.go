package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/record"
	"m40-llm/infer/ref"
	"m40-llm/infer/sample"
)

func TestLookup_DraftsGrowWhileTheyAreRight(t *testing.T) {
	text := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 99, 1, 2}
	l := newLookup(100)
	follow := func(id int32) { text = append(text, id) }
	expect := func(want ...int32) {
		t.Helper()
		if got := l.draft(text, 100); !slices.Equal(got, want) {
			t.Errorf("draft %v behind %v, want %v", got, text[len(text)-2:], want)
		}
	}
	expect() // nothing was right yet
	follow(3)
	expect(4)
	follow(4)
	follow(5) // the guess after a draft counts too
	expect(6, 7, 8)
	text = append(text, 6, 7, 8, 9)
	expect(10, 11, 12, 13, 14, 15, 16)
	text = append(text, 10, 11, 12, 20, 99)
	expect(1, 2, 3, 4) // half as many
	if got := l.draft(text, 2); len(got) != 2 {
		t.Errorf("%d tokens were drafted, want at most 2", len(got))
	}
	if got := l.draft(text, -3); len(got) != 0 {
		t.Errorf("%d tokens were drafted, want none", len(got))
	}
	l.end = len(text) + 2
	if got := l.draft(text, 100); len(got) != 1 {
		t.Errorf("%d tokens were drafted where two may follow, want 1: its row gives the second", len(got))
	}
	l.end = len(text)
	if got := l.draft(text, 100); len(got) != 0 {
		t.Errorf("%d tokens were drafted behind the last one", len(got))
	}
}

func TestLookup_CopiesOnWhereTheLastTokensOccurTwice(t *testing.T) {
	text, l := []int32{50, 51, 1, 2, 60, 51, 1, 2, 70, 50, 51}, newLookup(100)
	var got []int32
	for _, id := range []int32{1, 2, 60} {
		l.draft(text, 0)
		got, text = append(got, l.guess[0]), append(text, id)
	}
	if !slices.Equal(got, []int32{1, 2, 60}) {
		t.Errorf("%v was guessed, want what follows 50, 51 at the beginning", got)
	}
}

func TestLookup_FindsTheNewestOccurrenceOfTheLongestGram(t *testing.T) {
	rng, found, missed := rand.New(rand.NewPCG(17, 7)), 0, 0
	for range 200 {
		text := make([]int32, 1+rng.IntN(120))
		for i := range text {
			text[i] = int32(rng.IntN(6))
		}
		l := newLookup(1000)
		for n := rng.IntN(len(text)); n < len(text); n += 1 + rng.IntN(9) {
			l.index(text[:n])
		}
		l.index(text)
		var newest []int // of the last tokens, the longest gram first
		for n := longestGram; n >= shortestGram; n-- {
			for at := len(text) - 1; at >= n; at-- {
				if slices.Equal(text[at-n:at], text[max(0, len(text)-n):]) {
					newest = append(newest, at)
					break
				}
			}
		}
		switch got := l.find(text); {
		case len(newest) > 0 && got == newest[0]:
			found++
		case got != 0 && !slices.Contains(newest, got):
			t.Fatalf("position %d for %v, want one of %v", got, text, newest)
		case len(newest) > 0:
			missed++ // another gram has the slot
		}
	}
	if missed > found/4 || found < 50 {
		t.Errorf("%d were found and %d were not", found, missed)
	}
}

func TestLookup_ALongRepetitionTakesBoundedMemoryAndIsDrafted(t *testing.T) {
	text, l := make([]int32, 128<<10), newLookup(1<<20)
	for n := range 20 {
		l.draft(text[:len(text)-20+n], maxDraft)
	}
	if got := l.draft(text, maxDraft); len(got) != maxDraft || slices.Max(got) != 0 {
		t.Errorf("draft %v, want %d zeros", got, maxDraft)
	}
	for _, table := range l.tables {
		if len(table) > mostSlots {
			t.Errorf("a table of %d slots, want at most %d", len(table), mostSlots)
		}
	}
}

// BenchmarkLookup is the time for one token in a context of 128k that repeats itself, or never does.
func BenchmarkLookup(b *testing.B) {
	for name, period := range map[string]int{"one token again and again": 1, "no token twice": 1 << 30} {
		b.Run(name, func(b *testing.B) {
			const context = 128 << 10
			text := make([]int32, 2*context)
			for i := range text {
				text[i] = int32(i % period)
			}
			l := newLookup(1 << 30)
			l.draft(text[:context], maxDraft)
			n := context
			for b.Loop() {
				if n++; n > len(text) {
					n, l.indexed, l.from = context, context, context
				}
				l.draft(text[:n], maxDraft)
			}
		})
	}
}

func TestScheduler_DraftsTakeNoRowsAndNoMemoryOfOthers(t *testing.T) {
	copied := func(n int) *sequence { // which would have drafts
		q := newSequence("m", slices.Repeat(span(1, 9), n), false)
		q.drafts = newDrafts(1000)
		q.drafts.lookup = newLookup(1000)
		q.drafts.lookup.trust = maxDraft
		return q
	}
	drafted := func(plan []scheduled) (n int) {
		for _, part := range plan {
			n += len(part.draft)
		}
		return n
	}
	next := func(s *scheduler) int {
		plan := s.schedule()
		s.advance(plan, 0)
		for _, part := range plan {
			if q := part.seq; q.missing() == 0 {
				q.tokens = append(q.tokens, q.tokens[len(q.tokens)-8])
				if len(part.draft) > 0 {
					s.accept(part, 0)
				}
			}
		}
		return drafted(plan)
	}
	newScheduler := func(l limits, blocks int) *scheduler {
		s := &scheduler{limits: l}
		s.reset("m", oneGroup(blocks, 32))
		return s
	}
	t.Run("one sequence has a whole draft", func(t *testing.T) {
		s := newScheduler(limits{Answers: 4, Rows: 64, Logits: 36}, 100)
		s.add(copied(2))
		if n := []int{next(s), next(s)}; !slices.Equal(n, []int{0, maxDraft}) {
			t.Errorf("drafts of %v tokens", n)
		}
	})
	t.Run("several share the rows", func(t *testing.T) {
		s := newScheduler(limits{Answers: 4, Rows: 64, Logits: 36}, 100)
		for range 4 {
			s.add(copied(2))
		}
		for next(s) == 0 {
		}
		if n := next(s); n != draftRows-4 {
			t.Errorf("%d tokens were drafted beside 4 rows, want %d", n, draftRows-4)
		}
	})
	t.Run("there are as few rows as limits allow", func(t *testing.T) {
		for _, l := range []limits{{Answers: 1, Rows: 3, Logits: 3}, {Answers: 1, Rows: 64, Logits: 3}} {
			s := newScheduler(l, 100)
			s.add(copied(2))
			for i := range 20 {
				if n := next(s); n > 2 || i == 19 && n != 2 {
					t.Errorf("%d tokens were drafted, want 2", n)
				}
			}
		}
	})
	t.Run("a step with a prompt has none", func(t *testing.T) {
		s := newScheduler(limits{Answers: 4, Rows: 64, Logits: 36}, 100)
		s.add(copied(2))
		next(s)
		next(s)
		s.add(newSequence("m", span(500, 600), false))
		s.sharing.rows = 32
		if n := next(s); n != 0 {
			t.Errorf("%d tokens were drafted beside a prompt", n)
		}
	})
	t.Run("memory that others may take is given back, and none is taken from them", func(t *testing.T) {
		s := newScheduler(limits{Answers: 4, Rows: 64, Logits: 36}, 3)
		q := copied(3)
		q.tokens = q.tokens[:21]
		s.add(q)
		next(s)
		free := s.blocks.pools[0].available()
		if n := next(s); n != maxDraft || s.blocks.pools[0].available() != free {
			t.Errorf("%d tokens were drafted within a block, %d blocks are available, want %d", n, s.blocks.pools[0].available(), free)
		}
		for len(q.tokens) < 29 {
			next(s)
		}
		if n := next(s); n != maxDraft || s.blocks.pools[0].available() != free {
			t.Errorf("%d tokens were drafted into the next block, %d blocks are available, want %d", n, s.blocks.pools[0].available(), free)
		}
		s.add(newSequence("m", span(500, 560), false)) // takes the other blocks
		s.sharing.rows = 1
		if n := next(s); n != 32-30 || s.blocks.pools[0].available() != 0 {
			t.Errorf("%d tokens were drafted where 2 fit, %d blocks are available", n, s.blocks.pools[0].available())
		}
	})
}

// lookupRequests returns requests whose answers repeat parts of their context: most of their tokens
// are one of four letters. Some have the prompt of the one before, or fork its answer. params returns the samplers of
// each, fresh answers one alone, without lookup.
func lookupRequests(rng *rand.Rand, count int, params func(*rand.Rand, int64) sample.Params, fresh func(infer.Request) outcome) (list []infer.Request, want []outcome) {
	for i := range count {
		var part []int32
		for range 4 + rng.IntN(12) {
			part = append(part, int32(letterA+rng.IntN(4)))
		}
		prompt := slices.Concat(randomTokens(rng, rng.IntN(20)), slices.Repeat(part, 2+rng.IntN(3)), part[:2])
		if i > 0 {
			before, said := list[i-1].Tokens, want[i-1].ids()
			switch rng.IntN(4) {
			case 0:
				prompt = before
			case 1:
				if fork := slices.Concat(before, said[:len(said)/2]); len(fork) < 120 {
					prompt = fork
				}
			}
		}
		r := request(prompt, 5+rng.IntN(60))
		if rng.IntN(6) == 0 {
			r.MaxTokens = -1
		}
		r.Client, r.Sibling = []string{"a", "a", "b", "c"}[rng.IntN(4)], rng.IntN(3)
		r.IgnoreEOS, r.Rows = rng.IntN(3) > 0, rng.IntN(3) == 0
		r.Alternatives, r.PromptLogProb = rng.IntN(4), rng.IntN(5) == 0
		if rng.IntN(4) == 0 {
			r.Follow, r.BannedEnds = []int32{int32(letterA), int32(letterA) + 1}, []int{0, 3, 4, 9}
		}
		r.Params = params(rng, int64(i))
		switch rng.IntN(6) {
		case 0:
			r.Grammar, r.IgnoreEOS = "root ::= [a-d]*", false
		case 1:
			r.Grammar, r.IgnoreEOS = `root ::= ("abc" [a-d])* "."`, false
		}
		off := false
		r.PromptLookup = &off
		answer := fresh(r)
		for range rng.IntN(3) { // bans, each of which makes the answer go back to another token
			if n := len(answer.tokens); n > 4 {
				at := rng.IntN(n - 2)
				if ban := pieces(answer.tokens[at : at+1+rng.IntN(min(6, n-at))]); ban != "" {
					r.BannedStrings = append(r.BannedStrings, ban)
					answer = fresh(r)
				}
			}
		}
		if n := len(answer.text); n > 6 && rng.IntN(4) == 0 {
			if at := rng.IntN(n - 2); pieces([]infer.Token{{Bytes: []byte(answer.text[at : at+2])}}) != "" {
				r.Stop = []string{answer.text[at : at+2]}
				answer = fresh(r)
			}
		}
		on := true
		r.PromptLookup = &on
		list, want = append(list, r), append(want, answer)
	}
	return list, want
}

// anyParams returns settings of any samplers.
func anyParams(rng *rand.Rand, seed int64) (p sample.Params) {
	p = infer.DefaultRequest().Params
	p.Seed, p.Temperature = seed, []float64{0, 0.3, 0.7, 1, 1.5}[rng.IntN(5)]
	for id := range int32(4) {
		if p.LogitBias == nil {
			p.LogitBias = map[int32]float64{}
		}
		p.LogitBias[int32(letterA)+id] = float64(6 + rng.IntN(8))
	}
	for _, set := range []func(){
		func() { p.RepeatPenalty, p.RepeatLastN = 1.05, 64 },
		func() { p.PresencePenalty, p.FrequencyPenalty, p.RepeatLastN = 0.3, 0.1, -1 },
		func() { p.DryMultiplier, p.DryAllowedLength = 0.4, 6 },
		func() { p.TypicalP = 0.8 },
		func() { p.XTCProbability, p.XTCThreshold = 0.3, 0.1 },
		func() { p.TopNSigma = 1.5 },
		func() { p.Mirostat = 2 },
		func() { p.TopK, p.TopP, p.MinP = 0, 1, 0 },
		func() { p.DynatempRange = 0.2 },
	} {
		if rng.IntN(5) == 0 {
			set()
		}
	}
	return p
}

// essence is what of an answer must not depend on the steps that computed it.
func (r outcome) essence() any {
	var done infer.Done
	if r.done != nil {
		done = *r.done
		done.Timings, done.Reads, done.Lookup, done.Usage.CachedTokens = record.Timings{}, record.Reads{}, record.Lookup{}, 0
		done.Receipt.Decode = ""
	}
	return []any{r.prompt, r.tokens, r.text, done, r.err}
}

// stormOfLookups asks b for all of requests at once, twice, some of which are cancelled before, and compares the
// answers to the bit with those that were computed alone, without lookup.
func stormOfLookups(t *testing.T, b *bench, rng *rand.Rand, requests []infer.Request, want []outcome) (sum record.Lookup) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, r := range requests {
		stop := -1
		if rng.IntN(4) == 0 {
			stop = rng.IntN(30)
		}
		wg.Go(func() {
			if stop >= 0 {
				checkCancelled(t, b, r, stop, want[i])
			}
			a := b.ask(r)
			if !reflect.DeepEqual(a.essence(), want[i].essence()) {
				t.Errorf("request %d: %v, %v, %v; without lookup %v, %v, %v\n%+v\nasked %+v", i, a.ids(), a.done, a.err, want[i].ids(), want[i].done, want[i].err, difference(a, want[i]), r)
				return
			}
			if a.done == nil {
				return // both failed
			}
			mu.Lock()
			defer mu.Unlock()
			sum.Drafted += a.done.Lookup.Drafted
			sum.Accepted += a.done.Lookup.Accepted
		})
	}
	wg.Wait()
	t.Logf("%d of %d drafted tokens were accepted", sum.Accepted, sum.Drafted)
	return sum
}

// difference returns the first tokens that differ.
func difference(got, want outcome) []infer.Token {
	for i := range min(len(got.tokens), len(want.tokens)) {
		if !reflect.DeepEqual(got.tokens[i], want.tokens[i]) {
			return []infer.Token{got.tokens[i], want.tokens[i]}
		}
	}
	return nil
}

// checkCancelled cancels an answer after some tokens. They are the first of want.
func checkCancelled(t *testing.T, b *bench, r infer.Request, after int, want outcome) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for e := range b.Generate(ctx, r) {
		if e.Token == nil || e.Token.Prompt {
			continue
		}
		if n >= len(want.tokens) || !reflect.DeepEqual(*e.Token, want.tokens[n]) {
			t.Errorf("token %d of an answer that is cancelled is %+v", n, *e.Token)
			return
		}
		if n++; n > after {
			cancel()
		}
	}
}

// TestEngine_AnswersWithLookupAreTheSame checks with the toy, which finds every row at a wrong place, in little
// memory, so that sequences give way to each other.
func TestEngine_AnswersWithLookupAreTheSame(t *testing.T) {
	for _, blocks := range []int{200, 12} {
		t.Run(fmt.Sprintf("%d blocks", blocks), func(t *testing.T) {
			open := func() *bench {
				return newBench(t, func(b *bench, o *Options) {
					o.Parallel, o.ChunkRows, o.ContextLength, o.QueueLimit = 3, 24, 160, 600
					b.memory = memoryFor(t, *o, blocks)
					b.onLogits = func(logits []float32, pos int32) { logits[letterA+int(pos)%5] += 7 }
				})
			}
			rng := rand.New(rand.NewPCG(17, 1))
			requests, want := lookupRequests(rng, fixtures.Full(40, 500), anyParams, open().ask)
			sum := stormOfLookups(t, open(), rng, requests, want)
			if sum.Accepted == 0 || sum.Accepted == sum.Drafted {
				t.Errorf("%d of %d drafted tokens were accepted: too few or too many to test anything", sum.Accepted, sum.Drafted)
			}
		})
	}
}

// TestRealModel_AnswersWithLookupAreTheSameBits checks on every device.
func TestRealModel_AnswersWithLookupAreTheSameBits(t *testing.T) {
	tiny := func(*testing.T) []byte { return gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0}) }
	fixture := func(t *testing.T, name string) []byte {
		return readFile(t, filepath.Join(fixtures.Path(t, "logits", name), "f32.gguf"))
	}
	openRef := func() (device.Device, error) { return ref.New(), nil }
	tests := []struct {
		name  string
		file  func(*testing.T) []byte
		open  func() (device.Device, error)
		count int
	}{
		{"ref", tiny, openRef, fixtures.At(4, 16, 500)},
		{"cpu", tiny, func() (device.Device, error) { return cpu.Open(2) }, fixtures.At(4, 16, 500)},
		{"emulated cuda", tiny, func() (device.Device, error) { return cuda.Open() }, fixtures.At(1, 4, 100)},
		{"sliding windows", func(t *testing.T) []byte { return fixture(t, "gemma3") }, openRef, fixtures.At(3, 8, 500)},
		{"recurrent state", func(t *testing.T) []byte { return fixture(t, "lfm2") }, openRef, fixtures.At(4, 12, 100)},
		{"recurrent state on the cpu", func(t *testing.T) []byte { return fixture(t, "qwen35") }, func() (device.Device, error) { return cpu.Open(2) }, fixtures.At(4, 12, 100)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "cuda") {
				t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
			}
			file := tt.file(t)
			open := func() *bench {
				return openReference(t, file, func(o *Options) {
					o.Parallel, o.ChunkRows, o.ContextLength, o.QueueLimit = 3, 24, 192, 600
					o.OpenDevice = func(*gguf.File) (device.Device, error) { return tt.open() }
				})
			}
			rng := rand.New(rand.NewPCG(17, 0)) // drafts begin with the first request
			alone := open()
			requests, want := lookupRequests(rng, tt.count, anyParams, alone.ask)
			alone.Close()
			sum := stormOfLookups(t, open(), rng, requests, want)
			if many := tt.count > 4; sum == (record.Lookup{}) || many && (sum.Accepted == 0 || sum.Accepted == sum.Drafted) {
				t.Errorf("%d of %d drafted tokens were accepted: too few or too many to test anything", sum.Accepted, sum.Drafted)
			}
		})
	}
}

func TestEngine_LookupIsOnWhereItGainsUnlessSomebodyDecides(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name    string
		option  string
		request *bool
		gains   bool
		want    bool
	}{
		{"where it gains", "", nil, true, true},
		{"where that was not measured", DraftAuto, nil, false, false},
		{"by the server's option", DraftLookup, nil, false, true},
		{"by the server's option", DraftOff, nil, true, false},
		{"by the request", DraftOff, &yes, false, true},
		{"by the request", DraftLookup, &no, true, false},
	} {
		l := &loop{loaded: &loadedModel{info: device.Info{Drafts: tt.gains}}, options: Options{Draft: tt.option}}
		if got := l.looksUp(&answer{request: infer.Request{PromptLookup: tt.request}}); got != tt.want {
			t.Errorf("%s: lookup is on: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestEngine_StepsAreSavedAndCounted(t *testing.T) {
	yes := true
	b := newBench(t, func(b *bench, o *Options) {
		b.onLogits = func(logits []float32, pos int32) { logits[letterA+int(pos)%5] += 100 }
	})
	r := request(span(10, 20), 60)
	plain := b.ask(r)
	steps := b.steps
	r.PromptLookup, r.Tokens = &yes, span(30, 40)
	a := b.ask(r)
	if took, saved := b.steps-steps, a.done.Lookup.Accepted; took+saved != 60 || saved < 30 || a.text != plain.text {
		t.Errorf("60 tokens took %d steps with %d accepted tokens", took, saved)
	}
	if plain.done.Lookup != (record.Lookup{}) || strings.Count(a.text, "abcde") == 0 {
		t.Errorf("%+v without lookup; text %q", plain.done.Lookup, a.text)
	}
}
