package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// What a token takes on a Tesla M40 in addition to the arithmetic of its products. None of it was measured there.
const (
	share     = 0.82    // of the memory bandwidth that products and attention reach
	busy      = 0.6     // of the rate that the busiest unit allows
	launching = 4.0     // µs from the end of a launch of a graph to when the next one computes
	barrier   = 1.5     // µs from when the last block arrives at a barrier of the resident kernel to when all compute
	attending = 22.6    // µs of attention to few positions: 12.7 on an H200 of 1.98 GHz
	positions = 512     // in the cache, float16
	cacheSize = 2 * 2   // bytes of a key and a value
	microsec  = 1000000 // in a second
)

// matrix is a weight matrix, count of them in a model.
type matrix struct {
	outputs, inputs, count int
	typ                    string
}

// shape is what a model reads for a token.
type shape struct {
	name     string
	layers   int
	kv       int // elements of a key
	biases   int // launches of a layer that add one, before the same barrier
	matrices []matrix
}

func llama(name string, layers, dim, kv, ffn, vocab int, typ string) shape {
	return shape{name: name, layers: layers, kv: kv, matrices: []matrix{
		{dim + 2*kv, dim, layers, typ}, {dim, dim, layers, typ}, {2 * ffn, dim, layers, typ}, {dim, ffn, layers, typ}, {vocab, dim, 1, typ},
	}}
}

// shapes are the models of the table. Q4_K_M has the output layer, and values and down projections of half of the layers, in Q6_K.
func shapes() []shape {
	mixed := llama("llama-8b Q4_K_M", 32, 4096, 1024, 14336, 128256, "q4_k")
	mixed.matrices = []matrix{
		{4096 + 1024, 4096, 32, "q4_k"}, {1024, 4096, 16, "q4_k"}, {1024, 4096, 16, "q6_k"}, {4096, 4096, 32, "q4_k"},
		{2 * 14336, 4096, 32, "q4_k"}, {4096, 14336, 16, "q4_k"}, {4096, 14336, 16, "q6_k"}, {128256, 4096, 1, "q6_k"},
	}
	qwen := llama("qwen-0.5b Q8_0", 24, 896, 128, 4864, 151936, "q8_0")
	qwen.biases = 3
	return []shape{
		llama("llama-8b Q4_0", 32, 4096, 1024, 14336, 128256, "q4_0"), mixed, llama("llama-1b Q4_0", 16, 2048, 512, 8192, 128256, "q4_0"), qwen,
	}
}

// token is what a token takes.
type token struct {
	bytes               float64 // of weights
	work                float64 // µs of products and attention
	launches, barriers  int
	graph, resident     float64 // µs
	bound, fast, faster float64 // tokens per second: by memory bandwidth alone, of a graph, of the resident kernel
}

// token returns what a token of s takes; rates are those that products of one row allow, in bytes per second, by weight type.
func (s shape) token(rates map[string]float64) (t token, err error) {
	for _, m := range s.matrices {
		i := slices.IndexFunc(weights, func(w weight) bool { return w.name == m.typ })
		rate := rates[m.typ]
		if i < 0 || rate == 0 {
			return t, fmt.Errorf("no product of one row of %s", m.typ)
		}
		bytes := weights[i].bytes * float64(m.outputs) * float64(m.inputs) * float64(m.count)
		t.bytes += bytes
		t.work += bytes / min(share*memory, busy*rate) * microsec
	}
	cached := float64(s.layers * positions * s.kv * cacheSize)
	t.work += float64(s.layers)*attending + cached/(share*memory)*microsec
	// A layer: queries, keys and values; attention; its product; gate and up; down. Then the embedding, the last norm, the output layer,
	// and two launches for the candidates. The resident kernel also meets when it has taken a command.
	t.launches = s.layers*(5+s.biases) + 5
	t.barriers = s.layers*(5+min(s.biases, 1)) + 6
	t.graph, t.resident = t.work+launching*float64(t.launches), t.work+barrier*float64(t.barriers)
	t.bound, t.fast, t.faster = memory/t.bytes, microsec/t.graph, microsec/t.resident
	return t, nil
}

// printTokens prints the estimate for both ways to decode.
func printTokens(out io.Writer, rates map[string]float64) error {
	fmt.Fprintln(out, "\n| model | weights, GB | products and attention, ms | launches | graph, ms | tokens/s | barriers | resident kernel, ms | tokens/s | bandwidth alone, tokens/s |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	for _, s := range shapes() {
		t, err := s.token(rates)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(out, "| %s | %.2f | %.2f | %d | %.2f | %.0f | %d | %.2f | %.0f | %.0f |\n", s.name, t.bytes/1e9, t.work/1e3, t.launches, t.graph/1e3, math.Round(t.fast), t.barriers, t.resident/1e3, math.Round(t.faster), math.Round(t.bound))
	}
	return nil
}
