package model

import "slices"

// glm4 is GLM 4 of 2025: gate and up are one tensor, and norms both precede and follow attention
// and feed-forward layer.
var glm4 = architecture{
	tensors: slices.Concat(ends, norms, attention, fusedFeedForward, postNorms),
}
