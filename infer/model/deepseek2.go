package model

import (
	"slices"

	"m40-llm/infer/device"
)

// deepseek2 is DeepSeek 2 and 3, GLM 4.7 Flash and Kimi K2: multi-head latent attention.
var deepseek2 = architecture{
	heads: true,
	tensors: slices.Concat(ends, norms, gatedFeedForward, mixtureOfExperts, selectionBias, sharedExperts, []tensor{
		{slot: attnQA, name: "attn_q_a.weight", shape: shape{queryRank, dim}},
		{slot: attnQANorm, name: "attn_q_a_norm.weight", shape: shape{queryRank}},
		{slot: attnQ, name: "attn_q_b.weight", shape: shape{latentQueryDim, queryRank}},
		{slot: attnQ, name: "attn_q.weight", shape: shape{latentQueryDim, dimWithoutQueryRank}},
		{slot: attnKVA, name: "attn_kv_a_mqa.weight", shape: shape{headDim, dim}},
		{slot: attnKVANorm, name: "attn_kv_a_norm.weight", shape: shape{latent}},
		{slot: attnKB, name: "attn_k_b.weight", shape: shape{heads, latent, noPEDim}},
		{slot: attnVB, name: "attn_v_b.weight", shape: shape{heads, valueDim, latent}},
		{slot: attnKB, name: "attn_kv_b.weight", shape: shape{heads, latent, noPEDim}, derived: &derivation{shape{expandedDim, latent}, keyWeights}},
		{slot: attnVB, name: "attn_kv_b.weight", shape: shape{heads, valueDim, latent}, derived: &derivation{shape{expandedDim, latent}, valueWeights}},
		{slot: attnOutput, name: "attn_output.weight", shape: shape{dim, latentValueDim}},
	}),
	read: func(m *metadata, c *Config) {
		m.dropMTPBlocks(c)
		score := device.ScoreSoftmax
		if vocab, err := vocabulary(m.f); err == nil && vocab == 154880 { // GLM 4.7 Flash: its first files lack the key
			score = device.ScoreSigmoid
		}
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			m.experts(c, moeDefaults{score: score})
		}
		for i := range c.Layers {
			m.latent(&c.Layers[i])
		}
	},
}
