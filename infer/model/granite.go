package model

import (
	"cmp"

	"m40-llm/infer/device"
)

// Granite 3: llama whose embeddings, scores, logits and what layers add are scaled.
var granite = architecture{
	tensors: llama.tensors,
	read: func(m *metadata, c *Config) {
		c.EmbeddingScale = float32(m.optionalFloat("embedding_scale", 0, 1e6, 0))
		c.ResidualScale = float32(m.optionalFloat("residual_scale", 0, 1e6, 0))
		if scale := m.optionalFloat("logit_scale", 0, 1e6, 0); scale != 0 {
			c.LogitScale = float32(1 / scale)
		}
		scale := float32(m.optionalFloat("attention.scale", 0, 1e6, 0))
		turned := m.optionalBool("rope.scaling.finetuned", true)
		for i := range c.Layers {
			l := &c.Layers[i]
			l.Scale = cmp.Or(scale, l.Scale)
			if !turned { // the key is about something else elsewhere
				l.RoPE = device.RoPE{}
			}
		}
	},
}
