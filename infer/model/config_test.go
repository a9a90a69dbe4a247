package model

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// configOf reads the configuration of a file with the keys of a small model, those in keys instead or
// besides, and an embedding table; keys lack the name of the architecture. A key with the value nil is missing.
func configOf(t *testing.T, architecture string, keys map[string]any) (Config, error) {
	t.Helper()
	all := map[string]any{
		"context_length": 256, "embedding_length": 48, "block_count": 4, "feed_forward_length": 64,
		"attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": float32(1e-6),
	}
	maps.Copy(all, keys)
	b := gguftest.New().Set("general.architecture", architecture)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if all[key] != nil {
			b.Set(architecture+"."+key, all[key])
		}
	}
	b.Tensor("token_embd.weight", gguf.F32, []int{48, 8}, gguftest.Quantize(gguf.F32, make([]float32, 48*8)))
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return ReadConfig(f)
}

// with returns the keys of both maps.
func with(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

var (
	mixture = map[string]any{"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 24}
	deltas  = map[string]any{"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.time_step_rank": 4, "ssm.group_count": 2}
)

func TestAModelOfExpertsNeedsNoWidthOfAFeedForwardLayer(t *testing.T) {
	none := map[string]any{"feed_forward_length": nil}
	for name, c := range map[string]struct {
		architecture string
		keys         map[string]any
		want         string // in the error
	}{
		"Qwen 3 with experts":                   {"qwen3moe", with(mixture, none), ""},
		"Qwen 3.5 with experts":                 {"qwen35moe", with(with(mixture, deltas), none), ""},
		"Qwen3-Next":                            {"qwen3next", with(with(mixture, deltas), none), ""},
		"a dense model":                         {"qwen3", none, "qwen3.feed_forward_length is missing or 0, but layer 0 has no experts"},
		"a dense model of width 0":              {"llama", map[string]any{"feed_forward_length": 0}, "llama.feed_forward_length is missing or 0"},
		"a dense layer before those of experts": {"dots1", with(with(mixture, none), map[string]any{"leading_dense_block_count": 2}), "but layer 0 has no experts"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configOf(t, c.architecture, c.keys)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}

// Families whose files state nothing about the sum of the weights differ.
func TestWeightsOfExpertsAreNormalisedAsTheFamilyDoes(t *testing.T) {
	for architecture, c := range map[string]struct {
		keys map[string]any
		want bool
	}{
		"glm4moe": {mixture, false}, "dots1": {mixture, false}, "qwen2moe": {mixture, false},
		"nemotron_h_moe": {with(with(mixture, deltas), map[string]any{"attention.head_count_kv": []int32{0, 2, 0, 0}, "feed_forward_length": []int32{0, 0, 24, 24}}), false},
		"qwen3moe":       {mixture, true}, "llama": {mixture, true}, "hunyuan-moe": {mixture, true}, "minimax-m2": {mixture, true}, "ernie4_5-moe": {mixture, true},
		"qwen35moe": {with(mixture, deltas), true}, "qwen3next": {with(mixture, deltas), true},
	} {
		for _, key := range []any{nil, false, true} {
			got, err := configOf(t, architecture, with(c.keys, map[string]any{"expert_weights_norm": key}))
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if key != nil {
				want = key.(bool)
			}
			if l := got.Layers[3]; l.Routing.Normalize != want {
				t.Errorf("%s with the key %v: normalised is %t, want %t", architecture, key, l.Routing.Normalize, want)
			}
		}
	}
}

func TestTheFileSaysWhichLayersOfQwen35Recur(t *testing.T) {
	for name, c := range map[string]struct {
		keys map[string]any
		want []bool
	}{
		"all but each fourth, if it does not":  {nil, []bool{true, true, true, false}},
		"by an interval":                       {map[string]any{"full_attention_interval": 2}, []bool{true, false, true, false}},
		"layer by layer":                       {map[string]any{"attention.recurrent_layers": []bool{false, true, true, false}}, []bool{false, true, true, false}},
		"layer by layer, against the interval": {map[string]any{"full_attention_interval": 2, "attention.recurrent_layers": []bool{true, true, false, false}}, []bool{true, true, false, false}},
		"layer by layer, with the MTP block":   {map[string]any{"nextn_predict_layers": 1, "attention.recurrent_layers": []bool{true, false, true, false}}, []bool{true, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := configOf(t, "qwen35", with(deltas, c.keys))
			if err != nil {
				t.Fatal(err)
			}
			var recurs []bool
			for _, l := range got.Layers {
				recurs = append(recurs, l.Recurs())
				if l.Recurs() == l.Attends() {
					t.Error("a layer has both attention and a recurrence, or neither")
				}
			}
			if !slices.Equal(recurs, c.want) {
				t.Errorf("got %v, want %v", recurs, c.want)
			}
		})
	}
}

// The converters write the keys, and transformers' modelling code has the formulas.
func TestRoPEIsScaledAsTheFileSays(t *testing.T) {
	yarn := map[string]any{"rope.scaling.type": "yarn", "rope.scaling.factor": float32(8), "rope.scaling.original_context_length": 32}
	latent := with(mixture, map[string]any{
		"attention.kv_lora_rank": 24, "rope.dimension_count": 8, "attention.head_count_kv": 1, "attention.key_length": 32, "attention.value_length": 24,
		"attention.key_length_mla": 24, "attention.value_length_mla": 16,
	})
	log := math.Log(8)
	for name, c := range map[string]struct {
		architecture            string
		keys                    map[string]any
		scale, magnitude, score float64 // score: the scale of scores times sqrt(width of a head)
	}{
		"a factor and no type is linear scaling":               {"llama", map[string]any{"rope.scaling.factor": float32(4)}, 0.25, 0, 1},
		"old files have another key for the factor":            {"llama", map[string]any{"rope.scale_linear": float32(2)}, 0.5, 0, 1},
		"a factor of 0 scales nothing":                         {"llama", map[string]any{"rope.scaling.type": "linear", "rope.scaling.factor": float32(0)}, 1, 0, 1},
		"the type none ignores the factor":                     {"llama", map[string]any{"rope.scaling.type": "none", "rope.scaling.factor": float32(4)}, 1, 0, 1},
		"YaRN enlarges rotated elements":                       {"llama", yarn, 0.125, 1 + 0.1*log, 1},
		"YaRN with a stated magnitude has that":                {"llama", with(yarn, map[string]any{"rope.scaling.yarn_attn_factor": float32(1.5)}), 0.125, 1.5, 1},
		"a stated magnitude of 1 is one too":                   {"llama", with(yarn, map[string]any{"rope.scaling.yarn_attn_factor": float32(1)}), 0.125, 1, 1},
		"latent attention has the magnitude of a multiplier":   {"deepseek2", with(with(latent, yarn), map[string]any{"rope.scaling.yarn_log_multiplier": float32(0.1)}), 0.125, 1, math.Pow(1+0.1*log, 2)},
		"latent attention without one enlarges rotated parts":  {"deepseek2", with(latent, yarn), 0.125, 1 + 0.1*log, 1},
		"Phi 3.5 MoE has another magnitude than its file says": {"phimoe", map[string]any{"rope.scaling.attn_factor": float32(1.19024), "expert_count": 4, "expert_used_count": 2}, 1, 1.243163, 1},
		"other models of phimoe have that of the file":         {"phimoe", map[string]any{"rope.scaling.attn_factor": float32(1.25), "expert_count": 4, "expert_used_count": 2}, 1, 1.25, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := configOf(t, c.architecture, c.keys)
			if err != nil {
				t.Fatal(err)
			}
			l := got.Layers[0]
			width := l.HeadDim
			if l.Latent > 0 {
				width = 24
			}
			if score := float64(l.Scale) * math.Sqrt(float64(width)); l.RoPE.Scale != c.scale || !near(float64(l.RoPE.Magnitude), c.magnitude) || !near(score, c.score) {
				t.Errorf("got frequencies times %g, elements times %g and scores times %g, want %g, %g and %g", l.RoPE.Scale, l.RoPE.Magnitude, score, c.scale, c.magnitude, c.score)
			}
		})
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6 }

func TestAlphaScalesTheRoPEBaseOfHunyuan(t *testing.T) {
	c, err := configOf(t, "hunyuan-dense", map[string]any{"rope.freq_base": float32(10000), "rope.scaling.alpha": float32(50), "attention.key_length": 32, "attention.value_length": 32})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Layers[3].RoPE.Base, 10000*math.Pow(50, 32./30); !near(got/want, 1) {
		t.Errorf("got %g, want %g", got, want)
	}
	if _, err := configOf(t, "qwen3", map[string]any{"rope.scaling.alpha": float32(50)}); err == nil || !strings.Contains(err.Error(), "qwen3.rope.scaling.alpha is 50") {
		t.Errorf("got %v for a model without alpha", err)
	}
}

func TestRoPEFactorsAreAsManyAsLayersThatUseThemNeed(t *testing.T) {
	c, err := configOf(t, "gemma4", map[string]any{
		"attention.key_length": 12, "attention.value_length": 12, "attention.key_length_swa": 20, "attention.value_length_swa": 20,
		"attention.sliding_window": 16, "attention.sliding_window_pattern": []bool{true, true, true, false},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := ropePairs(&c, nil); got != 6 {
		t.Errorf("got %d, want 6: only the layer without a window uses factors", got)
	}
}

func TestHeadsOfAnOddWidthAreRefusedOnlyWhereTheyRotate(t *testing.T) {
	odd := map[string]any{"attention.key_length": 15, "attention.value_length": 15}
	if _, err := configOf(t, "granite", with(odd, map[string]any{"rope.scaling.finetuned": false})); err != nil {
		t.Error(err)
	}
	if _, err := configOf(t, "granite", odd); err == nil || !strings.Contains(err.Error(), "granite.rope.dimension_count is 15, want an even number") {
		t.Errorf("got %v for heads that rotate", err)
	}
}

func TestLayersOfSmallThinkerRotateWhereTheyHaveAWindowIfAnyHas(t *testing.T) {
	for name, c := range map[string]struct {
		keys            map[string]any
		windows, rotate []bool
	}{
		"the model with windows":    {map[string]any{"block_count": 5, "attention.sliding_window": 64}, []bool{false, true, true, true, false}, []bool{false, true, true, true, false}},
		"the model without windows": {nil, make([]bool, 4), []bool{true, true, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := configOf(t, "smallthinker", with(mixture, c.keys))
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range got.Layers {
				if (l.Window > 0) != c.windows[i] || (l.RoPE.Dims > 0) != c.rotate[i] || !l.RoutesFirst || !l.ReLU {
					t.Errorf("layer %d has the window %d and rotates %d elements, its router reads the layer's input: %t, gates are ReLU: %t", i, l.Window, l.RoPE.Dims, l.RoutesFirst, l.ReLU)
				}
			}
		})
	}
}

func TestTheBaichuanOf40LayersHasALiBiInPlaceOfRoPE(t *testing.T) {
	for layers, want := range map[int]struct {
		bias   float32
		rotate int
	}{32: {0, 12}, 40: {8, 0}} {
		got, err := configOf(t, "baichuan", map[string]any{"block_count": layers})
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range got.Layers {
			if l.MaxBias != want.bias || l.RoPE.Dims != want.rotate {
				t.Errorf("layer %d of %d has biases of %g and rotates %d elements, want %g and %d", i, layers, l.MaxBias, l.RoPE.Dims, want.bias, want.rotate)
			}
		}
	}
}
