package model

// mellum is Mellum 2: Qwen 3 with mixtures of experts, and sliding windows in three of four layers, whose RoPE has no context
// extension.
var mellum = architecture{
	neox:    true,
	tensors: qwen3moe.tensors,
	read: func(m *metadata, c *Config) {
		qwen3moe.read(m, c)
		m.windows(c, 4)
		for i := range c.Layers {
			if l := &c.Layers[i]; l.Window > 0 {
				l.RoPE = l.RoPE.Unscaled()
			}
		}
	},
}
