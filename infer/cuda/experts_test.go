package cuda_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// Experts that do not fit on the GPU are computed by the CPU, layer by layer, with the rest of their layers on
// the GPU, and the answer is that of the reference.
func TestExpertsThatDoNotFitOnTheGPUStayOnTheCPU(t *testing.T) {
	for _, name := range []string{"qwen3moe", "gpt_oss", "glm4moe"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
			file, golden := readFixture(t, name)
			const answers, rows = 1, 8
			t.Setenv("M40_LLM_EMU_MEMORY", fmt.Sprint(tooSmall(t, file, answers, rows)))
			e, err := engine.Open(engine.Options{
				Catalog:    oneModel{file},
				OpenDevice: func(*gguf.File) (device.Device, error) { return cuda.Open() },
				MoreDevices: func() iter.Seq2[device.Device, error] {
					return func(yield func(device.Device, error) bool) { yield(cpu.Open(2)) }
				},
				Model: "tiny", CacheType: "f32", ChunkRows: rows, Parallel: answers,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			golden.check(t, e)
			if n := e.Status().Device.Notice; !strings.HasPrefix(n, "the experts of ") || !strings.Contains(n, "because Tesla M40 (emulated) has no room for them") {
				t.Errorf("the notice is %q, want it to say whose experts are on the CPU", n)
			}
		})
	}
}

// golden is a fixture's golden.json.
type golden struct {
	Sequences [][]int32
	Goldens   []struct {
		Greedy  [][]int32
		Margins [][]float64 `json:"greedy_margin"`
	}
}

// sure returns how many greedy tokens of the first sequence come before the first that is nearly as
// likely as another.
func (g golden) sure() int {
	i := slices.IndexFunc(g.Goldens[0].Margins[0], func(margin float64) bool { return margin < 0.02 })
	if i < 0 {
		return len(g.Goldens[0].Greedy[0])
	}
	return i
}

// check compares the greedy answer of e to the first sequence with the reference.
func (g golden) check(t *testing.T, e *engine.Engine) {
	t.Helper()
	var tokens []int32
	r := infer.DefaultRequest()
	r.Tokens, r.Params.Temperature, r.IgnoreEOS, r.MaxTokens = g.Sequences[0], 0, true, g.sure()
	for event, err := range e.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Token != nil {
			tokens = append(tokens, event.Token.ID)
		}
	}
	if want := g.Goldens[0].Greedy[0][:g.sure()]; !slices.Equal(tokens, want) {
		t.Errorf("got %v, want %v", tokens, want)
	}
}

func readFixture(t *testing.T, name string) (file []byte, g golden) {
	t.Helper()
	file, err := os.ReadFile(fixtures.Path(t, "logits", name, "f32.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fixtures.Path(t, "logits", name, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return file, g
}

// Where a part of a model is in main memory, the GPU computes most of it for prompts, with copies, and the CPU for answers. A row has the
// same bits whoever shares its steps, however the prompt is cut, and whatever is cached: its logits follow from the request.
func TestPromptsOfAModelOnTwoDevicesHaveTheSameBits(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	mixture, golden := readFixture(t, "gpt_oss")
	prompt := slices.Concat(slices.Concat(golden.Sequences...), slices.Concat(golden.Sequences...), slices.Concat(golden.Sequences...))[:80]
	t.Run("the experts of some layers", func(t *testing.T) { testPromptsOnTwoDevices(t, mixture, "the experts of 4 of 4 layers", prompt) })
	dense := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Layers: 4, Context: 128})
	t.Run("whole layers", func(t *testing.T) { testPromptsOnTwoDevices(t, dense, "of 4 layers are on", modulo(prompt, 300)) })
}

// modulo returns the remainders of tokens, for a smaller vocabulary.
func modulo(tokens []int32, n int32) (list []int32) {
	for _, id := range tokens {
		list = append(list, id%n)
	}
	return list
}

func testPromptsOnTwoDevices(t *testing.T, file []byte, notice string, prompt []int32) {
	const answers = 3
	open := func(rows int) *engine.Engine { // after the one before is closed: the emulated GPU has one memory
		t.Helper()
		t.Setenv("M40_LLM_EMU_MEMORY", fmt.Sprint(tooSmall(t, file, answers, rows)))
		e, err := engine.Open(engine.Options{
			Catalog:    oneModel{file},
			OpenDevice: func(*gguf.File) (device.Device, error) { return cuda.Open() },
			MoreDevices: func() iter.Seq2[device.Device, error] {
				return func(yield func(device.Device, error) bool) { yield(cpu.Open(2)) }
			},
			Model: "tiny", CacheType: "f32", ChunkRows: rows, Parallel: answers,
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	type answer struct {
		ids    []int32
		scores []float64 // log-probabilities
		cached int
	}
	ask := func(e *engine.Engine, tokens []int32) (a answer) {
		r := infer.DefaultRequest()
		r.Tokens, r.Params.Seed, r.IgnoreEOS, r.MaxTokens = tokens, 5, true, 6
		for event, err := range e.Generate(t.Context(), r) {
			if err != nil {
				t.Error(err)
				return a
			}
			switch {
			case event.Token != nil:
				a.ids, a.scores = append(a.ids, event.Token.ID), append(a.scores, event.Token.LogProb)
			case event.Done != nil:
				a.cached = event.Done.Usage.CachedTokens
			}
		}
		return a
	}
	same := func(what string, got, want answer) {
		t.Helper()
		if len(want.ids) == 0 || !slices.Equal(got.ids, want.ids) || !slices.Equal(got.scores, want.scores) {
			t.Errorf("%s: got %v, %v, want %v, %v", what, got.ids, got.scores, want.ids, want.scores)
		}
	}

	e := open(16)
	want := ask(e, prompt)
	next := slices.Concat(prompt, want.ids, prompt[:5])
	first := e.Status().Device
	if !strings.Contains(first.Notice, notice) || !strings.Contains(first.Notice, "are copied to the GPU step by step") || !strings.HasSuffix(first.Path, ", prompts i16") {
		t.Fatalf("the notice is %q and the path %q, want a model that copies experts", first.Notice, first.Path)
	}
	again := ask(e, prompt)
	same("the prompt is cached", again, want)
	if again.cached != len(prompt)-1 {
		t.Errorf("%d tokens of the prompt were cached, want all but the last, %d", again.cached, len(prompt)-1)
	}
	turn := ask(e, next)
	if turn.cached >= len(prompt) {
		t.Errorf("%d tokens were cached, want none of the answer: the CPU has computed its rows", turn.cached)
	}
	e.Close()

	for _, rows := range []int{16, 7} {
		e := open(rows)
		same(fmt.Sprintf("the next turn alone, in steps of %d rows", rows), ask(e, next), turn)
		same(fmt.Sprintf("in steps of %d rows", rows), ask(e, prompt), want)
		if s := e.Status().Device; s.Notice != first.Notice {
			t.Errorf("the notice is %q, want the same division: %q", s.Notice, first.Notice)
		}
		e.Close()
	}

	e = open(16)
	defer e.Close()
	got := make([]answer, 6)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = ask(e, [][]int32{prompt, next, prompt[i : i+9]}[i%3]) })
	}
	all.Wait()
	for i := 0; i < len(got); i += 3 {
		same("in company", got[i], want)
		same("the next turn in company", got[i+1], turn)
	}
}
