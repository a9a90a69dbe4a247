package model_test

import (
	"context"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
	"m40-llm/infer/tokenizer"
)

// On GPUs that round weights and activations of prompts to halves, a trained model's distributions differ from the reference's by less than a KV cache in q8_0
// changes them.
func TestPromptsByHalvesCostATrainedModelLittle(t *testing.T) {
	t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
	f, err := gguf.Parse(guide.Model)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := tok.Encode(context.Background(), "<|im_start|>user\n"+questions[0]+"<|im_end|>\n<|im_start|>assistant\nA model is loaded into memory, with a KV cache that holds the keys and values of all positions.", tokenizer.Options{ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	tokens = tokens[:min(len(tokens), 64)]
	open := func(d device.Device, prompts bool) *model.Model {
		m, err := model.Load(context.Background(), f, d, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 64, Prompts: prompts})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	want := feed(t, open(ref.New(), false), tokens, 0)
	for _, c := range []struct {
		rows        string
		prompts     bool
		mean, worst float64
	}{{"answers", false, 1e-6, 1e-5}, {"prompts", true, 2e-5, 2e-4}}[:fixtures.At(0, 2, 2)] {
		d, err := cudaOpener(t)()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		if units := cudakern.Units(d.Info().Units); units != cudakern.UnitsMMA || !d.Info().Prompts {
			t.Skipf("the device has units %s and no kernels for prompts", units)
		}
		m := open(d, c.prompts)
		if m.OwnPrompts() != c.prompts {
			t.Fatalf("prompts have kernels of their own: %t, want %t", m.OwnPrompts(), c.prompts)
		}
		var found divergences
		for at, got := range feed(t, m, tokens, 0) {
			found.add(want[at], got)
		}
		t.Logf("fidelity: divergence of %d tokens as rows of %s: mean %.2g, worst %.2g", found.count, c.rows, found.mean(), found.worst)
		if !(found.mean() <= c.mean && found.worst <= c.worst) {
			t.Errorf("divergences of %d tokens as rows of %s: mean %g, worst %g; allowed are %g and %g", found.count, c.rows, found.mean(), found.worst, c.mean, c.worst)
		}
	}
}
