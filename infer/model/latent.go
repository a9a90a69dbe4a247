package model

import (
	"cmp"
	"math"

	"m40-llm/infer/device"
)

// This file is multi-head latent attention (MLA). The KV cache holds, for each position, one latent
// vector that all heads share, and one rotated key. The projections of keys and values are absorbed:
// instead of computing the keys of each head from the latent vectors, queries are multiplied by the
// key weights, and instead of values, the result of attention by the value weights.

// latent reads the latent attention of a layer.
func (m *metadata) latent(l *Layer) {
	l.Latent = m.integer("attention.kv_lora_rank", 1, maxDim)
	l.QueryRank = m.optionalInteger("attention.q_lora_rank", 0, maxDim, 0)
	key := m.optionalInteger("attention.key_length_mla", 1, maxDim, l.HeadDim)
	l.ValueDim = m.optionalInteger("attention.value_length_mla", 1, maxDim, l.ValueDim)
	rotated := m.integer("rope.dimension_count", 2, max(2, key-1))
	l.NoPEDim = key - rotated
	l.KVHeads, l.HeadDim = 1, l.Latent+rotated
	l.RoPE.HeadDim, l.RoPE.Dims = rotated, rotated
	scale := 1 / math.Sqrt(float64(key))
	if multiplier := m.yarnLogMultiplier(); multiplier > 0 && l.RoPE.High > 0 { // YaRN whose magnitude applies to the whole score, not only to rotated elements
		magnitude := 1 + multiplier*math.Log(1/l.RoPE.Scale)
		scale *= magnitude * magnitude
		l.RoPE.Magnitude = float32(cmp.Or(m.yarnMagnitude(), 1))
	}
	l.Scale = float32(scale)
}

func latent(_ *Config, l *Layer) int         { return l.Latent }
func noPEDim(_ *Config, l *Layer) int        { return l.NoPEDim }
func valueDim(_ *Config, l *Layer) int       { return l.ValueDim }
func queryRank(_ *Config, l *Layer) int      { return l.QueryRank }
func latentQueryDim(_ *Config, l *Layer) int { return l.Heads * (l.NoPEDim + l.RoPE.Dims) }
func latentValueDim(_ *Config, l *Layer) int { return l.Heads * l.ValueDim }
func expandedDim(_ *Config, l *Layer) int    { return l.Heads * (l.NoPEDim + l.ValueDim) }

// dimWithoutQueryRank is the model's width in layers that compute queries without a low-rank step.
func dimWithoutQueryRank(c *Config, l *Layer) int {
	if l.QueryRank > 0 {
		return 0
	}
	return c.Dim
}

// latentAttention records multi-head latent attention of layer i of the stage over its input n.
func (r *recording) latentAttention(i int, n device.Tensor) device.Tensor {
	l, w := &r.m.config.Layers[r.s.first+i], &r.s.layers[i]
	kv, layer := r.s.kv[r.s.places[i].cache], r.s.places[i].layer
	var none device.Tensor
	q, position := r.latentQueries(l, w, n)
	var gate device.Tensor
	if !w[attnGate].None() {
		gate = r.linear("attention gate", w[attnGate], none, n)
	}

	both := r.linear("latent and key", w[attnKVA], none, n)
	vector := r.columns("latent", both, 1, 0, l.Latent)
	r.normInPlace(vector, w[attnKVANorm], none)
	key := r.columns("rotated key", both, 1, l.Latent, l.RoPE.Dims)
	r.rotateLatent(key, l)
	r.StoreKV(kv, layer, r.joined("k", l, vector, key, 1), none)

	att := r.buffer("att", l.Heads*l.Latent)
	r.Attention(att, r.joined("latent queries", l, q, position, l.Heads), kv, layer, l.Attention)
	values := r.buffer("values", l.Heads*l.ValueDim)
	r.ExpertMatMul(values, w[attnVB], att, none, l.Heads)
	if !gate.None() {
		r.gateAttention(l, w, values, gate)
	}
	return r.linear("proj", w[attnOutput], none, values)
}

// latentQueries records the two parts of each head's query: one multiplied by the key weights, as
// wide as a latent vector, and the rotated one.
func (r *recording) latentQueries(l *Layer, w *weights, n device.Tensor) (absorbed, rotated device.Tensor) {
	var none device.Tensor
	x := n
	if l.QueryRank > 0 {
		x = r.linear("query rank", w[attnQA], none, n)
		r.normInPlace(x, w[attnQANorm], none)
	}
	q := r.linear("q", w[attnQ], none, x)
	plain := r.columns("plain queries", q, l.Heads, 0, l.NoPEDim)
	rotated = r.columns("rotated queries", q, l.Heads, l.NoPEDim, l.RoPE.Dims)
	r.rotateLatent(rotated, l)
	absorbed = r.buffer("absorbed queries", l.Heads*l.Latent)
	r.ExpertMatMul(absorbed, w[attnKB], plain, none, l.Heads)
	return absorbed, rotated
}

// rotateLatent records RoPE of the part of queries or keys for it, unless the layer has no positions.
func (r *recording) rotateLatent(x device.Tensor, l *Layer) {
	if !l.Unrotated {
		r.RoPE(x, l.RoPE)
	}
}

// columns records a copy of width columns from column from of each of parts parts of x.
func (r *recording) columns(name string, x device.Tensor, parts, from, width int) device.Tensor {
	dst := r.buffer(name, parts*width)
	r.Copy(dst, x, device.Columns{Parts: parts, From: from, Width: width})
	return dst
}

// joined records the concatenation of latent and rotated in each of parts parts.
func (r *recording) joined(name string, l *Layer, latent, rotated device.Tensor, parts int) device.Tensor {
	dst := r.buffer(name, parts*l.HeadDim)
	r.Copy(dst, latent, device.Columns{Parts: parts, Width: l.Latent})
	r.Copy(dst, rotated, device.Columns{Parts: parts, To: l.Latent, Width: l.RoPE.Dims})
	return dst
}

// keyWeights returns the key weights of each head, (latent, NoPEDim), from the weights of keys and
// values together, (NoPEDim + ValueDim, latent).
func keyWeights(_ *Config, l *Layer, both []float32) (keys []float32) {
	head := (l.NoPEDim + l.ValueDim) * l.Latent
	for h := range l.Heads {
		for j := range l.Latent {
			for i := range l.NoPEDim {
				keys = append(keys, both[h*head+i*l.Latent+j])
			}
		}
	}
	return keys
}

// valueWeights returns the value weights of each head, (ValueDim, latent), from the same.
func valueWeights(_ *Config, l *Layer, both []float32) (values []float32) {
	head := (l.NoPEDim + l.ValueDim) * l.Latent
	for h := range l.Heads {
		values = append(values, both[h*head+l.NoPEDim*l.Latent:(h+1)*head]...)
	}
	return values
}
