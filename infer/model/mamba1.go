package model

import (
	"slices"

	"m40-llm/infer/device"
)

// mambaOne is Mamba: recurrent state in every layer, and no attention.
var mambaOne = architecture{
	hybrid:  true,
	tensors: slices.Concat(ends, oneNorm, selective),
	read:    func(m *metadata, c *Config) { c.recurWithoutAttention(m.selectiveScan()) },
}

// jamba is Jamba: Mamba, attention without positions in few layers, and mixtures of experts in some.
var jamba = architecture{
	hybrid:  true,
	tensors: slices.Concat(ends, norms, attention, selective, gatedFeedForward, mixtureOfExperts),
	read: func(m *metadata, c *Config) {
		c.recurWithoutAttention(m.selectiveScan())
		for i := range c.Layers {
			c.Layers[i].RoPE = device.RoPE{}
		}
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			m.expertsWithRouter(c, moeDefaults{width: wholeFFNDim})
		}
	},
}

// selective are the tensors of Mamba: each value has a state of its own, as wide as the key that all share, with decays of its own.
// Steps, keys and queries are computed from the convolved values. Jamba norms them.
var selective = slices.Concat(
	fused("ssm_in.weight", tensor{slot: scanV, shape: shape{scanValueDim, dim}}, tensor{slot: scanGate, shape: shape{scanValueDim, dim}}),
	fused("ssm_x.weight", tensor{slot: scanDecayRank, shape: shape{stepRank, scanValueDim}},
		tensor{slot: scanK, shape: shape{scanKeyDim, scanValueDim}}, tensor{slot: scanQ, shape: shape{scanKeyDim, scanValueDim}}),
	[]tensor{
		{slot: scanVConv, name: "ssm_conv1d.weight", shape: shape{scanValueDim, kernel}, float: true},
		{slot: scanVConvBias, name: "ssm_conv1d.bias", shape: shape{scanValueDim}, optional: true},
		{slot: scanStepNorm, name: "ssm_dt_norm.weight", shape: shape{stepRank}, optional: true},
		{slot: scanKeyNorm, name: "ssm_b_norm.weight", shape: shape{scanKeyDim}, optional: true},
		{slot: scanQueryNorm, name: "ssm_c_norm.weight", shape: shape{scanKeyDim}, optional: true},
		{slot: scanStep, name: "ssm_dt.weight", shape: shape{scanHeads, stepRank}},
		{slot: scanDecayBias, name: "ssm_dt.bias", shape: shape{scanHeads}},
		{slot: scanA, name: "ssm_a", shape: shape{scanHeads, scanKey, one}},
		{slot: scanSkip, name: "ssm_d", shape: shape{scanHeads}},
		{slot: scanOut, name: "ssm_out.weight", shape: shape{dim, scanValueDim}},
	})

func stepRank(_ *Config, l *Layer) int { return l.Recurrent.stepRank }

// selectiveScan reads the sizes of a Mamba layer.
func (m *metadata) selectiveScan() Recurrent {
	s := device.Scan{Heads: m.integer("ssm.inner_size", 1, maxDim), KeyHeads: 1, KeyDim: m.integer("ssm.state_size", 1, maxDim), ValueDim: 1}
	r := m.recurrent(mamba1, s)
	r.stepRank = m.integer("ssm.time_step_rank", 1, maxDim)
	return r
}

// selectiveLayer records a Mamba layer over n, with its state from value at on.
func (r *recording) selectiveLayer(l *Layer, w *weights, n device.Tensor, at int) device.Tensor {
	var none device.Tensor
	v, gate := r.linear("scan v in", w[scanV], none, n), r.linear("scan gate", w[scanGate], none, n)
	a := l.Recurrent.scan
	a.V, a.Skip = r.buffer("scan v", v.Cols), w[scanSkip]
	r.Conv(a.V, v, w[scanVConv], w[scanVConvBias], r.s.state, at)
	r.Activate(a.V, a.V, device.SiLU)

	low := r.linear("decay rank", w[scanDecayRank], none, a.V)
	k, q := r.linear("scan k", w[scanK], none, a.V), r.linear("scan q", w[scanQ], none, a.V)
	r.normInPlace(low, w[scanStepNorm], none)
	r.normInPlace(k, w[scanKeyNorm], none)
	r.normInPlace(q, w[scanQueryNorm], none)
	a.Step = r.linear("steps", w[scanStep], w[scanDecayBias], low)
	r.Activate(a.Step, a.Step, device.Softplus)
	a.Decay = r.buffer("decays", a.Heads*a.KeyDim)
	r.ExpertMatMul(a.Decay, w[scanA], a.Step, none, a.Heads) // of each head its step times its factors
	r.Activate(a.Decay, a.Decay, device.Exp)

	out := r.buffer("scan", a.V.Cols)
	r.Scan(out, q, k, a, r.s.state, at+device.ConvValues(w[scanVConv]))
	r.GLU(gate, gate, out, device.SiLU)
	return r.linear("proj", w[scanOut], none, gate)
}
