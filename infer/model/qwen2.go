package model

// Qwen 2 and 2.5: llama with biases of queries, keys and values.
var qwen2 = architecture{
	neox:    true,
	tensors: llama.tensors,
}
