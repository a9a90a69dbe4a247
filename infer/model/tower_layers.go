package model

import (
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// This file records the layers of vision towers, which all have the shape of a transformer's. What a layer has follows from the
// tensors of the file: biases, gates, norms of heads, norms or factors of what is added, limits of values.

// towerLayers are what the layers of a tower have that their tensors do not tell.
type towerLayers struct {
	scale      float32                                  // of scores; 0: 1/sqrt(width of a head)
	rotate     func(r *towerRecording, x device.Tensor) // RoPE of queries and keys; nil: none
	normValues bool                                     // values are normed, without weights
}

// record returns the stages of all layers, three for each: a step of other sequences does not wait for a whole layer of a large picture.
func (o towerLayers) record(r *towerRecording) (stages []towerStage) {
	for i := range r.t.layers {
		prefix, windowed := fmt.Sprintf("v.blk.%d.", i), r.t.period > 0 && (i+1)%r.t.period != 0
		stages = append(stages,
			towerStage{windowed: windowed, record: func() { o.project(r, prefix) }},
			towerStage{windowed: windowed, record: func() { o.attend(r, prefix) }},
			towerStage{ends: i + 1, record: func() { o.feedForward(r, prefix) }})
	}
	return stages
}

// attend records the attention of the layer whose tensors begin with prefix.
func (o towerLayers) attend(r *towerRecording, prefix string) {
	t := r.t
	att, proj := r.shared("attention", t.dim), r.shared("projection", t.dim)
	scale := o.scale
	if scale == 0 {
		scale = float32(1 / math.Sqrt(float64(t.dim/t.heads)))
	}
	r.Attention(att, r.shared("q", t.dim), t.kv, 0, device.Attention{Heads: t.heads, Scale: scale, Bidirectional: true})
	r.linear(proj, prefix+"attn_out", att)
	r.scaleBy(proj, prefix+"ls1")
	if name := prefix + "attn_post_norm"; r.has(name + ".weight") {
		r.norm(proj, proj, name, t.dim)
	}
	r.Add(t.features, proj)
}

// feedForward records the second half of the layer whose tensors begin with prefix.
func (o towerLayers) feedForward(r *towerRecording, prefix string) {
	t := r.t
	h, n, proj := t.features, r.shared("norm", t.dim), r.shared("projection", t.dim)
	r.norm(n, h, prefix+"ln2", t.dim)
	up, down := prefix+"ffn_up", prefix+"ffn_down"
	if w, err := r.f.Tensor(up + ".weight"); err == nil && len(w.Shape) == 2 && w.Shape[0] == t.ffn && t.ffn != t.dim {
		up, down = down, up // files of an old converter
	}
	wide := r.shared("wide", t.ffn)
	if gate := prefix + "ffn_gate"; r.has(gate + ".weight") {
		gated := r.shared("gate", t.ffn)
		r.linear(gated, gate, n)
		r.linear(wide, up, n)
		r.activate(gated, wide)
		wide = gated
	} else {
		r.linear(wide, up, n)
		r.activate(wide, device.Tensor{})
	}
	r.linear(proj, down, wide)
	r.scaleBy(proj, prefix+"ls2")
	if name := prefix + "ffn_post_norm"; r.has(name + ".weight") {
		r.norm(proj, proj, name, t.dim)
	}
	r.Add(h, proj)
}

// project records the queries, keys and values of the layer whose tensors begin with prefix.
func (o towerLayers) project(r *towerRecording, prefix string) {
	t := r.t
	n := r.shared("norm", t.dim)
	r.norm(n, t.features, prefix+"ln1", t.dim)
	q, k, v := r.shared("q", t.dim), r.shared("k", t.dim), r.shared("v", t.dim)
	if name := prefix + "attn_qkv"; r.has(name + ".weight") {
		all := r.shared("q, k and v", 3*t.dim)
		r.linear(all, name, n)
		for i, part := range []device.Tensor{q, k, v} {
			r.Copy(part, all, device.Columns{Parts: 1, From: i * t.dim, Width: t.dim})
		}
	} else {
		r.linear(q, prefix+"attn_q", n)
		r.linear(k, prefix+"attn_k", n)
		r.linear(v, prefix+"attn_v", n)
	}
	head := t.dim / t.heads
	if w, err := r.f.Tensor(prefix + "attn_q_norm.weight"); err == nil {
		width := head
		if w.Elements() == t.dim {
			width = t.dim // one norm over all heads
		}
		r.norm(q, q, prefix+"attn_q_norm", width)
		r.norm(k, k, prefix+"attn_k_norm", width)
	}
	if o.normValues {
		r.unweighted(v, v, head)
	}
	if o.rotate != nil {
		o.rotate(r, q)
		o.rotate(r, k)
	}
	r.StoreKV(t.kv, 0, k, v)
	r.Results = append(r.Results, q)
}

// scaleBy records the product of each row of x with the factors called name, if the file has them.
func (r *towerRecording) scaleBy(x device.Tensor, name string) {
	if r.has(name + ".weight") {
		r.Multiply(x, r.vector(name+".weight", x.Cols))
	}
}

// activate records x = a(x), or a(x) · up unless up is none.
func (r *towerRecording) activate(x, up device.Tensor) {
	switch {
	case r.t.activation == quickGELU:
		factor := r.shared("quick GELU", x.Cols)
		r.Copy(factor, x, device.Columns{Parts: 1, Width: x.Cols})
		r.Scale(factor, 1.702, 0)
		r.Activate(factor, factor, device.Sigmoid)
		r.GLU(x, x, factor, device.Identity)
		if !up.None() {
			r.GLU(x, x, up, device.Identity)
		}
	case up.None():
		r.Activate(x, x, r.t.activation)
	default:
		r.GLU(x, x, up, r.t.activation)
	}
}

// embedPatches records the embedding of the patches, without their positions.
func (r *towerRecording) embedPatches() { r.linear(r.t.features, "v.patch_embd", r.t.patches) }

// embedPositions records the addition of v.position_embd, which has a row for each row of a tile.
func (r *towerRecording) embedPositions() {
	n := r.shared("norm", r.t.dim)
	r.EmbedPositions(n, r.matrix("v.position_embd.weight", r.rows, r.t.dim))
	r.Add(r.t.features, n)
}

// headWidth returns the width of a head of a tower that rotates its quarters.
func (r *towerRecording) headWidth() int {
	head := r.t.dim / r.t.heads
	if head%4 != 0 {
		r.fail(fmt.Errorf("heads of %d values cannot be rotated by rows and columns, want a multiple of 4", head))
	}
	return head
}

// rotateAxis records the rotation of the pairs of each head whose frequency is not 0, by the coordinates of an axis.
func (r *towerRecording) rotateAxis(x device.Tensor, headDim int, neox bool, axis int, frequencies []float64) {
	divisors := make([]float32, len(frequencies))
	for i, f := range frequencies {
		divisors[i] = float32(1 / f) // of 0: +Inf
	}
	factors := r.upload(fmt.Sprintf("frequencies of %d on axis %d", headDim, axis), gguf.F32, 1, len(divisors), bytesOf(divisors))
	r.RoPE(x, device.RoPE{HeadDim: headDim, Dims: 2 * len(divisors), Base: 1, Scale: 1, NeoX: neox, Factors: factors, Axis: axis})
}

// clamp records the limits of x that begin with name, if the file has them, and returns the result, which is x itself if there are none.
func (r *towerRecording) clamp(name string, x device.Tensor) device.Tensor {
	if !r.has(name+"_min") && !r.has(name+"_max") {
		return x
	}
	clamped := r.shared("clamped", x.Cols)
	r.Copy(clamped, x, device.Columns{Parts: 1, Width: x.Cols})
	r.clampInPlace(name, clamped)
	return clamped
}

// clampInPlace records x = min(max(x, least), most) with the limits that begin with name, if the file has them.
func (r *towerRecording) clampInPlace(name string, x device.Tensor) {
	for _, sign := range []float32{1, -1} {
		suffix := "_min"
		if sign < 0 {
			suffix = "_max"
		}
		if !r.has(name + suffix) {
			continue
		}
		limits := r.values(name+suffix, 1)
		if limits == nil {
			return
		}
		limit := sign * limits[0]
		if math.IsInf(float64(limit), -1) {
			continue // no limit
		}
		// sign · x = limit + max(sign · x - limit, 0). The maximum is SiLU with a factor f before and 1/f after it, which differs
		// by less than 0.28/f.
		const f = 1 << 24
		r.Scale(x, sign, 0)
		r.AddBias(x, r.constant(x.Cols, -limit))
		r.Scale(x, f, 0)
		r.Activate(x, x, device.SiLU)
		r.Scale(x, 1./f, 0)
		r.AddBias(x, r.constant(x.Cols, limit))
		r.Scale(x, sign, 0)
	}
}
