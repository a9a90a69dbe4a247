package model

import (
	"slices"

	"m40-llm/infer/device"
)

// gemma3 is Gemma 3: five of six layers have a sliding window and other RoPE frequencies.
var gemma3 = architecture{
	neox:       true,
	activation: device.GELU,
	tensors:    slices.Concat(ends, norms, attention, headNorms, gatedFeedForward, postNorms),
	read: func(m *metadata, c *Config) {
		c.scaleEmbeddings()
		c.LogitCap = float32(m.optionalFloat("final_logit_softcapping", 0, 1e6, 0))
		m.gemmaWindows(c)
		c.Layers[0].F32Cache = true // rounding its keys and values to F16 causes most of the error that an F16 cache causes
		for i := range c.Layers {
			if len(c.Layers) == 62 { // the 27B model has another scale, and its files do not say so
				c.Layers[i].scaleByWidth(c)
			}
		}
	},
}

// gemmaEmbedding is EmbeddingGemma: Gemma 3 with bidirectional attention, and dense layers after it.
var gemmaEmbedding = architecture{
	neox:       true,
	encoder:    true,
	activation: device.GELU,
	tensors:    slices.Concat(ends, norms, attention, headNorms, gatedFeedForward, postNorms, denseLayers),
	read: func(m *metadata, c *Config) {
		c.scaleEmbeddings()
		m.gemmaWindows(c)
		c.Dense = [2]int{m.tensorRows("dense_2.weight"), m.tensorRows("dense_3.weight")}
	},
}

// gemmaWindows reads the windows of Gemma 3, with the RoPE of layers with and without one.
func (m *metadata) gemmaWindows(c *Config) {
	base := m.optionalFloat("rope.freq_base", 1, 1e12, 1e6)
	windowBase := m.optionalFloat("rope.freq_base_swa", 1, 1e12, 1e4)
	m.windows(c, 6)
	for i := range c.Layers {
		l := &c.Layers[i]
		l.RoPE.Base = base
		if l.Window > 0 {
			l.RoPE = l.RoPE.Unscaled()
			l.RoPE.Base = windowBase
		}
	}
}
