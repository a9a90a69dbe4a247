package suggest

import (
	"regexp"
	"testing"

	"m40-llm/infer/bench"
	"m40-llm/infer/device"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// The published sizes of the files check the shapes, which the plan for a machine depends on.
func TestModelsHaveTheSizesOfTheirShapes(t *testing.T) {
	for i, m := range models {
		t.Run(m.Title, func(t *testing.T) {
			quant, least, most := "q8_0", 1.0, 1.015 // the rest is the vocabulary
			if m.Quant == "Q4_K_M" {
				quant, least, most = "q4_k", 1.03, 1.12 // some tensors have 6 bits
			}
			f, err := bench.Header(m.shape, quant, context)
			if err != nil {
				t.Fatal(err)
			}
			if ratio := float64(m.Size) / float64(model.WeightBytes(f)); ratio < least || ratio > most {
				t.Errorf("the file is %.3f times as large as its weights in %s", ratio, quant)
			}
			if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(m.SHA256) || m.License == "" || m.Family == "" {
				t.Errorf("got %+v", m)
			}
			if i > 0 && m.Size <= models[i-1].Size {
				t.Error("it is not larger than the one before")
			}
		})
	}
}

func TestForSuggestsWhatFits(t *testing.T) {
	gpu := device.Info{Kind: "cuda", Name: "a GPU", Dedicated: true, Memory: 12 << 30}
	cpu := func(free int64) device.Info { return device.Info{Kind: "cpu", Memory: free} }
	for _, c := range []struct {
		name    string
		devices []device.Info
		want    []string
	}{
		{"a small machine", []device.Info{cpu(4 << 30)}, []string{"Qwen3 1.7B", "Qwen3 0.6B"}},
		{"a machine of 16 GB without a GPU", []device.Info{cpu(16 << 30)}, []string{"Qwen3 4B", "Qwen3 1.7B", "Qwen3 0.6B"}},
		{"a GPU of 12 GB in a machine without much memory", []device.Info{gpu, cpu(2 << 30)}, []string{"Qwen3 14B", "Qwen3 8B", "Qwen3 4B"}},
		{"a very small machine", []device.Info{cpu(2 << 30)}, []string{"Qwen3 0.6B"}},
		{"no room at all", []device.Info{cpu(100 << 20)}, []string{"Qwen3 0.6B"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := For(placement.Machine{Devices: c.devices})
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range list {
				t.Logf("%s: %s, on %q", s.Title, s.Fit, s.Fit.On)
				if len(list) != len(c.want) || s.Title != c.want[i] {
					t.Errorf("suggestion %d is %s, want %q", i, s.Title, c.want)
				}
			}
		})
	}
}
