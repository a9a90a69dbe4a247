package model

import (
	"slices"

	"m40-llm/infer/device"
)

// cohere2MoE is North Mini Code and relatives: Command R7B with mixtures of experts in all but the first layers. Attention and experts
// read the same norm.
var cohere2MoE = architecture{
	layerNorm: true,
	tensors:   slices.Concat(commandR.tensors, mixtureOfExperts, sharedExperts),
	read: func(m *metadata, c *Config) {
		cohere2.read(m, c)
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
		for i := range c.Layers {
			c.Layers[i].SharedMean = c.Layers[i].SharedDim > 0
		}
	},
}
