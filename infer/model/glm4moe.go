package model

import (
	"slices"

	"m40-llm/infer/device"
)

// glm4MoE is GLM 4.5 and 4.6. Only some of the models norm queries and keys.
var glm4MoE = architecture{
	neox:  true,
	heads: true,
	tensors: slices.Concat(ends, attention, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts, []tensor{
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}},
		{slot: ffnNorm, name: "post_attention_norm.weight", shape: shape{dim}},
		{slot: attnQNorm, name: "attn_q_norm.weight", shape: shape{headDim}, optional: true},
		{slot: attnKNorm, name: "attn_k_norm.weight", shape: shape{headDim}, optional: true},
	}),
	read: func(m *metadata, c *Config) {
		m.dropMTPBlocks(c)
		m.experts(c, moeDefaults{score: device.ScoreSigmoid})
	},
}
