package model

import (
	"cmp"

	"m40-llm/infer/device"
)

// granite is Granite 3: llama with factors for embeddings, scores, logits and the outputs of layers.
var granite = architecture{
	tensors: llama.tensors,
	read: func(m *metadata, c *Config) {
		c.EmbeddingScale = float32(m.optionalFloat("embedding_scale", 0, 1e6, 0))
		c.ResidualScale = float32(m.optionalFloat("residual_scale", 0, 1e6, 0))
		if scale := m.optionalFloat("logit_scale", 0, 1e6, 0); scale != 0 {
			c.LogitScale = float32(1 / scale)
		}
		scale := float32(m.optionalFloat("attention.scale", 0, 1e6, 0))
		hasRoPE := m.optionalBool("rope.scaling.finetuned", true)
		for i := range c.Layers {
			l := &c.Layers[i]
			l.Scale = cmp.Or(scale, l.Scale)
			if !hasRoPE { // in Granite files the key has this meaning
				l.RoPE = device.RoPE{}
			}
		}
	},
}
