package model

import (
	"slices"

	"m40-llm/infer/device"
)

// MiniMax M2: queries and keys of all heads are normed at once.
var minimaxM2 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, rowNorms, mixtureOfExperts, choiceBias),
	read: func(m *metadata, c *Config) {
		m.experts(c, mixture{score: device.ScoreSigmoid, normalize: true, width: wholeWidth})
	},
}
