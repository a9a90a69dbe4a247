package model

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// gemma is Gemma 1.
var gemma = architecture{
	neox:       true,
	activation: device.GELU,
	tensors:    slices.Concat(ends, norms, attention, gatedFeedForward),
	read:       func(_ *metadata, c *Config) { c.scaleEmbeddings() },
}

// scaleEmbeddings multiplies embeddings by the square root of their width.
func (c *Config) scaleEmbeddings() { c.EmbeddingScale = float32(math.Sqrt(float64(c.Dim))) }
