package devicetest

import (
	"fmt"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// This file tests the operations that compute each row, or each element, by itself.

func (s Suite) rmsNorm(t *testing.T) {
	for _, cols := range []int{1, 3, 64, 100, 2049} {
		s.compare(t, fmt.Sprintf("of rows of %d", cols), 1e-6, func(r *rig) device.Tensor {
			x := r.random(cols, 3)
			r.p.RMSNorm(x, x, r.weight(gguf.F32, 1, cols), 1e-5)
			return x
		})
	}
	for _, c := range []struct{ heads, cols int }{{1, 1}, {3, 1}, {3, 7}, {5, 64}, {2, 33}, {3, 128}} {
		s.compare(t, fmt.Sprintf("of %d heads of %d", c.heads, c.cols), 1e-6, func(r *rig) device.Tensor {
			x := r.random(c.heads*c.cols, 3)
			r.p.RMSNorm(x, x, r.weight(gguf.F32, 1, c.cols), 1e-5)
			return x
		})
	}
	s.compare(t, "of rows of zeros is zero", 0, func(r *rig) device.Tensor {
		x, y := r.input(make([]float32, r.rows*64), 64), r.alloc(64)
		r.p.RMSNorm(y, x, r.weight(gguf.F32, 1, 64), 1e-5)
		return y
	})
}

func (s Suite) layerNorm(t *testing.T) {
	for _, c := range []struct{ heads, weights, cols int }{{1, 1, 1}, {1, 1, 7}, {1, 1, 100}, {1, 1, 2049}, {3, 3, 7}, {5, 1, 33}, {4, 4, 64}} {
		for _, biased := range []bool{false, true} {
			s.compare(t, fmt.Sprintf("of %d heads of %d with %d rows of weights, biases %v", c.heads, c.cols, c.weights, biased), 2e-6, func(r *rig) device.Tensor {
				x := r.random(c.heads*c.cols, 3)
				w, bias := r.weight(gguf.F32, c.weights, c.cols), device.Tensor{}
				if biased {
					bias = r.weight(gguf.F32, 1, c.heads*c.cols)
				}
				r.p.LayerNorm(x, x, w, bias, 1e-5)
				return x
			})
		}
	}
}

func (s Suite) positions(t *testing.T) {
	for _, cols := range []int{5, 64} {
		s.compare(t, fmt.Sprintf("of rows of %d", cols), 1e-6, func(r *rig) device.Tensor {
			x := r.alloc(cols)
			r.p.EmbedPositions(x, r.weight(gguf.F32, 40, cols))
			r.p.ScaleByPosition(x, 0.3, 3)
			return x
		})
	}
}

func (s Suite) activate(t *testing.T) {
	for name, activation := range map[string]device.Activation{
		"SiLU": device.SiLU, "GELU": device.GELU, "exact GELU": device.ExactGELU, "squared ReLU": device.SquaredReLU,
		"sigmoid": device.Sigmoid, "softplus": device.Softplus, "exponential": device.Exp, "identity": device.Identity,
	} {
		tolerance := 1e-6
		if activation == device.ExactGELU { // rounds what its exponential is of
			tolerance = 1e-5
		}
		for _, cols := range []int{1, 5, 100} {
			s.compare(t, fmt.Sprintf("by %s, of rows of %d", name, cols), tolerance, func(r *rig) device.Tensor {
				x := r.random(cols, 1)
				r.p.Activate(x, x, activation)
				return x
			})
		}
	}
}

func (s Suite) addBias(t *testing.T) {
	for _, cols := range []int{1, 5, 64, 1000} {
		s.compare(t, fmt.Sprintf("of rows of %d", cols), 1e-7, func(r *rig) device.Tensor {
			x := r.random(cols, 1)
			r.p.AddBias(x, r.weight(gguf.F32, 1, cols))
			return x
		})
	}
}

func (s Suite) add(t *testing.T) {
	for _, cols := range []int{1, 5, 64, 1000} {
		s.compare(t, fmt.Sprintf("of rows of %d", cols), 1e-7, func(r *rig) device.Tensor {
			x, y := r.random(cols, 1), r.random(cols, 1)
			r.p.Add(x, y)
			return x
		})
	}
}

func (s Suite) glu(t *testing.T) {
	for name, activation := range map[string]device.Activation{"SiLU": device.SiLU, "GELU": device.GELU, "exact GELU": device.ExactGELU, "clamped SwiGLU": device.ClampedSwiGLU} {
		for _, scale := range []float64{1, 40, 1e4} {
			for _, cols := range []int{1, 5, 64, 1000} {
				tolerance := 1e-6
				if activation == device.ClampedSwiGLU || activation == device.ExactGELU { // round what their exponential is of
					tolerance = 1e-5
				}
				s.compare(t, fmt.Sprintf("by %s, of rows of %d about %g in size", name, cols, scale), tolerance, func(r *rig) device.Tensor {
					gate, up := r.random(cols, scale), r.random(cols, 1)
					r.p.GLU(gate, gate, up, activation)
					return gate
				})
			}
		}
	}
}

func (s Suite) scale(t *testing.T) {
	for _, limit := range []float32{0, 0.5, 30} {
		for _, cols := range []int{1, 5, 64, 1000} {
			s.compare(t, fmt.Sprintf("of rows of %d, capped at %g", cols, limit), 5e-6, func(r *rig) device.Tensor {
				x := r.random(cols, 40)
				r.p.Scale(x, 0.7, limit)
				return x
			})
		}
	}
}

func (s Suite) gate(t *testing.T) {
	for _, c := range []struct{ gates, cols int }{{1, 1}, {1, 7}, {7, 7}, {1, 1000}, {1000, 1000}} {
		s.compare(t, fmt.Sprintf("of %d for rows of %d", c.gates, c.cols), 1e-6, func(r *rig) device.Tensor {
			x := r.random(c.cols, 1)
			r.p.Gate(x, r.random(c.gates, 5))
			return x
		})
	}
}

func (s Suite) multiply(t *testing.T) {
	for _, c := range []struct{ weights, cols int }{{1, 1}, {1, 7}, {7, 7}, {1, 1000}, {1000, 1000}} {
		s.compare(t, fmt.Sprintf("by %d rows of %d", c.weights, c.cols), 1e-7, func(r *rig) device.Tensor {
			x := r.random(c.cols, 1)
			r.p.Multiply(x, r.weight(gguf.F32, 1, c.weights))
			return x
		})
	}
}

func (s Suite) copyColumns(t *testing.T) {
	for _, c := range []struct {
		dst, src int // columns
		device.Columns
	}{
		{1, 1, device.Columns{Parts: 1, Width: 1}},
		{12, 40, device.Columns{Parts: 4, From: 3, To: 1, Width: 2}},
		{900, 300, device.Columns{Parts: 3, From: 10, To: 200, Width: 90}},
	} {
		s.compare(t, fmt.Sprintf("of %+v from rows of %d to rows of %d", c.Columns, c.src, c.dst), 0, func(r *rig) device.Tensor {
			dst := r.random(c.dst, 1)
			r.p.Copy(dst, r.random(c.src, 1), c.Columns)
			return dst
		})
	}
}

func (s Suite) mix(t *testing.T) {
	for _, c := range []struct {
		targets, sources, to, width int
		factors                     bool
	}{
		{1, 1, 0, 1, true}, {4, 4, 0, 7, true}, {4, 1, 0, 100, true}, {3, 1, 33, 33, false}, {1, 3, 0, 65, false}, {2, 5, 300, 300, true},
	} {
		s.compare(t, fmt.Sprintf("of %+v", c), 1e-6, func(r *rig) device.Tensor {
			dst, x, factors := r.random(c.to+c.targets*c.width, 1), r.random(c.sources*c.width, 1), device.Tensor{}
			if c.factors {
				factors = r.random(c.targets*c.sources, 1)
			}
			r.p.Mix(dst, x, factors, c.to, c.width)
			return dst
		})
	}
}

func (s Suite) matchRMS(t *testing.T) {
	for _, c := range []struct{ parts, cols int }{{1, 1}, {3, 7}, {3, 100}, {1, 2049}, {5, 33}} {
		s.compare(t, fmt.Sprintf("of %d parts of %d", c.parts, c.cols), 1e-6, func(r *rig) device.Tensor {
			x := r.random(c.parts*c.cols, 3)
			r.p.MatchRMS(x, r.random(c.cols, 0.1), 1e-5)
			return x
		})
	}
	s.compare(t, "with parts below the floor", 1e-6, func(r *rig) device.Tensor {
		x := r.random(3*40, 1e-4)
		r.p.MatchRMS(x, r.random(40, 1), 1e-5)
		return x
	})
}

func (s Suite) sparsify(t *testing.T) {
	for _, factor := range []float32{0, 1.6448536, -0.5} {
		for _, cols := range []int{2, 7, 48, 1000, 2049} {
			s.compare(t, fmt.Sprintf("of rows of %d by %g", cols, factor), 1e-6, func(r *rig) device.Tensor {
				x, threes := r.random(cols, 3), r.vector(slices.Repeat([]float32{3}, cols))
				r.p.AddBias(x, threes) // so that means are not about 0
				r.p.Sparsify(x, factor)
				r.p.AddBias(x, threes) // the error is relative to what was cut
				return x
			})
		}
	}
}
