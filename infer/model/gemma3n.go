package model

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// gemma3n is Gemma 3n: several residual streams (see altup.go), per-layer embeddings, low-rank layers
// in parallel with attention, sparse activations, and layers that read the keys and values of earlier
// ones.
var gemma3n = architecture{
	neox:       true,
	activation: device.GELU,
	tensors: slices.Concat(ends, norms, attention, normedValues, gatedFeedForward, postNorms, perLayerTensors, altupTensors, []tensor{
		{slot: laurelLeft, name: "laurel_l.weight", shape: shape{laurelRank, dim}},
		{slot: laurelRight, name: "laurel_r.weight", shape: shape{dim, laurelRank}},
		{slot: laurelPostNorm, name: "laurel_post_norm.weight", shape: shape{dim}},
	}),
	read: readGemma3n,
}

func laurelRank(c *Config, _ *Layer) int { return c.LaurelRank }

// readGemma3n reads the options of Gemma 3n. No key has the rank of the low-rank layers.
func readGemma3n(m *metadata, c *Config) {
	c.scaleEmbeddings()
	c.LogitCap = float32(m.optionalFloat("final_logit_softcapping", 0, 1e6, 30))
	c.PerLayerDim = m.integer("embedding_length_per_layer_input", 1, maxDim)
	c.Streams = m.integer("altup.num_inputs", 2, maxStreams)
	c.ActiveStream = m.optionalInteger("altup.active_idx", 0, c.Streams-1, 0)
	if t, err := m.f.Tensor("blk.0.laurel_l.weight"); err != nil {
		m.fail(err)
	} else if len(t.Shape) > 1 {
		c.LaurelRank = t.Shape[1]
	}
	c.LaurelRank = max(c.LaurelRank, 1)
	windowed := m.pattern("attention.sliding_window_pattern", len(c.Layers), 5)
	base := m.optionalFloat("rope.freq_base_swa", 1, 1e12, 1e4)
	sparsity := m.layerFloats("activation_sparsity_scale", len(c.Layers))
	for i := range c.Layers {
		l := &c.Layers[i]
		l.Scale = 1
		l.Sparse, l.SparsityScale = !math.IsInf(float64(sparsity[i]), -1), sparsity[i]
		if windowed[i] {
			l.RoPE = l.RoPE.Unscaled()
			l.RoPE.Base = base
		} else {
			l.Window = 0
		}
	}
	m.sharedCaches(c, windowed)
}
