package model_test

import (
	"math"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/ref"
)

func TestSuppressedTokensHaveNoProbabilityAndTheOthersKeepTheirLogits(t *testing.T) {
	never := []int32{0, 7, 319}
	plain := gguftest.TinyLlama(gguftest.Llama{})
	without := suppress(never...)(plain)
	for kind, openDevice := range map[string]func() (device.Device, error){
		"ref":                     func() (device.Device, error) { return ref.New(), nil },
		"cpu":                     openCPU,
		"cuda":                    cudaOpener(t),
		"cuda, a resident kernel": decodingOpener(t, device.DecodePersistent),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_SMS", "2") // so that the resident kernel takes seconds
			tokens := []int32{1, 70, 71, 72}
			want := feed(t, loadFor(t, plain, openDevice, gguf.F32, 8), tokens, 0)
			got := feed(t, loadFor(t, without, openDevice, gguf.F32, 8), tokens, 0)
			for row := range want {
				for id, logit := range want[row] {
					if slices.Contains(never, int32(id)) {
						logit = float32(math.Inf(-1))
					}
					if got[row][id] != logit {
						t.Fatalf("row %d: token %d has the logit %g, want %g", row, id, got[row][id], logit)
					}
				}
			}
		})
	}
}
