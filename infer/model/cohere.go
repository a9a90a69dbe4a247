package model

import "slices"

// commandR is Command R: attention and feed-forward layer read the same norm.
var commandR = architecture{
	layerNorm: true,
	tensors:   slices.Concat(ends, sharedNorm, attention, perHeadNorms, gatedFeedForward),
	read: func(m *metadata, c *Config) {
		c.LogitScale = float32(m.optionalFloat("logit_scale", 0, 1e6, 0))
	},
}

// cohere2 is Command R7B and relatives: three of four layers have a sliding window, the others no
// RoPE.
var cohere2 = architecture{
	layerNorm: true,
	tensors:   commandR.tensors,
	read: func(m *metadata, c *Config) {
		commandR.read(m, c)
		m.windows(c, 4)
		c.rotateWindowed()
	},
}
