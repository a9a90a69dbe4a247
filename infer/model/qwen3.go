package model

import "slices"

// qwen3 is Qwen 3, Qwen3-Embedding and Qwen3-Reranker: the queries and keys of each head are normed.
var qwen3 = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, headNorms, gatedFeedForward, classifierLayers),
}
