package model

// mistral3 is Mistral 3: llama whose queries are scaled by position.
var mistral3 = architecture{
	tensors: llama.tensors,
	read: func(m *metadata, c *Config) {
		c.Temperature = float32(m.optionalFloat("attention.temperature_scale", 0, 1e6, 0))
	},
}
