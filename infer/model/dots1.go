package model

import (
	"slices"

	"m40-llm/infer/device"
)

// dots1 is dots.llm1.
var dots1 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts),
	read:    func(m *metadata, c *Config) { m.experts(c, moeDefaults{score: device.ScoreSigmoid}) },
}
