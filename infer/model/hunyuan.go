package model

// hunyuanDense is Hunyuan without experts: queries and keys are normed after RoPE.
var hunyuanDense = architecture{
	neox:    true,
	tensors: qwen3.tensors,
	read: func(_ *metadata, c *Config) {
		for i := range c.Layers {
			c.Layers[i].NormAfterRoPE = true
		}
	},
}
