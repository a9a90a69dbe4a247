package model

import "slices"

// Llama 2 and 3, Mistral and relatives.
var llama = architecture{
	tensors: slices.Concat(ends, ropeFactors, norms, attention, gatedFeedForward),
}
