package model

import "slices"

// hunyuanMoE is Hunyuan A13B: queries and keys are normed after RoPE, and there is a shared expert.
var hunyuanMoE = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, mixtureOfExperts, sharedExperts),
	read: func(m *metadata, c *Config) {
		normAfterRoPE(c)
		m.experts(c, moeDefaults{normalize: true, width: wholeFFNDim})
	},
}
