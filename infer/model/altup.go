package model

import (
	"math"

	"m40-llm/infer/device"
)

// This file is AltUp, alternating updates: the residual stream is several streams, of which layers
// compute on one, the active stream. Each layer first predicts all streams from each other; when it
// has computed the active one, the difference from its prediction corrects all of them.

// maxStreams is far above what any model has.
const maxStreams = 64

var altupTensors = []tensor{
	{slot: altupProj, name: "altup_proj.weight", shape: shape{otherStreams, dim, dim}, part: firstStage},
	{slot: altupUnembed, name: "altup_unembd_proj.weight", shape: shape{otherStreams, dim, dim}, part: lastStage},
	{slot: altupRouter, name: "altup_router.weight", shape: shape{streams, dim}},
	{slot: altupRouterNorm, name: "altup_router_norm.weight", shape: shape{dim}},
	{slot: altupPredict, name: "altup_predict_coef.weight", shape: shape{streamPairs, streams}},
	{slot: altupCorrect, name: "altup_correct_coef.weight", shape: shape{streams, streams}},
	{slot: altupCorrectBias, name: "altup_correct_coef.bias", shape: shape{streams}, fill: 1},
	{slot: altupCorrectScale, name: "altup_correct_scale.weight", shape: shape{dim}, optional: true},
}

func streams(c *Config, _ *Layer) int      { return c.Streams }
func otherStreams(c *Config, _ *Layer) int { return c.Streams - 1 }
func streamPairs(c *Config, _ *Layer) int  { return c.Streams * c.Streams }

// magnitudeFloor bounds the mean square by which a stream is divided.
const magnitudeFloor = 1e-5

// startStreams records the streams of tokens with the embeddings x: x itself, and its projections
// scaled to the magnitude of x.
func (r *recording) startStreams(all, x device.Tensor) {
	var none device.Tensor
	others := r.linear("other streams", r.s.weights[altupProj], none, x)
	r.MatchRMS(others, x, magnitudeFloor)
	r.Copy(all, x, device.Columns{Parts: 1, Width: x.Cols})
	r.Copy(all, others, device.Columns{Parts: 1, To: x.Cols, Width: others.Cols})
}

// streamsLayer records layer i of the stage over all streams, with perLayer, the per-layer embeddings
// of the tokens. It computes the active stream in the residual stream X.
func (r *recording) streamsLayer(i int, all, perLayer device.Tensor) {
	w, x := &r.s.layers[i], r.s.buffers.X
	var none device.Tensor

	r.copyActive(x, all)
	before := r.buffer("streams before", all.Cols)
	r.Copy(before, all, device.Columns{Parts: 1, Width: all.Cols})
	r.Mix(all, before, r.linear("predictions", w[altupPredict], none, r.modalities(w, x)), 0, x.Cols)

	r.copyActive(x, all)
	r.layer(i)
	corrections := r.linear("corrections", w[altupCorrect], w[altupCorrectBias], r.modalities(w, x))
	innovation := r.buffer("innovation", x.Cols)
	r.copyActive(innovation, all)
	r.Scale(innovation, -1, 0)
	r.Add(innovation, x)
	r.Mix(all, innovation, corrections, 0, x.Cols)

	r.copyActive(x, all)
	if !w[altupCorrectScale].None() {
		r.Multiply(x, w[altupCorrectScale])
	}
	r.Mix(all, r.perLayerBranch(i, perLayer), none, x.Cols, x.Cols) // to all streams but the first
}

// copyActive records dst = the active stream.
func (r *recording) copyActive(dst, all device.Tensor) {
	r.Copy(dst, all, device.Columns{Parts: 1, From: r.m.config.ActiveStream * dst.Cols, Width: dst.Cols})
}

// modalities records what the factors of predictions and corrections are computed from.
func (r *recording) modalities(w *weights, x device.Tensor) device.Tensor {
	var none device.Tensor
	n := r.buffer("stream router input", x.Cols)
	r.normTo(n, x, w[altupRouterNorm], none)
	routed := r.linear("modalities", w[altupRouter], none, n)
	r.Scale(routed, 1/float32(x.Cols), 1) // a soft cap of 1 is tanh
	return routed
}

// mergeStreams records last = the mean of the first stream and of the projections of the others,
// scaled to its magnitude, for the rows whose logits are computed.
func (r *recording) mergeStreams(last, all device.Tensor) {
	c := &r.m.config
	var none device.Tensor
	gathered := r.gathered("last streams", all.Cols)
	r.GatherRows(gathered, all)
	r.Copy(last, gathered, device.Columns{Parts: 1, Width: last.Cols})
	others := r.gathered("last other streams", all.Cols-last.Cols)
	r.Copy(others, gathered, device.Columns{Parts: 1, From: last.Cols, Width: others.Cols})
	projected := r.gathered("last projections", others.Cols)
	r.ExpertMatMul(projected, r.s.weights[altupUnembed], others, none, c.Streams-1)
	r.MatchRMS(projected, last, magnitudeFloor)
	r.Mix(last, projected, none, 0, last.Cols)
	r.Scale(last, 1/float32(c.Streams), 0)
}

// laurel records x = (x + n + norm(right · left · n)) / sqrt(2), where n is the input of attention,
// if the layer has such weights.
func (r *recording) laurel(w *weights, x, n device.Tensor) {
	if w[laurelLeft].None() {
		return
	}
	var none device.Tensor
	low := r.linear("laurel", w[laurelRight], none, r.linear("laurel rank", w[laurelLeft], none, n))
	r.normInPlace(low, w[laurelPostNorm], none)
	r.Add(x, low)
	r.Add(x, n)
	r.Scale(x, float32(1/math.Sqrt2), 0)
}
