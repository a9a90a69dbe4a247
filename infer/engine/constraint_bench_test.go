package engine

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"m40-llm/infer"
	shapes "m40-llm/infer/bench"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
	"m40-llm/infer/model"
)

// BenchmarkConstraint writes answers side by side, free and held to a schema, in the
// same number of tokens: with the built-in model, and with one of 110 million random
// weights and a vocabulary of 32,000. slower is what being held costs of the speed; the
// first answer to a schema finds nothing worked out, the next ones do.
func BenchmarkConstraint(b *testing.B) {
	b.Run("guide", func(b *testing.B) { benchmarkConstraint(b, guide.Model, loadModel) })
	b.Run("llama-110m", func(b *testing.B) {
		weights, err := shapes.Synthetic("llama-110m", "q8_0", 1, 0)
		if err != nil {
			b.Fatal(err)
		}
		benchmarkConstraint(b, withVocabulary(b, "llama-spm"), func(ctx context.Context, _ *gguf.File, stages []model.Stage, o model.Options) (forwarder, error) {
			stages[0].Layers = 12
			return model.LoadStages(ctx, weights, stages, o)
		})
	})
}

func benchmarkConstraint(b *testing.B, file []byte, load loadFunc) {
	one := &bench{t: b, files: map[string][]byte{"m": file}}
	e, err := open(Options{
		Catalog:       catalog{one},
		OpenDevice:    func(*gguf.File) (device.Device, error) { return cpu.Open(0) },
		Model:         "m",
		ContextLength: 512,
	}, load)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	one.Engine = e
	if err := e.WaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	speed := func(schema string) float64 {
		r := infer.DefaultRequest()
		r.Prompt, r.MaxTokens, r.Params.Seed = "Once upon a time", 200, 1
		if r.JSONSchema = json.RawMessage(schema); schema == "" {
			r.IgnoreEOS = true
		}
		a := one.ask(r)
		if a.err != nil || len(a.tokens) != r.MaxTokens {
			b.Fatalf("%d tokens, %v", len(a.tokens), a.err)
		}
		return float64(len(a.tokens)-1) / a.done.Timings.Decode.Seconds()
	}
	const schema = `{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array","items":{"type":"string","maxLength":40},"minItems":2}},"required":["name","age","tags"]},"minItems":200}`
	speed("")
	first := speed(schema)
	var free, held float64
	for b.Loop() {
		free += speed("")
		held += speed(schema)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(free/float64(b.N), "free-tok/s")
	b.ReportMetric(held/float64(b.N), "held-tok/s")
	b.ReportMetric(first, "first-held-tok/s")
	b.ReportMetric(100*(1-held/free), "slower-%")
}

// withVocabulary returns the file of a model that has a fixture's vocabulary, and next
// to no weights.
func withVocabulary(b *testing.B, name string) []byte {
	f, err := gguf.Open(fixtures.Path(b, "tokenizers", "vocab", name+".gguf"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	tokens, err1 := f.Strs("tokenizer.ggml.tokens")
	scores, err2 := f.Floats("tokenizer.ggml.scores")
	types, err3 := f.Ints("tokenizer.ggml.token_type")
	if err := errors.Join(err1, err2, err3); err != nil {
		b.Fatal(err)
	}
	g := gguftest.New().
		Set("general.architecture", "llama").
		Set("llama.block_count", uint32(12)).
		Set("llama.embedding_length", uint32(32)).
		Set("llama.attention.head_count", uint32(1)).
		Set("llama.attention.head_count_kv", uint32(1)).
		Set("llama.feed_forward_length", uint32(32)).
		Set("llama.context_length", uint32(512)).
		Set("llama.attention.layer_norm_rms_epsilon", float32(1e-5)).
		Set("tokenizer.ggml.model", "llama").
		Set("tokenizer.ggml.tokens", tokens).
		Set("tokenizer.ggml.scores", scores).
		Set("tokenizer.ggml.token_type", types).
		Tensor("token_embd.weight", gguf.F16, []int{32, len(tokens)}, make([]byte, 64*len(tokens)))
	return g.Bytes()
}
