package model

import (
	"slices"

	"m40-llm/infer/device"
)

// bloom is BLOOM: ALiBi in place of positions, and a norm of embeddings.
var bloom = architecture{
	layerNorm:  true,
	positions:  true,
	activation: device.GELU,
	tensors: slices.Concat(ends, layerNorms, attention, feedForward, []tensor{
		{slot: tokenEmbdNorm, name: "token_embd_norm.weight", shape: shape{dim}, part: firstStage},
		{slot: tokenEmbdNormBias, name: "token_embd_norm.bias", shape: shape{dim}, part: firstStage, optional: true},
	}),
	read: func(_ *metadata, c *Config) {
		for i := range c.Layers {
			c.Layers[i].MaxBias = 8
		}
	},
}

// mpt is MPT: ALiBi in place of positions, in models that have it, and LayerNorm.
var mpt = architecture{
	layerNorm:  true,
	positions:  true,
	activation: device.ExactGELU,
	tensors: slices.Concat(ends, layerNorms, attention, rowLayerNorms, feedForward, []tensor{
		{slot: positionEmbd, name: "position_embd.weight", shape: shape{positions, dim}, part: firstStage, optional: true},
	}),
	read: func(m *metadata, c *Config) {
		for i := range c.Layers {
			c.Layers[i].MaxBias = float32(m.optionalFloat("attention.max_alibi_bias", 0, 64, 0))
		}
	},
}
