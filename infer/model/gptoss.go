package model

import (
	"slices"

	"m40-llm/infer/device"
)

// gptOSS is gpt-oss: every other layer has a sliding window, heads have attention sinks, and all
// weights have biases.
var gptOSS = architecture{
	neox:       true,
	activation: device.ClampedSwiGLU,
	tensors: slices.Concat(ends, attention, mixtureOfExperts, []tensor{
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}},
		{slot: attnSinks, name: "attn_sinks.weight", shape: shape{heads}},
		{slot: ffnNorm, name: "post_attention_norm.weight", shape: shape{dim}},
		{slot: attnOutput, name: "attn_out.weight", shape: shape{dim, queryDim}}, // this and the next three as Ollama calls them
		{slot: attnOutputBias, name: "attn_out.bias", shape: shape{dim}, optional: true},
		{slot: attnSinks, name: "attn_sinks", shape: shape{heads}},
		{slot: ffnNorm, name: "ffn_norm.weight", shape: shape{dim}},
		{slot: ffnRouterBias, name: "ffn_gate_inp.bias", shape: shape{experts}},
		{slot: ffnGateExpertsBias, name: "ffn_gate_exps.bias", shape: shape{experts, expertDim}},
		{slot: ffnUpExpertsBias, name: "ffn_up_exps.bias", shape: shape{experts, expertDim}},
		{slot: ffnDownExpertsBias, name: "ffn_down_exps.bias", shape: shape{experts, dim}},
	}),
	read: func(m *metadata, c *Config) {
		m.windows(c, 2)
		m.experts(c, moeDefaults{normalize: true, width: wholeFFNDim})
		for i := range c.Layers {
			c.Layers[i].FusedExperts = false // gates and ups have biases of their own
		}
	},
}
