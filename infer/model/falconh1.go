package model

import "slices"

// falconH1 is Falcon-H1: Mamba-2 and attention in parallel in every layer.
var falconH1 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, mamba, gatedFeedForward),
	read: func(m *metadata, c *Config) {
		r := m.scan(mamba2)
		for i := range c.Layers {
			c.Layers[i].Recurrent = r
		}
	},
}
