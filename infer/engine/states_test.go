package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

func TestStates_SnapshotsAreFoundByTheLongestPrefix(t *testing.T) {
	s := newStates(5, 1000, 32)
	a := s.take(noSlot)
	s.save(a, span(0, 32), audience{}, true)
	s.save(a, span(0, 64), audience{}, true)
	if slot, n := s.snapshot(span(0, 70), ""); n != 64 {
		t.Errorf("slot %d with %d tokens for 70, want 64", slot, n)
	}
	if _, n := s.snapshot(span(0, 63), ""); n != 32 {
		t.Errorf("%d tokens for 63, want 32", n)
	}
	if slot, n := s.snapshot(slices.Concat(span(0, 40), span(7, 40)), ""); n != 32 {
		t.Errorf("slot %d with %d tokens for others from 40 on, want 32", slot, n)
	}
	s.save(a, span(0, 33), audience{}, true)
	if _, n := s.snapshot(span(0, 60), ""); n != 32 {
		t.Errorf("a snapshot was made behind %d tokens, which are not whole blocks", n)
	}
	s.save(a, span(0, 96), audience{}, true)
	if _, n := s.snapshot(span(0, 60), ""); n != 0 {
		t.Errorf("the snapshot behind %d tokens was kept though the sequence has two later ones", n)
	}
	s.discard(span(0, 96), "")
	if _, n := s.snapshot(span(0, 96), ""); n != 0 {
		t.Errorf("%d tokens were found after all were discarded", n)
	}
}

func TestStates_ASequenceTakesTheSnapshotThatWasUsedLeastRecently(t *testing.T) {
	s := newStates(4, 1000, 32)
	a := s.take(noSlot)
	for i := range int32(3) {
		s.save(a, span(i, i+32), audience{}, false)
	}
	s.takeCopies()
	second, _ := s.snapshot(span(1, 33), "")
	first, _ := s.snapshot(span(0, 32), "")
	b := s.take(first)
	if b != second || !slices.Equal(s.takeCopies(), []stateCopy{{b, first}}) {
		t.Errorf("slot %d was taken, want %d, whose snapshot was not used since it was made", b, second)
	}
	third, _ := s.snapshot(span(2, 34), "")
	if c := s.take(third); c != first {
		t.Errorf("slot %d was taken, want %d", c, first)
	}
	if d := s.take(third); d != third || len(s.takeCopies()) != 1 {
		t.Errorf("slot %d was taken, want %d itself, without a copy", d, third)
	}
	if e := s.take(noSlot); e != noSlot {
		t.Errorf("slot %d was taken, though sequences have all", e)
	}
}

func TestStates_TheLastSnapshotAndTheLastOfAPromptAreWorthStoring(t *testing.T) {
	s := newStates(8, 1000, 32)
	if got := s.worthStoring(span(0, 140), 70, ""); got != nil {
		t.Errorf("blocks %v without snapshots", got)
	}
	a := s.take(noSlot)
	for end := int32(32); end <= 160; end += 32 {
		s.save(a, span(0, end), audience{}, end > 64)
	}
	for _, c := range []struct {
		tokens, prompt int32
		want           []int
	}{
		{170, 70, []int{1, 4}}, {160, 70, []int{1, 4}}, {150, 70, []int{1, 3}}, {70, 70, []int{1}}, {63, 40, []int{0}},
		{150, 20, []int{3}}, {63, 70, []int{0}}, {31, 20, nil},
	} {
		if got := s.worthStoring(span(0, c.tokens), int(c.prompt), ""); !slices.Equal(got, c.want) {
			t.Errorf("blocks %v of %d tokens behind a prompt of %d, want %v", got, c.tokens, c.prompt, c.want)
		}
	}
	if slot := s.add(span(0, 160), audience{}); slot != noSlot {
		t.Errorf("slot %d for a snapshot that there is", slot)
	}
	if slot := s.add(span(1, 65), audience{}); slot == noSlot || len(s.reusable(span(1, 70), "")) != 64 {
		t.Errorf("slot %d for a new one, of which %d tokens can be reused", slot, len(s.reusable(span(1, 70), "")))
	}
}

func TestStates_TheLastOfAPromptIsWorthStoringBehindALongAnswer(t *testing.T) {
	s := newStates(64, 8192, 32)
	const prompt, answer = 90, 400 // of which one snapshot is at a multiple of every positions, and stays
	a := s.take(noSlot)
	for computed := 0; computed < prompt+answer; {
		end := computed + 1
		if computed < prompt {
			end = min(prompt, s.until(computed, prompt))
		}
		s.save(a, span(0, int32(end)), audience{}, end > prompt)
		computed = end
	}
	if got, want := s.worthStoring(span(0, prompt+answer), prompt, ""), []int{64/32 - 1, 480/32 - 1}; s.every != 256 || !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v: those behind the prompt and the answer; snapshots are at multiples of %d", got, want, s.every)
	}
}

func TestStates_ASnapshotThatWasRestoredIsNotTheNextToBeOverwritten(t *testing.T) {
	s := newStates(2, 1000, 32)
	first, second := s.add(span(0, 32), audience{}), s.add(span(1, 33), audience{})
	if again := s.add(span(0, 32), audience{}); again != noSlot {
		t.Errorf("slot %d for a snapshot that there is in %d", again, first)
	}
	if taken := s.take(noSlot); taken != second {
		t.Errorf("slot %d was taken, want %d", taken, second)
	}
}

// limitedDevice has so little memory that a model gets few slots of recurrent state.
type limitedDevice struct{ device.Device }

func (d limitedDevice) Info() device.Info {
	info := d.Device.Info()
	info.Memory = 65 << 20 // hardly more than what stays free
	return info
}

// TestRealModel_RewindsForksAndPreemptionsOfRecurrentStateAreExact lets answers with common beginnings run
// next to each other, some of which go back over banned strings, are cancelled, or make way for others, and
// compares each with itself alone in a fresh engine, and that with its tokens read as a prompt.
func TestRealModel_RewindsForksAndPreemptionsOfRecurrentStateAreExact(t *testing.T) {
	names, count := []string{"qwen35", "lfm2"}, 6
	if fixtures.Torture() {
		names, count = append(names, "granitehybrid", "kimi_linear"), 125
	}
	for _, name := range names {
		for _, little := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, little memory %v", name, little), func(t *testing.T) {
				stormOfStates(t, readFile(t, filepath.Join(fixtures.Path(t, "logits", name), "f32.gguf")), little, count)
			})
		}
	}
}

func stormOfStates(t *testing.T, file []byte, little bool, count int) {
	rng := rand.New(rand.NewPCG(19, uint64(count)))
	shared := [][]int32{randomTokens(rng, 100), randomTokens(rng, 100)}
	var requests []infer.Request
	for i := range count {
		common := shared[rng.IntN(2)]
		if i%2 == 1 {
			common = common[:rng.IntN(100)]
		}
		r := request(slices.Concat(common, randomTokens(rng, 1+rng.IntN(60))), 8+rng.IntN(50))
		r.IgnoreEOS, r.Alternatives, r.PromptLogProb = true, 2, rng.IntN(4) == 0
		r.Params.Temperature, r.Params.Seed = 1.5, int64(i)
		r.Client, r.Sibling = []string{"a", "a", "b", "c"}[rng.IntN(4)], rng.IntN(3)
		if i%4 > 0 { // of letters, so that parts of the answer can be banned
			r.Grammar, r.IgnoreEOS = "root ::= [a-z]*", false
		}
		requests = append(requests, r)
	}
	open := func(few bool) *bench {
		return openReference(t, file, func(o *Options) {
			o.Parallel, o.ChunkRows, o.ContextLength, o.CacheType = 4, 24, 256, "f32"
			if few {
				o.OpenDevice = func(*gguf.File) (device.Device, error) { return limitedDevice{ref.New()}, nil }
			}
		})
	}
	fresh := func(r infer.Request) outcome {
		b := open(false)
		defer b.Close()
		a := b.ask(r)
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a
	}
	alone := make([]outcome, count)
	for i := range requests {
		r := &requests[i]
		alone[i] = fresh(*r)
		for range i % 4 { // each ban makes the answer go back to another token
			if len(alone[i].tokens) < 4 {
				break
			}
			at := rng.IntN(len(alone[i].tokens) - 2)
			ban := pieces(alone[i].tokens[at : at+2+rng.IntN(min(30, len(alone[i].tokens)-at-1))])
			if ban != "" {
				r.BannedStrings = append(r.BannedStrings, ban)
				alone[i] = fresh(*r)
			}
		}
	}
	for i, r := range requests {
		checkScores(t, i, r, alone[i], fresh)
	}
	b := open(little)
	for _, beginning := range shared { // whose snapshots the others go on from
		b.ask(request(beginning, 1))
	}
	rewinds, cached := 0, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, r := range requests {
		cancelled := rng.IntN(6) == 0
		wg.Go(func() {
			if cancelled {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for e := range b.Generate(ctx, r) {
					if e.Token != nil {
						cancel()
					}
				}
			}
			a := b.ask(r)
			if a.err != nil || !reflect.DeepEqual(a.tokens, alone[i].tokens) || !reflect.DeepEqual(a.prompt, alone[i].prompt) {
				t.Errorf("request %d: %v, %v; alone %v", i, a.ids(), a.err, alone[i].ids())
				return
			}
			mu.Lock()
			defer mu.Unlock()
			cached += a.done.Usage.CachedTokens
			if len(r.BannedStrings) > 0 {
				rewinds++
			}
		})
	}
	wg.Wait()
	for i := 0; i < count; i += 3 { // the next turns
		next := request(slices.Concat(requests[i].Tokens, alone[i].ids(), randomTokens(rng, 5)), 6)
		got, want := b.ask(next), fresh(next)
		if got.err != nil || !reflect.DeepEqual(got.tokens, want.tokens) {
			t.Errorf("the turn after request %d: %v, %v; alone %v", i, got.ids(), got.err, want.ids())
		}
	}
	if !little && cached == 0 || rewinds == 0 {
		t.Errorf("%d tokens were cached, %d answers had banned strings: nothing was tested", cached, rewinds)
	}
	t.Logf("%d tokens were cached, %d of %d answers had banned strings", cached, rewinds, count)
}

// checkScores compares the log-probabilities of an answer, which may have gone back over banned strings, with
// those of the same tokens read as a prompt, which never goes back.
func checkScores(t *testing.T, number int, r infer.Request, answer outcome, fresh func(infer.Request) outcome) {
	t.Helper()
	prompt := len(r.Tokens)
	r.Tokens, r.PromptLogProb, r.MaxTokens = slices.Concat(r.Tokens, answer.ids()), true, 0
	r.BannedStrings, r.Grammar = nil, ""
	scored := fresh(r)
	if len(scored.prompt) != len(r.Tokens) {
		t.Fatalf("request %d: %d tokens of %d were scored", number, len(scored.prompt), len(r.Tokens))
	}
	for i, token := range answer.tokens {
		if got := scored.prompt[prompt+i]; got.ID != token.ID || got.LogProb != token.LogProb {
			t.Errorf("request %d, token %d of the answer: %d with %v, in a prompt %d with %v", number, i, token.ID, token.LogProb, got.ID, got.LogProb)
			return
		}
	}
}

// pieces returns the text of tokens, empty if it is too long for a ban or not valid UTF-8.
func pieces(tokens []infer.Token) string {
	var text []byte
	for _, t := range tokens {
		text = append(text, t.Bytes...)
	}
	if len(text) > 256 || !utf8.Valid(text) {
		return ""
	}
	return string(text)
}

func randomTokens(rng *rand.Rand, n int) (tokens []int32) {
	for range n {
		tokens = append(tokens, int32(3+rng.IntN(280)))
	}
	return tokens
}
