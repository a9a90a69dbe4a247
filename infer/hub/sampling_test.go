package hub_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub"
)

func TestModelsHaveTheSettingsThatTheirFilesSuggest(t *testing.T) {
	for _, c := range []struct {
		name     string
		keys     map[string]any
		values   map[string]float64
		samplers []string
		ignored  []string // in this order
	}{
		{"nothing", nil, nil, nil, nil},
		{"numbers of all types", map[string]any{
			"general.sampling.temp": float32(0.6), "general.sampling.top_k": int32(20), "general.sampling.top_p": float32(0.95),
			"general.sampling.min_p": uint32(0), "general.sampling.penalty_repeat": float64(1.1), "general.sampling.penalty_last_n": int32(-1),
			"general.sampling.sequence": "top_k;typ_p;temperature",
		}, map[string]float64{"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repeat_penalty": 1.1, "repeat_last_n": -1}, []string{"top_k", "typ_p", "temperature"}, nil},
		{"values out of range", map[string]any{
			"general.sampling.temp": float32(-2), "general.sampling.top_k": "many", "general.sampling.top_p": []float32{1}, "general.sampling.mirostat": int32(1),
			"general.sampling.min_p": float32(0.1), "general.sampling.sequence": "top_k;magic",
		}, map[string]float64{"min_p": 0.1}, nil, []string{"sampling.temp is ignored", "sampling.top_k is ignored: it is \"many\"", "sampling.top_p is ignored: it is an array", "sampling.mirostat is ignored", "sampling.sequence is ignored"}},
		{"a sequence that is a number", map[string]any{"general.sampling.sequence": uint32(3)}, nil, nil, []string{"sampling.sequence is ignored"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Keys: c.keys})
			models, err := hub.New(hub.Options{Builtin: map[string][]byte{"guide": file}}).Models(context.Background())
			if err != nil || models[0].Error != "" {
				t.Fatal(err, models[0].Error)
			}
			got := models[0].Sampling
			if got == nil {
				if c.values != nil || c.ignored != nil {
					t.Fatal("nothing was read")
				}
				return
			}
			if !maps.Equal(got.Values, c.values) || !slices.Equal(got.Samplers, c.samplers) || len(got.Ignored) != len(c.ignored) {
				t.Fatalf("got %+v", got)
			}
			for i, want := range c.ignored {
				if !strings.Contains(got.Ignored[i], want) {
					t.Errorf("got %q, want it to say %q", got.Ignored[i], want)
				}
			}
		})
	}
}
