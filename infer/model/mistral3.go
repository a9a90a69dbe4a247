package model

// Mistral 3: llama whose queries grow with the position.
var mistral3 = architecture{
	tensors: llama.tensors,
	read: func(m *metadata, c *Config) {
		c.Temperature = float32(m.optionalFloat("attention.temperature_scale", 0, 1e6, 0))
	},
}
