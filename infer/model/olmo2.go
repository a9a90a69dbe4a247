package model

import "slices"

// OLMo 2 and 3: what a layer adds is normed, and what it reads is not; all queries and all keys
// of a row are normed at once. Three of four layers of OLMo 3 see a window and are not scaled.
var olmo2 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, attention, rowNorms, gatedFeedForward, postNorms),
	read: func(m *metadata, c *Config) {
		m.windows(c, 4)
		for i := range c.Layers {
			if l := &c.Layers[i]; l.Window > 0 {
				l.RoPE = l.RoPE.Unscaled()
			}
		}
	},
}
