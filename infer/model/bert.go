package model

import (
	"slices"

	"m40-llm/infer/device"
)

// bert is BERT and relatives such as MiniLM, E5, BGE, GTE, Arctic Embed and those of XLM-R: encoders with
// learned position embeddings and a norm of each residual sum.
var bert = architecture{
	layerNorm:  true,
	positions:  true,
	encoder:    true,
	activation: device.ExactGELU,
	tensors: slices.Concat(encoderEnds, attention, feedForward, sumNorms, classifierLayers, []tensor{
		{slot: positionEmbd, name: "position_embd.weight", shape: shape{positions, dim}, part: firstStage},
	}),
	read: readTokenTypes,
}

// nomicBERT is Nomic Embed: BERT with RoPE and a gated feed-forward layer.
var nomicBERT = architecture{
	neox:      true,
	layerNorm: true,
	encoder:   true,
	tensors:   slices.Concat(encoderEnds, attention, gatedFeedForward, sumNorms, classifierLayers),
	read:      readTokenTypes,
}

// nomicBERTMoE is Nomic Embed 2: BERT with RoPE, and mixtures of experts without gates in every other layer.
var nomicBERTMoE = architecture{
	neox:       true,
	layerNorm:  true,
	encoder:    true,
	activation: device.ExactGELU,
	tensors:    slices.Concat(encoderEnds, attention, feedForward, mixtureOfUngatedExperts, sumNorms, classifierLayers),
	read: func(m *metadata, c *Config) {
		readTokenTypes(m, c)
		m.expertsWithRouter(c, moeDefaults{width: wholeFFNDim})
	},
}

// jinaBERT3 is Jina Embeddings 3: BERT with RoPE.
var jinaBERT3 = architecture{
	neox:       true,
	layerNorm:  true,
	encoder:    true,
	activation: device.ExactGELU,
	tensors:    slices.Concat(encoderEnds, attention, feedForward, sumNorms, classifierLayers),
	read:       readTokenTypes,
}

// encoderEnds are the embeddings of BERT, with their norm. All tokens have the first token type.
var encoderEnds = []tensor{
	{slot: tokenEmbd, name: "token_embd.weight", shape: shape{vocab, dim}, part: firstStage},
	{slot: tokenEmbdNorm, name: "token_embd_norm.weight", shape: shape{dim}, part: firstStage},
	{slot: tokenEmbdNormBias, name: "token_embd_norm.bias", shape: shape{dim}, part: firstStage, optional: true},
	{slot: tokenTypes, name: "token_types.weight", shape: shape{firstTokenType}, part: firstStage, derived: &derivation{
		shape:   shape{tokenTypeRows, dim},
		compute: func(c *Config, _ *Layer, values []float32) []float32 { return values[:c.Dim] },
	}},
}

// sumNorms are norms of the residual stream after each addition to it.
var sumNorms = []tensor{
	{slot: attnSumNorm, name: "attn_output_norm.weight", shape: shape{dim}},
	{slot: attnSumNormBias, name: "attn_output_norm.bias", shape: shape{dim}, optional: true},
	{slot: ffnSumNorm, name: "layer_output_norm.weight", shape: shape{dim}},
	{slot: ffnSumNormBias, name: "layer_output_norm.bias", shape: shape{dim}, optional: true},
}

func readTokenTypes(m *metadata, c *Config) { c.TokenTypes = m.tensorRows("token_types.weight") }
