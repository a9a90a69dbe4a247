package model

import (
	"slices"

	"m40-llm/infer/device"
)

// lfm2 is LFM2: gated convolutions, and attention in some layers.
var lfm2 = architecture{
	neox:    true,
	hybrid:  true,
	tensors: slices.Concat(lfm2Norm, ends, norms, attention, headNorms, gatedConv, gatedFeedForward),
	read:    readLFM2,
}

// lfm2MoE is LFM2 with mixtures of experts after the first layers.
var lfm2MoE = architecture{
	neox:    true,
	hybrid:  true,
	tensors: slices.Concat(lfm2.tensors, mixtureOfExperts, selectionBias),
	read: func(m *metadata, c *Config) {
		readLFM2(m, c)
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
	},
}

// lfm2Norm is the norm before the output layer, by the name that files have for it.
var lfm2Norm = []tensor{{slot: outputNorm, name: "token_embd_norm.weight", shape: shape{dim}, part: lastStage}}

func readLFM2(m *metadata, c *Config) {
	c.recurWithoutAttention(Recurrent{kind: shortConv, kernel: m.integer("shortconv.l_cache", 1, maxKernel)})
}
