package ref

import (
	"math"
	"testing"

	"m40-llm/infer/device"
)

func TestSparseMixerWeighsAnExpertAmongThoseNearIt(t *testing.T) {
	e := math.Exp
	for name, c := range map[string]struct {
		logits  []float32
		experts [2]float32
		weights [2]float64
	}{
		"experts that nothing is near have the weight 1":            {[]float32{1, 5, 3, -2}, [2]float32{1, 2}, [2]float64{1, 1}},
		"those near an expert share its weight, chosen or not":      {[]float32{5, 4.95, 4.9, 1}, [2]float32{0, 1}, [2]float64{1 / (1 + e(-0.05) + e(-0.1)), 1 / (1 + e(-0.05))}},
		"one that is chosen does not share the weight of the next":  {[]float32{2, 4, 4, 2}, [2]float32{1, 2}, [2]float64{0.5, 1}},
		"a part of a negative logit is a part of its absolute size": {[]float32{-100, -101, -99, -103}, [2]float32{2, 0}, [2]float64{1 / (1 + e(-1) + e(-2)), 1 / (1 + e(-1))}},
		"all are near where all are 0":                              {[]float32{0, 0, 0, 0}, [2]float32{0, 1}, [2]float64{0.25, 1. / 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]float32, 4)
			route(got, c.logits, device.Routing{Experts: 4, Used: 2, Scale: 1, Score: device.ScoreSparseMixer}, nil, nil)
			for i := range 2 {
				if got[i] != c.experts[i] || math.Abs(float64(got[2+i])-c.weights[i]) > 1e-6 {
					t.Errorf("choice %d is expert %g of weight %g, want %g of %g", i, got[i], got[2+i], c.experts[i], c.weights[i])
				}
			}
		})
	}
}
