package model

import (
	"fmt"
	"slices"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// modernBERT is ModernBERT and relatives, such as GTE and Granite Embedding R2: an encoder with RoPE and norms before attention and
// feed-forward layers, where two of three layers have a window.
var modernBERT = architecture{
	neox:       true,
	layerNorm:  true,
	encoder:    true,
	geluHead:   true,
	activation: device.ExactGELU,
	tensors: slices.Concat(attention, classifierLayers,
		fused("ffn_up.weight", tensor{slot: ffnGate, shape: shape{ffnDim, dim}}, tensor{slot: ffnUp, shape: shape{ffnDim, dim}}),
		[]tensor{
			{slot: tokenEmbd, name: "token_embd.weight", shape: shape{vocab, dim}, part: firstStage},
			{slot: tokenEmbdNorm, name: "token_embd_norm.weight", shape: shape{dim}, part: firstStage},
			{slot: tokenEmbdNormBias, name: "token_embd_norm.bias", shape: shape{dim}, part: firstStage, optional: true},
			{slot: outputNorm, name: "output_norm.weight", shape: shape{dim}, part: lastStage},
			{slot: outputNormBias, name: "output_norm.bias", shape: shape{dim}, part: lastStage, optional: true},
			{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}, optional: true},
			{slot: attnNormBias, name: "attn_norm.bias", shape: shape{dim}, optional: true},
			{slot: ffnNorm, name: "ffn_norm.weight", shape: shape{dim}},
			{slot: ffnNormBias, name: "ffn_norm.bias", shape: shape{dim}, optional: true},
			{slot: ffnDown, name: "ffn_down.weight", shape: shape{dim, ffnDim}},
		}),
	read: func(m *metadata, c *Config) {
		m.windowed(c, m.windowsBehindFirst("attention.sliding_window_pattern", len(c.Layers), 3))
		m.gateActivation(c)
		m.normsBehindFirst(c)
	},
}

// windowsBehindFirst returns which of layers layers have a window: those that the key marks, or all but the first of each period if it is the
// length of one. A file without the key has the period period.
func (m *metadata) windowsBehindFirst(name string, layers, period int) []bool {
	_, _, array, err := m.f.First(m.key(name), layers)
	if err == nil && array {
		return m.pattern(name, layers, period)
	}
	period = m.optionalInteger(name, 1, maxLayers, period)
	marks := make([]bool, layers)
	for i := range marks {
		marks[i] = i%period > 0
	}
	return marks
}

// gateActivation reads the activation of the gates of feed-forward layers.
func (m *metadata) gateActivation(c *Config) {
	kinds := map[string]device.Activation{"gelu": device.ExactGELU, "gelu_pytorch_tanh": device.GELU, "silu": device.SiLU}
	kind, err := gguf.Optional(m.f.Str, m.key("hidden_activation"), "gelu")
	if err == nil && kinds[kind] == 0 {
		err = fmt.Errorf("%s is %.80q; supported are gelu, gelu_pytorch_tanh and silu", m.key("hidden_activation"), kind)
	}
	if err != nil {
		m.fail(err)
		return
	}
	for i := range c.Layers {
		c.Layers[i].Activation = kinds[kind]
	}
}

// normsBehindFirst fails if a layer but the first has no norm before attention. The embeddings are normed already.
func (m *metadata) normsBehindFirst(c *Config) {
	for i := range c.Layers {
		if name := fmt.Sprintf("blk.%d.attn_norm.weight", i); i > 0 && !m.hasTensor(name) {
			m.fail(fmt.Errorf("the file is incomplete: tensor %s is missing", name))
		}
	}
}
