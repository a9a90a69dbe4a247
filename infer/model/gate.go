package model

import "m40-llm/infer/device"

// gates are the weights of gates of attention's result: a value for each of its elements, or for each head. Those for
// heads are spread to elements by products with ones, of one input for each head.
var gates = []tensor{
	{slot: attnGate, name: "attn_gate.weight", shape: shape{gateDim, dim}},
	{slot: attnGateSpread, name: "attn_gate_spread.weight", shape: shape{spreadHeads, valueDim, one}, fill: 1},
}

func gateDim(_ *Config, l *Layer) int { return l.GateDim }

// spreadHeads is the number of heads in layers with a gate for each head.
func spreadHeads(_ *Config, l *Layer) int {
	if l.GateDim != l.Heads || l.ValueDim == 1 {
		return 0
	}
	return l.Heads
}

// gateElements gives the attention of all layers a gate for each element of its result.
func (c *Config) gateElements() {
	for i := range c.Layers {
		l := &c.Layers[i]
		l.GateDim, l.GateActivation = l.Heads*l.HeadDim, device.Sigmoid
	}
}
