package model

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// Gemma 2: every other layer sees a window, scores and logits are capped, and what a layer
// adds is normed.
var gemma2 = architecture{
	neox:       true,
	activation: device.GELU,
	tensors:    slices.Concat(ends, norms, attention, gatedFeedForward, postNorms),
	read: func(m *metadata, c *Config) {
		c.scaleEmbeddings()
		c.LogitCap = float32(m.optionalFloat("final_logit_softcapping", 0, 1e6, 30))
		scoreCap := float32(m.optionalFloat("attn_logit_softcapping", 0, 1e6, 50))
		window := m.optionalInteger("attention.sliding_window", 1, maxContext, 4096)
		for i := range c.Layers {
			l := &c.Layers[i]
			l.Cap, l.Window = scoreCap, window
			if len(c.Layers) == 46 { // the one of 27B, whose files do not say that its scale is another
				l.scaleByWidth(c)
			}
		}
		m.windows(c, 2)
	},
}

// scaleByWidth scales scores by the width of the model that a head would have its share of.
func (l *Layer) scaleByWidth(c *Config) {
	l.Scale = float32(1 / math.Sqrt(float64(c.Dim)/float64(l.Heads)))
}
