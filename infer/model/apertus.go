package model

import (
	"fmt"
	"math"
	"slices"

	"m40-llm/infer/device"
)

// apertus is Apertus: the queries and keys of each head are normed, and feed-forward layers have no gates and an activation with
// parameters of their own, xIELU.
var apertus = architecture{
	neox: true,
	tensors: slices.Concat(ends, ropeFactors, norms, attention, headNorms, feedForward, []tensor{
		{slot: xieluOffset, name: "xielu_offset", shape: shape{ffnDim}, fill: -1},
	}),
	read: func(m *metadata, c *Config) {
		negative, positive, linear := m.xielu("alpha_n", len(c.Layers)), m.xielu("alpha_p", len(c.Layers)), m.xielu("beta", len(c.Layers))
		softplus := func(x float32) float32 { return float32(math.Log1p(math.Exp(float64(x)))) }
		for i := range c.Layers {
			c.Layers[i].XIELU = XIELU{Positive: softplus(positive[i]), Negative: linear[i] + softplus(negative[i]), Linear: linear[i]}
		}
	},
}

// XIELU are the factors of an activation: Positive · x² + Linear · x for positive x, and Negative · (e^x - 1 - x) + Linear · x for
// others.
type XIELU struct{ Positive, Negative, Linear float32 }

// xielu returns the value of a key for each layer. These keys lack the name of the architecture.
func (m *metadata) xielu(name string, layers int) []float32 {
	key := "xielu." + name
	values, count, array, err := m.f.First(key, layers)
	list := make([]float32, layers)
	for i := range list {
		v, ok := any(float32(0)), false
		if err == nil && len(values) > 0 {
			v = values[i%len(values)]
		}
		if list[i], ok = v.(float32); !ok || math.Abs(float64(list[i])) > 80 || list[i] != list[i] {
			err = fmt.Errorf("%s is %v for layer %d, want a number of at most 80", key, v, i)
		}
	}
	if err == nil && array && count != layers {
		err = fmt.Errorf("%s has %d values for %d layers", key, count, layers)
	}
	if err != nil {
		m.fail(err)
		return make([]float32, layers)
	}
	return list
}

// activateXIELU records x = the layer's xIELU of x. What is negative of x is -softplus(-steep · x) / steep: its error of at most
// 0.00009 near 0 has no effect there, because e^x - 1 - x is flat.
func (r *recording) activateXIELU(l *Layer, w *weights, x device.Tensor) {
	const steep = 8192
	negative, curve := r.buffer("negative part", x.Cols), r.buffer("curve", x.Cols)
	r.Copy(negative, x, device.Columns{Parts: 1, Width: x.Cols})
	r.Scale(negative, -steep, 0)
	r.Activate(negative, negative, device.Softplus)
	r.Scale(negative, -1.0/steep, 0)
	r.Activate(curve, negative, device.Exp)
	r.AddBias(curve, w[xieluOffset])
	r.Scale(negative, -1, 0)
	r.Add(curve, negative)
	r.Scale(curve, l.XIELU.Negative, 0)
	r.Activate(negative, x, device.SquaredReLU)
	r.Scale(negative, l.XIELU.Positive, 0)
	r.Add(curve, negative)
	r.Scale(x, l.XIELU.Linear, 0)
	r.Add(x, curve)
}
