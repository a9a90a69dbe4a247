package model

import "slices"

// Phi 3 and Phi 4 mini: what attention reads is one tensor, gate and up are another, and far
// positions turn by other factors than near ones.
var phi3 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, ropeFactors, norms, fusedAttention, fusedFeedForward),
}
