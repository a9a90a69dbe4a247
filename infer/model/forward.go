package model

import (
	"math"

	"m40-llm/infer/device"
)

// record writes a stage of the forward pass into p.
func (m *Model) record(p *device.Program, s *stage) {
	w, b := s.weights, s.buffers

	if s.embeds {
		p.Embed(b.X, w.TokenEmbd)
	}
	for i := range w.Layers {
		m.attention(p, s, i)
		m.feedForward(p, s, i)
	}
	if s.outputs {
		p.GatherRows(b.Last, b.X)
		p.RMSNorm(b.Last, b.Last, w.OutputNorm, m.config.Eps)
		p.MatMul(b.Logits, w.Output, b.Last)
		p.Candidates(b.Logits)
	}
}

// attention records x += Wo · attention(RoPE(Wq·n), RoPE(Wk·n), Wv·n) with
// n = RMSNorm(x).
func (m *Model) attention(p *device.Program, s *stage, i int) {
	c, l, b := m.config, s.weights.Layers[i], s.buffers

	p.RMSNorm(b.Norm, b.X, l.AttnNorm, c.Eps)
	linear(p, b.Q, l.AttnQ, l.AttnQBias, b.Norm)
	linear(p, b.K, l.AttnK, l.AttnKBias, b.Norm)
	linear(p, b.V, l.AttnV, l.AttnVBias, b.Norm)
	p.RoPE(b.Q, s.rope)
	p.RoPE(b.K, s.rope)
	p.StoreKV(s.kv, i, b.K, b.V)
	p.Attention(b.Att, b.Q, s.kv, i, device.Attention{
		Heads:  c.Heads,
		Scale:  float32(1 / math.Sqrt(float64(c.HeadDim))),
		Window: c.Window,
	})
	linear(p, b.Proj, l.AttnOutput, l.AttnOutputBias, b.Att)
	p.Add(b.X, b.Proj)
}

// feedForward records x += Wdown · (silu(Wgate·n) · Wup·n) with n = RMSNorm(x).
func (m *Model) feedForward(p *device.Program, s *stage, i int) {
	l, b := s.weights.Layers[i], s.buffers

	p.RMSNorm(b.Norm, b.X, l.FFNNorm, m.config.Eps)
	linear(p, b.Gate, l.FFNGate, l.FFNGateBias, b.Norm)
	linear(p, b.Up, l.FFNUp, l.FFNUpBias, b.Norm)
	p.SwiGLU(b.Gate, b.Gate, b.Up)
	linear(p, b.Proj, l.FFNDown, l.FFNDownBias, b.Gate)
	p.Add(b.X, b.Proj)
}

// linear records dst = w·x, plus bias if the layer has one.
func linear(p *device.Program, dst, w, bias, x device.Tensor) {
	p.MatMul(dst, w, x)
	if !bias.None() {
		p.AddBias(dst, bias)
	}
}
