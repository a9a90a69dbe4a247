package model

import "m40-llm/infer/device"

// recording writes a stage of the forward pass into a program.
type recording struct {
	*device.Program
	m *Model
	s *stage
}

// program records what a stage computes for batches of up to rows rows.
func (m *Model) program(s *stage, rows int) *device.Program {
	r := recording{device.NewProgram(rows, min(rows, m.options.MaxOut)), m, s}
	r.record()
	return r.Program
}

func (r *recording) record() {
	c, w, b := &r.m.config, &r.s.weights, &r.s.buffers

	b.X = r.buffer("x", c.Dim)
	if r.s.embeds {
		r.Embed(b.X, w[tokenEmbd])
		if c.EmbeddingScale != 0 {
			r.Scale(b.X, c.EmbeddingScale, 0)
		}
	}
	for i := range r.s.layers {
		r.attention(i)
		r.feedForward(i)
	}
	if r.s.outputs {
		last := r.gathered("last", c.Dim)
		b.Logits = r.gathered("logits", c.Vocab)
		r.GatherRows(last, b.X)
		r.RMSNorm(last, last, w[outputNorm], c.Eps)
		r.MatMul(b.Logits, w[output], last)
		if c.LogitCap != 0 {
			r.Scale(b.Logits, 1, c.LogitCap)
		}
		r.Candidates(b.Logits)
	}
}

// attention records x += Wo · attention(RoPE(Wq·n), RoPE(Wk·n), Wv·n) with
// n = RMSNorm(x), and the norms of queries, keys and of what is added that the layer has.
func (r *recording) attention(i int) {
	l, w, x := &r.m.config.Layers[r.s.first+i], &r.s.layers[i], r.s.buffers.X
	kv, layer := r.s.kv[r.s.places[i].cache], r.s.places[i].layer
	rope := l.RoPE
	rope.Factors = r.s.weights[ropeFreqs]

	n := r.norm(x, w[attnNorm])
	q := r.linear("q", w[attnQ], w[attnQBias], n)
	k := r.linear("k", w[attnK], w[attnKBias], n)
	v := r.linear("v", w[attnV], w[attnVBias], n)
	r.normInPlace(q, w[attnQNorm])
	r.normInPlace(k, w[attnKNorm])
	r.RoPE(q, rope)
	r.RoPE(k, rope)
	r.StoreKV(kv, layer, k, v)
	att := r.buffer("att", q.Cols)
	r.Attention(att, q, kv, layer, l.Attention)
	proj := r.linear("proj", w[attnOutput], w[attnOutputBias], att)
	r.normInPlace(proj, w[attnPostNorm])
	r.Add(x, proj)
}

// feedForward records x += Wdown · (a(Wgate·n) · Wup·n) with n = RMSNorm(x), and the norm of
// what is added if the layer has one. In a mixture of experts, what is added is the weighted
// sum of that over the experts that the router chooses for a row.
func (r *recording) feedForward(i int) {
	l, w, x := &r.m.config.Layers[r.s.first+i], &r.s.layers[i], r.s.buffers.X

	n := r.norm(x, w[ffnNorm])
	var proj device.Tensor
	if w[ffnRouter].None() {
		gate := r.linear("gate", w[ffnGate], w[ffnGateBias], n)
		up := r.linear("up", w[ffnUp], w[ffnUpBias], n)
		r.GLU(gate, gate, up, l.Activation)
		proj = r.linear("proj", w[ffnDown], w[ffnDownBias], gate)
	} else {
		proj = r.experts(l, w, n)
	}
	r.normInPlace(proj, w[ffnPostNorm])
	r.Add(x, proj)
}

// experts records what the experts of a layer add.
func (r *recording) experts(l *Layer, w *weights, n device.Tensor) device.Tensor {
	routes := r.buffer("routes", l.Routing.Cols())
	r.Route(routes, r.linear("router", w[ffnRouter], device.Tensor{}, n), l.Routing)
	of := func(name string, weight slot, width int, x device.Tensor) device.Tensor {
		dst := r.buffer(name, l.Routing.Used*width)
		r.ExpertMatMul(dst, w[weight], x, routes, l.Routing.Experts)
		return dst
	}
	gate := of("expert gates", ffnGateExperts, l.ExpertDim, n)
	up := of("expert ups", ffnUpExperts, l.ExpertDim, n)
	r.GLU(gate, gate, up, l.Activation)
	down := of("expert outputs", ffnDownExperts, n.Cols, gate)
	proj := r.buffer("proj", n.Cols)
	r.ExpertSum(proj, down, routes)
	return proj
}

func (r *recording) norm(x, w device.Tensor) device.Tensor {
	n := r.buffer("norm", x.Cols)
	r.RMSNorm(n, x, w, r.m.config.Eps)
	return n
}

// normInPlace records the norm of x, or of every head of it, if the layer has one.
func (r *recording) normInPlace(x, w device.Tensor) {
	if !w.None() {
		r.RMSNorm(x, x, w, r.m.config.Eps)
	}
}

// linear records w·x, plus bias if the layer has one, in the buffer name.
func (r *recording) linear(name string, w, bias, x device.Tensor) device.Tensor {
	dst := r.buffer(name, w.Rows)
	r.MatMul(dst, w, x)
	if !bias.None() {
		r.AddBias(dst, bias)
	}
	return dst
}

// buffer returns the activation called name with cols columns, for all rows of a batch.
func (r *recording) buffer(name string, cols int) device.Tensor {
	return r.s.buffer(name, r.m.options.MaxRows, cols)
}

// gathered returns an activation for the rows of a batch whose logits are wanted.
func (r *recording) gathered(name string, cols int) device.Tensor {
	return r.s.buffer(name, r.m.options.MaxOut, cols)
}
