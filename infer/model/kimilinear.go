package model

import (
	"slices"

	"m40-llm/infer/device"
)

// kimiLinear is Kimi Linear: delta nets with a decay for each element of a key, and latent attention
// without positions in some layers.
var kimiLinear = architecture{
	hybrid: true,
	tensors: slices.Concat(deepseek2.tensors, kimiScan, []tensor{
		{slot: scanDecayRank, name: "ssm_f_a.weight", shape: shape{scanKey, dim}},
		{slot: scanDecay, name: "ssm_f_b.weight", shape: shape{scanDecayDim, scanKey}},
		{slot: scanGateRank, name: "ssm_g_a.weight", shape: shape{scanKey, dim}},
		{slot: scanGate, name: "ssm_g_b.weight", shape: shape{scanValueDim, scanKey}},
	}),
	read: func(m *metadata, c *Config) {
		m.dropMTPBlocks(c)
		m.readKimi(c)
		for i := range c.Layers {
			c.Layers[i].Unrotated = c.Layers[i].Attends()
		}
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
		}
	},
}

// kimiScan are the tensors of delta nets with a decay for each element of a key, but for those that decays and gates are computed from.
var kimiScan = []tensor{
	{slot: scanQ, name: "attn_q.weight", shape: shape{scanKeyDim, dim}},
	{slot: scanK, name: "attn_k.weight", shape: shape{scanKeyDim, dim}},
	{slot: scanV, name: "attn_v.weight", shape: shape{scanValueDim, dim}},
	{slot: scanQConv, name: "ssm_conv1d_q.weight", shape: shape{scanKeyDim, kernel}, float: true},
	{slot: scanKConv, name: "ssm_conv1d_k.weight", shape: shape{scanKeyDim, kernel}, float: true},
	{slot: scanVConv, name: "ssm_conv1d_v.weight", shape: shape{scanValueDim, kernel}, float: true},
	{slot: scanStep, name: "ssm_beta.weight", shape: shape{scanHeads, dim}},
	{slot: scanA, name: "ssm_a", shape: shape{scanDecayDim}, derived: &derivation{shape{scanHeads}, repeatForKeys}},
	{slot: scanDecayBias, name: "ssm_dt.bias", shape: shape{scanDecayDim}},
	{slot: scanNorm, name: "ssm_norm.weight", shape: shape{scanHeadDim}},
	{slot: scanKeyNorm, name: "ssm_key_norm.weight", shape: shape{scanKey}, fill: 1},
	{slot: scanOut, name: "attn_output.weight", shape: shape{dim, scanValueDim}},
}

// readKimi reads the sizes of delta nets and of latent attention.
func (m *metadata) readKimi(c *Config) {
	width := m.integer("kda.head_dim", 1, maxDim)
	for m.layer = range c.Layers {
		l := &c.Layers[m.layer]
		if l.Attends() {
			m.latent(l)
			continue
		}
		heads := m.integer("attention.head_count", 1, maxHeads)
		l.Recurrent = m.recurrent(kimiDelta, device.Scan{Heads: heads, KeyHeads: heads, KeyDim: width, ValueDim: width, Delta: true})
	}
}

// repeatForKeys returns the value of each head once for each element of its key.
func repeatForKeys(_ *Config, l *Layer, values []float32) (all []float32) {
	for _, v := range values {
		all = append(all, slices.Repeat([]float32{v}, l.Recurrent.scan.KeyDim)...)
	}
	return all
}
