package model_test

import (
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// FuzzClassifier changes numbers of the metadata and tensors of a model that ranks: it is refused, or computes a score.
func FuzzClassifier(f *testing.F) {
	file := gguftest.TinyBERT(gguftest.BERT{Dim: 32, FFN: 32, Layers: 1, Context: 16, Ranks: true})
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
		if err != nil || !config.Ranks() || config.Dim > 4096 {
			return
		}
		if classifier, err := model.ReadClassifier(parsed, config); err == nil {
			classifier.Score(make([]float32, config.VectorDim()))
		}
	})
}
