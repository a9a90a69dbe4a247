package model

import "slices"

// olmo2 is OLMo 2 and 3: norms follow attention and feed-forward layer instead of preceding them,
// and one norm covers the queries of all heads, one the keys. In OLMo 3, three of four layers have a
// sliding window and RoPE without context extension.
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
