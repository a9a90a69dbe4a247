package model

import (
	"cmp"
	"math"
	"slices"
)

// miniCPM is MiniCPM 1 and 2: llama with factors for embeddings, logits and the outputs of layers.
var miniCPM = architecture{tensors: llama.tensors, read: readMiniCPM}

// miniCPM3 is MiniCPM 3: MiniCPM with latent attention.
var miniCPM3 = architecture{
	neox:    true,
	tensors: slices.Concat(ropeFactors, deepseek2.tensors),
	read: func(m *metadata, c *Config) {
		readMiniCPM(m, c)
		for i := range c.Layers {
			l := &c.Layers[i]
			l.ValueDim = m.optionalInteger("attention.value_length", 1, maxDim, c.Dim/l.Heads) // files have no key for it
			m.latent(l)
		}
	},
}

// readMiniCPM reads the factors. Files without the keys are of models with these defaults.
func readMiniCPM(m *metadata, c *Config) {
	c.EmbeddingScale = float32(m.optionalFloat("embedding_scale", 0, 1e6, 12))
	c.ResidualScale = float32(m.optionalFloat("residual_scale", 0, 1e6, 1.4/math.Sqrt(float64(len(c.Layers)))))
	c.LogitScale = float32(1 / cmp.Or(m.optionalFloat("logit_scale", 0, 1e6, float64(c.Dim)/256), 1))
}
