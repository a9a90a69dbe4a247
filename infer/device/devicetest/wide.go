package devicetest

import (
	"math"
	"math/rand/v2"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// wide are the shapes of a wide net's additional layers.
type wide struct {
	kv            device.KV // latent
	experts, used int
	inner         int // width of an expert
	latent, turn  int // elements of a latent key that are its value, and those that are rotated
	state         device.State
	scan          device.Scan
	fullScan      device.Scan // with a decay for each element of a key
}

// widen adds the operations that the two layers of the net lack: embeddings of positions; a layer
// with LayerNorm, biases, partial rotary embeddings, sinks and a mixture of experts; a layer
// with latent attention; and two with recurrent state. All operations of a Program are then in the net.
func (n *net) widen() {
	w := &wide{experts: 6, used: 2, inner: n.ffn, latent: 24, turn: 8}
	n.wide = w
	rng := rand.New(rand.NewPCG(7, 8))
	typ := n.weights["q0"].Type
	key := w.latent + w.turn
	for _, t := range []struct {
		name       string
		typ        gguf.Type
		rows, cols int
	}{
		{"positions", gguf.F32, 128, n.dim}, {"layernorm", gguf.F32, 1, n.dim}, {"layernorm bias", gguf.F32, 1, n.dim},
		{"q bias", gguf.F32, 1, n.dim}, {"sinks", gguf.F32, 1, n.heads}, {"multiply", gguf.F32, 1, n.dim},
		{"router", gguf.F32, w.experts, n.dim}, {"router bias", gguf.F32, 1, w.experts}, {"router scales", gguf.F32, 1, w.experts},
		{"expert gate", typ, w.experts * w.inner, n.dim}, {"expert up", typ, w.experts * w.inner, n.dim},
		{"expert down", typ, w.experts * n.dim, w.inner}, {"expert bias", gguf.F32, w.experts, n.dim}, {"gate", gguf.F32, 1, n.dim},
		{"latent q", typ, n.heads * key, n.dim}, {"latent k", typ, w.latent, n.dim}, {"latent turn", typ, w.turn, n.dim},
		{"latent v", gguf.F32, n.heads * n.headDim, w.latent},
		{"conv", gguf.F32, n.dim, 4}, {"conv bias", gguf.F32, 1, n.dim}, {"steps", typ, n.heads, n.dim}, {"skip", gguf.F32, 1, n.heads},
	} {
		n.weights[t.name] = n.upload(t.typ, t.rows, t.cols, RandomWeight(rng, t.typ, t.rows, t.cols, 1/math.Sqrt(float64(t.cols))))
	}
	for name, cols := range map[string]int{
		"scores": w.experts, "routes": 2 * w.used, "expert gate": w.used * w.inner, "expert up": w.used * w.inner,
		"expert down": w.used * n.dim, "one": 1, "latent q": n.heads * key, "latent k": w.latent, "latent turn": w.turn,
		"latent key": key, "latent out": n.heads * w.latent,
		"conv": n.dim, "decays": n.heads, "steps": n.heads, "scan": n.dim, "keys": n.kvHeads * n.headDim, "queries": n.kvHeads * n.headDim,
		"all decays": n.dim,
	} {
		n.buffers[name] = n.alloc(cols)
	}
	l := n.kv.Layout
	w.kv = n.rig.kv(device.KVLayout{Type: l.Type, Blocks: l.Blocks, Layers: 1, KVHeads: 1, HeadDim: key, Latent: w.latent})
	b := n.buffers
	w.scan = device.Scan{Heads: n.heads, KeyHeads: n.kvHeads, KeyDim: n.headDim, ValueDim: n.headDim, Tiled: true, Delta: true, V: b["conv"], Decay: b["decays"], Step: b["steps"]}
	w.fullScan = w.scan
	w.fullScan.Tiled, w.fullScan.Delta, w.fullScan.Decay, w.fullScan.Skip = false, false, b["all decays"], n.weights["skip"]
	var err error
	if w.state, err = n.dev.AllocState(device.StateLayout{Slots: netSlots, Values: device.ConvValues(n.weights["conv"]) + 2*w.scan.Values()}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *net) positions(p *device.Program) {
	p.EmbedPositions(n.buffers["o"], n.weights["positions"])
	p.Add(n.buffers["x"], n.buffers["o"])
}

// mixture records the layer with a mixture of experts.
func (n *net) mixture(p *device.Program) {
	b, w, net := n.buffers, n.weights, n.wide
	p.LayerNorm(b["norm"], b["x"], w["layernorm"], w["layernorm bias"], 1e-5)
	for _, name := range []string{"q", "k", "v"} {
		p.MatMul(b[name], w[name+"0"], b["norm"])
	}
	p.AddBias(b["q"], w["q bias"])
	p.ScaleByPosition(b["q"], 0.1, 16)
	partial := device.RoPE{HeadDim: n.headDim, Dims: n.headDim / 2, Base: 1e4, Scale: 1, NeoX: true}
	p.RoPE(b["q"], partial)
	p.RoPE(b["k"], partial)
	p.StoreKV(n.kv, 2, b["k"], b["v"])
	p.Attention(b["att"], b["q"], n.kv, 2, device.Attention{Heads: n.heads, Scale: 0.25, Window: 50, Sinks: w["sinks"]})
	p.MatMul(b["o"], w["o0"], b["att"])
	p.Multiply(b["o"], w["multiply"])
	p.Add(b["x"], b["o"])

	p.RMSNorm(b["norm"], b["x"], w["norm1"], 1e-5) // a mixture that devices may compute together: nothing is between its operations
	p.MatMul(b["scores"], w["router"], b["norm"])
	p.Route(b["routes"], b["scores"], device.Routing{Experts: net.experts, Used: net.used, Normalize: true, Scale: 1})
	gated := func(activation device.Activation) {
		p.ExpertMatMul(b["expert gate"], w["expert gate"], b["norm"], b["routes"], net.experts)
		p.ExpertMatMul(b["expert up"], w["expert up"], b["norm"], b["routes"], net.experts)
		p.GLU(b["expert gate"], b["expert gate"], b["expert up"], activation)
		p.ExpertMatMul(b["expert down"], w["expert down"], b["expert gate"], b["routes"], net.experts)
	}
	gated(device.SiLU)
	p.ExpertSum(b["o"], b["expert down"], b["routes"])
	p.Add(b["x"], b["o"])

	p.RMSNorm(b["norm"], b["x"], w["norm1"], 1e-5)
	p.MatMul(b["scores"], w["router"], b["norm"])
	p.Route(b["routes"], b["scores"], device.Routing{
		Experts: net.experts, Used: net.used, Score: device.ScoreSigmoid, Normalize: true, Scale: 1.5,
		Bias: w["router bias"], Scales: w["router scales"], Groups: 3, GroupsUsed: 2,
	})
	gated(device.ClampedSwiGLU)
	p.ExpertBias(b["expert down"], w["expert bias"], b["routes"])
	p.ExpertSum(b["o"], b["expert down"], b["routes"])
	p.MatMul(b["one"], w["gate"], b["norm"])
	p.Gate(b["o"], b["one"])
	p.Add(b["x"], b["o"])
}

// latent records the layer with latent attention.
func (n *net) latent(p *device.Program) {
	b, w, net := n.buffers, n.weights, n.wide
	p.RMSNorm(b["norm"], b["x"], w["norm0"], 1e-5)
	for _, name := range []string{"latent q", "latent k", "latent turn"} {
		p.MatMul(b[name], w[name], b["norm"])
	}
	p.RoPE(b["latent turn"], device.RoPE{HeadDim: net.turn, Dims: net.turn, Base: 1e4, Scale: 1})
	p.Copy(b["latent key"], b["latent k"], device.Columns{Parts: 1, Width: net.latent})
	p.Copy(b["latent key"], b["latent turn"], device.Columns{Parts: 1, To: net.latent, Width: net.turn})
	p.StoreKV(net.kv, 0, b["latent key"], device.Tensor{})
	p.Attention(b["latent out"], b["latent q"], net.kv, 0, device.Attention{Heads: n.heads, Scale: 0.2})
	p.ExpertMatMul(b["att"], w["latent v"], b["latent out"], device.Tensor{}, n.heads)
	p.MatMul(b["o"], w["o1"], b["att"])
	p.Activate(b["o"], b["o"], device.SquaredReLU)
	p.Sparsify(b["o"], 0.1)
	p.MatchRMS(b["o"], b["norm"], 1e-5)
	p.Mix(b["x"], b["o"], device.Tensor{}, 0, n.dim)
}

// recurrent records the layers with recurrent state: a gated delta rule after a convolution, and a
// recurrence with a decay for each element of a key.
func (n *net) recurrent(p *device.Program) {
	b, w, s := n.buffers, n.weights, n.wide.state
	p.RMSNorm(b["norm"], b["x"], w["norm1"], 1e-5)
	p.MatMul(b["o"], w["o0"], b["norm"])
	p.Conv(b["conv"], b["o"], w["conv"], w["conv bias"], s, 0)
	p.MatMul(b["keys"], w["k0"], b["norm"])
	p.MatMul(b["queries"], w["k1"], b["norm"])
	p.RMSNorm(b["keys"], b["keys"], w["headnorm0"], 1e-5)
	p.Scale(b["keys"], 0.25, 0)
	p.MatMul(b["steps"], w["steps"], b["norm"])
	p.Activate(b["decays"], b["steps"], device.Softplus)
	p.Scale(b["decays"], -1, 0)
	p.Activate(b["decays"], b["decays"], device.Exp)
	p.Activate(b["steps"], b["steps"], device.Sigmoid)
	at := device.ConvValues(w["conv"])
	p.Scan(b["scan"], b["queries"], b["keys"], n.wide.scan, s, at)
	p.GLU(b["scan"], b["scan"], b["conv"], device.Identity)
	p.Add(b["x"], b["scan"])
	p.Activate(b["all decays"], b["o"], device.Sigmoid)
	p.Scan(b["scan"], b["queries"], b["keys"], n.wide.fullScan, s, at+n.wide.scan.Values())
	p.Add(b["x"], b["scan"])
}

// everyOperation fails the test if the net lacks an operation: then the suite does not check that
// its results do not depend on other rows. Write and the candidates have tests of their own.
func (n *net) everyOperation(p *device.Program) {
	n.t.Helper()
	recorded := map[device.OpKind]bool{device.OpGatherRows: true, device.OpScale: true, device.OpCandidates: true}
	for _, op := range p.Ops {
		recorded[op.Kind] = true
	}
	for _, kind := range device.OpKinds() {
		if !recorded[kind] {
			n.t.Fatalf("the net of the test for same bits lacks %s", kind)
		}
	}
}
