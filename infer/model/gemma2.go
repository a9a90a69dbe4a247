package model

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// Gemma 2: every other layer sees a window, scores and logits are capped, and what a layer
// adds is normed.
var gemma2 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, gatedFeedForward, postNorms),
	read: func(m *metadata, c *Config) {
		c.EmbeddingScale = float32(math.Sqrt(float64(c.Dim)))
		c.LogitCap = float32(m.optionalFloat("final_logit_softcapping", 0, 1e6, 30))
		scoreCap := float32(m.optionalFloat("attn_logit_softcapping", 0, 1e6, 50))
		window := m.optionalInteger("attention.sliding_window", 1, maxContext, 4096)
		for i := range c.Layers {
			l := &c.Layers[i]
			l.Activation, l.Cap, l.Window = device.GELU, scoreCap, 0
			if i%2 == 0 {
				l.Window = window
			}
			if len(c.Layers) == 46 { // the one of 27B, whose files do not say that its scale is another
				l.Scale = float32(1 / math.Sqrt(float64(c.Dim)/float64(l.Heads)))
			}
		}
	},
}
