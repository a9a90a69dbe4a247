package model

import (
	"slices"

	"m40-llm/infer/device"
)

// EXAONE 4: what a layer adds is normed, and what it reads is not. With windows, three of four
// layers see one, and the rest have no RoPE.
var exaone4 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, attention, headNorms, gatedFeedForward, postNorms),
	read: func(m *metadata, c *Config) {
		if !m.windows(c, 4) {
			return
		}
		for i := range c.Layers {
			if l := &c.Layers[i]; l.Window == 0 {
				l.RoPE = device.RoPE{}
			}
		}
	},
}
