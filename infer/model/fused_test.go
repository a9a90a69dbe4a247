package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/ref"
)

// withFusedExperts returns a file of the same model in which the gate and up weights of each expert are one
// tensor, gates first, as converters write it on request.
func withFusedExperts(t *testing.T, f *gguf.File, architecture string, keys map[string]any, dim int) *gguf.File {
	t.Helper()
	b := gguftest.New().Set("general.architecture", architecture).Set(architecture+".embedding_length", dim)
	for key, value := range keys {
		b.Set(architecture+"."+key, value)
	}
	values := func(name string) (shape []int, list []float32) {
		w, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		list = make([]float32, w.Elements())
		if err := gguf.Dequantize(w.Type, w.Data, list); err != nil {
			t.Fatal(err)
		}
		return w.Shape, list
	}
	fused := 0
	for _, w := range f.Tensors() {
		switch layer, isGate := strings.CutSuffix(w.Name, "ffn_gate_exps.weight"); {
		case isGate:
			shape, gates := values(w.Name)
			_, ups := values(layer + "ffn_up_exps.weight")
			var both []byte
			for expert := range shape[2] {
				size := shape[0] * shape[1]
				for _, v := range slices.Concat(gates[expert*size:][:size], ups[expert*size:][:size]) {
					both = binary.LittleEndian.AppendUint32(both, math.Float32bits(v))
				}
			}
			b.Tensor(layer+"ffn_gate_up_exps.weight", gguf.F32, []int{shape[0], 2 * shape[1], shape[2]}, both)
			fused++
		case !strings.HasSuffix(w.Name, "ffn_up_exps.weight"):
			b.Tensor(w.Name, w.Type, w.Shape, w.Data)
		}
	}
	if fused == 0 {
		t.Fatal("the model has no experts")
	}
	file, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExpertsWithGatesAndUpsInOneTensorGiveTheSameLogits(t *testing.T) {
	const dim, vocab = 36, 61
	base := map[string]any{
		"context_length": 64, "block_count": 3, "feed_forward_length": 44, "attention.head_count": 3, "attention.head_count_kv": 1, "attention.key_length": 14, "attention.value_length": 14,
		"attention.layer_norm_rms_epsilon": float32(1e-6), "expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 11,
	}
	for architecture, keys := range map[string]map[string]any{
		"qwen3moe": base,
		"llama":    with(base, map[string]any{"feed_forward_length": 11, "expert_feed_forward_length": nil}),
		"dots1":    with(base, map[string]any{"leading_dense_block_count": 1, "expert_shared_count": 1, "expert_gating_func": 2}),
		"gemma4": with(base, map[string]any{
			"attention.key_length_swa": 10, "attention.value_length_swa": 10, "attention.sliding_window": 7, "attention.sliding_window_pattern": []bool{true, true, false},
		}),
	} {
		t.Run(architecture, func(t *testing.T) {
			for key, value := range keys {
				if value == nil {
					delete(keys, key)
				}
			}
			separate := random(t, architecture, keys, dim, vocab)
			var tokens []int32
			for i := range int32(30) {
				tokens = append(tokens, i*7%vocab)
			}
			want := rowsOf(t, separate, ref.New(), tokens, 48)
			got := rowsOf(t, withFusedExperts(t, separate, architecture, keys, dim), ref.New(), tokens, 48)
			for i, row := range got {
				if !slices.Equal(row, want[i]) {
					t.Fatalf("row %d has other logits", i)
				}
			}
		})
	}
	t.Run("gpt-oss has biases of each, and refuses them", func(t *testing.T) {
		keys := with(base, map[string]any{"attention.sliding_window": 7})
		fused := withFusedExperts(t, random(t, "gpt-oss", keys, dim, vocab), "gpt-oss", keys, dim)
		_, err := Load(t.Context(), fused, ref.New(), Options{CacheType: device.CacheOf(gguf.F32), Blocks: 1, MaxRows: 2})
		if want := fmt.Sprintf("%q", "blk.0.ffn_gate_exps.weight"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	})
}

func TestGranite45ComputesMixturesAsGranite4(t *testing.T) {
	const dim, vocab, heads = 36, 61, 3
	keys := map[string]any{
		"context_length": 64, "block_count": 2, "feed_forward_length": 11, "attention.head_count": heads, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": float32(1e-6),
		"expert_count": 5, "expert_used_count": 2, "expert_shared_feed_forward_length": 13,
	}
	granite4 := random(t, "granitemoe", keys, dim, vocab)
	b := gguftest.New().Set("general.architecture", "granite_swa").Set("granite_swa.embedding_length", dim)
	for key, value := range keys {
		b.Set("granite_swa."+key, value)
	}
	for _, w := range granite4.Tensors() {
		layer, isGate := strings.CutSuffix(w.Name, "ffn_gate_shexp.weight")
		switch {
		case isGate: // comes first in the tensor of both
			up, err := granite4.Tensor(layer + "ffn_up_shexp.weight")
			if err != nil {
				t.Fatal(err)
			}
			b.Tensor(up.Name, w.Type, []int{w.Shape[0], 2 * w.Shape[1]}, slices.Concat(w.Data, up.Data))
			b.Tensor(layer+"attn_sinks.weight", gguf.F32, []int{heads}, gguftest.Quantize(gguf.F32, slices.Repeat([]float32{-1e9}, heads))) // which take no part of the attention
		case !strings.HasSuffix(w.Name, "ffn_up_shexp.weight"):
			b.Tensor(w.Name, w.Type, w.Shape, w.Data)
		}
	}
	granite45, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{3, 14, 15, 9, 26, 5, 35}
	if got, want := rowsOf(t, granite45, ref.New(), tokens, 48), rowsOf(t, granite4, ref.New(), tokens, 48); !reflect.DeepEqual(got, want) {
		t.Error("the same weights give other logits")
	}
}

// withSeparateAttention returns a file of the same model in which queries, keys and values are a tensor each.
func withSeparateAttention(t *testing.T, f *gguf.File, architecture string, keys map[string]any, dim int) *gguf.File {
	t.Helper()
	c, err := ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	b := gguftest.New().Set("general.architecture", architecture).Set(architecture+".embedding_length", dim)
	for key, value := range keys {
		b.Set(architecture+"."+key, value)
	}
	split := 0
	for _, w := range f.Tensors() {
		before, after, fused := strings.Cut(w.Name, "attn_qkv")
		if !fused {
			b.Tensor(w.Name, w.Type, w.Shape, w.Data)
			continue
		}
		var layer int
		if _, err := fmt.Sscanf(before, "blk.%d.", &layer); err != nil {
			t.Fatal(err)
		}
		first := 0
		for i, rows := range []int{queryDim(&c, &c.Layers[layer]), kvDim(&c, &c.Layers[layer]), kvDim(&c, &c.Layers[layer])} {
			part := w.Slice(first, rows)
			b.Tensor(before+[]string{"attn_q", "attn_k", "attn_v"}[i]+after, part.Type, part.Shape, part.Data)
			first += rows
		}
		split++
	}
	if split == 0 {
		t.Fatal("queries, keys and values are not one tensor")
	}
	file, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestQueriesKeysAndValuesInOneTensorGiveTheSameLogits(t *testing.T) {
	const dim, vocab = 36, 61
	keys := map[string]any{
		"context_length": 64, "block_count": 2, "feed_forward_length": 44, "attention.head_count": 3, "attention.head_count_kv": 1, "attention.key_length": 14,
		"attention.value_length": 14, "attention.layer_norm_rms_epsilon": float32(1e-6),
	}
	for _, architecture := range []string{"llama", "qwen2", "qwen3", "olmo2", "muse-glimmer"} {
		t.Run(architecture, func(t *testing.T) {
			one := random(t, architecture, keys, dim, vocab)
			var tokens []int32
			for i := range int32(20) {
				tokens = append(tokens, i*7%vocab)
			}
			want := rowsOf(t, withSeparateAttention(t, one, architecture, keys, dim), ref.New(), tokens, 48)
			for i, row := range rowsOf(t, one, ref.New(), tokens, 48) {
				if !slices.Equal(row, want[i]) {
					t.Fatalf("row %d has other logits", i)
				}
			}
		})
	}
}
