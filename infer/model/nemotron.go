package model

import (
	"slices"

	"m40-llm/infer/device"
)

// nemotron is Nemotron and Minitron.
var nemotron = architecture{
	neox:       true,
	layerNorm:  true,
	activation: device.SquaredReLU,
	tensors:    slices.Concat(ends, layerNorms, attention, feedForward),
}
