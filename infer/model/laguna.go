package model

import (
	"fmt"
	"slices"

	"m40-llm/infer/device"
)

// laguna is Laguna: every fourth layer has no sliding window, fewer heads, and YaRN. Gates multiply the result of attention, one
// for each head or for each element.
var laguna = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gates, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts),
	read: func(m *metadata, c *Config) {
		marks := make([]bool, len(c.Layers))
		for i := range marks {
			marks[i] = i%4 != 0
		}
		m.windowed(c, marks)
		for i := range c.Layers {
			l := &c.Layers[i]
			if l.Window > 0 {
				l.RoPE = l.RoPE.Unscaled()
				l.RoPE.Dims = m.optionalInteger("rope.dimension_count_swa", 2, max(2, l.HeadDim), l.RoPE.Dims)
			}
			l.GateDim, l.GateActivation = m.tensorRows(fmt.Sprintf("blk.%d.attn_gate.weight", i)), device.Softplus
			if l.GateDim != l.Heads {
				l.GateDim = l.Heads * l.HeadDim
			}
		}
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
	},
}
