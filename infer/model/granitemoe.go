package model

import "slices"

// Granite 3 and 4 with mixtures of experts, of which some add to every row.
var graniteMoE = architecture{
	tensors: slices.Concat(ends, norms, attention, mixtureOfExperts, sharedExperts),
	read: func(m *metadata, c *Config) {
		granite.read(m, c)
		m.experts(c, mixture{normalize: true, width: wholeWidth})
	},
}

// wholeWidth is the width of experts that are as wide as a feed-forward layer.
func wholeWidth(l *Layer) int { return l.HiddenDim }
