package model

import "slices"

// Hunyuan A13B: queries and keys are normed after they are turned, and one more expert adds to
// each row.
var hunyuanMoE = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, mixtureOfExperts, sharedExperts),
	read: func(m *metadata, c *Config) {
		hunyuanDense.read(m, c)
		m.experts(c, mixture{normalize: true, width: wholeWidth})
	},
}
