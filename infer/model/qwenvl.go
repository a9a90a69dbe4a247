package model

// The text parts of Qwen 2 VL, 2.5 VL and 3 VL. Positions have several coordinates only in images: those of text are all the same.
var (
	qwen2VL    = architecture{neox: true, tensors: qwen2.tensors}
	qwen3VL    = architecture{neox: true, tensors: qwen3.tensors}
	qwen3VLMoE = architecture{neox: true, tensors: qwen3moe.tensors, read: qwen3moe.read}
)
