package model

import "slices"

// qwen2 is Qwen 2 and 2.5: llama with biases of queries, keys and values.
var qwen2 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, outputBiases, norms, attention, gatedFeedForward),
}
