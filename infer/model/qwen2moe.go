package model

import (
	"cmp"
	"slices"
)

// qwen2MoE is Qwen 1.5 and 2 with mixtures of experts: there is a shared expert with a gate.
var qwen2MoE = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, mixtureOfExperts, gatedSharedExperts),
	read: func(m *metadata, c *Config) {
		width := c.Layers[0].FFNDim
		m.experts(c, moeDefaults{})
		for i := range c.Layers {
			c.Layers[i].SharedDim = cmp.Or(c.Layers[i].SharedDim, width)
		}
	},
}
