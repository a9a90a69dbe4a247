package model

import "slices"

// graniteHybrid is Granite 4: Mamba-2, and attention in few layers. Some models have mixtures of
// experts.
var graniteHybrid = architecture{
	hybrid:  true,
	tensors: slices.Concat(ends, norms, attention, mamba, gatedFeedForward, mixtureOfExperts, sharedExperts),
	read: func(m *metadata, c *Config) {
		granite.read(m, c)
		c.recurWithoutAttention(m.scan(mamba2))
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			m.experts(c, moeDefaults{normalize: true, width: wholeFFNDim})
		}
	},
}
