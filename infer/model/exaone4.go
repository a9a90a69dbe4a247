package model

import "slices"

// exaone4 is EXAONE 4: norms follow attention and feed-forward layer instead of preceding them. In
// models with sliding windows, three of four layers have one, the others no RoPE.
var exaone4 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, attention, headNorms, gatedFeedForward, postNorms),
	read: func(m *metadata, c *Config) {
		if m.windows(c, 4) {
			c.rotateWindowed()
		}
	},
}
