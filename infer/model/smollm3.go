package model

import "m40-llm/infer/device"

// SmolLM 3: llama of which every fourth layer has no RoPE.
var smollm3 = architecture{
	tensors: llama.tensors,
	read: func(_ *metadata, c *Config) {
		for i := 3; i < len(c.Layers); i += 4 {
			c.Layers[i].RoPE = device.RoPE{}
		}
	},
}
