package model

import "slices"

// museGlimmer is Muse Glimmer: embeddings are normed, layers without a sliding window have no RoPE, and gates multiply the result
// of attention. Norms both precede and follow attention and feed-forward layer.
var museGlimmer = architecture{
	tensors: slices.Concat(ends, norms, attention, headNorms, gates, postNorms, gatedFeedForward, []tensor{
		{slot: tokenEmbdNorm, name: "token_embd_norm.weight", shape: shape{dim}, part: firstStage, fill: 1},
	}),
	read: func(m *metadata, c *Config) {
		c.LogitScale = float32(m.optionalFloat("logit_scale", 0, 1e6, 0))
		c.LogitCap = float32(m.optionalFloat("final_logit_softcapping", 0, 1e6, 0))
		c.PostEps = 1e-8 // no key has it
		if m.windows(c, 4) {
			c.rotateWindowed()
		}
		c.gateElements()
	},
}
