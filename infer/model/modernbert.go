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
			{slot: attnNorm, name: "attn_norm.weight", shape: shape{attnNormDim}},
			{slot: attnNormBias, name: "attn_norm.bias", shape: shape{dim}, optional: true},
			{slot: ffnNorm, name: "ffn_norm.weight", shape: shape{dim}},
			{slot: ffnNormBias, name: "ffn_norm.bias", shape: shape{dim}, optional: true},
			{slot: ffnDown, name: "ffn_down.weight", shape: shape{dim, ffnDim}},
		}),
	read: func(m *metadata, c *Config) {
		m.windowsAfterFirst(c, 3)
		m.gateActivation(c)
		c.Layers[0].NormedInput = !m.hasTensor("blk.0.attn_norm.weight")
	},
}

// attnNormDim is the width of the model, 0 in a layer that reads the normed embeddings.
func attnNormDim(c *Config, l *Layer) int {
	if l.NormedInput {
		return 0
	}
	return c.Dim
}

// windowsAfterFirst decides which layers have a window, with the RoPE of windows: those that the file marks, or all but the first of each
// period layers.
func (m *metadata) windowsAfterFirst(c *Config, period int) {
	const key = "attention.sliding_window_pattern"
	marks := make([]bool, len(c.Layers))
	if _, _, array, err := m.f.First(m.key(key), 1); err == nil && array {
		marks = m.pattern(key, len(c.Layers), period)
	} else {
		period = m.optionalInteger(key, 1, maxLayers, period)
		for i := range marks {
			marks[i] = i%period > 0
		}
	}
	m.windowed(c, marks)
	base := m.optionalFloat("rope.freq_base_swa", 1, 1e12, 1e4)
	for i := range c.Layers {
		if l := &c.Layers[i]; l.Window > 0 {
			l.RoPE.Base = base
		}
	}
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
