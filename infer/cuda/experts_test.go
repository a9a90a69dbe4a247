package cuda_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
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
