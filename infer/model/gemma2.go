package model

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// gemma2 is Gemma 2: every other layer has a sliding window, scores and logits are soft-capped, and
// norms both precede and follow attention and feed-forward layer.
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
			if len(c.Layers) == 46 { // the 27B model has another scale, and its files do not say so
				l.scaleByWidth(c)
			}
		}
		m.windows(c, 2)
	},
}

// scaleByWidth sets the scale of scores to 1/sqrt(Dim/Heads), although HeadDim differs.
func (l *Layer) scaleByWidth(c *Config) {
	l.Scale = float32(1 / math.Sqrt(float64(c.Dim)/float64(l.Heads)))
}
