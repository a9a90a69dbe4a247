package model

import (
	"slices"

	"m40-llm/infer/device"
)

// phi2 is Phi 1 and 2: attention and feed-forward layer read the same norm, and all weights have
// biases.
var phi2 = architecture{
	neox:       true,
	layerNorm:  true,
	activation: device.GELU,
	tensors:    slices.Concat(ends, outputBiases, sharedNorm, attention, feedForward),
}
