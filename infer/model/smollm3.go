package model

import "m40-llm/infer/device"

// smollm3 is SmolLM 3: llama in which every fourth layer has no RoPE.
var smollm3 = architecture{
	tensors: llama.tensors,
	read: func(_ *metadata, c *Config) {
		for i := 3; i < len(c.Layers); i += 4 {
			c.Layers[i].RoPE = device.RoPE{}
		}
	},
}
