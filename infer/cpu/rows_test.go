package cpu_test

import (
	"math"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// silu(x) = x / (1 + e⁻ˣ): its error is that of the exponential and of three
// roundings.
func TestSiLUIsAccurateToAFewUnitsInTheLastPlace(t *testing.T) {
	onEveryPath(t, 1, func(t *testing.T, d device.Device) {
		const n, width = 1 << 17, 1 << 12
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(-85 + 170*float64(i)/n)
		}
		ones := make([]float32, n)
		for i := range ones {
			ones[i] = 1
		}
		p := device.NewProgram(n/width, n/width)
		y := alloc(t, d, n/width, width)
		p.GLU(y, feed(t, d, p, width, x), feed(t, d, p, width, ones), device.SiLU)
		run(t, compile(t, d, p), upTo(0, n/width))
		worst, where := 0.0, float32(0)
		for r := range n / width {
			for i, got := range read(t, d, y, r) {
				v := x[r*width+i]
				want := float64(v) / (1 + math.Exp(-float64(v)))
				if off := math.Abs(float64(got)-want) / math.Max(math.Abs(want), 0x1p-126) / 0x1p-23; !(off <= worst) {
					worst, where = off, v
				}
			}
		}
		if !(worst <= 3) {
			t.Errorf("silu(%g) is off by %.1f units in the last place", where, worst)
		}
		t.Logf("largest error %.2f units in the last place, at %g", worst, where)
	})
}

func TestGLUAtTheEndsOfTheRange(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	onEveryPath(t, 1, func(t *testing.T, d device.Device) {
		gate := []float32{0, -1e30, -1000, -104, 89, 1000, 1e30, inf, nan}
		want := []float32{0, 0, 0, 0, 89, 1000, 1e30, inf, nan}
		ones := make([]float32, len(gate))
		for i := range ones {
			ones[i] = 1
		}
		p := device.NewProgram(1, 1)
		y := alloc(t, d, 1, len(gate))
		p.GLU(y, feed(t, d, p, len(gate), gate), feed(t, d, p, len(gate), ones), device.SiLU)
		run(t, compile(t, d, p), upTo(0, 1))
		for i, got := range read(t, d, y, 0) {
			if want[i] != want[i] {
				if got == got {
					t.Errorf("silu(%g) is %g", gate[i], got)
				}
			} else if got != want[i] && math.Abs(float64(got-want[i])) > 1e-36 {
				t.Errorf("silu(%g) is %g, want %g", gate[i], got, want[i])
			}
		}
	})
}

// Attention over a single position returns that position's V as the cache holds it.
func TestF16CacheRoundsToTheNearestHalf(t *testing.T) {
	v := []float32{
		0, 1, -1, 1.0004, 1.00049, 2049, 2051, 65504, 65519, -65519, // ties between neighbours go to even
		6.1e-5, 6.0e-5, 5.96e-8, 2.98e-8, 2.99e-8, 8.9e-8, 1e-9, -3.3e-6, 0.333333, -1234.56,
		65520, 1e6, float32(math.Inf(-1)),
	}
	onEveryPath(t, 1, func(t *testing.T, d device.Device) {
		for _, x := range v {
			p := device.NewProgram(1, 1)
			kv := allocKV(t, d, device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 1})
			zero, value, y := feed(t, d, p, 1, []float32{0}), feed(t, d, p, 1, []float32{x}), alloc(t, d, 1, 1)
			p.StoreKV(kv, 0, zero, value)
			p.Attention(y, zero, kv, 0, device.Attention{Heads: 1, Scale: 1})
			run(t, compile(t, d, p), upTo(0, 1))
			if got, want := read(t, d, y, 0)[0], gguf.F16ToF32(gguf.F32ToF16(x)); got != want {
				t.Errorf("%g became %g, want %g", x, got, want)
			}
		}
	})
}
