package model

import (
	"slices"

	"m40-llm/infer/device"
)

// nemotronH is Nemotron-H and Nemotron Nano 2: each layer is Mamba-2, attention or a feed-forward layer.
var nemotronH = architecture{
	hybrid:     true,
	activation: device.SquaredReLU,
	tensors:    slices.Concat(ends, oneNorm, attention, mamba, feedForward),
	read:       readNemotronH,
}

// nemotronHMoE is Nemotron 3 Nano: mixtures of experts without gates as feed-forward layers.
var nemotronHMoE = architecture{
	hybrid:     true,
	activation: device.SquaredReLU,
	tensors:    slices.Concat(ends, oneNorm, attention, mamba, mixtureOfUngatedExperts, selectionBias),
	read: func(m *metadata, c *Config) {
		readNemotronH(m, c)
		others := slices.Clone(c.Layers)
		m.experts(c, moeDefaults{score: device.ScoreSigmoid})
		for i, l := range others {
			if l.FFNDim == 0 {
				c.Layers[i] = l
			}
		}
	},
}

var (
	oneNorm                 = []tensor{{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}}}
	mixtureOfUngatedExperts = []tensor{
		{slot: ffnRouter, name: "ffn_gate_inp.weight", shape: shape{experts, dim}},
		{slot: ffnUpExperts, name: "ffn_up_exps.weight", shape: shape{experts, expertDim, dim}},
		{slot: ffnDownExperts, name: "ffn_down_exps.weight", shape: shape{experts, dim, expertDim}},
		{slot: ffnSharedUp, name: "ffn_up_shexp.weight", shape: shape{sharedDim, dim}},
		{slot: ffnSharedDown, name: "ffn_down_shexp.weight", shape: shape{dim, sharedDim}},
	}
)

// readNemotronH reads which layers have recurrent state. Attention has no positions.
func readNemotronH(m *metadata, c *Config) {
	r := m.scan(mamba2)
	for i := range c.Layers {
		l := &c.Layers[i]
		l.RoPE = device.RoPE{}
		if !l.Attends() && l.FFNDim == 0 {
			l.Recurrent = r
		}
	}
}
