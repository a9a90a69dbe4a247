package model

import (
	"math"

	"m40-llm/infer/device"
)

// This file is per-layer embeddings: each layer gets a vector of its own for each token, computed
// once from a second embedding table and a projection of the token's embedding.

var perLayerTensors = []tensor{
	{slot: tokenPerLayer, name: "per_layer_token_embd.weight", shape: shape{vocab, allPerLayer}, part: firstStage},
	{slot: perLayerProj, name: "per_layer_model_proj.weight", shape: shape{allPerLayer, dim}, part: firstStage},
	{slot: perLayerNorm, name: "per_layer_proj_norm.weight", shape: shape{perLayer}, part: firstStage},
	{slot: perLayerGate, name: "inp_gate.weight", shape: shape{perLayer, dim}},
	{slot: perLayerOut, name: "proj.weight", shape: shape{dim, perLayer}},
	{slot: perLayerPostNorm, name: "post_norm.weight", shape: shape{dimIfPerLayer}},
}

func perLayer(c *Config, _ *Layer) int    { return c.PerLayerDim }
func allPerLayer(c *Config, _ *Layer) int { return c.PerLayerDim * len(c.Layers) }

// dimIfPerLayer is the model's width if it has per-layer embeddings.
func dimIfPerLayer(c *Config, _ *Layer) int {
	if c.PerLayerDim == 0 {
		return 0
	}
	return c.Dim
}

// perLayer records the vectors of all layers for each token, (rows, layers · PerLayerDim): the
// normed projection of the token's embedding plus the token's row of the per-layer table.
func (r *recording) perLayer(dst device.Tensor) {
	c, w, x := &r.m.config, &r.s.weights, r.s.buffers.X
	r.MatMul(dst, w[perLayerProj], x)
	r.Scale(dst, float32(1/math.Sqrt(float64(c.Dim))), 0)
	r.RMSNorm(dst, dst, w[perLayerNorm], c.Eps)
	table := r.buffer("tokens per layer", dst.Cols)
	r.Embed(table, w[tokenPerLayer])
	r.Scale(table, float32(math.Sqrt(float64(c.PerLayerDim))), 0)
	r.Add(dst, table)
	r.Scale(dst, float32(1/math.Sqrt2), 0)
}

// perLayerBranch records what layer i of the stage computes from the residual stream and from its
// vector in all.
func (r *recording) perLayerBranch(i int, all device.Tensor) device.Tensor {
	c, w := &r.m.config, &r.s.layers[i]
	var none device.Tensor
	own := r.buffer("layer's own", c.PerLayerDim)
	r.Copy(own, all, device.Columns{Parts: 1, From: (r.s.first + i) * c.PerLayerDim, Width: c.PerLayerDim})
	gate := r.linear("layer's gate", w[perLayerGate], none, r.s.buffers.X)
	r.GLU(gate, gate, own, device.GELU)
	proj := r.linear("proj", w[perLayerOut], none, gate)
	r.normInPlace(proj, w[perLayerPostNorm], none)
	return proj
}
