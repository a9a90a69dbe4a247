package model

import "slices"

// graniteMoE is Granite 3 and 4 with mixtures of experts and shared experts.
var graniteMoE = architecture{
	tensors: slices.Concat(ends, ropeFactors, norms, attention, mixtureOfExperts, sharedExperts),
	read: func(m *metadata, c *Config) {
		granite.read(m, c)
		m.experts(c, moeDefaults{normalize: true, width: wholeFFNDim})
	},
}

// wholeFFNDim is the width of experts in files that state it as the width of the feed-forward layer.
func wholeFFNDim(l *Layer) int { return l.FFNDim }
