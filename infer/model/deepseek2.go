package model

import (
	"math"
	"slices"

	"m40-llm/infer/device"
)

// DeepSeek 2 and 3, GLM 4.7 Flash and Kimi K2: the heads of a layer make their keys and values of
// one latent vector of a position, which is what the cache holds. Keys are never made: queries go
// through their weights instead, and what is attended to through those of values.
var deepseek2 = architecture{
	tensors: slices.Concat(ends, norms, gatedFeedForward, mixtureOfExperts, choiceBias, sharedExperts, []tensor{
		{slot: attnQA, name: "attn_q_a.weight", shape: shape{queryRank, dim}},
		{slot: attnQANorm, name: "attn_q_a_norm.weight", shape: shape{queryRank}},
		{slot: attnQ, name: "attn_q_b.weight", shape: shape{latentQueryDim, queryRank}},
		{slot: attnQ, name: "attn_q.weight", shape: shape{latentQueryDim, wideQuery}},
		{slot: attnKVA, name: "attn_kv_a_mqa.weight", shape: shape{headDim, dim}},
		{slot: attnKVANorm, name: "attn_kv_a_norm.weight", shape: shape{latent}},
		{slot: attnKB, name: "attn_k_b.weight", shape: shape{heads, latent, plainDim}},
		{slot: attnVB, name: "attn_v_b.weight", shape: shape{heads, valueDim, latent}},
		{slot: attnKB, name: "attn_kv_b.weight", shape: shape{heads, latent, plainDim}, made: &making{shape{expandedDim, latent}, keysOf}},
		{slot: attnVB, name: "attn_kv_b.weight", shape: shape{heads, valueDim, latent}, made: &making{shape{expandedDim, latent}, valuesOf}},
		{slot: attnOutput, name: "attn_output.weight", shape: shape{dim, latentValueDim}},
	}),
	read: func(m *metadata, c *Config) {
		m.withoutPredictors(c)
		score := device.ScoreSoftmax
		if vocab, err := vocabulary(m.f); err == nil && vocab == 154880 { // GLM 4.7 Flash, whose first files do not say it
			score = device.ScoreSigmoid
		}
		if m.optionalInteger("expert_count", 0, maxExperts, 0) > 0 {
			m.experts(c, mixture{score: score})
		}
		for i := range c.Layers {
			m.latent(&c.Layers[i])
		}
	},
}

// latent reads the attention of a layer whose heads share a latent vector.
func (m *metadata) latent(l *Layer) {
	l.Latent = m.integer("attention.kv_lora_rank", 1, maxDim)
	l.QueryRank = m.optionalInteger("attention.q_lora_rank", 0, maxDim, 0)
	key := m.optionalInteger("attention.key_length_mla", 1, maxDim, l.HeadDim)
	l.ValueDim = m.optionalInteger("attention.value_length_mla", 1, maxDim, l.ValueDim)
	turned := m.integer("rope.dimension_count", 2, max(2, key-1))
	l.PlainDim = key - turned
	l.KVHeads, l.HeadDim = 1, l.Latent+turned
	l.RoPE.HeadDim, l.RoPE.Dims = turned, turned
	scale := 1 / math.Sqrt(float64(key))
	if l.RoPE.High > 0 { // YaRN, whose magnitude counts for all of a score
		magnitude := 1 + m.optionalFloat("rope.scaling.yarn_log_multiplier", 0, 1e3, 0)*math.Log(1/l.RoPE.Scale)
		scale *= magnitude * magnitude
		l.RoPE.Magnitude = 1
	}
	l.Scale = float32(scale)
}

func latent(_ *Config, l *Layer) int         { return l.Latent }
func plainDim(_ *Config, l *Layer) int       { return l.PlainDim }
func valueDim(_ *Config, l *Layer) int       { return l.ValueDim }
func queryRank(_ *Config, l *Layer) int      { return l.QueryRank }
func latentQueryDim(_ *Config, l *Layer) int { return l.Heads * (l.PlainDim + l.RoPE.Dims) }
func latentValueDim(_ *Config, l *Layer) int { return l.Heads * l.ValueDim }
func expandedDim(_ *Config, l *Layer) int    { return l.Heads * (l.PlainDim + l.ValueDim) }

// wideQuery is what queries are made of where they have no rank of their own.
func wideQuery(c *Config, l *Layer) int {
	if l.QueryRank > 0 {
		return 0
	}
	return c.Dim
}

// keysOf returns the weights of keys of each head, (latent, PlainDim), of those of keys and values,
// (PlainDim + ValueDim, latent).
func keysOf(_ *Config, l *Layer, both []float32) (keys []float32) {
	head := (l.PlainDim + l.ValueDim) * l.Latent
	for h := range l.Heads {
		for j := range l.Latent {
			for i := range l.PlainDim {
				keys = append(keys, both[h*head+i*l.Latent+j])
			}
		}
	}
	return keys
}

// valuesOf returns the weights of values of each head, (ValueDim, latent).
func valuesOf(_ *Config, l *Layer, both []float32) (values []float32) {
	head := (l.PlainDim + l.ValueDim) * l.Latent
	for h := range l.Heads {
		values = append(values, both[h*head+l.PlainDim*l.Latent:(h+1)*head]...)
	}
	return values
}

// latentAttention records attention over latent vectors.
func (r *recording) latentAttention(i int, n device.Tensor) device.Tensor {
	l, w := &r.m.config.Layers[r.s.first+i], &r.s.layers[i]
	kv, layer := r.s.kv[r.s.places[i].cache], r.s.places[i].layer
	turned := l.RoPE.Dims
	part := func(name string, x device.Tensor, parts, from, width int) device.Tensor {
		dst := r.buffer(name, parts*width)
		r.Copy(dst, x, device.Columns{Parts: parts, From: from, Width: width})
		return dst
	}
	// joined returns parts of a latent vector and what RoPE has turned of it.
	joined := func(name string, latent, rotated device.Tensor, parts int) device.Tensor {
		dst := r.buffer(name, parts*l.HeadDim)
		r.Copy(dst, latent, device.Columns{Parts: parts, Width: l.Latent})
		r.Copy(dst, rotated, device.Columns{Parts: parts, To: l.Latent, Width: turned})
		return dst
	}
	var none device.Tensor
	x := n
	if l.QueryRank > 0 {
		x = r.linear("query rank", w[attnQA], none, n)
		r.normInPlace(x, w[attnQANorm], device.Tensor{})
	}
	q := r.linear("q", w[attnQ], none, x)
	plain := part("plain queries", q, l.Heads, 0, l.PlainDim)
	rotated := part("turned queries", q, l.Heads, l.PlainDim, turned)
	r.RoPE(rotated, l.RoPE)
	absorbed := r.buffer("absorbed queries", l.Heads*l.Latent)
	r.ExpertMatMul(absorbed, w[attnKB], plain, none, l.Heads)

	both := r.linear("latent and key", w[attnKVA], none, n)
	vector := part("latent", both, 1, 0, l.Latent)
	r.normInPlace(vector, w[attnKVANorm], device.Tensor{})
	key := part("turned key", both, 1, l.Latent, turned)
	r.RoPE(key, l.RoPE)
	r.StoreKV(kv, layer, joined("k", vector, key, 1), none)

	att := r.buffer("att", l.Heads*l.Latent)
	r.Attention(att, joined("latent queries", absorbed, rotated, l.Heads), kv, layer, l.Attention)
	values := r.buffer("values", l.Heads*l.ValueDim)
	r.ExpertMatMul(values, w[attnVB], att, none, l.Heads)
	return r.linear("proj", w[attnOutput], none, values)
}
