package model

// Hunyuan, dense: queries and keys are normed after they are turned.
var hunyuanDense = architecture{
	neox:    true,
	tensors: qwen3.tensors,
	read: func(_ *metadata, c *Config) {
		for i := range c.Layers {
			c.Layers[i].NormLast = true
		}
	},
}
