package model

import "slices"

// qwen3moe is Qwen 3 with a mixture of experts in every layer.
var qwen3moe = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, mixtureOfExperts),
	read:    func(m *metadata, c *Config) { m.experts(c, moeDefaults{normalize: true}) },
}
