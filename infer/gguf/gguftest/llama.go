package gguftest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"m40-llm/infer/gguf"
)

// Llama describes a small model of the llama architecture. The comments give the defaults of
// zero fields.
type Llama struct {
	Dim        int       // 64
	Layers     int       // 2
	Heads      int       // 4
	KVHeads    int       // 2
	FFN        int       // 128
	Vocab      int       // 320; at least 320
	Rows       int       // of the embedding and the output matrix: Vocab, or more than the tokenizer has tokens
	Context    int       // 256
	Type       gguf.Type // of the matrices, default F32; Dim and FFN must be multiples of its blocks
	Seed       uint64
	Tied       bool           // the output matrix is the embedding
	Template   string         // chat template; ChatML
	NoTemplate bool           // no chat template
	AddBOS     bool           // prompts begin with token 0
	Controls   []string       // control tokens, which replace the last tokens
	Keys       map[string]any // further keys
}

// ChatML is the chat template of TinyLlama.
const ChatML = `{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}`

// TinyLlama returns a complete model file with random weights and a byte-level BPE vocabulary
// of three special tokens, the 256 bytes and merged pairs of lower-case letters. The same
// options give the same file.
func TinyLlama(o Llama) []byte { return o.builder().Bytes() }

// SplitTinyLlama returns the model of TinyLlama split into n files.
func SplitTinyLlama(o Llama, n int) [][]byte { return o.builder().Split(n) }

func (o Llama) builder() *Builder {
	for _, field := range []struct {
		value *int
		def   int
	}{{&o.Dim, 64}, {&o.Layers, 2}, {&o.Heads, 4}, {&o.KVHeads, 2}, {&o.FFN, 128}, {&o.Vocab, 320}, {&o.Rows, cmp.Or(o.Vocab, 320)}, {&o.Context, 256}} {
		if *field.value == 0 {
			*field.value = field.def
		}
	}
	b := New()
	o.setHyperParameters(b)
	for _, key := range slices.Sorted(maps.Keys(o.Keys)) {
		b.Set(key, o.Keys[key])
	}
	o.setTokenizer(b)
	o.addTensors(b)
	return b
}

func (o Llama) setHyperParameters(b *Builder) {
	b.Set("general.architecture", "llama").
		Set("general.name", "Tiny").
		Set("general.license", "MIT").
		Set("llama.block_count", o.Layers).
		Set("llama.context_length", o.Context).
		Set("llama.embedding_length", o.Dim).
		Set("llama.feed_forward_length", o.FFN).
		Set("llama.attention.head_count", o.Heads).
		Set("llama.attention.head_count_kv", o.KVHeads).
		Set("llama.rope.dimension_count", o.Dim/o.Heads).
		Set("llama.rope.freq_base", float32(10000)).
		Set("llama.attention.layer_norm_rms_epsilon", float32(1e-5)).
		Set("llama.vocab_size", o.Rows)
}

func (o Llama) setTokenizer(b *Builder) {
	tokens := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	types := []int32{3, 3, 3} // control tokens
	for _, r := range byteRunes() {
		tokens = append(tokens, string(r))
	}
	merges := []string{}
	for i := 0; len(tokens) < o.Vocab; i++ {
		first, second := string(rune('a'+i/26)), string(rune('a'+i%26))
		if i >= 26*26 {
			panic(fmt.Sprintf("gguftest: a vocabulary of %d is too large for pairs of letters", o.Vocab))
		}
		tokens = append(tokens, first+second)
		merges = append(merges, first+" "+second)
	}
	for len(types) < len(tokens) {
		types = append(types, 1) // plain tokens
	}
	for i, text := range o.Controls {
		id := len(tokens) - len(o.Controls) + i
		tokens[id], types[id] = text, 3
	}
	merges = merges[:len(merges)-len(o.Controls)]
	b.Set("tokenizer.ggml.model", "gpt2").
		Set("tokenizer.ggml.pre", "gpt-2").
		Set("tokenizer.ggml.tokens", tokens).
		Set("tokenizer.ggml.token_type", types).
		Set("tokenizer.ggml.merges", merges).
		Set("tokenizer.ggml.bos_token_id", 0).
		Set("tokenizer.ggml.eos_token_id", 2).
		Set("tokenizer.ggml.add_bos_token", o.AddBOS)
	if !o.NoTemplate {
		b.Set("tokenizer.chat_template", cmp.Or(o.Template, ChatML))
	}
}

// byteRunes returns the runes that byte-level BPE writes for the 256 bytes: printable Latin-1
// characters for themselves, runes from U+0100 up for the others.
func byteRunes() []rune {
	runes := make([]rune, 256)
	moved := rune(0x100)
	for b := range runes {
		r := rune(b)
		if r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ' {
			runes[b] = r
			continue
		}
		runes[b] = moved
		moved++
	}
	return runes
}

func (o Llama) addTensors(b *Builder) {
	rng := rand.New(rand.NewPCG(o.Seed, 40))
	headDim := o.Dim / o.Heads
	matrix := func(name string, cols, rows int, gain float64) {
		scale := float32(gain / math.Sqrt(float64(cols)))
		if elements, bytes := o.Type.Block(); elements >= 64 && o.Type.IsRandomizable() { // Quantize cannot encode it
			data := make([]byte, cols*rows/int(elements)*int(bytes))
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			if err := gguf.SetRandomScale(o.Type, data, float64(scale)); err != nil {
				panic(err)
			}
			b.Tensor(name, o.Type, []int{cols, rows}, data)
			return
		}
		values := make([]float32, cols*rows)
		for i := range values {
			values[i] = float32(rng.NormFloat64()) * scale
		}
		b.Tensor(name, o.Type, []int{cols, rows}, Quantize(o.Type, values))
	}
	norm := func(name string) {
		values := make([]float32, o.Dim)
		for i := range values {
			values[i] = 1 + 0.1*float32(rng.NormFloat64())
		}
		b.Tensor(name, gguf.F32, []int{o.Dim}, Quantize(gguf.F32, values))
	}
	const sharp = 4 // makes some tokens clearly likelier than others
	matrix("token_embd.weight", o.Dim, o.Rows, sharp)
	for i := range o.Layers {
		layer := fmt.Sprintf("blk.%d.", i)
		norm(layer + "attn_norm.weight")
		matrix(layer+"attn_q.weight", o.Dim, o.Heads*headDim, 1)
		matrix(layer+"attn_k.weight", o.Dim, o.KVHeads*headDim, 1)
		matrix(layer+"attn_v.weight", o.Dim, o.KVHeads*headDim, 1)
		matrix(layer+"attn_output.weight", o.Heads*headDim, o.Dim, 1)
		norm(layer + "ffn_norm.weight")
		matrix(layer+"ffn_gate.weight", o.Dim, o.FFN, 1)
		matrix(layer+"ffn_up.weight", o.Dim, o.FFN, 1)
		matrix(layer+"ffn_down.weight", o.FFN, o.Dim, 1)
	}
	norm("output_norm.weight")
	if !o.Tied {
		matrix("output.weight", o.Dim, o.Rows, sharp)
	}
}
