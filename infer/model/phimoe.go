package model

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// phiMoE is Phi 3.5 MoE and its smaller relatives: LayerNorm, mixtures of experts chosen by SparseMixer, and biases of all products of
// attention and of the output.
var phiMoE = architecture{
	neox:    true,
	tensors: slices.Concat(ends, outputBiases, ropeFactors, layerNorms, attention, mixtureOfExperts),
	read: func(m *metadata, c *Config) {
		c.LayerNorm = true // the file states the epsilon by the key for RMSNorm
		m.experts(c, moeDefaults{score: device.ScoreSparseMixer, width: wholeFFNDim})
		for i := range c.Layers {
			c.Layers[i].RoPE.Magnitude = phiMoEMagnitude(c.Layers[i].RoPE.Magnitude)
		}
	},
}

// phiMoEMagnitude returns the factor of rotated elements for the one of the file. Published files of Phi 3.5 MoE state the one that follows
// from the length of its context, √(1 + ln 32 / ln 4096); the model has another.
func phiMoEMagnitude(stated float32) float32 {
	const derived, published = 1.190238, 1.243163121016122
	if math.Abs(float64(stated)-derived) < 1e-4 {
		return published
	}
	return stated
}
