package model

import (
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/ref"
)

// Files of other converters compute what those of llama.cpp's do.
func TestFilesOfOtherConvertersHaveTheSameLogits(t *testing.T) {
	const dim, vocab = 32, 48
	tokens := []int32{1, 5, 9, 2, 40}
	ollama := strings.NewReplacer("attn_output.", "attn_out.", "attn_sinks.weight", "attn_sinks", "post_attention_norm.", "ffn_norm.")
	for _, c := range []struct {
		name, from, to string
		keys           map[string]any
		rename         *strings.Replacer
		more           []string // tensors of other inputs
	}{
		{"gpt-oss with Ollama's names", "gpt-oss", "gptoss", map[string]any{
			"context_length": 64, "block_count": 2, "attention.head_count": 4, "attention.head_count_kv": 2, "feed_forward_length": 64, "attention.key_length": 16, "attention.value_length": 16,
			"attention.layer_norm_rms_epsilon": float32(1e-5), "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32, "attention.sliding_window": 7,
		}, ollama, nil},
		{"a model with encoders of images and audio", "llama", "llama", map[string]any{
			"context_length": 64, "block_count": 2, "attention.head_count": 4, "attention.head_count_kv": 2, "feed_forward_length": 64, "attention.layer_norm_rms_epsilon": float32(1e-5),
		}, strings.NewReplacer(), []string{"v.blk.0.attn_q.weight", "mm.0.weight", "a.conv1d.1.bias"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := random(t, c.from, c.keys, dim, vocab)
			b := gguftest.New().Set("general.architecture", c.to).Set(c.to+".embedding_length", dim)
			for key, value := range c.keys {
				b.Set(c.to+"."+key, value)
			}
			for _, w := range f.Tensors() {
				b.Tensor(c.rename.Replace(w.Name), w.Type, w.Shape, w.Data)
			}
			for _, name := range c.more {
				b.Tensor(name, gguf.F32, []int{8}, make([]byte, 32))
			}
			other, err := gguf.Parse(b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			want := rowsOf(t, f, ref.New(), tokens, vocab)
			for i, row := range rowsOf(t, other, ref.New(), tokens, vocab) {
				if !slices.Equal(row, want[i]) {
					t.Fatalf("row %d has other logits", i)
				}
			}
			if IsTextOnly(f) || IsTextOnly(other) != (c.more != nil) {
				t.Errorf("text only: %t and %t", IsTextOnly(f), IsTextOnly(other))
			}
		})
	}
}
