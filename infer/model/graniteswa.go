package model

import (
	"slices"

	"m40-llm/infer/device"
)

// graniteSWA is Granite 4.5: Granite with sliding windows, attention sinks and layers without RoPE. Some models have mixtures of
// experts.
var graniteSWA = architecture{
	tensors: slices.Concat(granite.tensors, fusedSharedExperts, []tensor{{slot: attnSinks, name: "attn_sinks.weight", shape: shape{heads}}}),
	read: func(m *metadata, c *Config) {
		granite.read(m, c)
		m.windows(c, 4)
		for i, rotates := range m.pattern("attention.rope_pattern", len(c.Layers), 1<<20) {
			if !rotates {
				c.Layers[i].RoPE = device.RoPE{}
			}
		}
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			m.experts(c, moeDefaults{normalize: true, width: wholeFFNDim})
		}
	},
}

// fusedSharedExperts are shared experts whose gates and ups are one tensor.
var fusedSharedExperts = slices.Concat(
	fused("ffn_up_shexp.weight", tensor{slot: ffnSharedGate, shape: shape{sharedDim, dim}}, tensor{slot: ffnSharedUp, shape: shape{sharedDim, dim}}),
	[]tensor{{slot: ffnSharedDown, name: "ffn_down_shexp.weight", shape: shape{dim, sharedDim}}})
