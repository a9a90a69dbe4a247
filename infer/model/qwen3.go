package model

import "slices"

// Qwen 3: the queries and keys of every head are normed.
var qwen3 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gatedFeedForward),
}
