package model_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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

// setUint overwrites the value of a uint32 key.
func setUint(key string, v uint32) func(file []byte) []byte {
	return func(file []byte) []byte {
		binary.LittleEndian.PutUint32(file[valueOf(file, key):], v)
		return file
	}
}

// addUint adds a uint32 key.
func addUint(key string, v uint32) func(file []byte) []byte {
	return func(file []byte) []byte { return withKey(file, key, v) }
}

func setFloat(key string, v float32) func(file []byte) []byte {
	return setUint(key, math.Float32bits(v))
}

// valueOf finds the value of a key, which follows its name and its type.
func valueOf(file []byte, key string) int {
	name := append(binary.LittleEndian.AppendUint64(nil, uint64(len(key))), key...)
	return bytes.Index(file, name) + len(name) + 4
}

// suppress returns the file of TinyLlama that suppresses tokens.
func suppress(ids ...int32) func([]byte) []byte {
	return func([]byte) []byte {
		return gguftest.TinyLlama(gguftest.Llama{Keys: map[string]any{"tokenizer.ggml.suppress_tokens": ids}})
	}
}

// rename replaces a name by one of the same length.
func rename(from, to string) func(file []byte) []byte {
	return func(file []byte) []byte { return bytes.Replace(file, []byte(from), []byte(to), 1) }
}

func TestLoadRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(file []byte) []byte
		want string // in the error
	}{
		{"an architecture that nobody wrote", rename("\x05\x00\x00\x00\x00\x00\x00\x00llama", "\x05\x00\x00\x00\x00\x00\x00\x00gLama"), `architecture "gLama" is not supported; docs/models.md lists those that are`},
		{"no layers", setUint("llama.block_count", 0), "llama.block_count is 0, want 1 to 1024"},
		{"a layer more than the file has", setUint("llama.block_count", 3), `incomplete`},
		{"a layer less than the file has", setUint("llama.block_count", 1), "tensor blk.1.attn_norm.weight is not supported"},
		{"a million layers", setUint("llama.block_count", 1e6), "llama.block_count is 1000000"},
		{"a width that no tensor has", setUint("llama.embedding_length", 96), "tensor token_embd.weight has shape [64 320], but the metadata implies [96 320]"},
		{"no heads", setUint("llama.attention.head_count", 0), "llama.attention.head_count is 0"},
		{"heads that kv heads cannot share", setUint("llama.attention.head_count_kv", 3), "4 query heads cannot share 3 kv heads"},
		{"an odd number of rotated dimensions", setUint("llama.rope.dimension_count", 15), "llama.rope.dimension_count is 15, want an even number"},
		{"more rotated dimensions than a head has", setUint("llama.rope.dimension_count", 18), "llama.rope.dimension_count is 18, want 2 to 16"},
		{"a norm of NaN", setFloat("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())), "llama.attention.layer_norm_rms_epsilon is NaN"},
		{"a negative frequency base", setFloat("llama.rope.freq_base", -1), "llama.rope.freq_base is -1"},
		{"shared experts beside no others", addUint("llama.expert_shared_count", 8), `llama.expert_shared_count is 8, which the architecture "llama" does not support`},
		{"layers without an own KV cache", addUint("llama.attention.shared_kv_layers", 1), "llama.attention.shared_kv_layers is 1"},
		{"a suppressed token before the first", suppress(-1), "tokenizer.ggml.suppress_tokens has token -1; the last id of the vocabulary is 319"},
		{"a suppressed token behind the last", suppress(320), "tokenizer.ggml.suppress_tokens has token 320; the last id of the vocabulary is 319"},
		{"a missing tensor", rename("blk.1.ffn_up.weight", "blk.1.ffn_xp.weight"), `"blk.1.ffn_up.weight"`},
		{"a tensor of no use", rename("\x00output.weight", "\x000utput.weight"), `tensor 0utput.weight is not supported in architecture "llama"`},
		{"a tensor of another shape", func(file []byte) []byte {
			name := []byte("blk.0.attn_k.weight")
			rows := bytes.Index(file, name) + len(name) + 4 + 8
			binary.LittleEndian.PutUint64(file[rows:], 31)
			return file
		}, "tensor blk.0.attn_k.weight has shape [64 31], but the metadata implies [64 32]"},
		{"a weight type without kernels", func(file []byte) []byte {
			name := []byte("blk.0.attn_k.weight")
			typ := bytes.Index(file, name) + len(name) + 4 + 8 + 8
			binary.LittleEndian.PutUint32(file[typ:], uint32(gguf.I32))
			return file
		}, "tensor blk.0.attn_k.weight: cannot compute with weights of type I32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := gguftest.TinyLlama(gguftest.Llama{})
			edited := test.edit(bytes.Clone(file))
			if bytes.Equal(edited, file) {
				t.Fatal("the edit changed nothing")
			}
			f, err := gguf.Parse(edited)
			if err != nil {
				t.Fatal(err)
			}
			_, err = model.Load(context.Background(), f, ref.New(), model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 1, MaxRows: 8})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
		})
	}
}

func TestAKeyOfNoConsequenceIsNotRefused(t *testing.T) {
	f, err := gguf.Parse(withKey(gguftest.TinyLlama(gguftest.Llama{}), "llama.expert_shared_count", uint32(0)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.ReadConfig(f); err != nil {
		t.Error(err)
	}
}

func TestLayersOfOneShapeShareAKVCache(t *testing.T) {
	few, many := model.Layer{KVHeads: 2, HeadDim: 64}, model.Layer{KVHeads: 8, HeadDim: 32}
	for _, c := range []struct {
		name   string
		layers []model.Layer
		want   model.KVLayouts
	}{
		{"layers alike", []model.Layer{few, few, few}, model.KVLayouts{{Type: device.CacheOf(gguf.F16), Blocks: 5, Layers: 3, KVHeads: 2, HeadDim: 64}}},
		{"two shapes in turn", []model.Layer{few, many, few}, model.KVLayouts{
			{Type: device.CacheOf(gguf.F16), Blocks: 5, Layers: 2, KVHeads: 2, HeadDim: 64}, {Type: device.CacheOf(gguf.F16), Blocks: 5, Layers: 1, KVHeads: 8, HeadDim: 32},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := model.Config{Layers: c.layers}.KVLayout(device.CacheOf(gguf.F16), 5)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if got.Bytes() != 5*got.BlockBytes() {
				t.Errorf("5 blocks of %d bytes take %d", got.BlockBytes(), got.Bytes())
			}
		})
	}
}

func TestLoadReportsProgressAndStops(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0}))
	if err != nil {
		t.Fatal(err)
	}
	o := model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 1, MaxRows: 8}
	t.Run("progress rises to the size of all tensors", func(t *testing.T) {
		var last, total int64
		o := o
		o.Progress = func(p model.Progress) {
			if p.Done <= last || p.Done > p.Total || p.KernelsTotal > 0 {
				t.Errorf("%+v after %d of %d", p, last, total)
			}
			last, total = p.Done, p.Total
		}
		if _, err := model.Load(context.Background(), f, ref.New(), o); err != nil {
			t.Fatal(err)
		}
		if last != total || total != model.WeightBytes(f) {
			t.Errorf("ended at %d of %d, the file has %d", last, total, model.WeightBytes(f))
		}
	})
	t.Run("a cancelled context ends the loading", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		tensors := 0
		o := o
		o.Progress = func(model.Progress) {
			if tensors++; tensors == 3 {
				cancel()
			}
		}
		if _, err := model.Load(ctx, f, ref.New(), o); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if tensors != 3 {
			t.Errorf("loaded %d tensors, want 3", tensors)
		}
	})
}

func TestExpertsAreThoseOfTheFirstLayerThatHasSome(t *testing.T) {
	dense := model.Config{Layers: make([]model.Layer, 2)}
	if all, active := dense.Experts(); all != 0 || active != 0 {
		t.Errorf("a dense model has %d experts, %d active", all, active)
	}
	mixed := model.Config{Layers: []model.Layer{{}, {Routing: device.Routing{Experts: 8, Used: 2}}}}
	if all, active := mixed.Experts(); all != 8 || active != 2 {
		t.Errorf("got %d experts, %d active, want 8 and 2", all, active)
	}
}
