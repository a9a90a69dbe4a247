package model

import (
	"fmt"
	"slices"
)

// stableLM is StableLM 2. In some of the models, attention and feed-forward layer read the same
// norm.
var stableLM = architecture{
	neox:      true,
	layerNorm: true,
	tensors: slices.Concat(ends, sharedNorm, attention, perHeadNorms, gatedFeedForward, []tensor{
		{slot: ffnNorm, name: "ffn_norm.weight", shape: shape{dimUnlessParallel}},
		{slot: ffnNormBias, name: "ffn_norm.bias", shape: shape{dimUnlessParallel}, optional: true},
	}),
	read: func(m *metadata, c *Config) {
		c.Parallel = !m.hasTensor("blk.0.ffn_norm.weight")
		if m.optionalBool("use_parallel_residual", c.Parallel) != c.Parallel {
			m.fail(fmt.Errorf("%s is %t, but the norms in the file imply %t", m.key("use_parallel_residual"), !c.Parallel, c.Parallel))
		}
	},
}

// dimUnlessParallel is the model's width if the feed-forward layer has a norm of its own.
func dimUnlessParallel(c *Config, _ *Layer) int {
	if c.Parallel {
		return 0
	}
	return c.Dim
}
