package model

import (
	"slices"

	"m40-llm/infer/device"
)

// gpt2 is GPT-2: learned position embeddings.
var gpt2 = architecture{
	layerNorm:  true,
	positions:  true,
	activation: device.GELU,
	tensors: slices.Concat(ends, layerNorms, attention, feedForward, []tensor{
		{slot: positionEmbd, name: "position_embd.weight", shape: shape{positions, dim}, part: firstStage},
	}),
}
