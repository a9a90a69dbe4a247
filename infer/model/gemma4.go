package model

import (
	"fmt"
	"slices"

	"m40-llm/infer/device"
)

// gemma4 is Gemma 4. Layers with a sliding window have another head width than the others, and
// values are normed. Some models have per-layer embeddings, layers that read the keys and values of
// earlier layers, or experts in parallel with the feed-forward layer.
var gemma4 = architecture{
	neox:       true,
	activation: device.GELU,
	tensors: slices.Concat(ends, norms, normedValues, postNorms, gatedFeedForward, mixtureOfExperts, perLayerTensors, []tensor{
		{slot: attnQ, name: "attn_q.weight", shape: shape{queryDim, dim}},
		{slot: attnK, name: "attn_k.weight", shape: shape{kvDim, dim}},
		{slot: attnV, name: "attn_v.weight", shape: shape{kvDim, dim}, optional: true}, // if missing, keys are the values too
		{slot: attnOutput, name: "attn_output.weight", shape: shape{dim, queryDim}},
		{slot: layerScale, name: "layer_output_scale.weight", shape: shape{one}, optional: true},
		{slot: ffnRouterNorm, name: "ffn_gate_inp.scale", shape: shape{dimIfExperts}},
		{slot: ffnExpertScales, name: "ffn_down_exps.scale", shape: shape{experts}, optional: true},
		{slot: ffnMLPPostNorm, name: "post_ffw_norm_1.weight", shape: shape{dimIfExperts}},
		{slot: ffnExpertsNorm, name: "pre_ffw_norm_2.weight", shape: shape{dimIfExperts}},
		{slot: ffnExpertsPostNorm, name: "post_ffw_norm_2.weight", shape: shape{dimIfExperts}},
	}),
	read: readGemma4,
}

// readGemma4 reads the options of Gemma 4.
func readGemma4(m *metadata, c *Config) {
	c.scaleEmbeddings()
	c.LogitCap = float32(m.optionalFloat("final_logit_softcapping", 0, 1e6, 0))
	c.PerLayerDim = m.optionalInteger("embedding_length_per_layer_input", 0, maxDim, 0)
	windowed := m.pattern("attention.sliding_window_pattern", len(c.Layers), 6)
	m.windowHeads(c, windowed)
	m.sharedCaches(c, windowed)
	if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
		dense := slices.Clone(c.Layers)
		m.experts(c, moeDefaults{normalize: true})
		for i := range c.Layers {
			c.Layers[i].FFNDim = dense[i].FFNDim
		}
	}
}

// windowHeads gives layers with a window the head width and the RoPE that the file has for them.
func (m *metadata) windowHeads(c *Config, windowed []bool) {
	base := m.optionalFloat("rope.freq_base_swa", 1, 1e12, 1e4)
	width := m.optionalInteger("attention.key_length_swa", 1, maxDim, c.Layers[0].HeadDim)
	value := m.optionalInteger("attention.value_length_swa", 1, maxDim, width)
	rotated := m.optionalInteger("rope.dimension_count_swa", 2, max(2, width), width)
	for i := range c.Layers {
		l := &c.Layers[i]
		l.Scale = 1
		if !windowed[i] {
			l.Window = 0
			continue
		}
		l.HeadDim, l.ValueDim, l.NoRoPEFactors = width, value, true
		l.RoPE = device.RoPE{HeadDim: width, Dims: rotated, Base: base, Scale: 1, NeoX: true}
	}
}

// sharedCaches lets the last layers read the keys and values of an earlier layer: the last one with
// a cache of its own that, like them, has a window or has none.
func (m *metadata) sharedCaches(c *Config, windowed []bool) {
	own := len(c.Layers) - m.optionalInteger("attention.shared_kv_layers", 0, len(c.Layers)-1, 0)
	for i := own; i < len(c.Layers); i++ {
		from := own - 1
		for from >= 0 && windowed[from] != windowed[i] {
			from--
		}
		if from < 0 {
			m.fail(fmt.Errorf("%s: no layer before %d has keys and values for layer %d", m.key("attention.shared_kv_layers"), own, i))
			return
		}
		c.Layers[i].KVLayersBack = i - from
	}
}

// keyNormDim is the width of the norm of keys, 0 in layers without keys of their own.
func keyNormDim(_ *Config, l *Layer) int {
	if l.KVLayersBack > 0 {
		return 0
	}
	return l.HeadDim
}

// dimIfExperts is the model's width in layers with experts.
func dimIfExperts(c *Config, l *Layer) int {
	if l.Routing.Experts == 0 {
		return 0
	}
	return c.Dim
}
