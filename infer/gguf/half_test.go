package gguf

import (
	"math"
	"testing"
)

func TestF16_ConversionsAreExactOrRoundToNearest(t *testing.T) {
	t.Run("every finite half-precision number survives conversion to float32 and back", func(t *testing.T) {
		for h := range 1 << 16 {
			if h&0x7c00 == 0x7c00 && h&0x3ff != 0 {
				continue // NaN
			}
			if got := F32ToF16(F16ToF32(uint16(h))); got != uint16(h) {
				t.Fatalf("%#04x became %#04x", h, got)
			}
		}
	})
	t.Run("the values are sign · (1 + f/1024) · 2^(e-15), or sign · f · 2^-24 when e is 0", func(t *testing.T) {
		for h := range 0x7c00 {
			want := math.Ldexp(float64(h&0x3ff), -24)
			if e := h >> 10; e > 0 {
				want = math.Ldexp(1+float64(h&0x3ff)/1024, e-15)
			}
			if got := F16ToF32(uint16(h)); float64(got) != want {
				t.Fatalf("%#04x is %g, want %g", h, got, want)
			}
		}
	})
	t.Run("a number between two neighbours becomes the nearer one, or the even one at the middle", func(t *testing.T) {
		for h := range uint16(0x7bff) {
			low, high := float64(F16ToF32(h)), float64(F16ToF32(h+1))
			middle := float32((low + high) / 2)
			even := h + h&1
			for _, c := range []struct {
				x    float32
				want uint16
			}{{middle, even}, {math.Nextafter32(middle, 0), h}, {math.Nextafter32(middle, 1e6), h + 1}} {
				if got := F32ToF16(c.x); got != c.want {
					t.Fatalf("%g between %g and %g became %#04x, want %#04x", c.x, low, high, got, c.want)
				}
				if got := F32ToF16(-c.x); got != c.want|0x8000 {
					t.Fatalf("-%g became %#04x, want %#04x", c.x, got, c.want|0x8000)
				}
			}
		}
	})
	t.Run("a number that is too large becomes infinity and NaN stays NaN", func(t *testing.T) {
		for x, want := range map[float32]uint16{65519.99: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, float32(math.Inf(-1)): 0xfc00} {
			if got := F32ToF16(x); got != want {
				t.Errorf("%g became %#04x, want %#04x", x, got, want)
			}
		}
		if x := F16ToF32(F32ToF16(float32(math.NaN()))); x == x {
			t.Errorf("NaN became %g", x)
		}
	})
}
