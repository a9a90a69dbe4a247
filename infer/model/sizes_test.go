package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/ref"
)

// random returns a complete file of an architecture with random weights: all tensors that are declared for the
// sizes in keys, which lack the name of the architecture.
func random(t *testing.T, architecture string, keys map[string]any, dim, vocab int) *gguf.File {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(dim), uint64(vocab)))
	begin := func() *gguftest.Builder {
		b := gguftest.New().Set("general.architecture", architecture).Set(architecture+".embedding_length", dim)
		for _, key := range []string{"xielu.alpha_n", "xielu.alpha_p", "xielu.beta"} { // of Apertus
			b.Set(key, float32(0.4))
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			b.Set(architecture+"."+key, keys[key])
		}
		return b
	}
	b, written := begin(), map[string]bool{}
	write := func(b *gguftest.Builder, name string, shape []int) {
		n, mean, size := 1, 0.0, 1/math.Sqrt(float64(shape[0]))
		for _, d := range shape {
			n *= d
		}
		switch {
		case strings.Contains(name, "norm.weight"), strings.HasSuffix(name, "scale"):
			mean, size = 1, 0.1
		case strings.HasSuffix(name, "ssm_a"):
			mean, size = -1, 0.2
		case strings.Contains(name, "token_embd"), len(shape) == 1:
			size = 0.5
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(mean + size*rng.NormFloat64())
		}
		b.Tensor(name, gguf.F32, shape, gguftest.Quantize(gguf.F32, values))
		written[name] = true
	}
	parse := func(b *gguftest.Builder) *gguf.File {
		f, err := gguf.Parse(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write(b, "token_embd.weight", []int{dim, vocab})
	if architecture == "bert" || strings.HasPrefix(architecture, "nomic-bert") || architecture == "jina-bert-v2" {
		write(b, "token_types.weight", []int{dim, 3})
	}
	if architecture == "nomic-bert-moe" { // the layers with a router have experts
		write(b, "blk.1.ffn_gate_inp.weight", []int{dim, keys["expert_count"].(int)})
	}
	c, err := ReadConfig(parse(b))
	if err != nil {
		t.Fatal(err)
	}
	b, written = begin(), map[string]bool{}
	filled := map[place]bool{}
	for _, w := range c.wanted() {
		at := place{w.slot, w.layer}
		if filled[at] || w.fill != 0 || w.optional && w.part == everyStage {
			continue
		}
		filled[at] = true
		if written[w.name] {
			continue
		}
		var shape []int
		of := w.shape
		if w.derived != nil {
			of = w.derived.shape
		}
		for _, size := range slices.Backward(of) {
			shape = append(shape, size(&c, &c.Layers[w.layer]))
		}
		shape[len(shape)-1] += c.sum(w.before, w.layer) + c.sum(w.after, w.layer)
		write(b, w.name, shape)
	}
	return parse(b)
}

// oddSizes are models whose sizes are multiples of nothing, with other ratios and kernels than the reference
// files have.
var oddSizes = []struct {
	architecture string
	dim          int
	keys         map[string]any
}{
	{"qwen35", 72, map[string]any{
		"block_count": 3, "feed_forward_length": 88, "attention.head_count": 6, "attention.head_count_kv": 2, "attention.key_length": 20, "attention.value_length": 20,
		"rope.dimension_count": 6, "ssm.conv_kernel": 3, "ssm.inner_size": 6 * 24, "ssm.state_size": 40, "ssm.time_step_rank": 6, "ssm.group_count": 3, "full_attention_interval": 2,
	}},
	{"qwen3next", 52, map[string]any{
		"block_count": 4, "feed_forward_length": 88, "attention.head_count": 3, "attention.head_count_kv": 3, "attention.key_length": 36, "attention.value_length": 36,
		"rope.dimension_count": 12, "ssm.conv_kernel": 5, "ssm.inner_size": 6 * 34, "ssm.state_size": 12, "ssm.time_step_rank": 6, "ssm.group_count": 2, "full_attention_interval": 3,
		"expert_count": 5, "expert_used_count": 3, "expert_feed_forward_length": 28, "expert_shared_feed_forward_length": 20,
	}},
	{"granitehybrid", 44, map[string]any{
		"block_count": 3, "feed_forward_length": 60, "attention.head_count": 7, "attention.head_count_kv": []int32{0, 1, 0}, "attention.key_length": 12, "attention.value_length": 12,
		"ssm.conv_kernel": 2, "ssm.inner_size": 7 * 36, "ssm.state_size": 20, "ssm.time_step_rank": 7, "ssm.group_count": 1, "rope.scaling.finetuned": false,
	}},
	{"granitehybrid", 32, map[string]any{ // without attention, and a convolution of one position
		"block_count": 2, "feed_forward_length": 48, "attention.head_count": 4, "attention.head_count_kv": []int32{0, 0},
		"ssm.conv_kernel": 1, "ssm.inner_size": 2 * 31, "ssm.state_size": 30, "ssm.time_step_rank": 2, "ssm.group_count": 2, "rope.scaling.finetuned": false,
	}},
	{"falcon-h1", 36, map[string]any{
		"block_count": 2, "feed_forward_length": 100, "attention.head_count": 5, "attention.head_count_kv": 1, "attention.key_length": 24, "attention.value_length": 24,
		"ssm.conv_kernel": 4, "ssm.inner_size": 4 * 33, "ssm.state_size": 25, "ssm.time_step_rank": 4, "ssm.group_count": 2,
	}},
	{"nemotron_h", 60, map[string]any{
		"block_count": 4, "feed_forward_length": []int32{0, 52, 0, 76}, "attention.head_count": 3, "attention.head_count_kv": []int32{0, 0, 3, 0}, "attention.key_length": 28,
		"attention.value_length": 28, "attention.layer_norm_epsilon": float32(1e-5),
		"ssm.conv_kernel": 6, "ssm.inner_size": 6 * 65, "ssm.state_size": 8, "ssm.time_step_rank": 6, "ssm.group_count": 3, "rope.scaling.finetuned": false,
	}},
	{"lfm2", 52, map[string]any{
		"block_count": 3, "feed_forward_length": 36, "attention.head_count": 13, "attention.head_count_kv": []int32{0, 0, 13}, "shortconv.l_cache": 7,
	}},
	{"kimi-linear", 28, map[string]any{
		"block_count": 3, "feed_forward_length": 44, "attention.head_count": 3, "attention.head_count_kv": []int32{0, 1, 0}, "ssm.conv_kernel": 3, "kda.head_dim": 20,
		"attention.kv_lora_rank": 12, "rope.dimension_count": 6, "attention.key_length": 18, "attention.key_length_mla": 26, "attention.value_length_mla": 14,
		"expert_count": 7, "expert_used_count": 3, "expert_feed_forward_length": 20, "expert_shared_count": 2, "leading_dense_block_count": 2, "expert_gating_func": 2,
	}},
	{"jamba", 44, map[string]any{
		"block_count": 3, "feed_forward_length": 36, "attention.head_count": 11, "attention.head_count_kv": []int32{0, 1, 0}, "ssm.conv_kernel": 3, "ssm.inner_size": 52,
		"ssm.state_size": 10, "ssm.time_step_rank": 5, "expert_count": 0,
	}},
	{"laguna", 36, map[string]any{
		"block_count": 2, "feed_forward_length": 44, "attention.head_count": []int32{3, 6}, "attention.head_count_kv": 3, "attention.key_length": 12, "attention.value_length": 12,
		"attention.sliding_window": 9, "rope.dimension_count": 6, "expert_count": 5, "expert_used_count": 3, "expert_feed_forward_length": 20, "expert_shared_feed_forward_length": 28,
		"leading_dense_block_count": 1,
	}},
	{"deci", 20, map[string]any{
		"block_count": 3, "feed_forward_length": []int32{0, 36, 28}, "attention.head_count": []int32{5, 5, 0}, "attention.head_count_kv": []int32{1, 0, 0},
	}},
	{"phimoe", 44, map[string]any{
		"block_count": 2, "feed_forward_length": 20, "attention.head_count": 11, "attention.head_count_kv": 11, "expert_count": 7, "expert_used_count": 2,
	}},
	{"smallthinker", 36, map[string]any{
		"block_count": 3, "feed_forward_length": 20, "attention.head_count": 9, "attention.head_count_kv": 3, "attention.sliding_window": 7, "expert_count": 7, "expert_used_count": 3,
		"expert_gating_func": 2,
	}},
	{"baichuan", 18, map[string]any{"block_count": 40, "feed_forward_length": 12, "attention.head_count": 3, "attention.head_count_kv": 3}}, // the one with ALiBi
	{"mpt", 42, map[string]any{
		"block_count": 2, "feed_forward_length": 30, "attention.head_count": 7, "attention.head_count_kv": 7, "attention.layer_norm_epsilon": float32(1e-5),
		"attention.max_alibi_bias": float32(4),
	}},
	{"apertus", 28, map[string]any{"block_count": 2, "feed_forward_length": 39, "attention.head_count": 7, "attention.head_count_kv": 7}},
	{"bert", 33, map[string]any{
		"block_count": 1, "feed_forward_length": 50, "attention.head_count": 3, "attention.layer_norm_epsilon": float32(1e-12), "pooling_type": 2,
	}},
	{"nomic-bert", 84, map[string]any{
		"block_count": 3, "feed_forward_length": 70, "attention.head_count": 3, "attention.layer_norm_epsilon": float32(1e-12), "rope.freq_base": float32(1000), "pooling_type": 3,
	}},
	{"nomic-bert-moe", 36, map[string]any{
		"block_count": 4, "feed_forward_length": 20, "attention.head_count": 3, "attention.layer_norm_epsilon": float32(1e-5), "expert_count": 7, "expert_used_count": 3,
	}},
	{"modern-bert", 36, map[string]any{
		"block_count": 4, "feed_forward_length": 50, "attention.head_count": 3, "attention.layer_norm_epsilon": float32(1e-5), "attention.sliding_window": 11,
		"rope.freq_base": float32(160000), "pooling_type": 2,
	}},
	{"jina-bert-v2", 36, map[string]any{
		"block_count": 2, "feed_forward_length": 20, "attention.head_count": 3, "attention.layer_norm_epsilon": float32(1e-12),
	}},
	{"gemma-embedding", 40, map[string]any{
		"block_count": 7, "feed_forward_length": 70, "attention.head_count": 5, "attention.head_count_kv": 1, "attention.key_length": 12, "attention.value_length": 12,
		"attention.sliding_window": 9, "pooling_type": 1,
	}},
}

// rowsOf runs tokens in chunks and returns the logits, or the vectors, of all.
func rowsOf(t *testing.T, f *gguf.File, dev device.Device, tokens []int32, chunk int) (all [][]float32) {
	t.Helper()
	defer dev.Close()
	m, err := Load(t.Context(), f, dev, Options{CacheType: device.CacheOf(gguf.F32), Blocks: 3, MaxRows: 48, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(tokens); at += chunk {
		b := &device.Batch{Tokens: tokens[at:min(at+chunk, len(tokens))], States: []int32{0}}
		for range m.config.CacheGroups() {
			b.Tables = append(b.Tables, [][]int32{{2, 0, 1}})
		}
		for i := range b.Tokens {
			b.Pos, b.Seq, b.Out = append(b.Pos, int32(at+i)), append(b.Seq, 0), append(b.Out, int32(i))
		}
		if err := m.Forward(b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Tokens {
			width, read := m.config.Vocab, m.Logits
			if m.config.Embeds() {
				width, read = m.config.VectorDim(), m.Vectors
			}
			row := make([]float32, width)
			err := read(row, i)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, row)
		}
	}
	return all
}

// Recurrent and embedding models of any size give what plain Go gives, and the same bits in chunks of any length.
func TestModelsOfOddSizesAgreeOnAllDevices(t *testing.T) {
	library := emutest.Library(t)
	openCUDA := func() (device.Device, error) {
		driver, gpus, err := cuda.Find(library)
		if err != nil {
			return nil, err
		}
		return cuda.OpenGPU(driver, gpus[0])
	}
	for _, c := range oddSizes {
		c.keys["context_length"] = cmp.Or(c.keys["context_length"], any(64))
		if _, ok := c.keys["attention.layer_norm_epsilon"]; !ok || c.architecture == "nemotron_h" {
			c.keys["attention.layer_norm_rms_epsilon"] = float32(1e-6)
		}
		const vocab = 61
		f := random(t, c.architecture, c.keys, c.dim, vocab)
		rng := rand.New(rand.NewPCG(1, 2))
		var tokens []int32
		for range 45 {
			tokens = append(tokens, rng.Int32N(vocab))
		}
		want := rowsOf(t, f, ref.New(), tokens, 48)
		for name, open := range map[string]func() (device.Device, error){
			"ref": func() (device.Device, error) { return ref.New(), nil }, "cpu": func() (device.Device, error) { return cpu.Open(2) }, "cuda": openCUDA,
		} {
			if name == "cuda" && !fixtures.Check() {
				continue
			}
			t.Run(fmt.Sprintf("%s on %s", c.architecture, name), func(t *testing.T) {
				dev, err := open()
				if err != nil {
					t.Fatal(err)
				}
				whole := rowsOf(t, f, dev, tokens, 48)
				worst := 0.0
				for i, row := range whole {
					for k, v := range row {
						worst = max(worst, math.Abs(float64(v-want[i][k])), notFinite(v))
					}
				}
				t.Logf("differs by up to %.2g", worst)
				if !(worst <= 1e-3) {
					t.Errorf("differs from plain Go by up to %g", worst)
				}
				if config, _ := ReadConfig(f); config.IsBidirectional() {
					return // only whole texts
				}
				if dev, err = open(); err != nil {
					t.Fatal(err)
				}
				for i, row := range rowsOf(t, f, dev, tokens, 7) {
					if !slices.Equal(row, whole[i]) {
						t.Fatalf("row %d has other bits in chunks of 7", i)
					}
				}
			})
		}
	}
}

// notFinite returns infinity for a value that is no number.
func notFinite(v float32) float64 {
	if v != v || math.IsInf(float64(v), 0) {
		return math.Inf(1)
	}
	return 0
}

func TestALayerWithF32CacheHasACacheOfItsOwn(t *testing.T) {
	layer := Layer{KVHeads: 2, HeadDim: 16}
	first := layer
	first.F32Cache = true
	c := Config{Layers: []Layer{first, layer, layer}}
	f16, f32 := device.CacheOf(gguf.F16), device.CacheOf(gguf.F32)
	for _, tt := range []struct {
		format device.CacheType
		want   []device.CacheType
		layers []int
	}{
		{f16, []device.CacheType{f32, f16}, []int{1, 2}},
		{f32, []device.CacheType{f32}, []int{3}},
	} {
		var formats []device.CacheType
		var layers []int
		for _, l := range c.KVLayout(tt.format, 1) {
			formats, layers = append(formats, l.Type), append(layers, l.Layers)
		}
		if !slices.Equal(formats, tt.want) || !slices.Equal(layers, tt.layers) {
			t.Errorf("a cache of %s has formats %v with %v layers, want %v with %v", tt.format, formats, layers, tt.want, tt.layers)
		}
	}
}

func TestLayersThatCannotBeQuantizedKeepAnotherFormat(t *testing.T) {
	f16, f32, q8, q4 := device.CacheOf(gguf.F16), device.CacheOf(gguf.F32), device.CacheOf(gguf.Q8_0), device.CacheOf(gguf.Q4_0)
	mixed := device.CacheType{Keys: gguf.Q8_0, Values: gguf.F16}
	whole, odd, exact, latent := Layer{KVHeads: 2, HeadDim: 64}, Layer{KVHeads: 2, HeadDim: 80}, Layer{KVHeads: 2, HeadDim: 64, F32Cache: true}, Layer{KVHeads: 1, HeadDim: 96, Latent: 64}
	c := Config{Layers: []Layer{exact, whole, odd, odd, latent, whole, odd}}
	for _, tt := range []struct {
		format device.CacheType
		want   []device.CacheType // of layers 0, 1, 2 and 4
		says   string
	}{
		{f16, []device.CacheType{f32, f16, f16, f16}, ""},
		{q8, []device.CacheType{f32, q8, f16, q8}, "the KV cache of layers 2-3, 6 stays f16: its heads have 80 elements, and q8_0 has blocks of 32; the KV cache of layer 0 stays f32, because rounding it changes the answers most"},
		{q4, []device.CacheType{f32, q4, f16, q4}, "the KV cache of layers 2-3, 6 stays f16: its heads have 80 elements, and q4_0 has blocks of 32; the KV cache of layer 0 stays f32, because rounding it changes the answers most"},
		{mixed, []device.CacheType{f32, mixed, f16, q8}, "the KV cache of layers 2-3, 6 stays f16: its heads have 80 elements, and q8_0/f16 has blocks of 32; the KV cache of layer 0 stays f32, because rounding it changes the answers most"},
	} {
		caches, places := c.kvLayouts(Options{CacheType: tt.format, Blocks: 1}, 0, len(c.Layers))
		for i, layer := range []int{0, 1, 2, 4} {
			if got := caches[places[layer].cache].Type; got != tt.want[i] {
				t.Errorf("%s: layer %d has %s, want %s", tt.format, layer, got, tt.want[i])
			}
		}
		if got := c.NotQuantized(tt.format); got != tt.says {
			t.Errorf("%s: got %q, want %q", tt.format, got, tt.says)
		}
	}
}
