package model

import (
	"fmt"
	"slices"

	"m40-llm/infer/device"
)

// Gemma 4: layers with windows have heads of another size than the rest, values are normed, and
// some models give each layer an embedding of the token for it, share the keys and values of
// earlier layers, or have experts beside the feed-forward layer.
var gemma4 = architecture{
	neox:       true,
	activation: device.GELU,
	tensors: slices.Concat(ends, norms, postNorms, gatedFeedForward, perLayerTensors, []tensor{
		{slot: attnQ, name: "attn_q.weight", shape: shape{queryDim, dim}},
		{slot: attnK, name: "attn_k.weight", shape: shape{kvDim, dim}},
		{slot: attnV, name: "attn_v.weight", shape: shape{kvDim, dim}, optional: true}, // else keys are values too
		{slot: attnOutput, name: "attn_output.weight", shape: shape{dim, queryDim}},
		{slot: attnQNorm, name: "attn_q_norm.weight", shape: shape{headDim}},
		{slot: attnKNorm, name: "attn_k_norm.weight", shape: shape{keyNormDim}},
		{slot: attnVNorm, name: "attn_v_norm.weight", shape: shape{keyNormDim}, fill: 1},
		{slot: layerScale, name: "layer_output_scale.weight", shape: shape{one}, optional: true},
		{slot: ffnRouter, name: "ffn_gate_inp.weight", shape: shape{experts, dim}},
		{slot: ffnRouterNorm, name: "ffn_gate_inp.scale", shape: shape{expertsWidth}},
		{slot: ffnExpertScales, name: "ffn_down_exps.scale", shape: shape{experts}, optional: true},
		{slot: ffnGateUpExperts, name: "ffn_gate_up_exps.weight", shape: shape{experts, bothDim, dim}},
		{slot: ffnDownExperts, name: "ffn_down_exps.weight", shape: shape{experts, dim, expertDim}},
		{slot: ffnMLPPostNorm, name: "post_ffw_norm_1.weight", shape: shape{expertsWidth}},
		{slot: ffnExpertsNorm, name: "pre_ffw_norm_2.weight", shape: shape{expertsWidth}},
		{slot: ffnExpertsPostNorm, name: "post_ffw_norm_2.weight", shape: shape{expertsWidth}},
	}),
	read: func(m *metadata, c *Config) {
		c.scaleEmbeddings()
		c.LogitCap = float32(m.optionalFloat("final_logit_softcapping", 0, 1e6, 0))
		c.PerLayer = m.optionalInteger("embedding_length_per_layer_input", 0, maxDim, 0)
		windowed := m.pattern("attention.sliding_window_pattern", len(c.Layers), 6)
		base := m.optionalFloat("rope.freq_base_swa", 1, 1e12, 1e4)
		width := m.optionalInteger("attention.key_length_swa", 1, maxDim, c.Layers[0].HeadDim)
		value := m.optionalInteger("attention.value_length_swa", 1, maxDim, width)
		turned := m.optionalInteger("rope.dimension_count_swa", 2, max(2, width), width)
		for i := range c.Layers {
			l := &c.Layers[i]
			l.Scale = 1
			if !windowed[i] {
				l.Window = 0
				continue
			}
			l.HeadDim, l.ValueDim, l.Unfactored = width, value, true
			l.RoPE = device.RoPE{HeadDim: width, Dims: turned, Base: base, Scale: 1, NeoX: true}
		}
		m.sharedCaches(c, windowed)
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			dense := slices.Clone(c.Layers)
			m.experts(c, mixture{normalize: true})
			for i := range c.Layers {
				c.Layers[i].HiddenDim = dense[i].HiddenDim
			}
		}
	},
}

var perLayerTensors = []tensor{
	{slot: tokenPerLayer, name: "per_layer_token_embd.weight", shape: shape{vocab, allPerLayer}, part: firstStage},
	{slot: perLayerProj, name: "per_layer_model_proj.weight", shape: shape{allPerLayer, dim}, part: firstStage},
	{slot: perLayerNorm, name: "per_layer_proj_norm.weight", shape: shape{perLayer}, part: firstStage},
	{slot: perLayerGate, name: "inp_gate.weight", shape: shape{perLayer, dim}},
	{slot: perLayerOut, name: "proj.weight", shape: shape{dim, perLayer}},
	{slot: perLayerPostNorm, name: "post_norm.weight", shape: shape{perLayerWidth}},
}

// sharedCaches has the last layers read the keys and values of the last one before them that has
// windows as they have.
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
		c.Layers[i].CacheBack = i - from
	}
}

func perLayer(c *Config, _ *Layer) int    { return c.PerLayer }
func allPerLayer(c *Config, _ *Layer) int { return c.PerLayer * len(c.Layers) }
func bothDim(_ *Config, l *Layer) int     { return 2 * l.ExpertDim }

// keyNormDim is the width of the norm of keys that a layer has of its own.
func keyNormDim(_ *Config, l *Layer) int {
	if l.CacheBack > 0 {
		return 0
	}
	return l.HeadDim
}

// expertsWidth is the width of the model in layers with experts, perLayerWidth in those that get
// embeddings of their own.
func expertsWidth(c *Config, l *Layer) int {
	if l.Routing.Experts == 0 {
		return 0
	}
	return c.Dim
}

func perLayerWidth(c *Config, _ *Layer) int {
	if c.PerLayer == 0 {
		return 0
	}
	return c.Dim
}
