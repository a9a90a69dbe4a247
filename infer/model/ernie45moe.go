package model

import "slices"

// ERNIE 4.5 with mixtures of experts, in every so many layers.
var ernie45MoE = architecture{
	tensors: slices.Concat(ends, norms, attention, gatedFeedForward, mixtureOfExperts, choiceBias, sharedExperts),
	read: func(m *metadata, c *Config) {
		dense := slices.Clone(c.Layers)
		m.experts(c, mixture{normalize: true})
		step := m.optionalInteger("interleave_moe_layer_step", 1, maxLayers, 1)
		for i := range c.Layers {
			if (i+1)%step != 0 {
				c.Layers[i] = dense[i]
			}
		}
	},
}
