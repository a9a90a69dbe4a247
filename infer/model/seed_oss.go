package model

import "slices"

// Seed-OSS: the norm before the feed-forward layer has a name that means another elsewhere.
var seedOSS = architecture{
	neox: true,
	tensors: slices.Concat(ends, attention, gatedFeedForward, []tensor{
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}},
		{slot: ffnNorm, name: "post_attention_norm.weight", shape: shape{dim}},
	}),
}
