package model

import (
	"slices"

	"m40-llm/infer/device"
)

// jinaBERT2 is Jina Embeddings 2: BERT with ALiBi in place of positions, and gated feed-forward layers. The one for code has norms of
// queries and keys, and adds the input of a layer a second time after attention.
var jinaBERT2 = architecture{
	layerNorm:  true,
	positions:  true,
	encoder:    true,
	activation: device.ExactGELU,
	tensors: slices.Concat(encoderEnds, attention, rowLayerNorms, sumNorms,
		fused("ffn_up.weight", tensor{slot: ffnGate, shape: shape{fusedGateDim, dim}}, tensor{slot: ffnUp, shape: shape{fusedGateDim, dim}}),
		fused("ffn_up.bias", tensor{slot: ffnGateBias, shape: shape{fusedGateDim}, optional: true}, tensor{slot: ffnUpBias, shape: shape{fusedGateDim}, optional: true}),
		[]tensor{
			{slot: ffnGate, name: "ffn_gate.weight", shape: shape{separateGateDim, dim}},
			{slot: ffnUp, name: "ffn_up.weight", shape: shape{separateGateDim, dim}},
			{slot: ffnUpBias, name: "ffn_up.bias", shape: shape{separateGateDim}, optional: true},
			{slot: ffnDown, name: "ffn_down.weight", shape: shape{dim, ffnDim}},
			{slot: ffnDownBias, name: "ffn_down.bias", shape: shape{dim}, optional: true},
			{slot: attnAgainNorm, name: "attn_norm_2.weight", shape: shape{dim}, optional: true},
			{slot: attnAgainNormBias, name: "attn_norm_2.bias", shape: shape{dim}, optional: true},
		}),
	read: func(m *metadata, c *Config) {
		readTokenTypes(m, c)
		separate := m.hasTensor("blk.0.ffn_gate.weight") // of files from before the middle of 2025
		for i := range c.Layers {
			c.Layers[i].MaxBias = float32(m.optionalFloat("attention.max_alibi_bias", 0, 64, 8))
			c.Layers[i].SeparateGate = separate
		}
	},
}

// rowLayerNorms are LayerNorms of the queries of all heads and of the keys, which some models of a family have.
var rowLayerNorms = []tensor{
	{slot: attnQNorm, name: "attn_q_norm.weight", shape: shape{queryDim}, optional: true},
	{slot: attnQNormBias, name: "attn_q_norm.bias", shape: shape{queryDim}, optional: true},
	{slot: attnKNorm, name: "attn_k_norm.weight", shape: shape{kvDim}, optional: true},
	{slot: attnKNormBias, name: "attn_k_norm.bias", shape: shape{kvDim}, optional: true},
}

func fusedGateDim(_ *Config, l *Layer) int {
	if l.SeparateGate {
		return 0
	}
	return l.FFNDim
}

func separateGateDim(_ *Config, l *Layer) int { return l.FFNDim - fusedGateDim(nil, l) }
