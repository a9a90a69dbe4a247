package cpu

import (
	"slices"

	"m40-llm/infer/gguf"
)

// WeightTypes returns the formats of weights that there are kernels for.
func WeightTypes() []gguf.Type { return slices.Clone(kernelTypes) }
