package model_test

import (
	"context"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// FuzzEmbeddingModel changes numbers of the metadata and tensors of an embedding model: it is refused, or
// computes a vector for each token.
func FuzzEmbeddingModel(f *testing.F) {
	file := gguftest.TinyBERT(gguftest.BERT{Dim: 32, FFN: 32, Layers: 1, Context: 16})
	f.Add(uint16(0), byte(0))
	for at := uint16(24); at < 900; at += 37 {
		f.Add(at, byte(at))
	}
	f.Fuzz(func(t *testing.T, at uint16, value byte) {
		changed := append([]byte(nil), file...)
		changed[int(at)%len(changed)] = value
		parsed, err := gguf.Parse(changed)
		if err != nil {
			return
		}
		config, err := model.ReadConfig(parsed)
		if err != nil || config.Dim > 4096 || config.ContextLength > 4096 || len(config.Layers) > 8 {
			return
		}
		dev := ref.New()
		defer dev.Close()
		m, err := model.Load(context.Background(), parsed, dev, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 1, MaxRows: 4})
		if err != nil || !config.Embeds() {
			return
		}
		b := &device.Batch{Tokens: []int32{2, 9, 3}, Pos: []int32{0, 1, 2}, Seq: []int32{0, 0, 0}, Out: []int32{0, 1, 2}, Tables: tablesOf(m, []int32{0})}
		if err := m.Forward(b); err != nil {
			t.Fatal(err)
		}
		vectors := make([]float32, 3*config.VectorDim())
		if err := m.Vectors(vectors, 0); err != nil {
			t.Fatal(err)
		}
	})
}
