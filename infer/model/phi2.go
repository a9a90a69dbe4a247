package model

import (
	"slices"

	"m40-llm/infer/device"
)

// Phi 1 and 2: attention and feed-forward layer read the same norm, and all have biases.
var phi2 = architecture{
	neox:       true,
	layerNorm:  true,
	activation: device.GELU,
	tensors: slices.Concat(ends, oneNorm, fusedAttention, feedForward, []tensor{
		{slot: outputBias, name: "output.bias", shape: shape{vocab}, part: lastStage, optional: true},
	}),
}
