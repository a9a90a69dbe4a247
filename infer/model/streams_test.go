package model_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// A stage hands all residual streams and the per-layer embeddings over. In the fixture later layers
// read the keys and values of earlier ones, so that it cannot be divided: here each has its own.
func TestStagesHandOverAllStreams(t *testing.T) {
	f, err := gguf.Parse(withOwnCaches(t, readFile(t, filepath.Join(fixtures.Path(t, "logits", "gemma3n"), "f32.gguf"))))
	if err != nil {
		t.Fatal(err)
	}
	openRef := func() (device.Device, error) { return ref.New(), nil }
	whole := open(t, f, openRef, gguf.F32)
	layers := len(whole.Config().Layers)
	tokens := []int32{197, 86, 136, 53, 167, 70, 111, 3, 9}
	want := feed(t, whole, tokens, 0)
	for n := 1; n < layers; n++ {
		stages := []model.Stage{{Device: ref.New(), Layers: n}, {Device: ref.New(), Layers: layers - n}}
		m, err := model.LoadStages(t.Context(), f, stages, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 64})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range feed(t, m, tokens, 0) {
			if !slices.Equal(row, want[i]) {
				t.Fatalf("divided after %d layers: the logits of row %d differ", n, i)
			}
		}
		for _, s := range stages {
			s.Device.Close()
		}
	}
}

// withOwnCaches returns a file of the model in which no layer reads keys and values of another:
// those that did get the weights of the layer that they read.
func withOwnCaches(t *testing.T, file []byte) []byte {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	config, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	b := gguftest.New()
	for _, key := range f.Keys() {
		values, _, array, err := f.First(key, 1)
		switch {
		case err != nil:
			t.Fatal(err)
		case strings.HasSuffix(key, ".shared_kv_layers"):
			b.Set(key, 0)
		case strings.HasPrefix(key, "tokenizer."):
		case !array:
			b.Set(key, values[0])
		default:
			b.Set(key, wholeArray(t, f, key))
		}
	}
	for _, w := range f.Tensors() {
		b.Tensor(w.Name, w.Type, w.Shape, w.Data)
	}
	for i, l := range config.Layers {
		for _, name := range []string{"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"} {
			own := fmt.Sprintf("blk.%d.%s", i, name)
			if w, err := f.Tensor(fmt.Sprintf("blk.%d.%s", i-l.KVLayersBack, name)); err == nil && l.KVLayersBack > 0 {
				b.Tensor(own, w.Type, w.Shape, w.Data)
			}
		}
	}
	return b.Bytes()
}

// wholeArray returns the array of a key as a slice of its element type.
func wholeArray(t *testing.T, f *gguf.File, key string) any {
	t.Helper()
	if floats, err := f.Floats(key); err == nil {
		return floats
	}
	if numbers, err := f.Uints(key); err == nil {
		return numbers
	}
	values, _, _, err := f.First(key, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	var marks []bool
	for _, v := range values {
		marks = append(marks, v.(bool))
	}
	return marks
}
