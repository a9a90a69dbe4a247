package model

import (
	"slices"

	"m40-llm/infer/device"
)

// arcee is AFM: llama whose feed-forward layers have no gates.
var arcee = architecture{
	activation: device.SquaredReLU,
	tensors:    slices.Concat(ends, norms, attention, feedForward),
}
