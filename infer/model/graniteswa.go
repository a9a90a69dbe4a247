package model

import (
	"slices"

	"m40-llm/infer/device"
)

// graniteSWA is Granite 4.5: Granite with sliding windows, attention sinks and layers without RoPE.
var graniteSWA = architecture{
	tensors: slices.Concat(granite.tensors, []tensor{{slot: attnSinks, name: "attn_sinks.weight", shape: shape{heads}}}),
	read: func(m *metadata, c *Config) {
		granite.read(m, c)
		m.windows(c, 4)
		for i, rotates := range m.pattern("attention.rope_pattern", len(c.Layers), 1<<20) {
			if !rotates {
				c.Layers[i].RoPE = device.RoPE{}
			}
		}
	},
}
