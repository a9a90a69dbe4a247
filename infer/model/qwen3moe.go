package model

import "slices"

// Qwen 3 with a mixture of experts in every layer.
var qwen3moe = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, mixtureOfExperts),
	read:    func(m *metadata, c *Config) { m.experts(c, mixture{normalize: true}) },
}
