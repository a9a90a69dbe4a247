package model

import "slices"

// deci is Nemotron 51B, 253B and Super, and DeciLM: llama whose layers may lack attention, have a single matrix in its place, or lack
// a feed-forward layer.
var deci = architecture{
	hybrid: true,
	tensors: slices.Concat(ends, ropeFactors, attention, gatedFeedForward, []tensor{
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dimIfMixes}},
		{slot: attnLinear, name: "attn_output.weight", shape: shape{linearDim, linearDim}},
		{slot: ffnNorm, name: "ffn_norm.weight", shape: shape{dimIfFeedsForward}},
	}),
	read: func(m *metadata, c *Config) {
		for m.layer = range c.Layers {
			l := &c.Layers[m.layer]
			l.Linear = !l.Attends() && m.integer("attention.head_count", 0, maxHeads) > 0
		}
	},
}

// linearDim is the model's width in layers with a matrix in place of attention.
func linearDim(c *Config, l *Layer) int {
	if !l.Linear {
		return 0
	}
	return c.Dim
}

// dimIfMixes is the model's width in layers with attention, or with a matrix in its place.
func dimIfMixes(c *Config, l *Layer) int {
	if !l.Attends() && !l.Linear {
		return 0
	}
	return c.Dim
}

// dimIfFeedsForward is the model's width in layers with a feed-forward layer.
func dimIfFeedsForward(c *Config, l *Layer) int {
	if !l.feedsForward() {
		return 0
	}
	return c.Dim
}
