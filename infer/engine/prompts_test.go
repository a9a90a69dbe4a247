package engine

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// Where a GPU computes rows of prompts in another way than those of answers, an answer follows from its request: it is the same alone, with others in its steps,
// and in a chat whose turns before are cached.
func TestRealModel_AnswersToPromptsComputedApartAreTheSameBits(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
	file := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Context: 512})
	open := func() *bench {
		b := openReference(t, file, func(o *Options) {
			o.Parallel, o.ChunkRows, o.ContextLength, o.QueueLimit = 3, 64, 512, 10
			o.OpenDevice = func(*gguf.File) (device.Device, error) { return cuda.Open() }
		})
		if path := b.Status().Device.Path; !strings.Contains(path, cudakern.PromptPath) {
			t.Fatalf("rows of prompts are computed as those of answers: %s", path)
		}
		return b
	}
	request := func(tokens []int32) infer.Request {
		r := infer.DefaultRequest()
		r.Tokens, r.MaxTokens, r.IgnoreEOS, r.Alternatives, r.Params.Seed = tokens, 6, true, 4, 5
		return r
	}
	opening := request(span(3, 103))
	b := open()
	said := b.ask(opening)
	turn := request(slices.Concat(opening.Tokens, said.ids(), span(40, 120)))
	warm := b.ask(turn)
	if cached := warm.done.Usage.CachedTokens; cached < 64 || cached >= 103 {
		t.Errorf("%d tokens are cached, want those of the prompt and none of the answer, whose rows are others", cached)
	}
	requests := []infer.Request{turn, request(span(5, 90)), request(span(7, 40))}[:fixtures.At(2, 3, 3)]
	var want []outcome
	for _, r := range requests {
		want = append(want, open().ask(r))
	}
	if !reflect.DeepEqual(warm.tokens, want[0].tokens) {
		t.Errorf("%v behind a cached prompt, %v from the beginning", warm.ids(), want[0].ids())
	}
	b, got := open(), make([]outcome, len(requests))
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() { got[i] = b.ask(r) })
	}
	all.Wait()
	for i := range got {
		if !reflect.DeepEqual(got[i].tokens, want[i].tokens) {
			t.Errorf("request %d: %v with others, %v alone", i, got[i].ids(), want[i].ids())
		}
	}
}
