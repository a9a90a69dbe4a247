package model

import (
	"slices"

	"m40-llm/infer/device"
)

// smallThinker is SmallThinker: the router of a layer's experts reads the input of the layer, and gates are ReLU. In the model with sliding
// windows, all layers but every fourth from the first have one, and only these have RoPE.
var smallThinker = architecture{
	neox:    true,
	tensors: slices.Concat(ends, norms, attention, mixtureOfExperts),
	read: func(m *metadata, c *Config) {
		marks := make([]bool, len(c.Layers))
		for i := range marks {
			marks[i] = i%4 != 0
		}
		if m.windowed(c, marks) {
			c.rotateWindowed()
		}
		m.experts(c, moeDefaults{normalize: true, width: wholeFFNDim})
		for i := range c.Layers {
			c.Layers[i].RoutesFirst, c.Layers[i].ReLU = true, true
		}
	},
}

// rectifiedGLU records gate = max(gate, 0) · up. It is SiLU with a factor f before and 1/f after it, which differs from ReLU by less than
// 0.28/f, so by less than 2e-8.
func (r *recording) rectifiedGLU(gate, up device.Tensor) {
	const f = 1 << 24
	r.Scale(gate, f, 0)
	r.GLU(gate, gate, up, device.SiLU)
	r.Scale(gate, 1./f, 0)
}
