package model

import "slices"

// GLM 4 of 2025: gate and up are one tensor, and what a layer adds is normed.
var glm4 = architecture{
	tensors: slices.Concat(ends, norms, attention, fusedFeedForward, postNorms),
}
