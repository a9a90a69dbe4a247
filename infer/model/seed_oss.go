package model

import "slices"

// seedOSS is Seed-OSS. Its norm before the feed-forward layer has a tensor name that other families
// use for a norm after attention.
var seedOSS = architecture{
	neox: true,
	tensors: slices.Concat(ends, attention, gatedFeedForward, []tensor{
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}},
		{slot: ffnNorm, name: "post_attention_norm.weight", shape: shape{dim}},
	}),
}
