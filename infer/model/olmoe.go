package model

import "slices"

// olmoe is OLMoE: one norm over the queries of all heads, one over the keys, and mixtures of experts.
var olmoe = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, rowNorms, mixtureOfExperts),
	read:    func(m *metadata, c *Config) { m.experts(c, moeDefaults{width: wholeFFNDim}) },
}
