package model

import (
	"fmt"
	"math"
	"slices"

	"m40-llm/infer/device"
)

// This file is layers with recurrent state: a state of fixed size for each sequence, instead of keys
// and values for each position. Queries, keys and values are convolved with those of the positions
// before and go through a linear recurrence. LFM2 has the convolution alone.

// recurrence is a kind of layer with recurrent state.
type recurrence uint8

const (
	noRecurrence recurrence = iota
	deltaNet                // gated delta rule with a decay for each head
	kimiDelta               // gated delta rule with a decay for each element of a key
	mamba2                  // Mamba-2
	mamba1                  // Mamba
	shortConv               // gated convolution
)

// Recurrent are the hyperparameters of a layer's recurrent state.
type Recurrent struct {
	kind       recurrence
	scan       device.Scan // without tensors
	kernel     int         // positions that the convolution spans
	jointGates bool        // the file has one tensor for steps and decays
	decayBound float32     // lower bound of the logarithms of decays, which are sigmoids times it; 0: they have none
	stepRank   int         // width that the steps of Mamba are computed from
}

// Recurs reports whether the layer has recurrent state.
func (l *Layer) Recurs() bool { return l.Recurrent.kind != noRecurrence }

// Attends reports whether the layer has attention.
func (l *Layer) Attends() bool { return l.KVHeads > 0 }

// feedsForward reports whether the layer has a feed-forward layer.
func (l *Layer) feedsForward() bool { return l.FFNDim > 0 || l.Routing.Experts > 0 }

// withoutAttention removes the attention of the layer.
func (l *Layer) withoutAttention() {
	l.Attention, l.RoPE = device.Attention{}, device.RoPE{}
	l.KVHeads, l.HeadDim, l.ValueDim = 0, 0, 0
}

// stateValues returns the size of the layer's recurrent state of a sequence, in values.
func (c *Config) stateValues(l *Layer) int {
	switch l.Recurrent.kind {
	case noRecurrence:
		return 0
	case shortConv:
		return (l.Recurrent.kernel - 1) * c.Dim
	case mamba1:
		return (l.Recurrent.kernel-1)*scanValueDim(c, l) + l.Recurrent.scan.Values()
	}
	return (l.Recurrent.kernel-1)*(2*scanKeyDim(c, l)+scanValueDim(c, l)) + l.Recurrent.scan.Values()
}

// StateLayout returns the recurrent state of slots sequences, over all layers. It has no Values if
// the model has no such state.
func (c *Config) StateLayout(slots int) device.StateLayout {
	layout, _ := c.stateLayout(slots, 0, len(c.Layers))
	return layout
}

// stateLayout is StateLayout for layers first … last-1. at is the first value of each.
func (c *Config) stateLayout(slots, first, last int) (layout device.StateLayout, at []int) {
	layout.Slots = slots
	for i := first; i < last; i++ {
		at = append(at, layout.Values)
		layout.Values += c.stateValues(&c.Layers[i])
	}
	return layout, at
}

const (
	maxKernel = 64      // positions that a convolution spans
	maxState  = 1 << 24 // values of a layer's recurrence
)

// scan reads the sizes of a linear recurrence.
func (m *metadata) scan(kind recurrence) Recurrent {
	inner := m.integer("ssm.inner_size", 1, maxDim)
	s := device.Scan{
		Heads:    m.integer("ssm.time_step_rank", 1, maxHeads),
		KeyHeads: m.integer("ssm.group_count", 1, maxHeads),
		KeyDim:   m.integer("ssm.state_size", 1, maxDim),
		Delta:    kind == deltaNet,
	}
	s.ValueDim = max(inner/s.Heads, 1)
	if inner%s.Heads != 0 || s.Heads%s.KeyHeads != 0 {
		m.fail(fmt.Errorf("%s: %d heads with %d keys cannot share %d values evenly", m.key("ssm.time_step_rank"), s.Heads, s.KeyHeads, inner))
	}
	return m.recurrent(kind, s)
}

// recurrent reads the width of the convolution before a recurrence.
func (m *metadata) recurrent(kind recurrence, s device.Scan) Recurrent {
	if s.Values() > maxState {
		m.fail(fmt.Errorf("%s: %d heads of %d by %d values are too many", m.key("ssm.state_size"), s.Heads, s.KeyDim, s.ValueDim))
	}
	return Recurrent{kind: kind, scan: s, kernel: m.integer("ssm.conv_kernel", 1, maxKernel)}
}

// recurWithoutAttention gives layers without attention the recurrence r.
func (c *Config) recurWithoutAttention(r Recurrent) {
	for i := range c.Layers {
		if l := &c.Layers[i]; !l.Attends() {
			l.Recurrent = r
		}
	}
}

// Sizes of recurrences, 0 in layers without one.

func scanKeyDim(_ *Config, l *Layer) int   { return l.Recurrent.scan.KeyHeads * l.Recurrent.scan.KeyDim }
func scanValueDim(_ *Config, l *Layer) int { return l.Recurrent.scan.Heads * l.Recurrent.scan.ValueDim }
func scanHeads(_ *Config, l *Layer) int    { return l.Recurrent.scan.Heads }
func scanHeadDim(_ *Config, l *Layer) int  { return l.Recurrent.scan.ValueDim }
func scanKey(_ *Config, l *Layer) int      { return l.Recurrent.scan.KeyDim }
func scanGroups(_ *Config, l *Layer) int   { return l.Recurrent.scan.KeyHeads }
func kernel(_ *Config, l *Layer) int       { return l.Recurrent.kernel }

// scanGroupDim is the number of values that share a key.
func scanGroupDim(c *Config, l *Layer) int { return scanValueDim(c, l) / max(scanGroups(c, l), 1) }

// scanDecayDim is the number of decays if there is one for each element of a key.
func scanDecayDim(_ *Config, l *Layer) int { return l.Recurrent.scan.Heads * l.Recurrent.scan.KeyDim }

// scanGates is the number of steps, or of decays, if the file has a tensor for each.
func scanGates(_ *Config, l *Layer) int {
	if l.Recurrent.jointGates {
		return 0
	}
	return l.Recurrent.scan.Heads
}

// scanJointGates is the number of steps and decays if the file has one tensor for both.
func scanJointGates(_ *Config, l *Layer) int {
	if !l.Recurrent.jointGates {
		return 0
	}
	return 2 * l.Recurrent.scan.Heads
}

// convDim is the width of a gated convolution.
func convDim(c *Config, l *Layer) int {
	if l.Recurrent.kind != shortConv {
		return 0
	}
	return c.Dim
}

// gatedQueryDim is the width of the queries of all heads with their gates.
func gatedQueryDim(c *Config, l *Layer) int { return 2 * queryDim(c, l) }

// Tensors of recurrences.
var (
	gatedDelta = slices.Concat( // Qwen 3.5
		fused("attn_qkv.weight", tensor{slot: scanQ, shape: shape{scanKeyDim, dim}}, tensor{slot: scanK, shape: shape{scanKeyDim, dim}}, tensor{slot: scanV, shape: shape{scanValueDim, dim}}),
		fused("ssm_conv1d.weight", tensor{slot: scanQConv, shape: shape{scanKeyDim, kernel}, float: true},
			tensor{slot: scanKConv, shape: shape{scanKeyDim, kernel}, float: true}, tensor{slot: scanVConv, shape: shape{scanValueDim, kernel}, float: true}),
		scanEnds, []tensor{
			{slot: scanGate, name: "attn_gate.weight", shape: shape{scanValueDim, dim}},
			{slot: scanStep, name: "ssm_beta.weight", shape: shape{scanGates, dim}},
			{slot: scanDecay, name: "ssm_alpha.weight", shape: shape{scanGates, dim}},
			{slot: scanStepAndDecay, name: "ssm_ba.weight", shape: shape{scanJointGates, dim}},
			{slot: scanNorm, name: "ssm_norm.weight", shape: shape{scanHeadDim}},
			{slot: scanKeyNorm, name: "ssm_key_norm.weight", shape: shape{scanKey}, fill: 1},
		})
	mamba = slices.Concat(
		fused("ssm_in.weight", tensor{slot: scanGate, shape: shape{scanValueDim, dim}}, tensor{slot: scanV, shape: shape{scanValueDim, dim}},
			tensor{slot: scanK, shape: shape{scanKeyDim, dim}}, tensor{slot: scanQ, shape: shape{scanKeyDim, dim}}, tensor{slot: scanStep, shape: shape{scanHeads, dim}}),
		fused("ssm_conv1d.weight", tensor{slot: scanVConv, shape: shape{scanValueDim, kernel}, float: true},
			tensor{slot: scanKConv, shape: shape{scanKeyDim, kernel}, float: true}, tensor{slot: scanQConv, shape: shape{scanKeyDim, kernel}, float: true}),
		fused("ssm_conv1d.bias", tensor{slot: scanVConvBias, shape: shape{scanValueDim}, optional: true},
			tensor{slot: scanKConvBias, shape: shape{scanKeyDim}, optional: true}, tensor{slot: scanQConvBias, shape: shape{scanKeyDim}, optional: true}),
		scanEnds, []tensor{
			{slot: scanSkip, name: "ssm_d", shape: shape{scanHeads}},
			{slot: scanNorm, name: "ssm_norm.weight", shape: shape{scanGroups, scanGroupDim}, optional: true},
		})
	scanEnds = []tensor{
		{slot: scanA, name: "ssm_a", shape: shape{scanHeads}},
		{slot: scanDecayBias, name: "ssm_dt.bias", shape: shape{scanHeads}},
		{slot: scanOut, name: "ssm_out.weight", shape: shape{dim, scanValueDim}},
	}
	gatedConv = slices.Concat( // LFM2
		fused("shortconv.in_proj.weight", tensor{slot: scanK, shape: shape{convDim, dim}}, tensor{slot: scanQ, shape: shape{convDim, dim}}, tensor{slot: scanV, shape: shape{convDim, dim}}),
		[]tensor{
			{slot: scanVConv, name: "shortconv.conv.weight", shape: shape{convDim, kernel}, float: true},
			{slot: scanOut, name: "shortconv.out_proj.weight", shape: shape{convDim, dim}},
		})
)

// recurrent records the recurrence of layer i of the stage over its input n.
func (r *recording) recurrent(i int, n device.Tensor) device.Tensor {
	l, w, at := &r.m.config.Layers[r.s.first+i], &r.s.layers[i], r.s.stateAt[i]
	if l.Recurrent.kind == shortConv {
		return r.shortConvolution(w, n, at)
	}
	if l.Recurrent.kind == mamba1 {
		return r.selectiveLayer(l, w, n, at)
	}
	// All products of n come first, so that a device can compute them together.
	var none device.Tensor
	q, k, v := r.linear("scan q in", w[scanQ], none, n), r.linear("scan k in", w[scanK], none, n), r.linear("scan v in", w[scanV], none, n)
	gate := r.scanGate(l, w, n)
	a := l.Recurrent.scan
	a.Step, a.Decay = r.scanGates(l, w, n)
	convolved := func(name string, x device.Tensor, conv, bias slot) device.Tensor {
		y := r.buffer(name, x.Cols)
		r.Conv(y, x, w[conv], w[bias], r.s.state, at)
		r.Activate(y, y, device.SiLU)
		at += device.ConvValues(w[conv])
		return y
	}
	q = convolved("scan q", q, scanQConv, scanQConvBias)
	k = convolved("scan k", k, scanKConv, scanKConvBias)
	v = convolved("scan v", v, scanVConv, scanVConvBias)
	if a.Delta {
		r.normalizeKeys(q, k, w[scanKeyNorm])
	}
	a.V, a.Skip = v, w[scanSkip]
	out := r.buffer("scan", v.Cols)
	r.Scan(out, q, k, a, r.s.state, at)
	return r.scanOutput(l, w, gate, out)
}

// scanGate records the gate of a recurrence's result, or what that is computed from.
func (r *recording) scanGate(l *Layer, w *weights, n device.Tensor) device.Tensor {
	if l.Recurrent.kind == kimiDelta {
		if w[scanGateRank].None() {
			return n
		}
		return r.linear("gate rank", w[scanGateRank], device.Tensor{}, n)
	}
	return r.linear("scan gate", w[scanGate], device.Tensor{}, n)
}

// normalizeKeys records the division of the query and the key of each head by their lengths, and of
// queries by the square root of their width. ones are weights of 1 for each element.
func (r *recording) normalizeKeys(q, k, ones device.Tensor) {
	const eps = 1e-6 // of a squared length
	width := float64(ones.Cols)
	r.RMSNorm(q, q, ones, float32(eps/width)) // has the length sqrt(width)
	r.Scale(q, float32(1/width), 0)
	r.RMSNorm(k, k, ones, float32(eps/width))
	r.Scale(k, float32(1/math.Sqrt(width)), 0)
}

// scanGates records the steps and decays of a recurrence.
func (r *recording) scanGates(l *Layer, w *weights, n device.Tensor) (step, decay device.Tensor) {
	var none device.Tensor
	a := &l.Recurrent.scan
	switch l.Recurrent.kind {
	case mamba2: // the decay depends on the step
		step = r.linear("steps", w[scanStep], w[scanDecayBias], n)
		r.Activate(step, step, device.Softplus)
		decay = r.columns("decays", step, 1, 0, a.Heads)
		r.Multiply(decay, w[scanA])
		r.Activate(decay, decay, device.Exp)
		return step, decay
	case kimiDelta:
		step = r.linear("steps", w[scanStep], none, n)
		x := n
		if !w[scanDecayRank].None() {
			x = r.linear("decay rank", w[scanDecayRank], none, n)
		}
		decay = r.linear("decays", w[scanDecay], none, x)
	default:
		if l.Recurrent.jointGates {
			both, share := r.linear("steps and decays", w[scanStepAndDecay], none, n), a.Heads/a.KeyHeads
			step = r.columns("steps", both, a.KeyHeads, 0, share)
			decay = r.columns("decays", both, a.KeyHeads, share, share)
		} else {
			step, decay = r.linear("steps", w[scanStep], none, n), r.linear("decays", w[scanDecay], none, n)
		}
	}
	r.Activate(step, step, device.Sigmoid)
	r.AddBias(decay, w[scanDecayBias])
	if bound := l.Recurrent.decayBound; bound != 0 {
		r.Multiply(decay, w[scanA])
		r.Activate(decay, decay, device.Sigmoid)
		r.Scale(decay, bound, 0)
	} else {
		r.Activate(decay, decay, device.Softplus)
		r.Multiply(decay, w[scanA])
	}
	r.Activate(decay, decay, device.Exp)
	return step, decay
}

// scanOutput records the projection of a recurrence's result out, normed and gated. gate is scanGate's.
func (r *recording) scanOutput(l *Layer, w *weights, gate, out device.Tensor) device.Tensor {
	var none device.Tensor
	if l.Recurrent.kind == kimiDelta {
		r.RMSNorm(out, out, w[scanNorm], r.m.config.Eps)
		r.Gate(out, r.linear("scan gate", w[scanGate], none, gate))
		return r.linear("proj", w[scanOut], none, out)
	}
	if l.Recurrent.kind == deltaNet {
		r.RMSNorm(out, out, w[scanNorm], r.m.config.Eps)
		r.GLU(gate, gate, out, device.SiLU)
		return r.linear("proj", w[scanOut], none, gate)
	}
	r.GLU(gate, gate, out, device.SiLU)
	if !w[scanNorm].None() {
		r.RMSNorm(gate, gate, w[scanNorm], r.m.config.Eps)
	}
	return r.linear("proj", w[scanOut], none, gate)
}

// shortConvolution records the gated convolution of LFM2 over n: Wout · (q · conv(k · v)).
func (r *recording) shortConvolution(w *weights, n device.Tensor, at int) device.Tensor {
	var none device.Tensor
	k, q, v := r.linear("scan k", w[scanK], none, n), r.linear("scan q", w[scanQ], none, n), r.linear("scan v", w[scanV], none, n)
	r.GLU(v, k, v, device.Identity)
	y := r.buffer("scan", v.Cols)
	r.Conv(y, v, w[scanVConv], none, r.s.state, at)
	r.GLU(y, q, y, device.Identity)
	return r.linear("proj", w[scanOut], none, y)
}
