package model

import "slices"

// ernie45MoE is ERNIE 4.5 with mixtures of experts in every n-th layer.
var ernie45MoE = architecture{
	tensors: slices.Concat(ends, norms, attention, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts),
	read: func(m *metadata, c *Config) {
		dense := slices.Clone(c.Layers)
		m.experts(c, moeDefaults{normalize: true})
		step := m.optionalInteger("interleave_moe_layer_step", 1, maxLayers, 1)
		for i := range c.Layers {
			if (i+1)%step != 0 {
				c.Layers[i] = dense[i]
			}
		}
	},
}
