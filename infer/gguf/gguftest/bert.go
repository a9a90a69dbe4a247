package gguftest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"

	"m40-llm/infer/gguf"
)

// BERT describes a small model of the bert architecture that computes embeddings or ranks documents. The comments give the defaults
// of zero fields.
type BERT struct {
	Dim     int       // 64
	Layers  int       // 2
	Heads   int       // 4
	FFN     int       // 128
	Vocab   int       // as many as the vocabulary has; more: tokens that no text has
	Context int       // 128
	Type    gguf.Type // of the matrices, default F32; Dim and FFN must be multiples of its blocks
	Pooling int       // 1: mean, 2: cls, 3: last; default 1
	Seed    uint64
	Ranks   bool // it has a classifier with a layer before the output, instead of a pooling
	Unigram bool // the vocabulary is of this kind, and there is one token type, as in XLM-R
}

// TinyBERT returns a complete model file with random weights, and a WordPiece or unigram vocabulary of
// special tokens, ASCII characters at the beginning of words, and inside them. The same options give the
// same file.
func TinyBERT(o BERT) []byte {
	o.Dim, o.Layers, o.Heads, o.FFN = cmp.Or(o.Dim, 64), cmp.Or(o.Layers, 2), cmp.Or(o.Heads, 4), cmp.Or(o.FFN, 128)
	o.Context, o.Pooling = cmp.Or(o.Context, 128), cmp.Or(o.Pooling, 1)
	tokens := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
	types := []int32{3, 3, 3, 3, 3} // control tokens
	if o.Unigram {
		tokens, types[1] = []string{"<pad>", "<unk>", "<s>", "</s>", "<mask>"}, 2
	}
	for c := '!'; c <= '~'; c++ {
		tokens = append(tokens, "▁"+string(c), string(c))
	}
	for len(tokens) < o.Vocab {
		tokens = append(tokens, fmt.Sprintf("▁[unused%d]", len(tokens)))
	}
	o.Vocab = len(tokens)
	for len(types) < len(tokens) {
		types = append(types, 1) // plain tokens
	}
	b := New().
		Set("general.architecture", "bert").
		Set("general.name", "Tiny").
		Set("bert.block_count", o.Layers).
		Set("bert.context_length", o.Context).
		Set("bert.embedding_length", o.Dim).
		Set("bert.feed_forward_length", o.FFN).
		Set("bert.attention.head_count", o.Heads).
		Set("bert.attention.layer_norm_epsilon", float32(1e-12)).
		Set("bert.attention.causal", false).
		Set("tokenizer.ggml.tokens", tokens).
		Set("tokenizer.ggml.token_type", types).
		Set("tokenizer.ggml.bos_token_id", 2).
		Set("tokenizer.ggml.eos_token_id", 3).
		Set("tokenizer.ggml.seperator_token_id", 3).
		Set("tokenizer.ggml.unknown_token_id", 1)
	if !o.Ranks {
		b.Set("bert.pooling_type", o.Pooling)
	}
	if o.Unigram {
		b.Set("tokenizer.ggml.model", "t5").
			Set("tokenizer.ggml.pre", "default").
			Set("tokenizer.ggml.scores", make([]float32, len(tokens))).
			Set("tokenizer.ggml.add_space_prefix", true).
			Set("tokenizer.ggml.remove_extra_whitespaces", true).
			Set("tokenizer.ggml.add_bos_token", true).
			Set("tokenizer.ggml.add_eos_token", true)
	} else {
		b.Set("tokenizer.ggml.model", "bert").
			Set("tokenizer.ggml.pre", "jina-v2-en")
	}
	o.addTensors(b)
	return b.Bytes()
}

func (o BERT) addTensors(b *Builder) {
	rng := rand.New(rand.NewPCG(o.Seed, 41))
	random := func(name string, t gguf.Type, scale, mean float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(rng.NormFloat64()*scale + mean)
		}
		b.Tensor(name, t, shape, Quantize(t, values))
	}
	linear := func(name string, inputs, outputs int) {
		random(name+".weight", o.Type, 1/math.Sqrt(float64(inputs)), 0, inputs, outputs)
		random(name+".bias", gguf.F32, 0.1, 0, outputs)
	}
	norm := func(name string) {
		random(name+".weight", gguf.F32, 0.1, 1, o.Dim)
		random(name+".bias", gguf.F32, 0.1, 0, o.Dim)
	}
	random("token_embd.weight", o.Type, 1, 0, o.Dim, o.Vocab)
	random("position_embd.weight", gguf.F32, 0.3, 0, o.Dim, o.Context)
	tokenTypes := 2
	if o.Unigram {
		tokenTypes = 1
	}
	random("token_types.weight", gguf.F32, 0.3, 0, o.Dim, tokenTypes)
	norm("token_embd_norm")
	for i := range o.Layers {
		layer := fmt.Sprintf("blk.%d.", i)
		for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			linear(layer+name, o.Dim, o.Dim)
		}
		norm(layer + "attn_output_norm")
		linear(layer+"ffn_up", o.Dim, o.FFN)
		linear(layer+"ffn_down", o.FFN, o.Dim)
		norm(layer + "layer_output_norm")
	}
	if o.Ranks {
		linear("cls", o.Dim, o.Dim)
		linear("cls.output", o.Dim, 1)
	}
}
