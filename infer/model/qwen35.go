package model

import "slices"

// qwen35 is Qwen 3.5: gated delta nets, and gated attention in every fourth layer.
var qwen35 = architecture{
	neox:    true,
	heads:   true,
	tensors: slices.Concat(ends, qwen35Norms, gatedAttention, headNorms, gatedDelta, gatedFeedForward),
	read:    readQwen35,
}

// qwen35MoE is Qwen 3.5 with mixtures of experts.
var qwen35MoE = architecture{
	neox:    true,
	heads:   true,
	tensors: slices.Concat(ends, qwen35Norms, gatedAttention, headNorms, gatedDelta, mixtureOfExperts, gatedSharedExperts),
	read: func(m *metadata, c *Config) {
		readQwen35(m, c)
		m.experts(c, moeDefaults{normalize: true})
	},
}

// qwen3Next is Qwen3-Next: the forerunner of Qwen 3.5, with value heads in another order.
var qwen3Next = architecture{
	neox:    true,
	tensors: qwen35MoE.tensors,
	read: func(m *metadata, c *Config) {
		qwen35MoE.read(m, c)
		for i := range c.Layers {
			if r := &c.Layers[i].Recurrent; r.kind == deltaNet {
				r.scan.Tiled, r.jointGates = false, true
			}
		}
	},
}

var (
	qwen35Norms = []tensor{
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}},
		{slot: ffnNorm, name: "post_attention_norm.weight", shape: shape{dim}},
	}
	gatedAttention = []tensor{
		{slot: attnQ, name: "attn_q.weight", shape: shape{gatedQueryDim, dim}},
		{slot: attnK, name: "attn_k.weight", shape: shape{kvDim, dim}},
		{slot: attnV, name: "attn_v.weight", shape: shape{kvDim, dim}},
		{slot: attnOutput, name: "attn_output.weight", shape: shape{dim, queryDim}},
	}
)

// readQwen35 reads which layers have attention, and the sizes of the others.
func readQwen35(m *metadata, c *Config) {
	m.dropMTPBlocks(c)
	m.sections(c, true)
	interval := m.optionalInteger("full_attention_interval", 1, maxLayers, 4)
	recurs := m.pattern("attention.recurrent_layers", m.layers, interval)
	r := m.scan(deltaNet)
	r.scan.Tiled = true
	for i := range c.Layers {
		if l := &c.Layers[i]; recurs[i] && i < m.layers-c.MTPBlocks {
			l.withoutAttention()
		} else {
			l.GatedAttention = true
		}
	}
	c.recurWithoutAttention(r)
}
