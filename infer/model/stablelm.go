package model

import (
	"fmt"
	"slices"
)

// StableLM 2: some have one norm for attention and feed-forward layer.
var stableLM = architecture{
	neox:      true,
	layerNorm: true,
	tensors: slices.Concat(ends, oneNorm, attention, ownNorms, gatedFeedForward, []tensor{
		{slot: ffnNorm, name: "ffn_norm.weight", shape: shape{unlessParallel}},
		{slot: ffnNormBias, name: "ffn_norm.bias", shape: shape{unlessParallel}, optional: true},
	}),
	read: func(m *metadata, c *Config) {
		_, err := m.f.Tensor("blk.0.ffn_norm.weight")
		c.Parallel = err != nil
		if m.optionalBool("use_parallel_residual", c.Parallel) != c.Parallel {
			m.fail(fmt.Errorf("%s does not fit the norms in the file", m.key("use_parallel_residual")))
		}
	},
}

// unlessParallel is the width of the norm before the feed-forward layer.
func unlessParallel(c *Config, _ *Layer) int {
	if c.Parallel {
		return 0
	}
	return c.Dim
}
