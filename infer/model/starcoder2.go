package model

import (
	"slices"

	"m40-llm/infer/device"
)

// StarCoder 2.
var starCoder2 = architecture{
	neox:       true,
	layerNorm:  true,
	activation: device.GELU,
	tensors:    slices.Concat(ends, layerNorms, attention, feedForward),
}
