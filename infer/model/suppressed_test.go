package model_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

func TestSuppressedTokensHaveNoProbabilityAndTheOthersKeepTheirLogits(t *testing.T) {
	const key = "tokenizer.ggml.suppress_tokens"
	never := []int32{0, 7, 319}
	plain := gguftest.TinyLlama(gguftest.Llama{})
	without := gguftest.TinyLlama(gguftest.Llama{Keys: map[string]any{key: never}})
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
	for _, id := range []int32{-1, 320} {
		f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Keys: map[string]any{key: []int32{id}}}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = model.Load(context.Background(), f, ref.New(), model.Options{CacheType: gguf.F16, Blocks: 1, MaxRows: 8})
		if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "319") {
			t.Errorf("token %d: got %v, want an error that names the key and the last token", id, err)
		}
	}
}
