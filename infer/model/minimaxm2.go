package model

import (
	"slices"

	"m40-llm/infer/device"
)

// minimaxM2 is MiniMax M2: one norm over the queries of all heads, one over the keys.
var minimaxM2 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, rowNorms, mixtureOfExperts, selectionBias),
	read: func(m *metadata, c *Config) {
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true, width: wholeFFNDim})
	},
}
