package model

import (
	"cmp"
	"math"

	"m40-llm/infer/device"
)

// recording records the forward pass of a stage in a program.
type recording struct {
	*device.Program
	m        *Model
	s        *stage
	pictures bool // of steps with pictures, whose embeddings are not recorded
	axes     bool // rows are rotated by their coordinates, not by their positions
}

// program records the forward pass of stage s for batches of up to rows rows.
func (m *Model) program(s *stage, steps steps) *device.Program {
	return m.programFor(s, steps, false, false)
}

// programFor is program, with pictures the forward pass after the embeddings, with axes that of rows with coordinates.
func (m *Model) programFor(s *stage, steps steps, pictures, axes bool) *device.Program {
	r := recording{device.NewProgram(steps.rows, min(steps.rows, m.options.MaxOut)), m, s, pictures, axes}
	switch {
	case steps.prompt:
		r.Of = device.PromptRows
	case s.ownPrompts:
		r.Of = device.AnswerRows
	}
	s.buffers.X = r.buffer("x", m.config.Dim)
	if s.embeds && !pictures {
		r.embed()
	}
	if m.config.isHead {
		r.join()
	}
	r.record()
	r.Results = s.buffers.handedOver
	if s.outputs && m.config.Embeds() {
		r.Results = []device.Tensor{s.buffers.Vectors}
	} else if s.outputs {
		r.Results = []device.Tensor{s.buffers.Logits}
		for _, t := range []device.Tensor{s.buffers.States, s.buffers.Vectors} { // for a head, or of it
			if !t.None() {
				r.Results = append(r.Results, t)
			}
		}
	}
	return r.Program
}

// embed records the embeddings of the tokens.
func (r *recording) embed() {
	c, w, b := &r.m.config, &r.s.weights, &r.s.buffers
	r.Embed(b.X, w[tokenEmbd])
	r.scale(b.X, c.EmbeddingScale, 0)
	if !w[tokenTypes].None() {
		r.AddBias(b.X, w[tokenTypes])
	}
	if !w[positionEmbd].None() {
		positions := r.buffer("positions", c.Dim)
		r.EmbedPositions(positions, w[positionEmbd])
		r.Add(b.X, positions)
	}
	r.normInPlace(b.X, w[tokenEmbdNorm], w[tokenEmbdNormBias])
}

// record records the layers, and the output of the last stage.
func (r *recording) record() {
	c, w, b := &r.m.config, &r.s.weights, &r.s.buffers

	var perLayer device.Tensor
	if c.PerLayerDim > 0 {
		perLayer = r.buffer("per layer", len(c.Layers)*c.PerLayerDim)
		if r.s.embeds {
			r.perLayer(perLayer)
		}
	}
	b.handedOver = []device.Tensor{b.X}
	var streams device.Tensor
	if c.Streams > 0 {
		streams = r.buffer("streams", c.Streams*c.Dim)
		if r.s.embeds {
			r.startStreams(streams, b.X)
		}
		b.handedOver = []device.Tensor{streams}
	}
	if !perLayer.None() {
		b.handedOver = append(b.handedOver, perLayer)
	}
	for i := range r.s.layers {
		if !streams.None() {
			r.streamsLayer(i, streams, perLayer)
			continue
		}
		r.layer(i)
		if !perLayer.None() {
			r.Add(b.X, r.perLayerBranch(i, perLayer))
		}
		if r.pictures && r.s.first+i < c.Deepstack && !(r.s.apart && i == len(r.s.layers)-1) {
			r.Add(b.X, r.s.deepstack(r.s.first+i, r.m.options.MaxRows, c.Dim))
		}
		if scale := r.s.layers[i][layerScale]; !scale.None() {
			r.Multiply(b.X, scale)
		}
	}
	if r.s.outputs {
		last := r.gathered("last", c.Dim)
		switch {
		case r.m.options.Head.Blocks > 0:
			b.States = r.buffer("states", c.Dim)
			r.normTo(b.States, b.X, w[outputNorm], w[outputNormBias])
			r.GatherRows(last, b.States)
		case streams.None():
			r.GatherRows(last, b.X)
			r.normInPlace(last, w[outputNorm], w[outputNormBias])
		default:
			r.mergeStreams(last, streams)
			r.normInPlace(last, w[outputNorm], w[outputNormBias])
		}
		if c.isHead {
			b.Vectors = last
		}
		if c.Embeds() {
			b.Vectors = r.dense(last)
			return
		}
		b.Logits = r.gathered("logits", c.Vocab)
		r.MatMul(b.Logits, w[output], last)
		if !w[outputBias].None() {
			r.AddBias(b.Logits, w[outputBias])
		}
		r.scale(b.Logits, c.LogitScale, c.LogitCap)
		if !w[suppression].None() {
			r.AddBias(b.Logits, w[suppression])
		}
		r.Candidates(b.Logits)
	}
}

// dense returns the rows of last after the dense layers of an embedding model. They have neither
// biases nor activation functions, so that it makes no difference whether rows are pooled before.
func (r *recording) dense(last device.Tensor) device.Tensor {
	for i, w := range []device.Tensor{r.s.weights[dense2], r.s.weights[dense3]} {
		if !w.None() {
			dst := r.gathered([]string{"dense 2", "dense 3"}[i], w.Rows)
			r.MatMul(dst, w, last)
			last = dst
		}
	}
	return last
}

// layer records x += attention(norm(x)) and x += feedForward(norm(x)) for layer i of the stage, or a
// recurrence instead of or in addition to attention, or one matrix in place of attention; a layer may lack one of the parts, or have it in another
// stage. Norms without weights are left out: those before a sublayer, and those of its output. If attention
// has a norm and the feed-forward layer has none, both read the one of attention. Encoders have a norm of
// each sum x instead.
func (r *recording) layer(i int) {
	n := r.s.buffers.X
	var routes device.Tensor
	if l, w := &r.m.config.Layers[r.s.first+i], &r.s.layers[i]; l.RoutesFirst {
		routes = r.routes(l, w, n)
	}
	if !r.s.experts {
		n = r.mixer(i)
	}
	if !r.s.apart || i < len(r.s.layers)-1 {
		r.feedForwardLayer(i, n, routes)
	}
}

// mixer records the attention or recurrence of layer i of the stage, and returns its input.
func (r *recording) mixer(i int) (n device.Tensor) {
	l, w, x := &r.m.config.Layers[r.s.first+i], &r.s.layers[i], r.s.buffers.X

	n = r.norm(x, w[attnNorm], w[attnNormBias])
	var again device.Tensor
	if !w[attnAgainNorm].None() {
		again = r.buffer("input", x.Cols)
		r.Copy(again, x, device.Columns{Parts: 1, Width: x.Cols})
	}
	if l.Recurs() {
		r.add(x, r.recurrent(i, n), device.Tensor{})
	}
	if l.Attends() {
		r.add(x, r.attention(i, n), w[attnPostNorm])
	}
	if l.Linear {
		r.add(x, r.linear("proj", w[attnLinear], w[attnOutputBias], n), device.Tensor{})
	}
	r.laurel(w, x, n)
	r.normInPlace(x, w[attnSumNorm], w[attnSumNormBias])
	if !again.None() {
		r.Add(x, again)
		r.normInPlace(x, w[attnAgainNorm], w[attnAgainNormBias])
	}
	return n
}

// feedForwardLayer records the feed-forward layer of layer i of the stage. n is the input of the layer's
// attention, for one that has no norm of its own; routes are those of its experts, none if they are to be chosen by its input.
func (r *recording) feedForwardLayer(i int, n, routes device.Tensor) {
	l, w, x := &r.m.config.Layers[r.s.first+i], &r.s.layers[i], r.s.buffers.X
	if !l.feedsForward() {
		return
	}
	if !w[ffnNorm].None() {
		n = r.norm(x, w[ffnNorm], w[ffnNormBias])
	}
	switch {
	case w[ffnRouter].None():
		r.add(x, r.feedForward(l, w, n), w[ffnPostNorm])
	case w[ffnDown].None():
		if routes.None() {
			routes = r.routes(l, w, n)
		}
		r.add(x, r.experts(l, w, n, routes), w[ffnPostNorm])
	default:
		r.add(x, r.feedForwardAndExperts(l, w, n), w[ffnPostNorm])
	}
	r.normInPlace(x, w[ffnSumNorm], w[ffnSumNormBias])
}

// feedForwardAndExperts records the sum of a feed-forward layer and of experts in parallel with
// it, each with norms of its own. The router reads x itself.
func (r *recording) feedForwardAndExperts(l *Layer, w *weights, n device.Tensor) device.Tensor {
	x := r.s.buffers.X
	mlp := r.buffer("feed forward", x.Cols)
	r.Copy(mlp, r.feedForward(l, w, n), device.Columns{Parts: 1, Width: x.Cols})
	r.normInPlace(mlp, w[ffnMLPPostNorm], device.Tensor{})
	route := r.buffer("router input", x.Cols)
	r.RMSNorm(route, x, w[ffnRouterNorm], r.m.config.Eps)
	r.Scale(route, float32(1/math.Sqrt(float64(x.Cols))), 0)
	routes := r.routes(l, w, route)
	proj := r.experts(l, w, r.norm(x, w[ffnExpertsNorm], device.Tensor{}), routes)
	r.normInPlace(proj, w[ffnExpertsPostNorm], device.Tensor{})
	r.Add(proj, mlp)
	return proj
}

// add records x += proj, after the norm and the scale of proj that the model has.
func (r *recording) add(x, proj, norm device.Tensor) {
	if eps := r.m.config.PostEps; eps > 0 && !norm.None() {
		r.RMSNorm(proj, proj, norm, eps)
	} else {
		r.normInPlace(proj, norm, device.Tensor{})
	}
	r.scale(proj, r.m.config.ResidualScale, 0)
	r.Add(x, proj)
}

// attention records Wo · attention(RoPE(Wq·n), RoPE(Wk·n), Wv·n) for layer i of the stage, with the
// norms of queries and keys that the layer has.
func (r *recording) attention(i int, n device.Tensor) device.Tensor {
	if r.m.config.Layers[r.s.first+i].Latent > 0 {
		return r.latentAttention(i, n)
	}
	l, w := &r.m.config.Layers[r.s.first+i], &r.s.layers[i]
	kv, layer := r.s.kv[r.s.places[i].cache], r.s.places[i].layer

	q := r.linear("q", w[attnQ], w[attnQBias], n)
	var k, v device.Tensor // none if the layer reads those of another layer
	if l.KVLayersBack == 0 {
		k = r.linear("k", w[attnK], w[attnKBias], n)
		if v = r.buffer("v", k.Cols); w[attnV].None() {
			r.Copy(v, k, device.Columns{Parts: 1, Width: k.Cols})
		} else {
			v = r.linear("v", w[attnV], w[attnVBias], n)
		}
		r.normInPlace(v, w[attnVNorm], device.Tensor{})
	}
	var gate device.Tensor
	if !w[attnGate].None() {
		gate = r.linear("attention gate", w[attnGate], device.Tensor{}, n)
	}
	if l.GatedAttention {
		gate = r.columns("attention gate", q, l.Heads, l.HeadDim, l.HeadDim)
		q = r.columns("q", q, l.Heads, 0, l.HeadDim)
	}
	norms := func(wanted bool) {
		if wanted {
			r.normInPlace(q, w[attnQNorm], w[attnQNormBias])
			if !k.None() {
				r.normInPlace(k, w[attnKNorm], w[attnKNormBias])
			}
		}
	}
	norms(!l.NormAfterRoPE)
	if rope := l.RoPE; rope.Dims > 0 {
		if !l.NoRoPEFactors {
			rope.Factors = r.ropeFactors()
		}
		r.rotate(q, rope)
		if !k.None() {
			r.rotate(k, rope)
		}
	}
	norms(l.NormAfterRoPE)
	if c := &r.m.config; c.Temperature != 0 {
		r.ScaleByPosition(q, c.Temperature, c.OriginalContext)
	}
	if !k.None() {
		r.StoreKV(kv, layer, k, v)
	}
	att := r.buffer("att", q.Cols)
	parameters := l.Attention
	parameters.Sinks = w[attnSinks]
	parameters.Spans = r.pictures && r.m.options.Pictures.Attend && (l.Window > 0 || !r.m.options.Pictures.WindowsOnly)
	r.Attention(att, q, kv, layer, parameters)
	if !gate.None() {
		r.gateAttention(l, w, att, gate)
	}
	return r.linear("proj", w[attnOutput], w[attnOutputBias], att)
}

// rotate records RoPE of x, by the coordinates of rows if these have any.
func (r *recording) rotate(x device.Tensor, rope device.RoPE) {
	if !r.axes {
		r.RoPE(x, rope)
		return
	}
	for axis := range r.m.config.Sections {
		rope.Axis, rope.Factors = axis+1, r.s.pictures.axes[axis]
		r.RoPE(x, rope)
		rope.Magnitude = 0
	}
}

// gateAttention records att = att · a(gate), where a is the layer's activation of gates, by default the sigmoid. A gate has a value
// for each element of att, or for each head.
func (r *recording) gateAttention(l *Layer, w *weights, att, gate device.Tensor) {
	if gate.Cols == att.Cols && cmp.Or(l.GateActivation, device.Sigmoid) == device.Sigmoid {
		r.Gate(att, gate)
		return
	}
	r.Activate(gate, gate, cmp.Or(l.GateActivation, device.Sigmoid))
	if gate.Cols < att.Cols {
		each := r.buffer("gates of elements", att.Cols)
		r.ExpertMatMul(each, w[attnGateSpread], gate, device.Tensor{}, l.Heads)
		gate = each
	}
	r.GLU(att, gate, att, device.Identity)
}

// ropeFactors returns the divisors of RoPE's frequencies, or none. Some models have other divisors
// for contexts longer than the original one.
func (r *recording) ropeFactors() device.Tensor {
	w := &r.s.weights
	switch {
	case !w[ropeFreqs].None():
		return w[ropeFreqs]
	case cmp.Or(r.m.options.Context, r.m.config.ContextLength) > r.m.config.OriginalContext:
		return w[ropeLong]
	}
	return w[ropeShort]
}

// feedForward records Wdown · (a(Wgate·n) · Wup·n), or Wdown · a(Wup·n) if the layer has no gate.
func (r *recording) feedForward(l *Layer, w *weights, n device.Tensor) device.Tensor {
	if w[ffnGate].None() {
		up := r.linear("up", w[ffnUp], w[ffnUpBias], n)
		if l.XIELU != (XIELU{}) {
			r.activateXIELU(l, w, up)
		} else {
			r.Activate(up, up, l.Activation)
		}
		return r.linear("proj", w[ffnDown], w[ffnDownBias], up)
	}
	gate := r.linear("gate", w[ffnGate], w[ffnGateBias], n)
	if l.Sparse {
		r.Sparsify(gate, l.SparsityScale)
	}
	up := r.linear("up", w[ffnUp], w[ffnUpBias], n)
	r.GLU(gate, gate, up, l.Activation)
	return r.linear("proj", w[ffnDown], w[ffnDownBias], gate)
}

// routes records the choice of experts by the router, whose input is x.
func (r *recording) routes(l *Layer, w *weights, x device.Tensor) device.Tensor {
	routing := l.Routing
	routing.Bias, routing.Scales = w[ffnSelectionBias], w[ffnExpertScales]
	routes := r.buffer("routes", routing.Cols())
	r.Route(routes, r.linear("router", w[ffnRouter], w[ffnRouterBias], x), routing)
	return routes
}

// experts records a mixture of experts: the weighted sum of the feed-forward layers over n of the experts in routes, plus the shared experts.
func (r *recording) experts(l *Layer, w *weights, n, routes device.Tensor) device.Tensor {
	routing := l.Routing
	linear := func(name string, weight, bias slot, width int, x device.Tensor) device.Tensor {
		dst := r.buffer(name, routing.Used*width)
		r.ExpertMatMul(dst, w[weight], x, routes, routing.Experts)
		if !w[bias].None() {
			r.ExpertBias(dst, w[bias], routes)
		}
		return dst
	}
	gate := r.gatedExperts(l, w, linear, n)
	down := linear("expert outputs", ffnDownExperts, ffnDownExpertsBias, n.Cols, gate)
	proj := r.buffer("proj", n.Cols)
	r.ExpertSum(proj, down, routes)
	if !w[ffnSharedDown].None() {
		r.Add(proj, r.shared(l, w, n))
		if l.SharedMean {
			r.Scale(proj, 0.5, 0)
		}
	}
	return proj
}

// gatedExperts records a(Wgate·n) · Wup·n of each expert, or a(Wup·n) if experts have no gates. linear
// records a product of each expert.
func (r *recording) gatedExperts(l *Layer, w *weights, linear func(name string, weight, bias slot, width int, x device.Tensor) device.Tensor, n device.Tensor) device.Tensor {
	if !w[ffnGateUpExperts].None() {
		used := l.Routing.Used
		both := linear("expert gates and ups", ffnGateUpExperts, ffnGateExpertsBias, 2*l.ExpertDim, n)
		gate, up := r.columns("expert gates", both, used, 0, l.ExpertDim), r.columns("expert ups", both, used, l.ExpertDim, l.ExpertDim)
		r.GLU(gate, gate, up, l.Activation)
		return gate
	}
	if w[ffnGateExperts].None() {
		up := linear("expert ups", ffnUpExperts, ffnUpExpertsBias, l.ExpertDim, n)
		r.Activate(up, up, l.Activation)
		return up
	}
	gate := linear("expert gates", ffnGateExperts, ffnGateExpertsBias, l.ExpertDim, n)
	up := linear("expert ups", ffnUpExperts, ffnUpExpertsBias, l.ExpertDim, n)
	if l.ReLU {
		r.rectifiedGLU(gate, up)
	} else {
		r.GLU(gate, gate, up, l.Activation)
	}
	return gate
}

// shared records the experts that every row uses, times their gate if they have one.
func (r *recording) shared(l *Layer, w *weights, n device.Tensor) device.Tensor {
	var none device.Tensor
	var gate device.Tensor
	if !w[ffnSharedGate].None() {
		gate = r.linear("gate", w[ffnSharedGate], none, n)
	}
	hidden := r.linear("up", w[ffnSharedUp], none, n)
	if gate.None() {
		r.Activate(hidden, hidden, l.Activation)
	} else {
		r.GLU(gate, gate, hidden, l.Activation)
		hidden = gate
	}
	shared := r.linear("shared", w[ffnSharedDown], none, hidden)
	if !w[ffnSharedInput].None() {
		r.Gate(shared, r.linear("shared gate", w[ffnSharedInput], none, n))
	}
	return shared
}

// norm returns the norm of x, or x if there are no weights.
func (r *recording) norm(x, w, bias device.Tensor) device.Tensor {
	if w.None() {
		return x
	}
	n := r.buffer("norm", x.Cols)
	r.normTo(n, x, w, bias)
	return n
}

// normInPlace records x = the norm of x, or of each head of x, if there are weights.
func (r *recording) normInPlace(x, w, bias device.Tensor) {
	if !w.None() {
		r.normTo(x, x, w, bias)
	}
}

// normTo records dst = the norm of x: LayerNorm or RMSNorm.
func (r *recording) normTo(dst, x, w, bias device.Tensor) {
	if c := &r.m.config; c.LayerNorm {
		r.LayerNorm(dst, x, w, bias, c.Eps)
	} else {
		r.RMSNorm(dst, x, w, c.Eps)
	}
}

// scale records x = x · factor, then the soft cap; 0 for either: not.
func (r *recording) scale(x device.Tensor, factor, cap float32) {
	if factor != 0 && factor != 1 || cap != 0 {
		r.Scale(x, cmp.Or(factor, 1), cap)
	}
}

// linear records w·x, plus bias unless that is None, and returns the result in the buffer name.
func (r *recording) linear(name string, w, bias, x device.Tensor) device.Tensor {
	dst := r.buffer(name, w.Rows)
	r.MatMul(dst, w, x)
	if !bias.None() {
		r.AddBias(dst, bias)
	}
	return dst
}

// buffer returns the activation called name with cols columns and a row for each row of a batch.
func (r *recording) buffer(name string, cols int) device.Tensor {
	return r.s.buffer(name, r.m.options.MaxRows, cols)
}

// gathered returns an activation with a row for each row of a batch whose logits are computed.
func (r *recording) gathered(name string, cols int) device.Tensor {
	return r.s.buffer(name, r.m.options.MaxOut, cols)
}
