package model

import "math"

// hunyuanDense is Hunyuan without experts: queries and keys are normed after RoPE.
var hunyuanDense = architecture{
	neox:    true,
	tensors: qwen3.tensors,
	read: func(m *metadata, c *Config) {
		normAfterRoPE(c)
		alpha := m.optionalFloat("rope.scaling.alpha", 0, 1e6, 0)
		for i := range c.Layers {
			if r := &c.Layers[i].RoPE; alpha > 0 && r.HeadDim > 2 {
				r.Base *= math.Pow(alpha, float64(r.HeadDim)/float64(r.HeadDim-2))
			}
		}
	},
}

func normAfterRoPE(c *Config) {
	for i := range c.Layers {
		c.Layers[i].NormAfterRoPE = true
	}
}
