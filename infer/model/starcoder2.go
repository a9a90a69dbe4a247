package model

import (
	"slices"

	"m40-llm/infer/device"
)

// starCoder2 is StarCoder 2.
var starCoder2 = architecture{
	neox:       true,
	layerNorm:  true,
	activation: device.GELU,
	tensors:    slices.Concat(ends, layerNorms, attention, feedForward),
}
