package model

import "slices"

// falconH1 is Falcon-H1: Mamba-2 and attention in parallel in every layer. The name of the norm before the feed-forward layer lacks
// its suffix in published files.
var falconH1 = architecture{
	neox: true,
	tensors: slices.Concat(ends, norms, attention, mamba, gatedFeedForward, []tensor{
		{slot: ffnNorm, name: "ffn_norm", shape: shape{dim}},
	}),
	read: func(m *metadata, c *Config) {
		r := m.scan(mamba2)
		for i := range c.Layers {
			c.Layers[i].Recurrent = r
		}
	},
}
