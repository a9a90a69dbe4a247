package model

import "slices"

// phi3 is Phi 3 and Phi 4 mini: queries, keys and values are one tensor, gate and up another, and
// long contexts have other RoPE factors than short ones.
var phi3 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, ropeFactors, norms, attention, fusedFeedForward),
}
