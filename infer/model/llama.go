package model

import "slices"

// llama is Llama 2 and 3, Mistral, Mixtral and relatives.
var llama = architecture{
	tensors: slices.Concat(ends, ropeFactors, norms, attention, gatedFeedForward, mixtureOfExperts),
	read: func(m *metadata, c *Config) {
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			m.experts(c, moeDefaults{normalize: true, width: wholeFFNDim})
		}
	},
}
