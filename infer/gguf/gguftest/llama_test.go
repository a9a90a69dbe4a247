package gguftest_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

func parse(t *testing.T, o gguftest.Llama) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(gguftest.TinyLlama(o))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func values(t *testing.T, f *gguf.File, name string) []float32 {
	t.Helper()
	w, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]float32, w.Elements())
	if err := gguf.Dequantize(w.Type, w.Data, dst); err != nil {
		t.Fatal(err)
	}
	return dst
}

func TestTinyLlama(t *testing.T) {
	exact := values(t, parse(t, gguftest.Llama{}), "blk.1.ffn_down.weight")
	for _, c := range []struct {
		typ       gguf.Type
		tolerance float64 // of the largest weight of a block
	}{{gguf.F16, 1e-3}, {gguf.BF16, 1e-2}, {gguf.Q8_0, 0.5/127 + 1e-3}, {gguf.Q4_0, 0.5/7 + 1e-3}} {
		t.Run(fmt.Sprintf("weights in %s are those in F32, rounded", c.typ), func(t *testing.T) {
			got := values(t, parse(t, gguftest.Llama{Type: c.typ}), "blk.1.ffn_down.weight")
			for i := 0; i < len(exact); i += 32 {
				var largest float64
				for _, v := range exact[i : i+32] {
					largest = max(largest, math.Abs(float64(v)))
				}
				for k := i; k < i+32; k++ {
					if diff := math.Abs(float64(got[k] - exact[k])); diff > c.tolerance*largest {
						t.Fatalf("weight %d is %g, want %g", k, got[k], exact[k])
					}
				}
			}
		})
	}
	t.Run("the same options give the same bytes, another seed gives others", func(t *testing.T) {
		a, b, c := gguftest.TinyLlama(gguftest.Llama{}), gguftest.TinyLlama(gguftest.Llama{}), gguftest.TinyLlama(gguftest.Llama{Seed: 1})
		if !bytes.Equal(a, b) || bytes.Equal(a, c) {
			t.Errorf("same seed equal: %t, other seed equal: %t", bytes.Equal(a, b), bytes.Equal(a, c))
		}
	})
	t.Run("the vocabulary has the size asked for, no token twice, and merges of its own tokens", func(t *testing.T) {
		f := parse(t, gguftest.Llama{Vocab: 512})
		tokens, err := f.Strs("tokenizer.ggml.tokens")
		if err != nil || len(tokens) != 512 {
			t.Fatalf("there are %d tokens, %v", len(tokens), err)
		}
		if sorted := slices.Sorted(slices.Values(tokens)); len(slices.Compact(sorted)) != 512 {
			t.Error("a token is there twice")
		}
		merges, err := f.Strs("tokenizer.ggml.merges")
		if err != nil || len(merges) != 512-259 {
			t.Fatalf("there are %d merges, %v", len(merges), err)
		}
		for _, m := range merges {
			a, b, _ := strings.Cut(m, " ")
			if !slices.Contains(tokens, a) || !slices.Contains(tokens, b) || !slices.Contains(tokens, a+b) {
				t.Errorf("merge %q is not of tokens", m)
			}
		}
	})
	t.Run("a tied model has no output matrix, a model without a template has no template", func(t *testing.T) {
		f := parse(t, gguftest.Llama{Tied: true, NoTemplate: true})
		if _, err := f.Tensor("output.weight"); err == nil {
			t.Error("there is an output matrix")
		}
		if _, err := f.Str("tokenizer.chat_template"); err == nil {
			t.Error("there is a chat template")
		}
	})
}
