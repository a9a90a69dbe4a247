package model

import (
	"slices"

	"m40-llm/infer/device"
)

// exaone is EXAONE 3 and 3.5: llama with RoPE of other pairs.
var exaone = architecture{neox: true, tensors: slices.Concat(ends, norms, attention, gatedFeedForward)}

// exaoneMoE is K-EXAONE: three of four layers have a sliding window, the others no RoPE, and there are mixtures of experts in all but the
// first layers.
var exaoneMoE = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts),
	read: func(m *metadata, c *Config) {
		m.dropMTPBlocks(c)
		m.windows(c, 4)
		c.rotateWindowed()
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
	},
}
