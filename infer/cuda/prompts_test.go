package cuda_test

import (
	"math"
	"slices"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// On GPUs that round the weights of prompts to halves, rows of prompts have the same bits however a prompt is cut into steps, with other sequences in a step, and
// after answers; they are near those of the same weights in a model that does not, and rows of answers are as in that model.
func TestRowsOfPromptsAreComputedApart(t *testing.T) {
	t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
	for _, typ := range fixtures.At([]gguf.Type{gguf.Q8_0}, []gguf.Type{gguf.Q8_0, gguf.F16}, []gguf.Type{gguf.Q8_0, gguf.F16, gguf.BF16, gguf.Q4_0}) {
		t.Run(typ.String(), func(t *testing.T) {
			f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: typ}))
			if err != nil {
				t.Fatal(err)
			}
			c, err := model.ReadConfig(f)
			if err != nil {
				t.Fatal(err)
			}
			load := func(prompts bool) feeder {
				dev := openDevice(t)
				if units := cudakern.Units(dev.Info().Units); units != cudakern.UnitsMMA {
					t.Skipf("the device has units %s", units)
				}
				o := model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 8, MaxRows: 64, Prompts: prompts}
				m, err := model.LoadStages(t.Context(), f, []model.Stage{{Device: dev, Layers: len(c.Layers)}}, o)
				if err != nil {
					t.Fatal(err)
				}
				if m.OwnPrompts() != prompts {
					t.Fatalf("OwnPrompts is %t, want %t", !prompts, prompts)
				}
				return newFeeder(t, m)
			}
			tokens := make([]int32, 41)
			for i := range tokens {
				tokens[i] = int32(3 + i*i%250)
			}
			apart, plain := load(true), load(false)
			want := apart.rows(0, tokens, len(tokens))
			near(t, want, plain.rows(0, tokens, len(tokens)))
			for _, rows := range []int{13, 40} {
				for i, row := range apart.rows(1, tokens, rows) {
					if !slices.EqualFunc(row, want[i], sameBits) {
						t.Fatalf("steps of %d rows: row %d has other bits", rows, i)
					}
				}
				apart.answer(1, tokens[0], len(tokens))
			}
			for s, rows := range apart.together([][]int32{tokens[:15], tokens[:9]}) {
				for i, row := range rows {
					if !slices.EqualFunc(row, want[i], sameBits) {
						t.Fatalf("two sequences in a step: row %d of sequence %d has other bits", i, s)
					}
				}
			}
			for pos, token := range tokens[:5] {
				if got, want := apart.answer(0, token, pos), plain.answer(0, token, pos); !slices.EqualFunc(got, want, sameBits) {
					t.Fatalf("row %d of an answer has other bits than in a model without rows of prompts", pos)
				}
			}
		})
	}
}

// near fails unless logits are close to others, and not the same: then they were computed in one way.
func near(t *testing.T, got, want [][]float32) {
	t.Helper()
	same := true
	for i, row := range got {
		same = same && slices.Equal(row, want[i])
		for j, v := range row {
			if math.Abs(float64(v-want[i][j])) > 0.05 {
				t.Fatalf("row %d, token %d: %g, as a row of an answer %g", i, j, v, want[i][j])
			}
		}
	}
	if same {
		t.Error("rows of prompts have the bits of rows of answers")
	}
}
