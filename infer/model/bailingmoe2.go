package model

import (
	"slices"

	"m40-llm/infer/device"
)

// bailingMoE2 is Ling 2 and Sarvam: the queries and keys of each head are normed, and there are mixtures of experts in all but the first
// layers.
var bailingMoE2 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts),
	read: func(m *metadata, c *Config) {
		m.dropMTPBlocks(c)
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
	},
}
