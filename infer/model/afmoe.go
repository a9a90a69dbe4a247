package model

import (
	"slices"

	"m40-llm/infer/device"
)

// afmoe is Trinity Nano and Mini: three of four layers have a sliding window, the others no RoPE. Gates multiply the result of
// attention, and norms both precede and follow attention and feed-forward layer. The first layers are dense.
var afmoe = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gates, postNorms, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts),
	read: func(m *metadata, c *Config) {
		c.scaleEmbeddings()
		if m.windows(c, 4) {
			c.rotateWindowed()
		}
		c.gateElements()
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
	},
}
