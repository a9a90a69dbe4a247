package model

import (
	"cmp"
	"slices"
)

// Qwen 1.5 and 2 with mixtures of experts: one more expert adds to each row, times a gate.
var qwen2MoE = architecture{
	neox: true,
	tensors: slices.Concat(ends, norms, attention, mixtureOfExperts, sharedExperts,
		[]tensor{{slot: ffnSharedInput, name: "ffn_gate_inp_shexp.weight", shape: shape{one, dim}}}),
	read: func(m *metadata, c *Config) {
		width := c.Layers[0].HiddenDim
		m.experts(c, mixture{})
		for i := range c.Layers {
			c.Layers[i].SharedDim = cmp.Or(c.Layers[i].SharedDim, width)
		}
	},
}
