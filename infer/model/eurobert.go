package model

import "slices"

// euroBERT is EuroBERT and Jina Embeddings 5 Nano: llama with bidirectional attention.
var euroBERT = architecture{
	neox:    true,
	encoder: true,
	tensors: slices.Concat(ends, norms, attention, gatedFeedForward),
}
