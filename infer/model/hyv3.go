package model

import (
	"fmt"
	"slices"

	"m40-llm/infer/device"
)

// hyV3 is HY 3: Qwen 3 with mixtures of experts and shared experts in all but the first layers. No key has the number of dense layers,
// which are those without a router.
var hyV3 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts),
	read: func(m *metadata, c *Config) {
		m.dropMTPBlocks(c)
		m.expertsWithRouter(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
	},
}

// expertsWithRouter is experts for layers that have a router in the file.
func (m *metadata) expertsWithRouter(c *Config, defaults moeDefaults) {
	dense := slices.Clone(c.Layers)
	m.experts(c, defaults)
	for i, l := range dense {
		if !m.hasTensor(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", i)) {
			c.Layers[i] = l
		}
	}
}
