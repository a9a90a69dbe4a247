package model

import (
	"errors"
	"fmt"
	"slices"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// bailingMoE3 is Ling 3: delta nets with a bounded decay for each element of a key, and latent attention with a gate for each head in
// some layers.
var bailingMoE3 = architecture{
	hybrid: true,
	tensors: slices.Concat(deepseek2.tensors, gates, kimiScan, []tensor{
		{slot: scanDecay, name: "ssm_f_a.weight", shape: shape{scanDecayDim, dim}},
		{slot: scanGate, name: "ssm_g_a.weight", shape: shape{scanValueDim, dim}},
	}),
	read: func(m *metadata, c *Config) {
		m.dropMTPBlocks(c)
		if !m.optionalBool("kda.safe_gate", true) {
			m.fail(fmt.Errorf("%s is false: decays without a bound are not supported in architecture %q", m.key("kda.safe_gate"), m.prefix))
		}
		bound := m.float("kda.gate_lower_bound", -1e3, 0)
		m.readKimi(c)
		for i := range c.Layers {
			if l := &c.Layers[i]; l.Attends() {
				l.GateDim = l.Heads
			} else {
				l.Recurrent.decayBound = float32(bound)
			}
		}
		m.experts(c, moeDefaults{score: device.ScoreSigmoid, normalize: true})
		m.refuseLimits("swiglu_clamp_exp")
		m.refuseLimits("swiglu_clamp_shexp")
	},
}

// refuseLimits fails if a key has a value other than 0 for a layer: experts whose gates and ups are bounded are not supported.
func (m *metadata) refuseLimits(name string) {
	limits, err := m.f.Floats(m.key(name))
	if errors.Is(err, gguf.ErrMissing) {
		return
	}
	if err == nil && slices.ContainsFunc(limits, func(v float32) bool { return v != 0 }) {
		err = fmt.Errorf("%s is %v: experts with bounds of gates are not supported", m.key(name), limits)
	}
	if err != nil {
		m.fail(err)
	}
}
